"""What `fewview doctor` tries: libraries, devices, files, models, and numbers against records.

A trial says what it found, or raises; what to do then stands beside it. The numbers were recorded
with `make record` (`digits.json`): accuracies and log losses of small tasks of the embedded digits,
in float64, where processors agree to many places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewview.ground._errors import FewviewError

RECORD = Path(__file__).with_name("digits.json")
QUICK = ("proto", "rfs", "ptmap", "ugda", "marginal")
# Sums in another order move a log loss in the tenth place; iterations make more of it.
TOLERANCE = 1e-4
REINSTALL = "pip install --force-reinstall --no-deps fewview"
GIVES = {
    "cluster": "--cluster, cells on many machines",
    "frames": "pandas frames and parquet files",
    "omics": ".h5ad and .h5mu files",
}
Numbers = dict[str, dict[str, Any]]


class OffError(FewviewError):
    """What a trial found, with what to do about just that."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True)
class Trial:
    """Something that must work.

    Attributes:
        name: in a word or two.
        run: gives what was found, in one line; raises where something is off.
        advice: what to do then, unless an `OffError` knows better.
    """

    name: str
    run: Callable[[], str]
    advice: str


def trials(full: bool) -> Iterator[Trial]:
    """All that is tried; `full` adds every method and the examples of the documentation."""
    yield Trial("libraries", libraries, "pip install --upgrade fewview")
    yield Trial("package", package, REINSTALL)
    yield Trial(
        "torch", torch_works,
        "install torch again as https://pytorch.org says for your machine; without a working GPU "
        "set CUDA_VISIBLE_DEVICES= (empty)",
    )  # fmt: skip
    yield Trial(
        "folders", folders, "set FEWVIEW_STORE to a file, and HOME to a folder, that you may write"
    )
    yield Trial(
        "foreign files", foreign_files,
        "files of other programs are read by a second Python: allow processes, and 3 GiB of "
        "address space (ulimit -v)",
    )  # fmt: skip
    yield Trial("models", models, "pip install --force-reinstall safetensors fewview")
    yield Trial("numbers", lambda: numbers(() if full else QUICK), "report it with this page")
    if full:
        yield Trial("examples", examples, "report it with this page")


def recorded() -> dict[str, Any]:
    """What was recorded: `grid`, `numbers`, and the `versions` of libraries it was made with."""
    try:
        out: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        damaged = f"{RECORD} is damaged ({error}): nothing to compare with"
        raise OffError(damaged, REINSTALL) from None
    return out


# ------------------------------------------------------------------ libraries and machine


def requirements() -> list[tuple[str, str, str]]:
    """What the package says it needs: library, least version, extra ("" where all need it)."""
    from importlib.metadata import requires

    out = []
    for line in requires("fewview") or ():
        found = re.match(r"([\w.-]+)>=([\d.]+)(?:.*extra == ['\"](\w+)['\"])?", line)
        if found:
            out.append((found[1], found[2], found[3] or ""))
    return out


def installed(library: str) -> str | None:
    """Version of a library, or None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return None


def is_older(found: str, least: str) -> bool:
    """Whether a version is below another, by its leading numbers.

    Example:
        >>> is_older("1.9.1", "1.12"), is_older("2.13.0+cpu", "2.13")
        (True, False)
    """
    one, two = ([int(part) for part in re.findall(r"\d+", text)] for text in (found, least))
    size = len(two)
    return (one + [0] * size)[:size] < two


def libraries() -> str:
    """All that is needed is there, new enough and can be imported; extras where installed."""
    from importlib import import_module

    wrong, wanted, broken, count = [], [], [], 0
    for library, least, extra in requirements():
        found = installed(library)
        if extra not in ("", *GIVES) or (extra and found is None):
            continue
        count += 1
        if found is None or is_older(found, least):
            wrong.append(f"{library} {found or 'is missing'}, needed is {least}")
            wanted.append(f"'{library}>={least}'")
            continue
        try:
            import_module("sklearn" if library == "scikit-learn" else library)
        except Exception as error:  # libraries of C fail in any way they like
            wrong.append(f"{library} {found} cannot be imported ({error})")
            broken.append(library)
    if not count:
        raise FewviewError("fewview itself is not installed; pip install fewview")
    if wrong:
        commands = [f"pip install --upgrade {' '.join(wanted)}"] * bool(wanted)
        commands += [f"pip install --force-reinstall {' '.join(broken)}"] * bool(broken)
        raise OffError("; ".join(wrong), " && ".join(commands))
    return f"{count} libraries are new enough and can be imported"


def package() -> str:
    """Every file of the package is as it was installed."""
    import csv
    from base64 import urlsafe_b64encode
    from hashlib import sha256
    from importlib.metadata import distribution

    wrong, count, size = [], 0, 0
    installed = distribution("fewview")
    # Not `installed.files`: from Python 3.12 on it leaves out files that are gone.
    for name, checksum, *_ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        if not checksum or not name.startswith("fewview/"):
            continue
        place = Path(str(installed.locate_file(name)))
        content = place.read_bytes() if place.exists() else b""
        count, size = count + 1, size + len(content)
        found = urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
        if f"sha256={found}" != checksum:
            wrong.append(name)
    if wrong:
        raise FewviewError(f"{len(wrong)} file(s) are gone or changed: {', '.join(wrong[:5])}")
    told = f"{count} files are as installed, {size / 1e6:.1f} MB"
    return told if count else "runs from a checkout"


def missing_extras() -> list[str]:
    """What can be added: extras of which a library is not there, and what they give."""
    absent = {extra for library, _, extra in requirements() if extra and not installed(library)}
    return [f"{text}: pip install 'fewview[{name}]'" for name, text in GIVES.items()
            if name in absent]  # fmt: skip


def torch_works() -> str:
    """A product on the processor, and on a GPU where torch sees one."""
    import torch

    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        a = torch.arange(6.0, device=device).reshape(2, 3)
        if (a @ a.T).tolist() != [[5.0, 14.0], [14.0, 50.0]]:
            raise FewviewError(f"a small matrix product is wrong on {device}")
    return f"multiplies on {' and '.join(devices)}"


def folders() -> str:
    """The store's folder can be written, and the store read."""
    import tempfile

    from fewview.results._store import Store, default_path

    path = default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent) as file:
        file.write(b"fewview")
    if not path.exists():
        return f"results will be in {path}"
    with Store(path, write=False) as store:
        return f"{len(store)} result(s) in {path}"


