"""Checkers that speak for many: a word out of several, a library that comes with an extra.

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


def check_extra(what: str, library: str, extra: str) -> None:
    """Say how to install a library that only some users need, where it is not there."""
    if find_spec(library) is None:
        raise FewviewError(
            f"{what} need {library}, which is not installed: pip install 'fewview[{extra}]'"
        )
