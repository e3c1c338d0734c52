"""Fetching, against a small HTTP server on this machine; nothing here touches a network."""

from __future__ import annotations

import io
import socket
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fewview.datasets import fetch, get_spec, load, names
from fewview.samples import FewviewError, MultiViewData

HANDWRITTEN = "/static/public/72/multiple+features.zip"
LEAVES = "/static/public/241/one+hundred+plant+species+leaves+data+set.zip"
FILES = {"margin": "data_Mar_64.txt", "shape": "data_Sha_64.txt", "texture": "data_Tex_64.txt"}


@dataclass
class Server:
    """Answers of the server by path: bytes, or a status; and which paths were asked for."""

    url: str = ""
    answers: dict[str, bytes | int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cut_after: int | None = None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            answer = state.answers.get(self.path, 404)
            if isinstance(answer, int):
                self.send_error(answer)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: state.cut_after])

        def log_message(self, *args: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    # Every test waits this long (in seconds) for its end.
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{listener.server_address[1]}"
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join(timeout=10)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Send temporary files to a folder of the test, to see that none is left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def zipped(texts: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def handwritten_texts(data: MultiViewData) -> dict[str, str | bytes]:
    """Write the views as UCI does: numbers between blanks, one line per sample."""
    texts: dict[str, str | bytes] = {"mfeat.info": "not a view"}
    for view, block in data.views.items():
        # As text, a float32 is the shortest decimal that gives the same float32 back.
        texts[f"mfeat-{view}"] = "\n".join("  " + "  ".join(row) for row in block.astype(str))
    return texts


def leaves_texts(
    data: MultiViewData, folder: str = "", species: list[str] | None = None
) -> dict[str, str | bytes]:
    """Write the views as UCI does: species, then 64 numbers; the first texture row is missing."""
    kinds = species or ["Acer Campestre", *(f"Betula No{k:02d}" for k in range(99))]
    texts: dict[str, str | bytes] = {}
    for view, file in FILES.items():
        lines = [
            ",".join([kinds[code], *row])
            for code, row in zip(data.codes.tolist(), data.view(view).astype(str), strict=True)
        ]
        texts[folder + file] = "\n".join(lines[1:] if view == "texture" else lines) + "\n"
    return texts


def test_handwritten(server: Server, real_data: Path, tmp_path: Path, scratch: Path) -> None:
    expected = load("handwritten", real_data)
    server.answers[HANDWRITTEN] = zipped(handwritten_texts(expected))
    folder = tmp_path / "new" / "folder"
    path = fetch("handwritten", folder, base_url=server.url, progress=False)
    assert path == folder / "handwritten.npz"
    assert [file.name for file in folder.iterdir()] == ["handwritten.npz"]
    assert not list(scratch.iterdir())
    data = load("handwritten", folder)
    assert data == expected
    assert data.fingerprint == get_spec("handwritten").checksum
    # What is there and right is not downloaded again, and needs no server.
    assert fetch("handwritten", folder, base_url=server.url, progress=False) == path
    assert server.asked == [HANDWRITTEN]


@pytest.mark.parametrize("packing", ["plain", "folder", "nested"])
def test_leaves(
    packing: str, server: Server, real_data: Path, tmp_path: Path, scratch: Path
) -> None:
    """The missing texture row comes back as the mean of its species, bit for bit."""
    expected = load("leaves100", real_data)
    folder = "" if packing == "plain" else "100 leaves plant species/"
    content = zipped(leaves_texts(expected, folder))
    if packing == "nested":
        content = zipped({"100 leaves plant species.zip": content, "readme.txt": "hello"})
    server.answers[LEAVES] = content
    fetch("leaves100", tmp_path / "data", base_url=server.url + "/", progress=False)
    assert load("leaves100", tmp_path / "data") == expected


def test_leaves_in_another_order(server: Server, real_data: Path, tmp_path: Path) -> None:
    """Species may be numbered by the alphabet where the files have another order."""
    expected = load("leaves100", real_data)
    lists = {
        name: str(text).splitlines()
        for name, text in leaves_texts(
            expected, species=["Acer Campestre", *(f"Betula No{k:02d}" for k in range(99))]
        ).items()
    }
    moved: dict[str, str | bytes] = {
        name: "\n".join(lines[-160:] + lines[:-160]) for name, lines in lists.items()
    }
    server.answers[LEAVES] = zipped(moved)
    fetch("leaves100", tmp_path, base_url=server.url, progress=False)
    assert load("leaves100", tmp_path) == expected


def test_local_copy_has_the_mean_where_the_published_row_is_missing(real_data: Path) -> None:
    """Why `fetch` fills with the mean: that is what the copy with the known checksum holds.

    Texture features are counts over 1024, so are all rows but this one.
    """
    texture = load("leaves100", real_data).view("texture").astype(np.float64)
    counts = texture * 1024
    odd = np.flatnonzero((np.abs(counts - np.round(counts)) > 0.02).any(axis=1))
    assert odd.tolist() == [0]
    np.testing.assert_allclose(texture[0], texture[1:16].mean(axis=0), atol=1e-7)


def test_a_wrong_file_is_replaced(server: Server, real_data: Path, tmp_path: Path) -> None:
    expected = load("leaves100", real_data)
    server.answers[LEAVES] = zipped(leaves_texts(expected))
    (tmp_path / "leaves100.npz").write_bytes(b"damaged")
    fetch("leaves100", tmp_path, base_url=server.url, progress=False)
    assert load("leaves100", tmp_path) == expected


def zeros() -> dict[str, str | bytes]:
    """An archive of the right shapes and wrong values."""
    return {
        f"mfeat-{view}": (" ".join(["0"] * (width or 0)) + "\n") * 2000
        for view, width in get_spec("handwritten").views
    }


def without(texts: dict[str, str | bytes], name: str) -> dict[str, str | bytes]:
    return {key: text for key, text in texts.items() if key != name}


FAILURES: dict[str, tuple[bytes | int, str]] = {
    "not found": (404, "could not download .*the server answered 404"),
    "server error": (503, "the server answered 503"),
    "a page instead of an archive": (b"<html>sorry</html>", "not a complete zip archive"),
    "nothing": (b"", "not a complete zip archive"),
    "cut archive": (zipped(zeros())[:-3000], "not a complete zip archive"),
    "other values": (zipped(zeros()), "checksum differs.*Nothing was written"),
    "file missing": (zipped(without(zeros(), "mfeat-kar")), "no file mfeat-kar in the archive"),
    "too few numbers": (
        zipped({**zeros(), "mfeat-mor": "1 2 3"}),
        "view 'mor' has 3 numbers; there should be 2000 rows of 6",
    ),
    "no numbers": (zipped({**zeros(), "mfeat-fou": "1 two 3"}), "view 'fou' holds something else"),
}


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("folder_exists", [False, True])
def test_failures_are_one_clear_error_and_leave_nothing(
    case: str, folder_exists: bool, server: Server, tmp_path: Path, scratch: Path
) -> None:
    answer, message = FAILURES[case]
    server.answers[HANDWRITTEN] = answer
    folder = tmp_path / "data"
    if folder_exists:
        folder.mkdir()
    with pytest.raises(FewviewError, match=message) as caught:
        fetch("handwritten", folder, base_url=server.url, progress=False)
    assert server.url in str(caught.value)
    assert folder.exists() == folder_exists
    assert not folder_exists or not list(folder.iterdir())
    assert not list(scratch.iterdir())


def test_a_flipped_bit_in_the_archive(server: Server, tmp_path: Path) -> None:
    content = bytearray(zipped(zeros()))
    content[200] ^= 0xFF
    server.answers[HANDWRITTEN] = bytes(content)
    with pytest.raises(FewviewError, match="not a complete zip archive"):
        fetch("handwritten", tmp_path, base_url=server.url, progress=False)


def test_a_connection_that_breaks_off(server: Server, tmp_path: Path, scratch: Path) -> None:
    server.answers[HANDWRITTEN] = zipped(zeros())
    server.cut_after = 1000
    with pytest.raises(FewviewError, match=r"could not download|not a complete zip archive"):
        fetch("handwritten", tmp_path / "data", base_url=server.url, progress=False)
    assert not (tmp_path / "data").exists()
    assert not list(scratch.iterdir())


def test_nobody_listens(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as probe:  # bound, not listening: connections are refused
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(FewviewError, match="no connection to the server"):
            fetch("handwritten", tmp_path / "data", base_url=url, progress=False)
    assert not (tmp_path / "data").exists()
    assert not list(scratch.iterdir())


def test_a_bad_address(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match="could not download") as caught:
        fetch("handwritten", tmp_path, base_url="nonsense", progress=False)
    assert str(caught.value).endswith(f"copy the file that it names to {tmp_path}/handwritten.npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Acer Campestre,1,2\n", "line 1 has 2 numbers; there should be 64"),
        ("Acer Campestre" + ",1" * 64 + "\n", "there should be the same 100"),
        (
            "".join(f"Kind {k}" + ",1" * 64 + "\n" for k in range(100) for _ in range(14)),
            "has 14 rows of Kind 0; there should be 16",
        ),
    ],
)
def test_leaves_of_another_shape(text: str, message: str, server: Server, tmp_path: Path) -> None:
    server.answers[LEAVES] = zipped(dict.fromkeys(FILES.values(), text))
    with pytest.raises(FewviewError, match=message):
        fetch("leaves100", tmp_path, base_url=server.url, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [n for n in names() if not get_spec(n).fetchable])
def test_sets_without_an_address_say_how_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(FewviewError) as caught:
        fetch(name, tmp_path)
    message = str(caught.value)
    if get_spec(name).embedded:
        assert "nothing to fetch" in message
    else:
        assert get_spec(name).how_to_get in message
        assert str(tmp_path) in message
        assert "handwritten, leaves100" in message


def test_a_folder_that_cannot_be_made(server: Server, real_data: Path, tmp_path: Path) -> None:
    server.answers[LEAVES] = zipped(leaves_texts(load("leaves100", real_data)))
    (tmp_path / "file").touch()
    with pytest.raises(FewviewError, match="cannot create this folder"):
        fetch("leaves100", tmp_path / "file" / "data", base_url=server.url, progress=False)


def test_progress_goes_to_a_terminal_only(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    server.answers[HANDWRITTEN] = zipped(zeros())
    with pytest.raises(FewviewError):
        fetch("handwritten", tmp_path, base_url=server.url)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with pytest.raises(FewviewError):
        fetch("handwritten", tmp_path, base_url=server.url)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching handwritten: 100 %" in err
    assert err.endswith("\n")
