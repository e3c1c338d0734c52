"""The local page: who may ask, what is taken, what comes out, and all of it in a real browser."""

from __future__ import annotations

import csv
import http.client
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError
from fewview.report.pages._excerpt import excerpt
from fewview.report.pages._server import LocalServer
from fewview.report.pages._session import Session


def write_tables(folder: Path) -> Path:
    """Four known classes, two new ones, six queries; for the last, its two views disagree."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    codes = [*np.repeat(range(6), 6).tolist(), 4, 5, 4, 5, 4, 5]
    centres = {view: rng.normal(size=(6, 3)) * 4 for view in ("blood", "scan")}
    for middle in centres.values():
        middle[4], middle[5] = -4.0, 4.0
    labels = ["id,group"]
    for n, code in enumerate(codes):
        labels.append(f"P{n:02d},{'ABCDEF'[code] if n < 36 else ''}")
    (folder / "labels.csv").write_text("\n".join(labels))
    for view, middle in centres.items():
        lines = [",".join(["id", *(f"{view}{k}" for k in range(middle.shape[1]))])]
        for n, code in enumerate(codes):
            if view == "scan" and n % 5 == 3:
                continue
            # The blood of the last one says F; its scan is a little nearer to E.
            middling = view == "scan" and n == len(codes) - 1
            value = np.full(3, -0.8) if middling else middle[code] + 0.1 * rng.normal(size=3)
            lines.append(",".join([f"P{n:02d}", *map(str, value.round(3))]))
        (folder / f"{view}.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("served") / "tables")


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(most_bytes=100_000) as one:
        # Every test waits this long (in seconds) for its end.
        thread = threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield one
        one.shutdown()


def ask(
    server: LocalServer,
    path: str,
    body: bytes | None = None,
    token: str | None = None,
    **headers: Any,
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    given = {k.replace("_", "-"): v for k, v in headers.items()}
    place = f"/{server.token if token is None else token}/{path}"
    connection.request("GET" if body is None else "POST", place, body, given)
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def post(server: LocalServer, path: str, **values: Any) -> Any:
    status, body, _ = ask(
        server, path, json.dumps(values).encode(), Content_Type="application/json"
    )
    assert status == 200
    return json.loads(body)


def upload(server: LocalServer, folder: Path) -> None:
    for path in folder.iterdir():
        assert ask(server, f"upload?name={path.name}", path.read_bytes())[0] == 200


# ---------------------------------------------------------------------- who may ask


def test_it_listens_on_this_machine_alone(server: LocalServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32
    with LocalServer() as other:
        assert other.token != server.token


def test_only_its_own_page_is_answered(server: LocalServer) -> None:
    assert ask(server, "")[0] == 200
    assert ask(server, "", token="")[0] == 404
    assert ask(server, "", token=server.token[:-1])[0] == 404
    assert ask(server, "", token="%C3%A9")[0] == 404
    assert ask(server, "nothing")[0] == 404
    # Another name for this machine, as an attacker's page would use after rebinding.
    assert ask(server, "", Host="evil.example")[0] == 421
    assert ask(server, "", Host=f"evil.example:{server.server_port}")[0] == 421
    port = server.server_port
    assert ask(server, "", Host=f"localhost:{port}")[0] == 200
    assert ask(server, "look", b"{}", Origin="http://evil.example")[0] == 403
    assert ask(server, "look", b"{}", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "look", b"{}", Content_Type="text/plain")[0] == 415
    for wrong in (b"[]", b"{", b'{"labels": 3}', b'{"labels": "a", "new": [1]}'):
        path = "fit" if b"new" in wrong else "look"
        assert ask(server, path, wrong, Content_Type="application/json")[0] == 400


def test_nothing_is_kept_by_the_browser(server: LocalServer) -> None:
    _, body, headers = ask(server, "")
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    text = body.decode()
    assert "default-src 'none'" in text
    assert "connect-src 'self'" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


# ---------------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    "name",
    ["../evil.csv", "/etc/passwd", "a/b.csv", "..", "a\\b.csv", ".hidden.csv", "a.py", "",
     "a\0.csv", "fewview.json", "a" * 200 + ".csv"],
)  # fmt: skip
def test_names_are_never_paths(server: LocalServer, name: str) -> None:
    from urllib.parse import quote

    status, body, _ = ask(server, f"upload?name={quote(name)}", b"id,x\n1,2\n")
    assert status == 200
    assert "files whose names have" in json.loads(body)["error"]
    assert server.session.files == {}
    for kind in ("..", "tables/..", "other"):
        _, body, _ = ask(server, f"upload?set={quote(kind)}&name=a.csv", b"id,x\n1,2\n")
        assert "error" in json.loads(body)
    assert server.session.files == {}


def test_sizes_are_limited(server: LocalServer) -> None:
    assert ask(server, "upload?name=a.csv", b"x" * 60_000)[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    # Refused by what it says, before anything of it is read.
    connection.putrequest("POST", f"/{server.token}/upload?name=b.csv")
    connection.putheader("Content-Length", "60000")
    connection.endheaders()
    assert connection.getresponse().status == 413
    for length, status in (("-1", 411), ("x", 411), (str(2**21), 413)):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        connection.putrequest("POST", f"/{server.token}/look")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == status
    assert list(server.session.files) == ["tables/a.csv"]
    assert ask(server, "upload?name=a.csv", b"x" * 90_000)[0] == 200  # in place of the other


def test_a_part_of_a_file_is_no_file() -> None:
    session = Session(1000)
    with pytest.raises(FewviewError, match="only a part of it came"):
        session.add("tables/a.csv", io.BytesIO(b"id,x"), 100)
    assert session.files == {}
    place = session.place
    session.close()
    assert not place.exists()


def test_closing_forgets(tables: Path) -> None:
    with LocalServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        upload(server, tables)
        place = server.session.place
        assert len(list((place / "tables").iterdir())) == 3
        server.shutdown()
    assert not place.exists()


# ---------------------------------------------------------------------- what comes out


def fitted(server: LocalServer, method: str = "proto", **given: Any) -> None:
    assert post(server, "fit", labels="group", key="id", method=method, **given) == {}
    for _ in range(600):
        state = json.loads(ask(server, "state")[1])
        if state["finished"]:
            assert state["error"] == ""
            return
        time.sleep(0.05)
    pytest.fail("it never ends")


def run_commands(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Do what is written, and read the predictions."""
    import shlex
    import sys

    from fewview.cli import main

    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit, match=r"^0$"):
            main()
    assert Path("predictions.html").exists()
    return list(csv.DictReader(Path("predictions.csv").read_text().splitlines()))


