"""The house rules: what may import what, what must be documented, what importing costs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest

import fewview

SOURCE = Path(fewview.__file__).parent
ROOMS = (
    "ground", "files", "samples", "datasets", "episodes", "numerics", "engine", "methods",
    "results", "evaluate", "drawing", "report", "cli",
)  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "sklearn", "scipy", "pandas", "polars", "matplotlib", "typer", "h5py", "dask")


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(module: str) -> str | None:
    """Folder that a dotted name under `fewview` leads into, None for the package itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == "fewview" and len(parts) > 1 and parts[1] in ROOMS else None


MODULES = {
    ".".join(("fewview", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in FILES
}


def imported(path: Path, text: str) -> dict[str, str]:
    """What a file imports of the package, anywhere in it, lazy imports included, however written.

    Returns:
        Dotted name -> name as imported; imports for type checkers alone are left out.
    """
    tree = ast.parse(text)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    package = ["fewview", *path.relative_to(SOURCE).parts[:-1]]
    out: dict[str, str] = {}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            out |= {alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from fewview import Proto` leads to the home of Proto.
                homes = vars(fewview)["_HOMES"] if module == "fewview" else {}
                out[f"{homes.get(alias.name, module)}.{alias.name}"] = alias.name
    return {name: short for name, short in out.items() if name.split(".")[0] == "fewview"}


def module_of(name: str) -> str:
    """The module that a dotted name leads into."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def imported_rooms(path: Path, text: str) -> set[str]:
    """Folders that a file imports from."""
    return {room for room in map(room_of, imported(path, text)) if room is not None}


def test_there_are_files_in_every_room() -> None:
    assert len(FILES) > 30
    assert {path.relative_to(SOURCE).parts[0] for path in FILES if path.parent != SOURCE} == {
        *ROOMS
    }


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_folder_imports_only_from_folders_to_its_left(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0]
    if folder not in ROOMS:
        return  # the package's own __init__ and version: names are loaded on first use
    allowed = {*ROOMS[: ROOMS.index(folder) + 1]}
    assert imported_rooms(path, path.read_text(encoding="utf-8")) <= allowed


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("import fewview.cli._app", "cli"),
        ("from fewview.report import page", "report"),
        ("from fewview import Proto", "methods"),
        ("from fewview import evaluate", "evaluate"),
        ("from ..cli import app", "cli"),
        ("from .. import methods", "methods"),
        ("from . import masks", "samples"),
        ("def f():\n    import fewview.datasets", "datasets"),
    ],
)
def test_the_room_rule_sees_every_kind_of_import(text: str, room: str) -> None:
    assert imported_rooms(SOURCE / "samples" / "made_up.py", text) == {room}


def test_no_module_imports_itself_by_a_detour() -> None:
    """Inside rooms too, and imports inside functions count: a hidden cycle is a cycle."""
    graph = {
        module: {module_of(name) for name in imported(path, path.read_text(encoding="utf-8"))}
        for module, path in MODULES.items()
    }
    # What a package offers is loaded through its __init__, which imports no one's business.
    inner = {module for module, path in MODULES.items() if path.name != "__init__.py"}
    order = TopologicalSorter({module: graph[module] & inner - {module} for module in inner})
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_private_name_crosses_a_border(path: Path) -> None:
    found = imported(path, path.read_text(encoding="utf-8")).items()
    private = [name for name, short in found if short.startswith("_") and name not in MODULES]
    assert [name for name in private if not name.endswith("__")] == []


def test_a_name_of_a_file_is_used_once_and_no_folder_is_crowded() -> None:
    names = Counter(path.name for path in FILES if not path.name.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []
    folders = Counter(path.parent for path in FILES)
    crowded = [name_of(folder) for folder, count in folders.items() if count > 15]
    assert [name for name in crowded if name != "methods"] == []  # one file for each method


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_room_it_is(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text, "the module has no docstring"
    assert len(text.split()) >= 5


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_is_left_undone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for mark in ("TODO", "FIXME", "XXX", "HACK", "raise NotImplemented", "breakpoint()"):
        assert mark not in text, mark


@pytest.mark.parametrize("name", fewview.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    thing = getattr(fewview, name)
    if name == "__version__":
        assert thing == version("fewview")
        return
    assert inspect.getdoc(thing)
    assert name in dir(fewview)
    assert thing.__doc__ is not None, "inherited documentation is not its own"
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if not member.startswith("_") and inspect.isfunction(value):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_public_names_are_listed_once_and_in_order() -> None:
    names = [name for name in fewview.__all__ if name != "__version__"]
    assert names == sorted(names)
    assert set(names) == set(vars(fewview)["_HOMES"])
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        fewview.Nothing


@pytest.mark.parametrize("room", ROOMS)
def test_names_that_a_room_offers_exist(room: str) -> None:
    module = __import__(f"fewview.{room}", fromlist=["x"])
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def loaded_by(code: str) -> set[str]:
    """Modules of `HEAVY` that are loaded after running some code in a fresh interpreter."""
    probe = f"{code}\nimport sys\nprint(*[m for m in {HEAVY} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_fewview_loads_nothing_heavy() -> None:
    assert loaded_by("import fewview; fewview.__version__; dir(fewview)") == set()


def test_looking_at_data_does_not_load_torch() -> None:
    code = "import fewview; fewview.MultiViewData([[1.0]]); fewview.EpisodeSampler"
    assert not loaded_by(code) & {"torch", "sklearn", "matplotlib", "pandas", "typer"}


def test_every_method_can_be_imported_from_the_package() -> None:
    from fewview.engine._registry import get_entry
    from fewview.methods import CATALOGUE

    for name, module in CATALOGUE.items():
        factory = get_entry(name).factory
        assert getattr(fewview, factory.__name__) is factory
        assert factory.__module__.startswith(f"fewview.methods.{module}")
    folder = SOURCE / "methods"
    there = {path.stem for path in folder.iterdir() if not path.stem.startswith("_")}
    assert there == set(CATALOGUE.values())


def loaded_rooms(code: str) -> set[str]:
    """Modules of the package that are loaded after running some code in a fresh interpreter."""
    probe = f"{code}\nimport sys\nprint(*[m for m in sys.modules if m.startswith('fewview.')])"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())


def test_loading_one_model_loads_one_method() -> None:
    model = Path(__file__).parent / "frozen" / "models" / "proto.model"
    loaded = loaded_rooms(f"import fewview; fewview.load_model({str(model)!r})")
    methods = {name for name in loaded if name.startswith("fewview.methods.")}
    assert methods == {"fewview.methods.proto"}
    assert not any(room in name for name in loaded for room in (".evaluate", ".results", ".report"))


def test_predictions_are_written_without_the_evaluation(tmp_path: Path) -> None:
    lines = ["id,a,b", *(f"s{n},{n}.5,{-n}.0" for n in range(6))]
    for part in ("support", "query"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "view.csv").write_text("\n".join(lines))
    labels = ["id,label", *(f"s{n},{'xy'[n % 2]}" for n in range(6))]
    (tmp_path / "support" / "labels.csv").write_text("\n".join(labels))
    command = "predict --method proto --support support --query query -o out.csv"
    loaded = loaded_rooms(
        f"import os, sys; os.chdir({str(tmp_path)!r})\n"
        f"sys.argv = ['fewview', *{command.split()!r}]\n"
        "from fewview.cli import main\ntry: main()\nexcept SystemExit as stop: assert not stop.code"
    )
    assert (tmp_path / "out.csv").exists()
    rooms = {name.split(".")[1] for name in loaded}
    assert not rooms & {"evaluate", "results", "report", "drawing"}


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()
