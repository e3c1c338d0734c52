"""Methods by name, with settings in the text, as import strings, as objects, from packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from fewview import Concat, FewviewError, Method, Proto, create, register
from fewview.methods.params import describe_params, rules_of
from fewview.methods.registry import (
    METHODS,
    OPTIONAL,
    enter,
    entries_of,
    expand,
    get_entry,
    name_and_settings,
    names,
    pack_objects,
    unpack_objects,
)

# ---------------------------------------------------------------------------- names


def test_every_name_is_a_method_and_says_its_name() -> None:
    assert set(METHODS) <= set(names())
    assert not set(OPTIONAL) & set(names())
    for name in METHODS:
        method = create(name)
        assert isinstance(method, Method)
        assert name in {entry.name for entry in entries_of(type(method))}
        assert method.__doc__


@pytest.mark.parametrize("name", METHODS)
def test_declared_settings_exist(name: str) -> None:
    method = create(name)
    tuned = {key: rule.get("tune", ()) for key, rule in rules_of(type(method)).items()}
    for grid in (tuned, {key: (value,) for key, value in method.paper.items()}):
        for parameter, values in grid.items():
            for value in values:
                clone(method).set_params(**{parameter: value}).check()


def test_parameters_in_text() -> None:
    method: Any = create("ptmap:power=signed:n_iter=5:step=0.5:scaling=none")
    assert (method.power, method.n_iter, method.step) == ("signed", 5, 0.5)
    assert method.scaling == "none"  # a word here, not None
    tim: Any = create("tim:weights=1+2+0.5")
    assert tim.weights == (1, 2, 0.5)
    ugda: Any = create("ugda:rectify=none:latent_dim=none")
    assert (ugda.rectify, ugda.latent_dim) == ((), None)
    combined: Any = create("ptmap+ugda:source__n_anchors=7:rectified=true", anchor_weight=2.0)
    assert (combined.source.n_anchors, combined.rectified, combined.anchor_weight) == (7, True, 2.0)
    assert create("proto:padding=base", padding="zero").padding == "base"  # what is typed wins


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot", "no method 'prot'; did you mean proto"),
        ("proto:paddin=zero", "did you mean padding"),
        ("proto:padding", "'proto:padding': write 'padding' as parameter=value"),
        ("proto:padding=zero:scaling", "write 'scaling' as parameter=value"),
        ("proto:base=x", "no parameter 'base'"),
        ("ptmap+ugda:rectified=7", "rectified is 7; it must be true or false"),
    ],
)
def test_bad_text_is_named(text: str, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        create(text)


def test_lists_of_methods() -> None:
    assert expand("proto, match,proto") == ["proto", "match"]
    every = expand("all")
    assert {"proto", "ugda", "concat-hgb"} <= set(every) <= set(names())
    assert not any(create(name).tags.trained for name in every)
    with pytest.raises(FewviewError, match="no methods given"):
        expand(",")
    with pytest.raises(FewviewError, match="methods is 3; give names or methods"):
        expand(3)


def test_a_name_belongs_to_one_class() -> None:
    known = {"__module__": "one", "__qualname__": "Same"}
    register("one-name")(type("Same", (Proto,), dict(known)))
    register("one-name")(type("Same", (Proto,), dict(known)))  # a cell of a notebook, run again
    with pytest.raises(FewviewError, match=r"'one-name': one.Same, and Same in two; give this"):
        register("one-name")(type("Same", (Proto,), known | {"__module__": "two"}))
    with pytest.raises(FewviewError, match=r"'match': fewview\.methods\.match.*, and Mine in"):
        register("match")(type("Mine", (Proto,), {"__module__": "mine"}))
    assert get_entry("proto").factory is Proto


def test_a_class_may_have_several_names() -> None:
    @register("near", padding="zero")
    @register("far", padding="base")
    class Own(Proto):
        pass

    assert (create("near").padding, create("far").padding, Own.name) == ("zero", "base", "far")


# ---------------------------------------------------------------------------- import strings

MODULE = '''
from sklearn.linear_model import LogisticRegression
from fewview import Concat, Proto
from {name}_neighbour import FACTOR

class Mine(Proto):
    """Scores times a number."""

    def scores(self, batch, state):
        return FACTOR * super().scores(batch, state)

thing = Concat(LogisticRegression(C=0.5), impute="zero")
nothing = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, which need not be on the path, with one that it imports."""
    name = f"mine_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("{name}", name))
    (tmp_path / f"{name}_neighbour.py").write_text("FACTOR = 2.0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def test_an_import_string_is_a_class_or_an_object(module: str) -> None:
    one: Any = create(f"{module}:Mine:padding=base")
    assert (type(one).__name__, one.padding) == ("Mine", "base")
    thing: Any = create(f"{module}:thing")
    assert (thing.impute, thing.estimator.C) == ("zero", 0.5)
    # What was set in the object is what a user has chosen: it wins over a benchmark's settings.
    assert get_entry(f"{module}:thing").parameters["impute"] == "zero"
    assert module not in " ".join(names())


def test_colons_of_import_strings_are_told_from_settings() -> None:
    assert name_and_settings("my.own:Mine:k=3:j=4") == ("my.own:Mine", ["k=3", "j=4"])
    assert name_and_settings("ptmap+ugda:source__n_anchors=5") == (
        "ptmap+ugda", ["source__n_anchors=5"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ("Mane", "has no method 'Mane'; did you mean Mine.*it has: .*Mine"),
        ("nothing", "has no method 'nothing'; did you mean thing"),
        ("LogisticRegression", "has no method 'LogisticRegression'"),
    ],
)
def test_what_an_import_string_does_not_lead_to_is_named(
    module: str, thing: str, message: str
) -> None:
    with pytest.raises(FewviewError, match=message):
        create(f"{module}:{thing}")


def test_modules_that_cannot_be_imported_are_named(module: str) -> None:
    with pytest.raises(FewviewError, match="cannot import 'nowhere_at_all'"):
        create("nowhere_at_all:Mine")
    with pytest.raises(FewviewError, match=r"mine\.py:Mine': write mine:Mine"):
        create("mine.py:Mine")
    Path(f"{module}_two.py").write_text("from fewview import Method\nclass A(Method): pass")
    with pytest.raises(FewviewError, match="A cannot be made"):
        create(f"{module}_two:A")


# ---------------------------------------------------------------------------- objects


def test_what_an_object_is_called() -> None:
    assert enter("proto") == enter(Proto()) == enter(Proto) == "proto"
    assert expand(["proto,match", Proto(padding="base")]) == [
        "proto", "match", "proto[padding=base]",
    ]  # fmt: skip
    one, two = enter(Concat(SVC(C=1.5))), enter(Concat(SVC(C=2.5)))
    assert one != two
    assert create(two).get_params()["estimator__C"] == 2.5
    assert describe_params(create(one)) == describe_params(Concat(SVC(C=1.5)))
    assert two not in names()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (SVC(), r"SVC\(\) is not a method of fewview; wrap a scikit-learn classifier as Concat"),
        (LogisticRegression(), "wrap a scikit-learn classifier"),
        (3, "3 is not a method of fewview; derive its class from fewview.Method"),
        (Proto(base=[[1.0]]), "has a base set of its own"),
        (Method, "Method cannot be made"),
    ],
)
def test_what_is_no_method(method: Any, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        enter(method)


def test_objects_are_sent_to_processes_that_do_not_have_their_code() -> None:
    """As bytes, to an interpreter that knows this file by no name."""
    name = enter(Own(padding="base"))
    program = (
        "import sys\n"
        "from fewview.methods.registry import create, unpack_objects\n"
        "unpack_objects(sys.stdin.buffer.read())\n"
        f"method = create({name!r})\n"
        "print(type(method).__name__, method.padding, method.twice(4))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pack_objects([name, "proto"]), capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.decode().split() == ["Own", "base", "8"], done.stderr.decode()
    unpack_objects(b"")


class Own(Proto):
    """A method of this file."""

    def twice(self, number: int) -> int:
        """Show that code came along."""
        return 2 * number


# ---------------------------------------------------------------------------- other packages


def test_installed_packages_may_bring_methods(tmp_path: Path) -> None:
    """One that is broken is left out with a warning, and takes nothing else down."""
    (tmp_path / "bringing.py").write_text(
        "from fewview import Proto, register\n\n@register('brought')\nclass Brought(Proto):\n"
        "    '''Comes with a package.'''\n"
    )
    (tmp_path / "breaking.py").write_text("raise RuntimeError('not today')\n")
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    points = "[fewview.methods]\na = bringing:Brought\nb = breaking:Broken\n"
    (info / "entry_points.txt").write_text(points)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c",
         "from fewview.methods.registry import create, names\n"
         "print('brought' in names(), type(create('brought')).__name__)"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "Brought"], done.stderr
    assert "the methods of 'breaking:Broken' are left out: RuntimeError: not today" in done.stderr