# ------------------------------------------------------------------ files and numbers


def _digits() -> Any:
    from fewview.datasets._loading import load

    return load("digits")[:40]


def foreign_files() -> str:
    """Files of every format that can be read here come back as they were, by a child process."""
    import tempfile

    from fewview.files import FORMATS
    from fewview.files._guarded import kept_reader
    from fewview.samples._data import MultiViewData

    data = _digits()
    needs = {"parquet": "pyarrow", "h5ad": "anndata", "h5mu": "anndata"}
    kinds = [kind for kind in FORMATS if kind not in needs or installed(needs[kind])]
    with tempfile.TemporaryDirectory() as folder, kept_reader():
        for kind in kinds:
            path = Path(folder) / (kind if kind in ("csv", "parquet", "npy") else f"a.{kind}")
            data.write(path, format=kind)
            if MultiViewData.read(path) != data:
                raise FewviewError(f"{kind}: came back with other content")
    return f"{', '.join(kinds)} come back as they were"


def models() -> str:
    """A model that is saved and loaded says the same."""
    import tempfile

    import numpy as np

    from fewview.engine._method import load_model
    from fewview.engine._registry import create

    data = _digits()
    clf = create("proto").fit(data)
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "a.model")
        back = load_model(Path(folder) / "a.model")
        if not np.array_equal(clf.predict(data), back.predict(data)):
            raise FewviewError("a model that was saved and loaded says something else")
    return "saved and loaded, says the same"


def measure(names: tuple[str, ...]) -> Numbers:
    """Accuracy, log loss and version of methods on the recorded grid."""
    import warnings

    from fewview.evaluate._grid import Grid
    from fewview.evaluate._runner import run
    from fewview.results._summaries import summarise_planned

    grid: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in recorded()["grid"].items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = run(Grid(methods=names, **grid))
    if outcome.failures:
        raise FewviewError(f"{len(outcome.failures)} cell(s) failed: {outcome.failures[0]}")
    out: Numbers = {name: {} for name in names}
    for row in summarise_planned(outcome.cells, outcome.results):
        found = out[row["method"]]
        found["version"] = row["method_version"]
        found[f"eta {row['eta']:g}"] = [round(row["accuracy"], 4), round(row["log_loss"], 6)]
    return out


def numbers(names: tuple[str, ...]) -> str:
    """Methods (all that are recorded, where none is named) give the recorded digits."""
    known = recorded()
    wanted = known["numbers"]
    names = names or tuple(wanted)
    found = measure(names)
    wrong = [line for name in names for line in differences(name, wanted[name], found[name])]
    if wrong:
        made_with = " ".join(f"{name}=={version}" for name, version in known["versions"].items())
        raise OffError(
            "; ".join(wrong),
            "results of this installation are not those of others: try the versions that were "
            f"recorded with, pip install {made_with}, and if it stays so report it with this page",
        )
    count = sum(len(found[name]) - 1 for name in names)
    return f"{count} accuracies and log losses of {len(names)} methods are as recorded"


def differences(name: str, wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Say which numbers of a method differ; a method of another version may."""
    if found["version"] != wanted["version"]:
        return [f"{name} has version {found['version']}, recorded is {wanted['version']}"]
    out = []
    for place in sorted(wanted.keys() - {"version"}):
        (accuracy, loss), here = wanted[place], found[place]
        if abs(here[0] - accuracy) > 1e-3 or abs(here[1] - loss) > TOLERANCE * (1 + loss):
            out.append(
                f"{name} at {place}: accuracy {here[0]:.2f} and log loss {here[1]:.6f}, recorded "
                f"{accuracy:.2f} and {loss:.6f}"
            )
    return out


def examples() -> str:
    """Every example of every docstring runs; those of extras that are not there are left out."""
    import doctest
    import importlib
    import pkgutil
    import warnings

    import fewview

    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=options, verbose=False)
    finder = doctest.DocTestFinder(exclude_empty=True)
    said: list[str] = []
    left_out = 0
    for module in pkgutil.walk_packages(fewview.__path__, "fewview."):
        if module.name.endswith("__main__"):
            continue
        for test in finder.find(importlib.import_module(module.name)):
            if not can_import("".join(example.source for example in test.examples)):
                left_out += 1
                continue
            with warnings.catch_warnings():
                runner.run(test, out=said.append)
    if runner.failures:
        raise FewviewError(f"{runner.failures} of {runner.tries} fail: {''.join(said)[-1500:]}")
    without = f", {left_out} need an extra and were left out" if left_out else ""
    return f"{runner.tries} lines of examples ran{without}"


def can_import(code: str) -> bool:
    """Whether all libraries are there that some code imports at its beginning of lines.

    Example:
        >>> can_import("import json"), can_import("import json\\nfrom strange_library import x")
        (True, False)
    """
    from importlib.util import find_spec

    libraries = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
    return all(find_spec(library) is not None for library in libraries)
