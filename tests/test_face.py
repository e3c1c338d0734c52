"""The public face: names, parameters, commands, flags, formats and columns, as recorded.

Other people's scripts hang on these. `frozen/face.json` lists them; a difference fails here and
says what it breaks and what to do. What is only new is recorded without more words; what is gone or
changed must also stand in the newest section of CHANGELOG.md. Recorded again, after a change that
is meant (or after a merge), and once more with every release:

    python tests/test_face.py record
    python tests/test_face.py release
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fewview

HERE = Path(__file__).resolve().parent
RECORD = HERE / "frozen" / "face.json"
CHANGELOG = HERE.parent / "CHANGELOG.md"
AGAIN = "python tests/test_face.py record"
Face = dict[str, str]  # what it is -> how it looks, both for people

# Outputs of commands (recorded by test_frozen.py) whose columns people read.
TABLES = {
    "fewview results --format csv": "results-csv",
    "fewview results --format json": "results-json",
    "fewview results --level cell": "results-cells",
    "fewview results --level episode": "results-episodes",
    "fewview results --compare --format json": "results-compare-json",
    "fewview bench --json": "bench",
    "fewview bench --open-set --json": "open-set",
    "fewview predict -o out.csv": "predict",
    "fewview predict --reject -o out.json": "predict-reject",
    "fewview predict --explain, reasons": "predict-explain",
}

HOW = {
    inspect.Parameter.KEYWORD_ONLY: "by name",
    inspect.Parameter.VAR_POSITIONAL: "any number",
    inspect.Parameter.VAR_KEYWORD: "any names",
}

# ---------------------------------------------------------------------- what is there


def found_face() -> Face:
    """The face of the source as it is now."""
    return {**names(), **methods(), **commands(), **columns(), **formats(), **settings()}


def names() -> Face:
    """Public names of packages with the parameters of all that can be called."""
    out: Face = {}
    packages = [fewview]
    for module in pkgutil.walk_packages(fewview.__path__, "fewview."):
        if module.ispkg:
            packages.append(importlib.import_module(module.name))
    offered = {
        f"{package.__name__}.{short}": getattr(package, short)
        for package in sorted(packages, key=lambda package: package.__name__.count("."))
        for short in getattr(package, "__all__", ())
    }
    homes: dict[int, str] = {}
    for path, value in offered.items():
        if inspect.isclass(value) or inspect.isroutine(value):
            first = homes.setdefault(id(value), path)
            if first != path:
                out[f"name {path}"] = f"the same as {first}"
                continue
        out[f"name {path}"] = kind(value)
        out |= parameters(path, value)
        if inspect.isclass(value):
            public = [known for known in offered.values() if inspect.isclass(known)]
            for member, inner in members(value, public):
                out[f"name {path}.{member}"] = kind(inner)
                out |= parameters(f"{path}.{member}", inner)
    return out


def members(value: type, public: list[Any]) -> list[tuple[str, Any]]:
    """Public attributes of a class that no other public class gives it."""
    out: dict[str, Any] = {}
    others = {home for base in value.__mro__[1:] if base in public for home in base.__mro__}
    for home in reversed(value.__mro__):
        if home.__module__.startswith("fewview") and home not in others:
            out |= {name: inner for name, inner in vars(home).items() if not name.startswith("_")}
    # What scikit-learn adds to every estimator by itself is not ours to promise.
    return [item for item in sorted(out.items()) if not re.fullmatch("set_.*_request", item[0])]


def kind(value: Any) -> str:
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__mro__[1:] if base.__module__ != "builtins"]
        ours = [name for name in bases if hasattr(fewview, name)]
        return f"class, a {ours[0]}" if ours else "class"
    if isinstance(value, (classmethod, staticmethod)) or inspect.isroutine(value):
        return "function"
    if isinstance(value, property) or type(value).__name__ == "cached_property":
        return "property"
    return "value"


def parameters(path: str, value: Any) -> Face:
    """One entry per parameter: how it may be given, and its default."""
    value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    if not callable(value):
        return {}
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return {}
    out = {}
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls") or parameter.name.startswith("_"):
            continue
        how = HOW.get(parameter.kind, "by place or name")
        default = parameter.default
        shown = "required" if default is parameter.empty else f"default {plain(default)}"
        out[f"parameter {path}({parameter.name})"] = f"{how}, {shown}"
    return out


def plain(value: Any) -> str:
    """A default without addresses in memory; typers differ in how they write that there is none."""
    text = "None" if "UNSET" in repr(value) else repr(value)
    return f"a {type(value).__name__}" if " at 0x" in text else text


def methods() -> Face:
    """Methods by the names that commands and stores use, with what they are made with."""
    from fewview.engine import create
    from fewview.methods import CATALOGUE

    out = {}
    for name in CATALOGUE:
        out[f"method {name}"] = type(create(name)).__name__
        for parameter, value in sorted(create(name).get_params(deep=False).items()):
            if not hasattr(value, "get_params"):
                out[f"method {name}:{parameter}"] = f"default {plain(value)}"
    return out


def commands() -> Face:
    """Commands with their arguments and flags."""
    from typer.main import get_command

    from fewview.cli._app import app

    out: Face = {}

    def visit(command: Any, words: str) -> None:
        for parameter in command.params:
            if getattr(parameter, "hidden", False) or parameter.name == "help":
                continue
            if parameter.param_type_name == "argument":
                out[f"argument {words} {parameter.name.upper()}"] = (
                    "required" if parameter.required else "may be left out"
                )
                continue
            needed = "required" if parameter.required else f"default {plain(parameter.default)}"
            takes = "a switch" if parameter.is_flag else "takes a value"
            for flag in [*parameter.opts, *parameter.secondary_opts]:
                out[f"flag {words} {flag}"] = f"{takes}, {needed}"
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                out[f"command {words} {name}"] = "there"
                visit(inner, f"{words} {name}")

    visit(get_command(app), "fewview")
    return out


def columns() -> Face:
    """Columns of CSV and keys of JSON, from the recorded outputs of commands."""
    out: Face = {}
    for title, file in TABLES.items():
        text = (HERE / "frozen" / "commands" / f"{file}.txt").read_text(encoding="utf-8")
        body = re.split(r"^--- out\.(?:reasons\.csv|csv|json)\n", text, flags=re.MULTILINE)
        table = body[-1] if len(body) > 1 else text.partition("\n")[2].partition("--- errors")[0]
        if table.lstrip().startswith(("[", "{")):
            seen = re.findall(r'^ *"([^"]+)":', table, re.MULTILINE)
        else:
            seen = table.partition("\n")[0].split(",")
        for column in seen:  # one column of probabilities for every class of the task
            shown = re.sub(r"^p_.*", "p_CLASS", column)
            out[f"column {title}: {shown}"] = "there"
    return out


def formats() -> Face:
    """Formats of files, with their versions where they have one."""
    from fewview.datasets._catalogue import names as data_sets
    from fewview.engine import _saving
    from fewview.episodes._sampler import SAMPLER_VERSION
    from fewview.evaluate.suites._suite import SUITE
    from fewview.files import FORMATS
    from fewview.ground import _rows
    from fewview.results import _store

    return {
        **{f"format of samples {name}": "read and written" for name in FORMATS},
        **{f"format of results {name}": "written" for name in _rows.FORMATS},
        f"format of models {_saving.FORMAT}": f"up to version {_saving.FORMAT_VERSION} read",
        "format of stores sqlite": f"schema {_store.SCHEMA_VERSION}",
        "episodes": f"sampler version {SAMPLER_VERSION}",
        f"suite {SUITE}": "frozen",
        **{f"data set {name}": "known" for name in data_sets()},
    }


def settings() -> Face:
    """Environment variables."""
    source = Path(fewview.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"FEWVIEW_[A-Z_]+", text)}
    return {f"environment variable {name}": "read" for name in found}


# ---------------------------------------------------------------------- comparing


def differences(recorded: Face, found: Face) -> tuple[list[str], list[str]]:
    """What breaks somebody's script, and what is only new; a rename is named as what it may be."""
    gone = [name for name in recorded if name not in found]
    new = [name for name in found if name not in recorded]
    breaking = []
    for name in gone:
        place = re.sub(r"[^\s(:.]+\)?$", "", name)
        alike = [other for other in new if re.sub(r"[^\s(:.]+\)?$", "", other) == place]
        renamed = f" (renamed to {', '.join(alike)}?)" if 0 < len(alike) < 4 else ""
        breaking.append(f"gone: {name}{renamed}")
    breaking += [
        f"changed: {name}: was '{recorded[name]}', is '{found[name]}'"
        for name in recorded
        if name in found and found[name] != recorded[name]
    ]
    return breaking, [f"new: {name}" for name in new]


