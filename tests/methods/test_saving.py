"""Models in files: equal digits in a new process, no samples unless asked, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file
from sklearn.svm import SVC

from fewview import (
    UGDA,
    Concat,
    FewviewError,
    FewviewWarning,
    Marginal,
    MultiViewData,
    Proto,
    create,
    load_model,
)
from fewview.datasets import make_few_shot
from fewview.methods.estimator.saving import read_file, write_file
from fewview.methods.params import describe_params

SAMPLES = make_few_shot(10, 20, {"shape": 5, "colour": 8, "sound": 3}, seed=1)
BASE, NOVEL = SAMPLES[SAMPLES.codes < 6], SAMPLES[SAMPLES.codes >= 6]
HAS = np.ones(NOVEL.mask.shape, dtype=bool)
HAS[1::4, 0] = HAS[2::4, 1] = False
FIRST = np.concatenate([np.flatnonzero(NOVEL.codes == code)[:2] for code in range(4)])
SUPPORT = NOVEL.with_mask(HAS)[FIRST]
QUERY = NOVEL.with_mask(HAS)[np.setdiff1d(np.arange(len(NOVEL)), FIRST)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.model"


@pytest.fixture
def model(path: Path) -> Path:
    Marginal().fit_base(BASE).fit(SUPPORT).save(path, calibrate=False)
    return path


# ---------------------------------------------------------------------------- what comes back

# A method of every kind of state; the law "saved and loaded" is about every method.
KINDS = (
    "proto", "match", "marginal", "ugda:n_anchors=3", "ptmap+ugda:source__n_anchors=3", "unem",
    "class-impute", "completer:width=8:code=4:epochs=1:warm_up=1",
)  # fmt: skip


@pytest.mark.parametrize("text", KINDS)
def test_a_method_comes_back_with_equal_digits(text: str, path: Path) -> None:
    clf = create(text).fit_base(BASE).fit(SUPPORT)
    clf.save(path, calibrate=False)
    back = load_model(path)
    assert type(back) is type(clf)
    assert describe_params(back) == describe_params(clf)
    assert back.classes_.tolist() == clf.classes_.tolist()
    assert (back.base.task, back.base.classes) == (clf.base.task, clf.base.classes)
    assert np.array_equal(back.predict_proba(QUERY), clf.predict_proba(QUERY))


def test_the_same_model_is_the_same_bytes(path: Path) -> None:
    found = []
    for seconds in (0.0, 1.5, 3.0):  # what learning took is no part of it
        clf = UGDA(n_anchors=3).fit_base(BASE)
        clf.base = replace(clf.base, seconds=seconds)
        clf.fit(SUPPORT).save(path, calibrate=False)
        found.append(path.read_bytes())
        load_model(path).save(path, calibrate=False)
        found.append(path.read_bytes())
    assert len(set(found)) == 1


def test_a_base_set_waits_for_supports_in_a_new_process(path: Path) -> None:
    clf = UGDA(n_anchors=5, rectify=("entropy",), n_neighbors=2).fit_base(BASE)
    clf.fit(SUPPORT).save(path, supports=False, calibrate=False)
    wanted = clf.predict_proba(QUERY)
    SUPPORT.write(path.parent / "support.npz")
    QUERY.write(path.parent / "query.npz")
    script = (
        "import fewview, numpy as np, torch\n"
        "torch.set_num_threads(1)\n"
        "clf = fewview.load_model('a.model')\n"
        "assert not hasattr(clf, 'fitted_')\n"
        "clf.fit(fewview.MultiViewData.read('support.npz'))\n"
        "np.save('found.npy', clf.predict_proba(fewview.MultiViewData.read('query.npz')))\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=path.parent, check=True, timeout=120)
    assert np.array_equal(np.load(path.parent / "found.npy"), wanted)


@pytest.mark.parametrize("method", [Marginal(), UGDA(n_anchors=5), Proto()], ids=str)
@pytest.mark.parametrize("unlabelled", [False, True])
def test_models_without_base_classes(method: Any, unlabelled: bool, path: Path) -> None:
    clf = method.set_params(base=BASE.with_labels(None) if unlabelled else None).fit(SUPPORT)
    clf.save(path, calibrate=False)
    back = load_model(path)
    assert np.array_equal(back.predict_proba(QUERY), clf.predict_proba(QUERY))
    assert len(back.partial_fit(QUERY[:1]).support_) == len(SUPPORT) + 1


def test_nested_methods_and_changed_parameters_come_back(path: Path) -> None:
    clf: Any = create("ptmap+ugda:source__n_anchors=3:source__rectify=none:anchor_weight=2")
    clf.fit_base(BASE).save(path, calibrate=False)
    back = load_model(path)
    assert (back.source.n_anchors, back.source.rectify, back.anchor_weight) == (3, (), 2.0)
    concat = create("concat-nn").fit(SUPPORT)
    concat.save(path, base_rows=True, calibrate=False)
    assert repr(load_model(path).estimator) == repr(create("concat-nn").get_params()["estimator"])


def test_labels_columns_and_categories_come_back(path: Path) -> None:
    Proto().fit([[0.0], [9.0]], [3, 5]).save(path)
    assert load_model(path).predict([[8.0]]).tolist() == [5]
    leaf = pd.DataFrame({"size": [4.0, 5.0, 4.2, 5.1], "tint": ["dry", "wet", "dry", None]})
    Proto().fit({"leaf": leaf}, ["x", "y", "x", "y"]).save(path)
    turned = {"leaf": pd.DataFrame({"tint": ["wet"], "size": [np.nan]})}
    assert load_model(path).predict(turned).tolist() == ["y"]


def test_a_view_that_supports_alone_have_comes_back(path: Path) -> None:
    clf = Marginal().fit_base(BASE.drop_views(["sound"]))
    with pytest.warns(FewviewWarning, match="is used"):
        clf.fit(SUPPORT)
    clf.save(path, calibrate=False)
    assert np.array_equal(load_model(path).predict_proba(QUERY), clf.predict_proba(QUERY))


# ---------------------------------------------------------------------------- base samples


@pytest.mark.parametrize("base_rows", [False, True])
def test_base_samples_are_in_the_file_only_where_asked(base_rows: bool, path: Path) -> None:
    marked = {view: np.array(block) for view, block in BASE.views.items()}
    marked["colour"][7, 0] = secret = np.float32(1.2345678)
    base = MultiViewData(marked, BASE.labels)
    for method in (Marginal(), UGDA(n_anchors=3), Proto()):
        method.fit_base(base).fit(SUPPORT).save(path, base_rows=base_rows, calibrate=False)
        content = path.read_bytes()
        assert base_rows == any(secret.astype(kind).tobytes() in content for kind in ("f4", "f8"))
        assert (load_model(path).base.rows is None) == (not base_rows)


def test_a_method_that_keeps_samples_is_saved_only_with_them(path: Path) -> None:
    with pytest.raises(FewviewError, match="base_rows=True"):
        Concat().fit_base(BASE).save(path)
    assert not path.exists()


def test_parameters_change_only_with_rows(model: Path, path: Path) -> None:
    with pytest.raises(FewviewError, match=r"other parameters.*shrinkage=0\.9"):
        load_model(model).set_params(shrinkage=0.9).fit(SUPPORT)
    with pytest.raises(FewviewError, match="fitted by Marginal"):
        Proto(base=load_model(model).base).fit(SUPPORT)
    Marginal().fit_base(BASE).save(path, base_rows=True, calibrate=False)
    found = load_model(path).set_params(shrinkage=0.9).fit(SUPPORT).predict_proba(QUERY)
    wanted = Marginal(shrinkage=0.9).fit_base(BASE).fit(SUPPORT).predict_proba(QUERY)
    assert np.array_equal(found, wanted)


def test_parameters_that_changed_since_are_named(path: Path) -> None:
    clf = Marginal().fit_base(BASE).set_params(shrinkage=0.9)
    with pytest.raises(FewviewError, match=r"have changed .*shrinkage=0\.9.*before save"):
        clf.save(path)


# ---------------------------------------------------------------------------- what is refused


def refuse(path: Path, message: str) -> None:
    """One sentence of ours that names the file."""
    with pytest.raises(FewviewError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_cut_off_is_refused(model: Path) -> None:
    content = model.read_bytes()
    for size in [0, 1, 7, 8, 9, 100, *np.linspace(200, len(content) - 1, 40).astype(int).tolist()]:
        model.write_bytes(content[:size])
        refuse(model, "not a model file, or cut off")
    for changed in (content + b"\0", (2**62).to_bytes(8, "little") + content[8:]):
        model.write_bytes(changed)
        refuse(model, "not a model file, or cut off")


def test_what_is_flipped_is_refused(model: Path) -> None:
    content, rng = bytearray(model.read_bytes()), np.random.default_rng(0)
    header = 8 + int.from_bytes(content[:8], "little")
    end = len(content[:header].rstrip())  # the rest is padding
    for place in [*rng.integers(8, end, 60), *rng.integers(header, len(content), 40)]:
        changed = bytearray(content)
        changed[place] ^= 1
        model.write_bytes(changed)
        refuse(model, ".")


def test_foreign_files_are_refused(path: Path) -> None:
    save_file({"weights": np.zeros(3, dtype=np.float32)}, path)
    refuse(path, "safetensors, but not a fewview model")
    path.write_text("id,label\n1,a\n" * 10)
    refuse(path, "not a model file")
    refuse(path.parent / "nosuch.model", "cannot be read")
    refuse(path.parent, "cannot be read")


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


def test_pickles_are_never_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Bomb(), protocol=protocol))
        refuse(path, "not a model file")
    torch.save({"a": Bomb()}, path)
    refuse(path, "not a model file")
    assert [file.name for file in path.parent.iterdir()] == ["a.model"]


def put(*keys: Any, value: Any) -> Callable[[Any], None]:
    """A change of the document of a model: another value at a place."""

    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format", value=2), "in another format; fit and save it again"),
        (put("method", "name", value="os.system"), "no method 'os.system'"),
        (put("method", "name", value="os:system"), "'os:system' is not the name of a reg"),
        (put("method", "parameters", "hack", value=1), "no parameter 'hack'"),
        (put("method", "parameters", "shrinkage", value=7.0), "shrinkage is 7.0"),
        (put("base", "fields", "state", "class", value="Popen"), "speaks of Popen, which is no"),
        (put("base", "fields", "state", "fields", value={}), "not a model that this version"),
        (put("base", "fields", "task", "fields", "way", value="many"), "not a model that this"),
        (put("base", value={"tensor": "gone"}), "not a model that this version"),
        (put("support", value=3), "not a model that this version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_says_something_else_is_refused(model: Path, change: Any, message: str) -> None:
    document, arrays = read_file(model)
    change(document)
    write_file(model, document, arrays)  # with a right checksum
    refuse(model, message)


def test_another_version_of_a_method_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Marginal, "version", Marginal.version + 1)
    with pytest.warns(FewviewWarning, match="answers may differ"):
        load_model(model)


# ---------------------------------------------------------------------------- what cannot be saved


def test_what_cannot_be_saved_says_so(path: Path) -> None:
    with pytest.raises(FewviewError, match="nothing has been learnt"):
        Proto().save(path)
    with pytest.raises(FewviewError, match="estimator=SVC"):
        Concat(SVC()).fit(SUPPORT).save(path, base_rows=True)
    pairs = np.empty(len(SUPPORT), dtype=object)
    pairs[:] = [(int(code), "x") for code in SUPPORT.codes]
    with pytest.raises(FewviewError, match="cannot be saved"):
        Proto().fit(SUPPORT.with_labels(pairs)).save(path)

    class Mine(Proto):
        pass

    with pytest.raises(FewviewError, match="not a registered method"):
        Mine().fit(SUPPORT).save(path)
    with pytest.raises(FewviewError, match="does not exist"):
        Proto().fit(SUPPORT).save(path.parent / "no" / "a.model")
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    ("error", "wanted"),
    [(SafetensorError("full"), FewviewError), (KeyboardInterrupt, BaseException)],
)
def test_nothing_is_left_half_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, wanted: type[BaseException]
) -> None:
    Proto().fit(SUPPORT).save(path)
    before = path.read_bytes()

    def stop(arrays: Any, file: Path, **_: Any) -> None:
        Path(file).write_bytes(b"half")
        raise error

    monkeypatch.setattr("safetensors.numpy.save_file", stop)
    with pytest.raises(wanted):
        Proto().fit(QUERY).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["a.model"]
