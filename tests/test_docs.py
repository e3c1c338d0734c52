"""README and docs: code runs, commands exist, links lead somewhere, drawings are well made, and
every public name and every method has a page on the site."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fewview
from fewview.datasets import make_few_shot

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DRAWINGS = sorted((ROOT / "docs" / "images").glob("*.svg"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def tool(name: str) -> Any:
    """A module of docs/_tools, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    pages: dict[str, str] = tool("pages").generate()
    return pages


def blocks(page: Path, *languages: str) -> list[str]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if language in languages]


def commands(page: Path) -> Iterator[list[str]]:
    """Commands in the shell blocks of a page, one per line, comments removed."""
    for text in blocks(page, "bash", "sh", "console"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def in_tests(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------ Python


def python_blocks() -> list[tuple[str, str]]:
    return [
        (f"{in_tests(page)}:{number}", text)
        for page in PAGES
        for number, text in enumerate(blocks(page, "python", "py"))
    ]


@pytest.mark.parametrize(
    ("where", "code"), [pytest.param(*block, id=block[0]) for block in python_blocks()]
)
def test_python_in_the_documentation_runs(
    where: str,
    code: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("documentation")  # a real module: classes in it can be pickled
    monkeypatch.setitem(sys.modules, "documentation", module)
    exec(compile(code, where, "exec", dont_inherit=True), module.__dict__)
    assert "print(" not in code or capsys.readouterr().out


def test_the_example_of_the_readme_gives_what_its_comments_say() -> None:
    """A value as numpy prints it, cut off at the dots; numbers to a digit of the last place."""
    code, _ = blocks(ROOT / "README.md", "python")
    namespace: dict[str, Any] = {"array": np.array}
    exec(compile(code, "README.md", "exec"), namespace)
    said = dict(re.findall(r"^(clf\.\S+) +# (.*)$", code, re.MULTILINE))
    assert len(said) == 4
    (start, _) = said["clf.predict(query)"].split(", ...")
    expected = eval(f"{start}])", namespace)
    answers = namespace["clf"].predict(namespace["query"])
    assert answers[: len(expected)].tolist() == expected.tolist()
    (start, _) = said["clf.predict_proba(query)"].split(", ...")
    expected = eval(f"{start}])", namespace)
    proba = namespace["clf"].predict_proba(namespace["query"])
    np.testing.assert_allclose(proba[: len(expected)], expected, atol=0.011)
    ours, theirs = map(float, re.findall(r"\d\.\d+", said["clf.score(query)"]))
    base, support, query = (namespace[name] for name in ("base", "support", "query"))
    assert namespace["clf"].score(query) == pytest.approx(ours, abs=0.011)
    assert fewview.Proto().fit_base(base).fit(support).score(query) == pytest.approx(
        theirs, abs=0.011
    )
    assert "log-odds" in said["clf.explain(query)"]


def test_what_the_readme_prints_of_tables_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _, code = blocks(ROOT / "README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    (said,) = re.findall(r"^print\(data\) +# (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.strip() == said


def test_other_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    (\w.*?)(?:  +#.*)?$", BLOCK.sub("", text), re.MULTILINE)
    shown += re.findall(r"`((?:make|pip|python) [^`]+)`", text)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in shown:
        first, *words = shlex.split(command)
        assert first in ("fewview", "make", "pip", "python"), command
        if first == "make":
            assert words[0] in targets, command
        if first == "python":
            assert words[0] == "-m", command
            assert (ROOT / words[1] / "__main__.py").is_file(), command
    assert {"make demo", "make test"} <= set(shown)


# ------------------------------------------------------------------ commands


def fewview_commands() -> list[tuple[str, list[str]]]:
    """Every `fewview ...` on the pages: in shell blocks, indented, and within a sentence."""
    found = []
    for page in PAGES:
        for words in commands(page):
            if words[0] == "fewview":
                found.append((in_tests(page), words[1:]))
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for line in re.findall(r"^    fewview (.*)$", text.replace("\\\n", " "), re.MULTILINE):
            found.append((in_tests(page), shlex.split(line, comments=True)))
        for inline in re.findall(r"`fewview ([^`\n]+)`", text):
            found.append((in_tests(page), shlex.split(inline)))
    return found


@pytest.mark.parametrize(
    ("page", "words"), [pytest.param(*item, id=" ".join(item[1])) for item in fewview_commands()]
)
def test_commands_in_the_documentation_exist(page: str, words: list[str]) -> None:
    parse(words)


def methods_on_the_pages() -> list[str]:
    """Methods with parameters, as commands and sentences name them; not those of a user's file."""
    from fewview.methods.registry import names

    found = set()
    for page in PAGES:
        for word in re.findall(r"[a-z][\w+-]*(?::\w+=[\w.+-]+)+", page.read_text(encoding="utf-8")):
            if word.partition(":")[0] in names():
                found.add(word.rstrip("."))
    return sorted(found)


@pytest.mark.parametrize("text", methods_on_the_pages())
def test_methods_in_the_documentation_have_these_parameters(text: str) -> None:
    fewview.create(text)


@cache
def fewview_command() -> Any:
    from typer.main import get_command

    from fewview.cli._app import app

    return get_command(app)


def parse(words: list[str]) -> None:
    """Parse a command with its options, without running it."""
    command = fewview_command()
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    if words and "--help" not in words:  # without any words it is the name of a command
        command.make_context("fewview", list(words))


@pytest.mark.parametrize(
    "line",
    ["nonsense", "data nonsense", "bench digits --nonsense", "bench --eta 0", "bench x --splits"],
)
def test_a_wrong_command_would_be_found(line: str) -> None:
    with pytest.raises(
        Exception, match=r"no command|No such option|[Mm]issing|requires an argument"
    ):
        parse(shlex.split(line))


def test_the_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fewview.cli._app import app

    monkeypatch.chdir(tmp_path)
    data = make_few_shot(4, 12, missing=0.3)
    names = dict(zip(sorted(data.classes), ("A", "B", "ill", "well"), strict=True))
    labels = [names[label] for label in data.labels]
    shown = [k for name in ("A", "B") for k in np.flatnonzero(np.array(labels) == name)[:3]]
    labels = [None if x in ("A", "B") and k not in shown else x for k, x in enumerate(labels)]
    data.with_labels(labels).write(tmp_path / "tables")
    for words in commands(ROOT / "README.md"):
        assert words[0] == "fewview"
        # Without standalone mode an Exit comes back as its status, and errors as exceptions.
        assert not app(words[1:], prog_name="fewview", standalone_mode=False), words
        assert capsys.readouterr().out, words
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == labels.count(None) + 1


def test_scripts_that_the_documentation_names_exist() -> None:
    for page in PAGES:
        for words in commands(page):
            if words[0] in ("python", "python3") and words[1].endswith(".py"):
                assert (ROOT / words[1]).is_file(), words
        for path in re.findall(r"`python ([\w/]+\.py)", page.read_text(encoding="utf-8")):
            assert (ROOT / path).is_file(), path


# ------------------------------------------------------------------ links and names


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=in_tests
)
def test_links_lead_somewhere(page: Path, generated: dict[str, str]) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            path, _, anchor = target.partition("#")
            if path in generated:
                continue
            if path.startswith("tutorials/"):  # a page that its script becomes
                path = path.removesuffix(".md") + ".py"
            assert (page.parent / path).exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", (page.parent / path).read_text(), re.MULTILINE)
                assert anchor in [
                    re.sub(r"[^\w\- ]", "", t).lower().replace(" ", "-") for t in titles
                ]


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = Path(fewview.__file__).parent
    for name in re.findall(
        r"`((?:numerics|ground|files|samples|datasets|episodes|methods|results|evaluate|drawing"
        r"|report|cli)/[\w/.]*)`",
        text,
    ):
        assert (source / name).exists(), name
    for name in re.findall(r"`((?:tests|docs|examples|benchmarks)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name


def test_every_folder_and_every_stage_of_ugda_is_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = Path(fewview.__file__).parent
    for folder in source.iterdir():
        if folder.is_dir() and (folder / "__init__.py").is_file():
            assert f"`{folder.name}/`" in text, folder.name
    for stage in (source / "methods" / "ugda").glob("[a-z]*.py"):
        assert f"`{stage.name}`" in text, stage.name


def test_lines_are_of_readable_length() -> None:
    for page in PAGES:
        for line in BLOCK.sub("", page.read_text(encoding="utf-8")).splitlines():
            assert len(line) <= 100 or line.startswith(("|", "![")), f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    source = ROOT / "src" / "fewview"
    for name in re.findall(r"`([\w/.-]+\.py)`", page.read_text(encoding="utf-8")):
        found = (ROOT / name).exists() or any(source.rglob(name))
        found = found or any((ROOT / "reproduction").rglob(name)) or name == "mine.py"  # a reader's
        assert found, f"{page.name} names {name}, which is not there"


# ------------------------------------------------------------------ the site


def offered_names() -> set[str]:
    """Public names by a way of their own: `__all__` of every package, wherever it is."""
    found = {f"fewview.{name}" for name in fewview.__all__}
    for module in pkgutil.walk_packages(fewview.__path__, "fewview."):
        if module.ispkg:
            package = importlib.import_module(module.name)
            found |= {f"{module.name}.{name}" for name in getattr(package, "__all__", ())}
    return found


def test_every_public_name_has_a_page(generated: dict[str, str]) -> None:
    pages = tool("pages")
    home = {}
    for name in pages.public_names():
        for path in (name.path, *name.others):
            home[path] = f"{pages.page_of(name)}.md"
    assert offered_names() - set(home) == set()
    for path, page in home.items():
        short = path.rpartition(".")[2]
        value = getattr(importlib.import_module(path.rpartition(".")[0]), short)
        directive = rf"\.\. auto(class|function):: [\w.]+\.{re.escape(short)}$"
        if isinstance(value, type) or callable(value):
            assert re.search(directive, generated[page], re.MULTILINE), f"{path} not on {page}"
        else:
            assert f"`{short}`" in generated[page], f"{path} not on {page}"
    lowered = [page.lower() for page in generated]
    assert len(lowered) == len(set(lowered)), "two pages are one file where case does not count"


def test_every_method_has_a_page(generated: dict[str, str]) -> None:
    from fewview.methods.registry import get_entry, names

    for name in names():
        entry = get_entry(name)
        if not entry.factory.__module__.startswith("fewview."):
            continue  # from the documentation's own examples, or an installed package
        page = generated[f"methods/{entry.factory.__name__.lower()}.md"]
        assert f"`{name}`" in page
        assert f"[`{name}`]" in generated["methods/index.md"]


def test_every_command_is_on_its_page(generated: dict[str, str]) -> None:
    page = generated["reference/commands.md"]
    for name, command in fewview_command().commands.items():
        inner = getattr(command, "commands", None)
        for title in [f"{name} {part}" for part in inner] if inner else [name]:
            assert f"## fewview {title}\n" in page
    assert "`--query-counts`" in page


def test_commands_of_generated_pages_exist(generated: dict[str, str]) -> None:
    lines = [
        line
        for text in generated.values()
        for language, code in BLOCK.findall(text)
        if language == "bash"
        for line in code.splitlines()
    ]
    assert len(lines) > 30
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "fewview", line
        parse(words[1:])


def test_methods_have_the_settings_that_were_chosen() -> None:
    """Those of benchmarks/experiments/scaling_choice.py."""
    from fewview import create

    kept = json.loads((ROOT / "benchmarks/results/scalings.json").read_text(encoding="utf-8"))
    for name, found in kept["methods"].items():
        parameters = create(name).get_params()
        for parameter, value in found["settings"][found["best"]].items():
            # The same for views of six features or more, as all views of those sets are.
            wanted = "by-width" if value == "root+standard+unit" else value
            assert parameters[parameter] == wanted, name


def test_every_page_is_in_the_menu(generated: dict[str, str]) -> None:
    menu = tool("pages").menu([*generated, *(page.name for page in PAGES)])
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem == "index" or f"\n{page.stem}\n" in menu, page.name


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """Tutorials are run, all pages read and all links resolved; writing HTML takes longer.

    With the data that a fresh machine has: real ones, where they are, double the time.
    """
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package, reason=f"{package} is not installed; it is in the extra 'dev'")
    done = subprocess.run(
        [
            sys.executable,
            "docs/_tools/build.py",
            "--builder",
            "dummy",
            "--output",
            tmp_path / "site",
        ],
        cwd=ROOT,
        env={**os.environ, "FEWVIEW_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------ drawings


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_drawings_are_self_contained_and_described(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    svg = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{svg}svg"
    for part in ("title", "desc"):
        element = root.find(f"{svg}{part}")
        assert element is not None
        assert element.text
        assert element.get("id") in (root.get("aria-labelledby") or "")
    width, height = (float(value) for value in (root.get("viewBox") or "").split()[2:])
    background = root.find(f"{svg}rect")
    assert background is not None, "a drawing needs a background: pages may be dark"
    assert (float(background.get("width", 0)), float(background.get("height", 0))) == (
        width,
        height,
    )
    assert (background.get("fill"), float(background.get("rx", 0)) > 0) == ("#ffffff", True)
    texts = list(root.iter(f"{svg}text"))
    assert len(texts) > 10
    assert all(float(text.get("font-size", 0)) >= 11 for text in texts)
    ids = {element.get("id") for element in root.iter() if element.get("id")}
    for element in root.iter():
        link = element.get("href")
        assert link is None or (link[0] == "#" and link[1:] in ids), link
        assert element.tag.removeprefix(svg) not in ("image", "script", "foreignObject")
        x, y = element.get("x"), element.get("y")
        if x and y and element.tag != f"{svg}use":
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_every_drawing_is_used() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f"images/{path.name}" in shown for path in DRAWINGS)


# ------------------------------------------------------------------ citation and changes


def test_citation_and_changelog_know_the_version() -> None:
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == fewview.__version__
    assert f"## {fewview.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_documentation_does_not_speak_of_this_machine() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "examples").glob("*.py")]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/work/|/tmp/|\.\./shared|/home/", text), page.name
        assert os.fspath(ROOT) not in text
