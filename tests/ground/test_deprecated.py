"""Old ways work for one minor version, warn where they are used, and are then taken out."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings

import pytest

import fewview
from fewview.ground import _deprecated
from fewview.ground._deprecated import gone_in, leaving, renamed
from fewview.ground._errors import FewviewError, FewviewWarning


@pytest.fixture(autouse=True)
def same_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_deprecated, "DECLARED", [])


def test_an_old_parameter_works_and_warns_at_the_caller() -> None:
    class Thing:
        @renamed("rate", "eta", since="0.2.0")
        def __init__(self, eta: float, n: int = 1) -> None:
            self.value = (eta, n)

    with pytest.warns(
        FewviewWarning, match=r"^Thing: 'rate' is called 'eta'.*goes in 0\.3"
    ) as told:
        assert Thing(rate=0.5, n=2).value == (0.5, 2)  # type: ignore[call-arg]
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Thing(0.5).value == Thing(eta=0.5).value == (0.5, 1)
    with pytest.raises(FewviewError, match="give one"):
        Thing(rate=0.5, eta=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="other"):
        Thing(other=0.5)  # type: ignore[call-arg]
    assert list(inspect.signature(Thing).parameters) == ["eta", "n"]
    assert [(name.rpartition(".")[2], gone) for name, gone in _deprecated.DECLARED] == [
        ("Thing(rate)", "0.3")
    ]


def test_a_function_that_goes_warns() -> None:
    @leaving("f", since="1.9")
    def g(x: int) -> int:
        """Old."""
        return x

    with pytest.warns(FewviewWarning, match=r"^g goes in fewview 1\.10; use f$"):
        assert g(3) == 3
    assert g.__doc__ == "Old."


def expired(declared: list[tuple[str, str]], version: str) -> list[str]:
    def number(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".")[:2])

    return [name for name, gone in declared if number(version) >= number(gone)]


def test_nothing_outstays_its_minor_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for module in pkgutil.walk_packages(fewview.__path__, "fewview."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert expired(_deprecated.DECLARED, fewview.__version__) == [], "take these out"


def test_what_outstays_would_be_found() -> None:
    declared = [("a", gone_in("0.2")), ("b", gone_in("0.9")), ("c", gone_in("0.10"))]
    assert expired(declared, "0.10.3") == ["a", "b"]
    assert expired(declared, "0.2.9") == []
