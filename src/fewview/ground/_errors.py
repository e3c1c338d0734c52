"""The one exception that fewview raises for bad input.

It is a `ValueError`, so that callers who know nothing of fewview catch it; the command line turns
it into one clear message and exit status 2.
"""

from __future__ import annotations


class FewviewError(ValueError):
    """Something about the input is wrong; the message says what, where, and what to do.

    Example:
        >>> raise FewviewError("view 'rna': row 3 holds an infinity; replace it or drop the row")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: view 'rna': row 3 holds an infinity; replace it or ...
    """


FewviewError.__module__ = "fewview"  # where users find it, and what a traceback says


class FewviewWarning(UserWarning):
    """Something is allowed but probably not what the user wants."""


def shorten(items: object, limit: int = 5) -> str:
    """Write a list of names or rows for a message, at most `limit` of them."""
    values = [str(item) for item in items]  # type: ignore[attr-defined]
    if len(values) <= limit:
        return ", ".join(values)
    return ", ".join(values[:limit]) + f" and {len(values) - limit} more"
