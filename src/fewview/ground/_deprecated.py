"""What is on its way out: the old way works for one minor version and says what to write instead.

`renamed` keeps an old parameter, `leaving` an old function. Both note themselves in `DECLARED`, and
a test fails when the version has come in which they were to be gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fewview.ground._errors import FewviewError, FewviewWarning

P = ParamSpec("P")
R = TypeVar("R")
DECLARED: list[tuple[str, str]] = []  # what, and the version in which it goes


def gone_in(since: str) -> str:
    """The version in which something goes that is deprecated since a version: the next minor one.

    Example:
        >>> gone_in("0.2.1")
        '0.3'
    """
    major, minor = since.split(".")[:2]
    return f"{major}.{int(minor) + 1}"


def renamed(old: str, new: str, since: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take a parameter by its old name too, with a warning.

    Args:
        old: name that scripts still use.
        new: name of the parameter now.
        since: version that has the new name first.

    Example:
        >>> @renamed("rate", "eta", since="0.2")
        ... def f(eta): return eta
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     print(f(rate=0.5), caught[0].message)
        0.5 f: 'rate' is called 'eta' since fewview 0.2; the old name goes in 0.3
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]
        DECLARED.append((f"{function.__module__}.{called}({old})", gone_in(since)))

        @wraps(function)
        def both(*args: Any, **named: Any) -> R:
            if old in named:
                if new in named:
                    raise FewviewError(f"{called}: {old!r} is the old name of {new!r}; give one")
                _warn(
                    f"{called}: {old!r} is called {new!r} since fewview {since}; the old name goes "
                    f"in {gone_in(since)}"
                )
                named[new] = named.pop(old)
            return function(*args, **named)

        return both

    return decorate


def leaving(instead: str, since: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function that goes warn when it is called.

    Args:
        instead: what to write in its place.
        since: version that warns first.

    Example:
        >>> @leaving("fewview.load", since="0.2")
        ... def old_load(): return 1
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     print(old_load(), caught[0].message)
        1 old_load goes in fewview 0.3; use fewview.load
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.rpartition("<locals>.")[2]
        DECLARED.append((f"{function.__module__}.{called}", gone_in(since)))

        @wraps(function)
        def warning(*args: P.args, **named: P.kwargs) -> R:
            _warn(f"{called} goes in fewview {gone_in(since)}; use {instead}")
            return function(*args, **named)

        return warning

    return decorate


def _warn(message: str) -> None:
    # A FewviewWarning is shown by default, and the command line prints it as one line.
    warnings.warn(message, FewviewWarning, stacklevel=3)
