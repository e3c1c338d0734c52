"""The error that users see, and the checks that many modules share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fewview
from fewview.errors import (
    FewviewError,
    FewviewWarning,
    check_count,
    check_dimensions,
    check_extra,
    check_word,
    shorten,
)


def test_errors_are_value_errors_of_the_package() -> None:
    assert issubclass(fewview.FewviewError, ValueError)
    assert fewview.FewviewError is FewviewError
    assert FewviewError.__module__ == "fewview"
    assert issubclass(FewviewWarning, UserWarning)


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more")]
)
def test_lists_are_shortened(count: int, text: str) -> None:
    assert shorten(range(count), 3) == text


def test_right_things_pass() -> None:
    check_word("colour 'red'", "red", ("red", "blue"))
    check_dimensions("view 'a'", 2, 2)
    check_count("", "ids", 3, 3)
    check_extra("arrays", "numpy", "frames")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: check_word("colour 'grey'", "grey", ("red", "blue")),
            "colour 'grey' is not one of red, blue",
        ),
        (lambda: check_word("colour ['red']", ["red"], ("red",)), "is not one of red"),
        (
            lambda: check_dimensions("view 'a'", 1, 2),
            r"view 'a' has 1 dimension\(s\); it must be 2-D, samples by features",
        ),
        (lambda: check_dimensions("", 3, 1), r"^has 3 dimension\(s\); it must have 1"),
        (lambda: check_count("y has ", "labels", 3, 2), "y has 3 labels for 2 samples; give one"),
        (
            lambda: check_extra("poems", "no_such_library", "poetry"),
            r"poems need no_such_library, .*: pip install 'fewview\[poetry\]'",
        ),
    ],
)
def test_wrong_things_are_named(call: Callable[[], None], message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        call()