def served_rows(server: LocalServer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(ask(server, "predictions.csv")[1].decode())))


def assert_same(one: list[dict[str, str]], other: list[dict[str, str]]) -> None:
    assert [row["label"] for row in one] == [row["label"] for row in other]
    for left, right in zip(one, other, strict=True):
        assert float(left["p_E"]) == pytest.approx(float(right["p_E"]), abs=2e-6)


def test_the_commands_that_are_shown_give_the_same(
    server: LocalServer, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(server, tables)
    fitted(server, new=["E", "F"])
    make, copy, show, predict = json.loads(ask(server, "result")[1])["commands"]
    assert make == "mkdir tables"
    assert copy == "cp blood.csv labels.csv scan.csv tables/"
    assert show == "fewview data show tables/ --labels group --key id"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").symlink_to(tables)
    assert_same(served_rows(server), run_commands([predict], monkeypatch))


@pytest.mark.parametrize("method", ["proto", "marginal"])
@pytest.mark.parametrize("known", [True, False])
def test_three_sets(
    server: LocalServer, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    known: bool, method: str,
) -> None:  # fmt: skip
    from fewview import MultiViewData

    data = MultiViewData.read(tables, labels="group", key="id")
    new = np.isin(data.labels.astype(str), ["E", "F"])
    unlabelled = data.codes < 0
    monkeypatch.chdir(tmp_path)
    sets = {"base": ~new & ~unlabelled, "support": new, "query": unlabelled}
    if not known:
        del sets["base"]
    seen = {}
    for name, rows in sets.items():
        part = data[rows]
        if name == "query":
            part = part.with_labels(["E", "F"] * 3)
        part.write(f"{name}.npz")
        body = Path(f"{name}.npz").read_bytes()
        assert ask(server, f"upload?set={name}&name={name}.npz", body)[0] == 200
        seen = post(server, "look", labels="y")
        assert seen["ready"] == (name == "query"), seen
    assert "labelled samples of new classes: 12 samples, 2 classes" in seen["roles"]
    assert post(server, "fit", labels="y", method=method) == {}
    while not (state := json.loads(ask(server, "state")[1]))["finished"]:
        time.sleep(0.05)
    assert state["error"] == ""
    result = json.loads(ask(server, "result")[1])
    assert "Of 6 samples with a label, 100.0 % are right." in result["html"]
    for name in sets:
        Path(name).mkdir()
        Path(f"{name}.npz").rename(f"{name}/{name}.npz")
    lines = [line for line in result["commands"] if line.startswith("fewview")]
    assert len(lines) == 1 + known
    assert_same(served_rows(server), run_commands(lines, monkeypatch))
    # Everything and parts of it do not go together.
    assert ask(server, "upload?name=blood.csv", b"id,x\n1,2\n")[0] == 200
    assert "remove one kind" in post(server, "look")["error"]


def test_what_if_is_the_method_with_a_view_less(server: LocalServer, tables: Path) -> None:
    upload(server, tables)
    fitted(server, new=["E", "F"])
    known = server.session._answered
    assert known is not None
    last = len(known.query) - 1
    found = post(server, "what-if", row=last, off=["blood"])
    mask = np.array(known.query.mask)
    mask[last, known.query.view_names.index("blood")] = False
    wanted = known.method.predict_proba(known.query.with_mask(mask))[last]
    assert found["label"] == str(known.method.classes_[wanted.argmax()])
    assert found["probability"] == pytest.approx(wanted.max(), abs=1e-5)
    assert (found["before"], found["label"]) == ("F", "E")  # as the tables were made
    assert "no other view" in post(server, "what-if", row=last, off=["blood", "scan"])["error"]
    assert "no such view" in post(server, "what-if", row=last, off=["../x"])["error"]
    assert "no such view or sample" in post(server, "what-if", row=99, off=["blood"])["error"]
    # What is off for all samples stays off for one.
    same = post(server, "what-if", row=last, off=[], everywhere=["blood"])
    assert (same["before"], same["label"]) == ("E", "E")
    both = post(server, "what-if", row=last, off=["scan"], everywhere=["blood"])
    assert "no other view" in both["error"]
    everywhere = post(server, "what-if", off=["blood"])
    lone = int((~known.query.mask[:, known.query.view_names.index("scan")]).sum())
    assert everywhere["bare"] == lone > 0
    assert everywhere["changed"] >= 1


def test_errors_are_words(server: LocalServer, tables: Path) -> None:
    assert "nothing has been predicted" in json.loads(ask(server, "result")[1])["error"]
    upload(server, tables)
    assert "did you mean" in post(server, "fit", new=["E", "F"], method="prot")["error"]
    assert post(server, "fit", labels="group", new=["E", "Q"], method="proto") == {}
    while not (state := json.loads(ask(server, "state")[1]))["finished"]:
        time.sleep(0.05)
    assert "--new Q: no labelled sample is of this class" in state["error"]
    assert str(server.session.place) not in state["error"]


def test_an_error_is_shown_at_its_cell(tables: Path, tmp_path: Path) -> None:
    file = tmp_path / "blood.csv"
    lines = (tables / "blood.csv").read_text().splitlines()
    lines[6] = 'P05,1.0,"2,5",3.0'
    file.write_text("\n".join(lines))
    session = Session(10**6)
    session.add("tables/blood.csv", io.BytesIO(file.read_bytes()), file.stat().st_size)
    seen = session.look(None, None)
    assert "column 'blood1', line 7 holds '2,5'" in seen["error"]
    assert seen["excerpt"].count("<mark>") == 1
    assert "<mark>2,5</mark>" in seen["excerpt"]
    assert ">P04<" in seen["excerpt"]  # the line before
    assert str(session.place) not in seen["error"]
    session.close()
    assert excerpt("nothing about a line", {"blood.csv": file}) == ""
    marked = excerpt("blood.csv: id 'P05' occurs in line 7 and line 9", {"blood.csv": file})
    assert "<mark>P05</mark>" in marked


# ---------------------------------------------------------------------- in a browser


def wait(driver: Any, script: str) -> None:
    for _ in range(600):
        if driver.execute_script(f"return {script}"):
            return
        time.sleep(0.05)
    pytest.fail(f"waited for {script}: {driver.execute_script('return document.body.innerText')}")


def choose(driver: Any, name: str, text: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(driver.find_element("id", name)).select_by_value(text)


def test_from_tables_to_what_if(
    driver: Any, view: Callable[..., None], server: LocalServer, tables: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "scan.csv"
    broken.write_text((tables / "scan.csv").read_text().replace("P07,", "P06,"))
    view(server.address)
    files = driver.find_element("id", "files")
    files.send_keys(f"{tables / 'blood.csv'}\n{tables / 'labels.csv'}\n{broken}")
    # An error, at its cell.
    wait(driver, "!document.getElementById('error').hidden")
    assert "id 'P06' occurs in line" in driver.find_element("id", "error").text
    assert driver.find_element("css selector", "#error mark").text == "P06"
    assert not driver.find_element("id", "who").is_displayed()
    # The mended table takes its place.
    files.send_keys(str(tables / "scan.csv"))
    wait(driver, "!document.getElementById('join').hidden")
    assert not driver.find_element("id", "error").is_displayed()
    assert "How the tables join" in driver.find_element("id", "joined").text
    choose(driver, "labels", "group")
    wait(driver, "document.getElementById('roles').textContent.startsWith('6 samples have')")
    assert len(driver.find_elements("css selector", "#classes input")) == 6
    assert "6 samples have no label" in driver.find_element("id", "roles").text
    # From here on by keyboard alone.
    for box in driver.find_elements("css selector", "#classes input"):
        if box.get_attribute("value") in "EF":
            box.send_keys(" ")
    choose(driver, "method", "proto")
    driver.find_element("id", "fit").send_keys("\ue007")
    wait(driver, "!document.getElementById('answers').hidden")
    buttons = driver.find_elements("css selector", "button.open")
    assert len(buttons) == 6
    (last,) = [button for button in buttons if button.text == "P41"]
    last.send_keys("\ue007")
    card = driver.find_element("id", last.get_attribute("aria-controls"))
    blood, scan = card.find_elements("css selector", "fieldset input")
    assert blood.get_attribute("value") == "blood"
    blood.send_keys(" ")
    wait(driver, "document.querySelector('.verdict').textContent")
    verdict = card.find_element("css selector", ".verdict")
    assert verdict.text.startswith("Without blood the answer is E (")
    assert "instead of F" in verdict.text
    scan.send_keys(" ")  # the only one left
    wait(driver, "document.querySelector('.verdict').textContent.includes('no other')")
    assert scan.is_selected()
    blood.send_keys(" ")
    wait(driver, "!document.querySelector('.verdict').textContent")
    assert "fewview predict --data tables/" in driver.find_element("id", "commands").text
    driver.find_element("css selector", "#off input").send_keys(" ")
    wait(driver, "document.getElementById('moved').textContent.includes('answers change')")
    assert driver.execute_script("return document.documentElement.scrollWidth") == 1400
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
    large = tmp_path / "large.csv"
    large.write_text("x" * 100_001)
    files.send_keys(str(large))
    wait(driver, "document.getElementById('error').textContent.includes('0.1 MB together')")
    driver.find_element("id", "forget").click()
    wait(driver, "!document.querySelector('#given li')")
    assert server.session.files == {}


def test_the_command_serves_until_it_is_stopped() -> None:
    import signal
    import subprocess
    import sys
    from urllib.request import urlopen

    code = (  # a shell lets what it runs in the background ignore this signal
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "sys.argv[1:] = ['serve', '--no-browser']; from fewview.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        address = running.stdout.readline().strip()
        with urlopen(address, timeout=30) as answer:
            assert "Classify from a few examples" in answer.read().decode()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "nothing was kept" in told


@pytest.mark.parametrize("port", [None, 99999])
def test_a_port_that_cannot_be_had_is_told(port: int | None) -> None:
    with (
        LocalServer() as other,
        pytest.raises(FewviewError, match=r"--port \d+: .*; choose another, or 0 for any"),
    ):
        LocalServer(other.server_port if port is None else port)