def advice(breaking: list[str], new: list[str]) -> str:
    """What to do about differences."""
    lines = ["the public face differs from the recorded one (tests/frozen/face.json)"]
    lines += [f"  {line}" for line in [*breaking, *new]]
    if breaking:
        lines += [
            "Scripts that use what is gone or changed will fail. If that is not meant, take it "
            "back. If it is:",
            "  1. let the old way work for one minor version, and warn: ground/_deprecated.py",
            "  2. say it in the newest section of CHANGELOG.md, by name",
        ]
    lines += [f"  {'3. r' if breaking else 'R'}ecord it: {AGAIN}"]
    return "\n".join(lines)


def recorded() -> dict[str, Any]:
    out: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return out


def test_the_face_is_as_recorded() -> None:
    done = subprocess.run(  # in a process of its own: other tests register methods and commands
        [sys.executable, __file__, "show"], capture_output=True, encoding="utf-8", check=True
    )
    breaking, new = differences(recorded()["face"], json.loads(done.stdout))
    if breaking or new:
        pytest.fail(advice(breaking, new), pytrace=False)


def short_name(line: str) -> str:
    """What a changelog would call it: `gone: parameter fewview.Proto(scaling) (...)` -> scaling."""
    name = re.sub(r" \(renamed.*|: was .*", "", line.partition(": ")[2])
    return re.split(r"[\s(.:]", name.removesuffix(")"))[-1]


