"""Models on disk: equal digits in a new process, and files that are refused."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.svm import SVC

from fewview import FewviewError, FewviewWarning, MultiViewData, create, load_model
from fewview.engine._checks import synthetic_data
from fewview.engine._method import Method
from fewview.engine._registry import names
from fewview.engine._saving import FORMAT_VERSION, KEY, _document_digest
from fewview.methods.concat import Concat
from fewview.methods.marginal import Marginal
from fewview.methods.proto import Proto
from fewview.methods.ugda import UGDA

BASE, NOVEL = synthetic_data()
CHEAP = {
    "ugda": ":n_anchors=3",
    "ptmap+ugda": ":ugda__n_anchors=3",
    "rfs+ugda": ":ugda__n_anchors=3",
    "tim": ":steps=20",
    "alpha-tim": ":steps=20",
}


def split(shots: int = 2) -> tuple[MultiViewData, MultiViewData]:
    mask = np.ones(NOVEL.mask.shape, dtype=bool)
    mask[1::4, 0] = mask[2::4, 1] = False
    data = NOVEL.with_mask(mask)
    support = np.concatenate([np.flatnonzero(data.codes == code)[:shots] for code in range(4)])
    return data[support], data[np.setdiff1d(np.arange(len(data)), support)]


SUPPORT, QUERY = split()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a.model"
    Marginal().fit_base(BASE).fit(SUPPORT).save(path)
    return path


# ---------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("name", [n for n in names() if not create(n).tags.trained])
def test_every_method_comes_back_with_equal_digits(name: str, tmp_path: Path) -> None:
    clf = create(name + CHEAP.get(name, "")).fit_base(BASE).fit(SUPPORT)
    path = tmp_path / "a.model"
    clf.save(path, base_rows=isinstance(clf, Concat))
    back = load_model(path)
    assert type(back) is type(clf)
    assert back.key() == clf.key()
    assert back.classes_.tolist() == clf.classes_.tolist()
    assert np.array_equal(back.predict_proba(QUERY), clf.predict_proba(QUERY))


def test_a_base_model_waits_for_supports_in_a_new_process(tmp_path: Path) -> None:
    clf = UGDA(n_anchors=5, rectify=("entropy",), n_neighbors=2).fit_base(BASE)
    clf.save(tmp_path / "base.model")
    wanted = clf.fit(SUPPORT).predict_proba(QUERY)
    SUPPORT.write(tmp_path / "support.npz")
    QUERY.write(tmp_path / "query.npz")
    script = (
        "import fewview, numpy as np, torch\n"
        "torch.set_num_threads(1)\n"
        "clf = fewview.load_model('base.model').fit(fewview.MultiViewData.read('support.npz'))\n"
        "np.save('found.npy', clf.predict_proba(fewview.MultiViewData.read('query.npz')))\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    assert np.array_equal(np.load(tmp_path / "found.npy"), wanted)


@pytest.mark.parametrize("method", [Marginal(), UGDA(n_anchors=5), Proto()], ids=str)
@pytest.mark.parametrize("unlabelled", [False, True])
def test_models_without_base_classes(method: Method, unlabelled: bool, tmp_path: Path) -> None:
    clf = method.set_params(base=BASE.with_labels(None) if unlabelled else None).fit(SUPPORT)
    clf.save(tmp_path / "a.model")
    back = load_model(tmp_path / "a.model")
    assert np.array_equal(back.predict_proba(QUERY), clf.predict_proba(QUERY))
    assert len(back.partial_fit(QUERY[:1]).support_) == len(SUPPORT) + 1


def test_base_rows_are_not_in_the_file_unless_asked(tmp_path: Path) -> None:
    marked = {view: np.array(block) for view, block in BASE.views.items()}
    marked["colour"][7, 0] = secret = np.float32(1.2345678)
    base = MultiViewData(marked, BASE.labels)
    for rows in (False, True):
        for method in (Marginal(), UGDA(n_anchors=3), Proto()):
            path = tmp_path / "a.model"
            method.fit_base(base).save(path, base_rows=rows)
            content = path.read_bytes()
            found = any(
                np.asarray(secret, dtype=kind).tobytes() in content for kind in ("f4", "f8")
            )
            assert found == rows
            assert (load_model(path).base.rows is None) == (not rows)
    with pytest.raises(FewviewError, match="base_rows=True"):
        Concat().fit_base(BASE).save(tmp_path / "b.model")
    assert not (tmp_path / "b.model").exists()


def test_parameters_may_not_change_without_rows(model: Path, tmp_path: Path) -> None:
    clf = load_model(model)
    with pytest.raises(FewviewError, match=r"shrinkage=0\.9"):
        clf.set_params(shrinkage=0.9).fit(SUPPORT)
    Marginal().fit_base(BASE).save(tmp_path / "rows.model", base_rows=True)
    again = load_model(tmp_path / "rows.model").set_params(shrinkage=0.9).fit(SUPPORT)
    wanted = Marginal(shrinkage=0.9).fit_base(BASE).fit(SUPPORT).predict_proba(QUERY)
    assert np.array_equal(again.predict_proba(QUERY), wanted)


def test_thresholds_task_and_labels_come_back(tmp_path: Path) -> None:
    holes = np.ones(BASE.mask.shape, dtype=bool)
    holes[::3, 1] = False
    clf = Marginal().fit_base(BASE.with_mask(holes)).fit(SUPPORT)
    clf.save(tmp_path / "a.model")
    back = load_model(tmp_path / "a.model")
    assert back.base.task == clf.base.task
    assert back.base.classes == clf.base.classes
    assert np.array_equal(back.rejected(QUERY, 0.1), clf.rejected(QUERY, 0.1))
    numbers = Proto().fit([[0.0], [9.0]], [3, 5])
    numbers.save(tmp_path / "b.model")
    assert load_model(tmp_path / "b.model").predict([[8.0]]).tolist() == [5]
    frame_like = MultiViewData(
        {"a": [[0.0, 1.0], [9.0, 2.0]]}, ["x", "y"], columns={"a": ["p", "q"]}
    )
    Proto().fit(frame_like).save(tmp_path / "c.model")
    turned = MultiViewData({"a": [[2.0, 9.0]]}, columns={"a": ["q", "p"]})
    assert load_model(tmp_path / "c.model").predict(turned).tolist() == ["y"]


# ---------------------------------------------------------------------------- what is refused


def refuse(path: Path, message: str) -> None:
    with pytest.raises(FewviewError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


def test_pickles_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "a.model").write_bytes(pickle.dumps(Bomb(), protocol=protocol))
        refuse(tmp_path / "a.model", "not a model file")
    torch.save({"a": Bomb()}, tmp_path / "b.model")
    refuse(tmp_path / "b.model", "pickle or an archive")
    assert not (tmp_path / "exploded").exists()


def test_every_truncation_is_refused(model: Path) -> None:
    content = model.read_bytes()
    for size in [0, 1, 7, 8, 9, 100, *np.linspace(200, len(content) - 1, 40).astype(int).tolist()]:
        model.write_bytes(content[:size])
        refuse(model, "not a model file|cut off")
    model.write_bytes(content + b"\0")
    refuse(model, "longer than it should be")
    model.write_bytes((2**62).to_bytes(8, "little") + content[8:])
    refuse(model, "not a model file")


def test_every_altered_byte_is_refused(model: Path) -> None:
    content = bytearray(model.read_bytes())
    rng = np.random.default_rng(0)
    header = int.from_bytes(content[:8], "little")
    places = [*rng.integers(8, 8 + header, 60), *rng.integers(8 + header, len(content), 40)]
    for place in map(int, places):
        if content[place] == ord(" "):
            continue
        changed = bytearray(content)
        changed[place] ^= 1
        model.write_bytes(changed)
        with pytest.raises(FewviewError):
            load_model(model)


def rewritten(path: Path, change: Any) -> None:
    """Alter a model as somebody would who knows the format, checksums included."""
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        document = json.loads(file.metadata()[KEY])
    change(arrays, document)
    document["sha256"] = _document_digest(document)
    save_file(arrays, path, metadata={KEY: json.dumps(document)})


def set_field(*keys: Any, value: Any) -> Any:
    def change(_: Any, document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def narrow(arrays: Any, _: Any) -> None:
    name = next(name for name, array in arrays.items() if array.dtype == np.float64)
    arrays[name] = arrays[name].astype(np.float32)


def half(arrays: Any, _: Any) -> None:
    name = next(iter(arrays))
    arrays[name] = arrays[name].astype(np.float16)


def add(arrays: Any, _: Any) -> None:
    arrays["more"] = np.zeros(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (narrow, "should be float64"),
        (half, "dtype F16"),
        (add, "missing or were added"),
        (set_field("version", value=FORMAT_VERSION + 1), "install a newer one"),
        (set_field("format", value="fewview-episodes"), "not a fewview model"),
        (set_field("method", "name", value="os.system"), "no method 'os.system'"),
        (set_field("method", "parameters", "hack", value=1), "no parameter 'hack'"),
        (set_field("method", "parameters", "shrinkage", value=7.0), "shrinkage is 7.0"),
        (set_field("base", "prepared", "state", "class", value="Popen"), "no method here knows"),
        (set_field("base", "prepared", "state", "fields", value={}), "fields"),
        (set_field("base", "prepared", "view_dims", value=[["a", 2]]), "does not fit"),
        (set_field("base", "task", "way", value="many"), "can read"),
        (set_field("support", value=3), "can read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_content_is_refused(model: Path, change: Any, message: str) -> None:
    rewritten(model, change)
    refuse(model, message)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    save_file({"weights": np.zeros(3, dtype=np.float32)}, path)
    refuse(path, "not a fewview model")
    path.write_text("id,label\n1,a\n" * 10)
    refuse(path, "not a model file")
    refuse(tmp_path / "nosuch.model", "cannot be read")
    refuse(tmp_path, "cannot be read")


def test_what_cannot_be_saved_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    with pytest.raises(FewviewError, match="nothing has been learnt"):
        Proto().save(path)
    with pytest.raises(FewviewError, match="estimator=SVC"):
        Concat(estimator=SVC()).fit(SUPPORT).save(path)
    tuples = np.empty(len(SUPPORT), dtype=object)
    tuples[:] = [(int(code), "x") for code in SUPPORT.codes]
    with pytest.raises(FewviewError, match="cannot be saved"):
        Proto().fit(SUPPORT.with_labels(tuples)).save(path)

    class Mine(Proto):
        pass

    with pytest.raises(FewviewError, match="not a registered method"):
        Mine().fit(SUPPORT).save(path)
    with pytest.raises(FewviewError, match="does not exist"):
        Proto().fit(SUPPORT).save(tmp_path / "no" / "a.model")
    assert not list(tmp_path.iterdir())


def test_load_of_a_class_and_of_another_version(model: Path, monkeypatch: Any) -> None:
    assert isinstance(Method.load(model), Marginal)
    with pytest.raises(FewviewError, match="a model of Marginal, not of UGDA"):
        UGDA.load(model)
    monkeypatch.setattr(Marginal, "version", Marginal.version + 1)
    with pytest.warns(FewviewWarning, match="answers may differ"):
        load_model(model)


def test_nested_methods_and_changed_parameters_come_back(tmp_path: Path) -> None:
    clf = create("ptmap+ugda")
    clf.set_params(source__n_anchors=3, source__rectify=(), anchor_weight=2.0)
    clf.fit_base(BASE).save(tmp_path / "a.model")
    back = load_model(tmp_path / "a.model")
    assert (back.source.n_anchors, back.source.rectify, back.anchor_weight) == (3, (), 2.0)
    assert back.key() == clf.key()
