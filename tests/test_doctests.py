"""Every example in every docstring of the package is run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fewview

MODULES = [
    "fewview",
    *(
        module.name
        for module in pkgutil.walk_packages(fewview.__path__, "fewview.")
        if not module.name.endswith("__main__")
    ),
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FINDER = doctest.DocTestFinder(exclude_empty=True)


def examples(name: str) -> list[doctest.DocTest]:
    return [test for test in FINDER.find(importlib.import_module(name)) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    for test in examples(name):
        said: list[str] = []
        doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
        assert not said, f"{test.name}\n{''.join(said)}"


def test_examples_are_found() -> None:
    found = sum(len(examples(name)) for name in MODULES if name.startswith("fewview.samples"))
    assert found > 15


def test_no_example_is_switched_off() -> None:
    for name in MODULES:
        for test in examples(name):
            for example in test.examples:
                assert doctest.SKIP not in example.options, f"{test.name}: {example.source}"
