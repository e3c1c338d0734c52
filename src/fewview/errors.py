"""The exception and the warning of fewview, and the checks that many modules share."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


class FewviewError(ValueError):
    """Something about the input is wrong; the message says what, where, and what to do.

    It is a `ValueError`, so that callers who know nothing of fewview catch it; the command line
    turns it into one message and exit status 2.

    Example:
        >>> raise FewviewError("view 'rna': row 3 holds an infinity; replace it or drop the row")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: view 'rna': row 3 holds an infinity; replace it or ...
    """


FewviewError.__module__ = "fewview"  # where users find it, and what a traceback says


class FewviewWarning(UserWarning):
    """Something is allowed but probably not what the user wants."""


def shorten(items: Iterable[object], limit: int = 5) -> str:
    """Write a list of names or rows for a message, at most `limit` of them.

    Example:
        >>> shorten("abcd", 2)
        'a, b and 2 more'
    """
    values = [str(item) for item in items]
    if len(values) <= limit:
        return ", ".join(values)
    return ", ".join(values[:limit]) + f" and {len(values) - limit} more"


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
