"""Old ways work for one minor version, warn where they are used, and are then taken out."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import warnings
from typing import ClassVar

import pytest

import fewview
from fewview.ground import _deprecated
from fewview.ground._deprecated import gone_in, leaving, renamed
from fewview.ground._errors import FewviewError, FewviewWarning


@pytest.fixture(autouse=True)
def same_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_deprecated, "DECLARED", [])


def test_an_old_parameter_works_and_warns_at_the_caller() -> None:
    class Thing:
        @renamed("rate", "eta", since="0.2.0")
        def __init__(self, eta: float, n: int = 1) -> None:
            self.value = (eta, n)

    with pytest.warns(
        FewviewWarning, match=r"^Thing: 'rate' is called 'eta'.*goes in 0\.3"
    ) as told:
        assert Thing(rate=0.5, n=2).value == (0.5, 2)  # type: ignore[call-arg]
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Thing(0.5).value == Thing(eta=0.5).value == (0.5, 1)
    with pytest.raises(FewviewError, match="give one"):
        Thing(rate=0.5, eta=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="other"):
        Thing(other=0.5)  # type: ignore[call-arg]
    assert list(inspect.signature(Thing).parameters) == ["eta", "n"]
    assert [(name.rpartition(".")[2], gone) for name, gone in _deprecated.DECLARED] == [
        ("Thing(rate)", "0.3")
    ]


def test_a_function_that_goes_warns() -> None:
    @leaving("f", since="1.9")
    def g(x: int) -> int:
        """Old."""
        return x

    with pytest.warns(FewviewWarning, match=r"^g goes in fewview 1\.10; use f$"):
        assert g(3) == 3
    assert g.__doc__ == "Old."


def test_old_words_of_a_command_line() -> None:
    table = {
        "bench --rate": ("--eta", "0.2"), "cure": ("doctor", "0.2"), "data look": ("show", "0.3"),
        "data show --page": ("--html", "0.3"),
    }  # fmt: skip

    def now(text: str) -> str:
        return " ".join(_deprecated.current_words(text.split(), table))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert now("bench digits --rate 0.3 --rate=0.1") == "bench digits --eta 0.3 --eta=0.1"
        assert now("cure --full") == "doctor --full"
        assert now("data look a.npz --page x.html") == "data show a.npz --html x.html"
    assert [str(entry.message).partition(" since")[0] for entry in told] == [
        "bench: '--rate' is called '--eta'", "bench: '--rate' is called '--eta'",
        "fewview: 'cure' is called 'doctor'", "data: 'look' is called 'show'",
        "data show: '--page' is called '--html'",
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in ("run --rate 1", "bench cure", "bench -- --rate", "data show look", ""):
            assert now(same) == same


def test_an_old_flag_works_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from fewview.cli import main

    monkeypatch.setitem(_deprecated.RENAMED_WORDS, "methods --long", ("--wide", "0.2"))
    monkeypatch.setattr("sys.argv", ["fewview", "methods", "proto", "--long"])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    with (
        pytest.warns(FewviewWarning, match="^methods: '--long' is called '--wide' since"),
        contextlib.suppress(SystemExit),
    ):
        main()
    assert "proto" in capfd.readouterr().out


def test_an_old_parameter_of_a_method() -> None:
    from sklearn.base import clone

    from fewview import Proto, create, register

    @register("renamed-proto")
    class Renamed(Proto):
        far: float = 2.0
        _renamed: ClassVar[dict[str, tuple[str, str]]] = {"wide": ("far", "0.2")}

    for made in (
        lambda: Renamed(wide=3.0),  # type: ignore[call-arg]
        lambda: create("renamed-proto:wide=3"),
        lambda: Renamed().set_params(wide=3.0),
    ):
        with pytest.warns(FewviewWarning, match=r"'wide' is called 'far' since fewview 0\.2"):
            method = made()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert clone(method).far == 3.0
    assert "wide" not in Renamed().get_params()
    assert Renamed(far=1.0).far == 1.0


def expired(declared: list[tuple[str, str]], version: str) -> list[str]:
    def number(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".")[:2])

    return [name for name, gone in declared if number(version) >= number(gone)]


def test_nothing_outstays_its_minor_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for module in pkgutil.walk_packages(fewview.__path__, "fewview."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert expired(_deprecated.DECLARED, fewview.__version__) == [], "take these out"


def test_what_outstays_would_be_found() -> None:
    declared = [("a", gone_in("0.2")), ("b", gone_in("0.9")), ("c", gone_in("0.10"))]
    assert expired(declared, "0.10.3") == ["a", "b"]
    assert expired(declared, "0.2.9") == []
