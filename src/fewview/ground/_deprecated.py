"""What is on its way out: the old way works for one minor version and says what to write instead.

`renamed` keeps an old parameter of a function (of a method: `_renamed` of its class), `leaving` an
old function, and `RENAMED_WORDS` an old command or flag. All are noted in `DECLARED`, and a test
fails when the version has come in which they were to be gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
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


def current_name(
    old: str, table: Mapping[str, tuple[str, str]], where: str = "fewview", shown: str = ""
) -> str:
    """The name that something has now, with a warning where an old one was given.

    Args:
        old: as given.
        table: old name -> name now, and the version that has it first.
        where: what it belongs to, for the warning.
        shown: how `old` was written, where that is not its key in the table.

    Example:
        >>> current_name("eta", {"rate": ("eta", "0.2")})
        'eta'
    """
    if old not in table:
        return shown or old
    new, since = table[old]
    _warn(
        f"{where}: {shown or old!r} is called {new!r} since fewview {since}; the old name goes in "
        f"{gone_in(since)}"
    )
    return new


def current_words(words: Sequence[str], table: Mapping[str, tuple[str, str]]) -> list[str]:
    """A command line with old commands and flags under their names of now, with warnings.

    Args:
        words: as typed, without the program.
        table: command, or command and flag -> word now, and the version that has it first.

    Example:
        >>> table = {"bench --rate": ("--eta", "0.2"), "cure": ("doctor", "0.2")}
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     print(current_words(["bench", "digits", "--rate=0.3"], table))
        ...     print(caught[0].message)
        ['bench', 'digits', '--eta=0.3']
        bench: '--rate' is called '--eta' since fewview 0.2; the old name goes in 0.3
    """
    out: list[str] = []
    ends = words.index("--") if "--" in words else len(words)
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        for depth in (2, 1, 0) if place < ends else ():
            command = " ".join(out[:depth])
            key = f"{command} {flag}".strip()
            if key in table and (flag.startswith("-") or place == depth):
                flag = current_name(key, table, command or "fewview", flag)
                break
        out.append(f"{flag}{equals}{value}")
    return out


def _warn(message: str) -> None:
    # A FewviewWarning is shown by default, and the command line prints it as one line.
    warnings.warn(message, FewviewWarning, stacklevel=3)


# Old commands and flags; none since a release.
RENAMED_WORDS: dict[str, tuple[str, str]] = {}
DECLARED += [(old, gone_in(since)) for old, (_, since) in RENAMED_WORDS.items()]