def test_what_broke_is_in_the_changelog() -> None:
    newest = re.split(r"^## ", CHANGELOG.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    missing = [line for line in recorded()["broken"] if short_name(line) not in newest]
    assert missing == [], "say in the newest section of CHANGELOG.md what was recorded as broken"


def test_the_face_covers_all_kinds() -> None:
    face = recorded()["face"]
    kinds = ("name", "parameter", "method", "command", "flag", "argument", "column", "format",
             "environment variable", "data set")  # fmt: skip
    counts = {kind: sum(name.startswith(f"{kind} ") for name in face) for kind in kinds}
    assert min(counts.values()) > 3, counts
    for known in (
        "name fewview.load", "parameter fewview.TaskSpec(eta)", "method ugda:n_anchors",
        "flag fewview bench --eta", "argument fewview bench DATASETS",
        "column fewview predict -o out.csv: p_CLASS", "format of models fewview-model",
        "environment variable FEWVIEW_DATA", "column fewview bench --json: accuracy",
    ):  # fmt: skip
        assert known in face, known


def test_a_renamed_parameter_is_told() -> None:
    before = {"name a.f": "function", "parameter a.f(x)": "by place or name, required",
              "parameter a.f(n)": "by name, default 1"}  # fmt: skip
    after = {"name a.f": "function", "parameter a.f(z)": "by place or name, required",
             "parameter a.f(n)": "by name, default 2", "name a.g": "function"}  # fmt: skip
    breaking, new = differences(before, after)
    assert breaking == [
        "gone: parameter a.f(x) (renamed to parameter a.f(z)?)",
        "changed: parameter a.f(n): was 'by name, default 1', is 'by name, default 2'",
    ]
    assert new == ["new: parameter a.f(z)", "new: name a.g"]
    assert [short_name(line) for line in breaking] == ["x", "n"]
    text = advice(breaking, new)
    assert "CHANGELOG.md" in text
    assert AGAIN in text
    assert "CHANGELOG.md" not in advice([], new)


def test_what_a_function_can_be_given_is_seen() -> None:
    def f(a: int, /, b: int = 1, *rest: int, c: str, _hidden: int = 0, **more: int) -> None: ...

    assert parameters("f", f) == {
        "parameter f(a)": "by place or name, required",
        "parameter f(b)": "by place or name, default 1",
        "parameter f(rest)": "any number, required",
        "parameter f(c)": "by name, required",
        "parameter f(more)": "any names, required",
    }


# ---------------------------------------------------------------------- recording


def main() -> None:
    """Record the face, or show it."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word == "show":
        print(json.dumps(found_face()))
        return
    if word not in ("record", "release"):
        sys.exit(__doc__)
    old = recorded() if RECORD.exists() else {"face": {}, "broken": []}
    face = found_face()
    breaking, new = differences(old["face"], face)
    broken = [] if word == "release" else sorted({*old["broken"], *breaking})
    content = {"version": fewview.__version__, "broken": broken, "face": dict(sorted(face.items()))}
    RECORD.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    print(f"{len(face)} entries: {len(new)} new, {len(breaking)} gone or changed")
    for line in breaking:
        print(f"  {line}\n    say in CHANGELOG.md: {short_name(line)}")


if __name__ == "__main__":
    main()
