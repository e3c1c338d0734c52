"""What may import what, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fewview
from fewview.methods.registry import names

SOURCE = Path(fewview.__file__).parent
# A folder imports only from folders to its left, inside functions too.
ORDER = (
    "numerics", "ground", "files", "samples", "datasets", "episodes", "methods",
    "results", "evaluate", "drawing", "report", "cli",
)  # fmt: skip
MODULES = {
    ".".join(("fewview", *path.relative_to(SOURCE).with_suffix("").parts)): path
    for path in sorted(SOURCE.rglob("*.py"))
    if path.name not in ("__init__.py", "__main__.py")
}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, but for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    skipped = {id(n) for b in blocks if "TYPE_CHECKING" in ast.dump(b.test) for n in ast.walk(b)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in skipped:
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            assert not node.level, "an import is absolute"
            homes = fewview._HOMES if node.module == "fewview" else {}
            names |= {f"{homes.get(a.name, node.module)}.{a.name}" for a in node.names}
    return {name for name in names if name.startswith("fewview.")}


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_from_folders_to_its_left(folder: str) -> None:
    for path in (SOURCE / folder).rglob("*.py"):
        used = {name.split(".")[1] for name in imported(path)} & {*ORDER}
        assert used <= {*ORDER[: ORDER.index(folder) + 1]}, path


def test_numerics_and_errors_import_nothing_else_of_the_package() -> None:
    for path in (*(SOURCE / "numerics").glob("*.py"), SOURCE / "errors.py"):
        assert all(name.startswith("fewview.numerics.") for name in imported(path)), path


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {
        module: {name for name in MODULES if any(f"{i}.".startswith(f"{name}.") for i in found)}
        for module, found in ((module, imported(path)) for module, path in MODULES.items())
    }
    TopologicalSorter({module: found - {module} for module, found in graph.items()}).prepare()


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("fewview.__version__; dir(fewview)", {"torch", "sklearn", "scipy", "pandas", "typer"}),
        ("fewview.MultiViewData([[1.0]]); fewview.EpisodeSampler", {"torch", "pandas", "typer"}),
    ],
)
def test_importing_loads_nothing_heavy(code: str, heavy: set[str]) -> None:
    script = f"import sys, fewview\n{code}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not heavy & {*run.stdout.split()}


def test_every_method_can_be_imported_from_the_package() -> None:
    for name in names():
        method = type(fewview.create(name))
        assert getattr(fewview, method.__name__) is method


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()
