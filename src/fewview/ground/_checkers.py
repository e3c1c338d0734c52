"""Checkers that speak for many: words, dimensions, counts, libraries of an extra.

Only faults of one kind that occur in several rooms live here, each with its one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from fewview.ground._errors import FewviewError


def check_word(called: str, word: object, words: Iterable[str]) -> None:
    """Refuse a word that is none of `words`; `called` is how the message calls it."""
    known = tuple(words)
    if word not in known:
        raise FewviewError(f"{called} is not one of {', '.join(known)}")


def check_dimensions(called: str, found: int, wanted: int) -> None:
    """Refuse an array of another number of dimensions."""
    if found != wanted:
        told = "be 2-D, samples by features" if wanted == 2 else f"have {wanted}"
        raise FewviewError(f"{called} has {found} dimension(s); it must {told}".lstrip())


def check_count(called: str, what: str, found: int, wanted: int, of: str = "samples") -> None:
    """Refuse one number of things where there is another of what they belong to."""
    if found != wanted:
        raise FewviewError(f"{called}{found} {what} for {wanted} {of}; give one for each")


def check_extra(what: str, library: str, extra: str) -> None:
    """Say how to install a library that only some users need, where it is not there."""
    if find_spec(library) is None:
        raise FewviewError(
            f"{what} need {library}, which is not installed: pip install 'fewview[{extra}]'"
        )
