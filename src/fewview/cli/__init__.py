"""How is it run? The `fewview` command: thin, one file per group of commands.

Commands import what they need when they run, so that `fewview --help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    """Run the `fewview` command; wrong input is one message and exit status 2."""
    import signal
    import threading
    import warnings

    from fewview.cli._app import app
    from fewview.errors import FewviewError, FewviewWarning
    from fewview.ground._lazy import HARDLY_USED, postpone

    postpone(*HARDLY_USED)
    usual = warnings.formatwarning

    def one_line(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> str:
        if issubclass(category, FewviewWarning):
            return f"warning: {message}\n"
        return usual(message, category, *rest, **more)

    warnings.formatwarning = one_line
    if threading.current_thread() is threading.main_thread():
        # What schedulers of clusters send before they kill: what is half done is cleared away.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(prog_name="fewview")
    except FewviewError as error:
        from fewview.cli._text import say

        say(f"error: {error}")
        sys.exit(2)
