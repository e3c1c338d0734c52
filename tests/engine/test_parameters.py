"""One checker speaks for the ranges of numbers of all methods; presets and options."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError
from fewview.engine._parameters import check_numbers, follow_preset, gather_options

RULES: dict[str, Any] = {
    "positive": ("rate", "sizes"), "not_negative": ("tolerance",), "shares": ("share",),
    "whole": {"rounds": 1},
}  # fmt: skip
GOOD = {"rate": 0.1, "sizes": (1, 2), "tolerance": 0, "share": 1.0, "rounds": 3}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rate", 0, "rate is 0; it must be positive"),
        ("rate", "fast", "rate is 'fast'; it must be positive"),
        ("rate", float("nan"), "positive"),
        ("sizes", (3, 0), "must be positive"),
        ("tolerance", -1e-9, "tolerance is -1e-09; it must be >= 0"),
        ("share", 1.5, "share is 1.5; it must be a number from 0 to 1"),
        ("share", True, "share is True"),
        ("rounds", 0, "rounds is 0; it must be a whole number >= 1"),
        ("rounds", 2.0, "whole number"),
    ],
)
def test_numbers_out_of_range(name: str, value: Any, message: str) -> None:
    for kind in (dict, SimpleNamespace):  # settings, or a method
        with pytest.raises(FewviewError) as caught:
            check_numbers(kind(**{**GOOD, name: value}), **RULES)
        assert message in str(caught.value)


def test_numbers_in_range() -> None:
    for change in ({}, {"rounds": np.int64(1), "rate": np.float32(2)}, dict.fromkeys(GOOD)):
        check_numbers({**GOOD, **change}, **RULES)


def test_presets_fill_what_is_not_given() -> None:
    method = SimpleNamespace(width=None, epochs=0, name="mine")
    settings = follow_preset(method, {"width": 64, "epochs": 100})
    assert settings == {"width": 64, "epochs": 0}

    @dataclass
    class Options:
        width: int
        name: str

    assert gather_options(Options, method, settings) == Options(64, "mine")
