"""The checkers that speak for many: right things pass, wrong ones get the one message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fewview.ground._checkers import check_count, check_dimensions, check_extra, check_word
from fewview.ground._errors import FewviewError


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
