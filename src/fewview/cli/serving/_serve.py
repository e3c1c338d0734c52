"""`fewview serve`: a page on this machine to join tables, fit, predict and ask what if."""

from __future__ import annotations

from typing import Annotated

import typer

from fewview.cli._text import shows


@shows(
    "fewview serve", "opens the page in a browser; Ctrl-C stops it and forgets everything",
    "fewview serve --no-browser --port 8000", "prints the address only",
)  # fmt: skip
def serve(
    port: Annotated[int, typer.Option(help="Port of this machine; 0 takes a free one.")] = 0,
    megabytes: Annotated[
        int, typer.Option(min=1, help="Size that all files together may have.")
    ] = 200,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open nothing.")
    ] = False,
) -> None:
    """Open a page to drop tables on, see how they join, fit, predict and switch views off.

    Only this machine can reach it, and only with the address printed, which has a secret in it.
    Files are kept while it runs and forgotten when it stops.
    """
    import webbrowser

    from fewview.cli._text import say
    from fewview.report.pages._server import LocalServer

    with LocalServer(port, megabytes * 10**6) as server:
        print(server.address, flush=True)
        say("this address is for you alone; stop with Ctrl-C, and everything is forgotten")
        if not no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped; nothing was kept")
