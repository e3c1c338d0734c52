"""The local page: a small server on this machine alone, for whoever has its address.

It listens on the loopback interface, answers only requests that name it as their host and carry the
token of its address, takes files of limited size, and opens no path that a request names.
"""

from __future__ import annotations

import hmac
import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fewview.errors import FewviewError
from fewview.report.pages._session import SETS, Session, choices
from fewview.report.pages._shell import make_page

HOST = "127.0.0.1"
MOST_JSON = 1 << 20
SCRIPTS = ("sorting.js", "samples.js", "serve.js")
# Nothing is kept by the browser, framed by another page, or told to one that a link leads to.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LocalServer(ThreadingHTTPServer):
    """Serves one session; `address` is what to open.

    Args:
        port: 0 takes a free one.
        most_bytes: of all files together.

    Example:
        >>> with LocalServer() as server:
        ...     server.address.startswith("http://127.0.0.1:")
        True
    """

    daemon_threads = True
    # Only one server may have the port.
    allow_reuse_address = False

    def __init__(self, port: int = 0, most_bytes: int = 200 * 10**6) -> None:
        self.session = Session(most_bytes)  # first: a port that is taken closes it again
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise FewviewError(f"--port {port}: {error}; choose another, or 0 for any") from None
        self.token = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """Hosts that requests may name."""
        return (f"{HOST}:{self.server_port}", f"localhost:{self.server_port}")

    def server_close(self) -> None:
        """Stop, and forget everything."""
        super().server_close()
        self.session.close()


class RefusedError(Exception):
    """A request that is not answered, and the status that says so."""


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    server_version, sys_version = "fewview", ""
    timeout = 60  # seconds that a client may be silent

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's business."""

    def do_GET(self) -> None:
        """The page, how far the job is, the table."""
        self._guarded(self._get)

    def do_POST(self) -> None:
        """Everything that changes something."""
        self._guarded(self._post)

    def _guarded(self, answer: Any) -> None:
        try:
            answer(self._checked_path())
        except RefusedError as refused:
            self.close_connection = True
            self._send(refused.args[0], b"refused\n", "text/plain")
        except FewviewError as error:
            self._send_json(self.server.session.explained(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _checked_path(self) -> str:
        """What is asked for, if the request comes from our own page."""
        if self.headers.get("Host", "") not in self.server.hosts:
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST)
        token, _, path = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise RefusedError(HTTPStatus.NOT_FOUND)
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            raise RefusedError(HTTPStatus.FORBIDDEN)
        if self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise RefusedError(HTTPStatus.FORBIDDEN)
        return path

    def _get(self, path: str) -> None:
        session = self.server.session
        if path == "":
            text = make_page(
                "serve.html", SCRIPTS, title="Classify from a few examples",
                summary="A page of this machine alone. Nothing leaves it, nothing is kept.",
                methods=choices(), most=session.most_bytes, sets=SETS,
            )  # fmt: skip
            self._send(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8")
        elif path == "state":
            self._send_json(session.state())
        elif path == "result":
            self._send_json(session.result())
        elif path == "predictions.csv":
            self._send(HTTPStatus.OK, session.table().encode(), "text/csv; charset=utf-8")
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND)

    def _post(self, path: str) -> None:
        session, size = self.server.session, self._size()
        if path == "upload":
            asked = parse_qs(urlsplit(self.path).query)
            name = f"{asked.get('set', ['tables'])[0]}/{asked.get('name', [''])[0]}"
            if size > session.left(name):
                raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            session.add(name, self.rfile, size)
            self._send_json({})
            return
        if size > MOST_JSON:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self.headers.get_content_type() != "application/json":
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        given = self._given(size)
        labels, key = given.text("labels"), given.text("key")
        if path == "look":
            self._send_json(session.look(labels, key))
        elif path == "remove":
            session.remove(given.text("name") or "")
            self._send_json({})
        elif path == "forget":
            session.forget()
            self._send_json({})
        elif path == "fit":
            seconds = given.number("seconds") or 60
            session.start(labels, key, given.texts("new"), given.text("method") or "", seconds)
            self._send_json({})
        elif path == "what-if":
            self._send_json(
                session.what_if(given.texts("off"), given.number("row"), given.texts("everywhere"))
            )
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND)

    def _size(self) -> int:
        text = self.headers.get("Content-Length", "")
        if not text.isascii() or not text.isdigit():
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED)
        return int(text)

    def _given(self, size: int) -> _Given:
        try:
            values = json.loads(self.rfile.read(size) or b"{}")
        except ValueError:
            raise RefusedError(HTTPStatus.BAD_REQUEST) from None
        if not isinstance(values, dict):
            raise RefusedError(HTTPStatus.BAD_REQUEST)
        return _Given(values)

    def _send_json(self, values: dict[str, Any]) -> None:
        self._send(HTTPStatus.OK, json.dumps(values).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)


class _Given:
    """What a request gives, of the kinds that are expected."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def _get(self, name: str, kind: type, default: Any) -> Any:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            raise RefusedError(HTTPStatus.BAD_REQUEST)
        return value

    def text(self, name: str) -> str | None:
        """A text; None where it is empty."""
        return self._get(name, str, None) or None

    def number(self, name: str) -> int | None:
        """A whole number."""
        out: int | None = self._get(name, int, None)
        return out

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        out: list[str] = self._get(name, list, [])
        if not all(isinstance(text, str) for text in out):
            raise RefusedError(HTTPStatus.BAD_REQUEST)
        return out
