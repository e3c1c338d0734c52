"""Pages made from the code: one per method, one per public name, one for the command line.

Everything here is text from docstrings, the registry and the commands themselves, so it cannot
fall behind them. `generate` gives the pages as Markdown; `build.py` hands them to Sphinx.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fewview

ROOT = Path(__file__).resolve().parents[2]

# Titles of the groups in the menu and the pages in them. A page of docs/ that stands nowhere here
# fails the build.
NAVIGATION: dict[str, tuple[str, ...]] = {
    "Start": ("start", "readers", "own-data", "formats", "predict", "questions"),
    "Tutorials": ("tutorials/omics", "tutorials/sensors", "tutorials/text"),
    "Understand": (
        "missing-rate",
        "which-method",
        "methods/index",
        "ugda",
        "marginal",
        "trained",
        "evaluation",
    ),
    "Measure": (
        "results",
        "reproduction",
        "cluster",
        "large-tables",
    ),
    "Build": ("contributing", "architecture", "add-a-method", "comparison"),
    "Rely on": ("security",),
    "Look up": ("reference/index", "reference/commands", "changelog"),
}


@dataclass(frozen=True)
class Name:
    """A public name: the shortest path to import it by, and all the others."""

    path: str
    others: tuple[str, ...]
    value: Any

    @property
    def is_object(self) -> bool:
        """Whether it is a class or a function; anything else is shown on its package's page."""
        return inspect.isclass(self.value) or inspect.isroutine(self.value)


def packages() -> Iterator[str]:
    """Packages that say in `__all__` what they offer, outermost first."""
    found = [fewview.__name__]
    for module in pkgutil.walk_packages(fewview.__path__, "fewview."):
        if module.ispkg:
            found.append(module.name)
    for name in sorted(found, key=lambda path: (path.count("."), path)):
        if hasattr(importlib.import_module(name), "__all__"):
            yield name


@cache
def public_names() -> list[Name]:
    """Every public name once, however many packages offer it."""
    paths: dict[int, list[str]] = {}
    values: dict[int, Any] = {}
    constants: list[Name] = []
    offered = [f"{package}.{name}" for package in packages() for name in _module(package).__all__]
    for path in offered:
        value = resolve(path)
        if inspect.isclass(value) or inspect.isroutine(value):
            paths.setdefault(id(value), []).append(path)
            values[id(value)] = value
        else:
            constants.append(Name(path, (), value))
    found = [Name(known[0], tuple(known[1:]), values[key]) for key, known in paths.items()]
    return sorted([*found, *constants], key=lambda name: name.path.lower())


def resolve(path: str) -> Any:
    """The thing that a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(_module(module), name)


def page_of(name: Name) -> str:
    """Where a public name is explained, as a path inside the site without its ending."""
    if not name.is_object:
        return f"reference/packages/{name.path.rpartition('.')[0]}"
    slug = _method_slugs().get(name.value)
    return f"methods/{slug}" if slug else f"reference/{name.path}"


# ------------------------------------------------------------------ methods


@cache
def _method_slugs() -> dict[type, str]:
    from fewview.methods.registry import get_entry, names

    factories = {get_entry(name).factory for name in names()}
    ours = [factory for factory in factories if factory.__module__.startswith("fewview.")]
    return {factory: factory.__name__.lower() for factory in ours}


def _names_of(factory: type) -> list[str]:
    from fewview.methods.registry import get_entry, names

    return [name for name in names() if get_entry(name).factory is factory]


def _by_pull(tags: Any, yes: str, partly: str, no: str) -> str:
    """One of three words: how far a method assumes balanced queries."""
    return no if not tags.balanced else yes if tags.balanced == 1 else partly


def _in_words(method: Any) -> list[tuple[str, str]]:
    """What the tags of a method say, for people."""
    tags = method.tags
    base = {
        "needed": "needed: it learns from them first",
        "for scaling": "used to scale views where there are some; it works without",
    }.get(method.use_of_base, "learnt from where there are some; it works without")
    if tags.depends_on:
        base += f"; anew when the task's {', '.join(tags.depends_on)} change"
    queries = {
        "yes": "looked at together (transductive); a single one is possible",
        "by padding": "each classified by itself, but gaps may be filled from all (`padding`)",
    }.get(method.looks_at_queries, "each classified by itself (inductive)")
    filled = "filled in beforehand (parameter `padding`)"
    return [
        ("queries", queries),
        ("missing views", "handled by the method itself" if tags.handles_missing else filled),
        ("base classes", base),
        (
            "classes among the queries",
            _by_pull(
                tags,
                "assumed to be equally frequent",
                "pulled towards equal frequency, not forced",
                "may be of any frequency",
            ),
        ),
        ("random numbers", "drawn, from `random_state`" if tags.random else "none"),
        ("neural networks", "trained; left out of `--methods all`" if tags.trained else "none"),
    ]


def _in_words_by_name(names: list[str]) -> list[tuple[str, str]]:
    """The same for a class that is listed under several names, which may differ."""
    from fewview.methods.registry import create

    found = [_in_words(create(name)) for name in names]
    rows = []
    for row in zip(*found, strict=True):
        texts = [text for _, text in row]
        if len(set(texts)) > 1:
            texts = [f"`{name}`: {text}" for name, text in zip(names, texts, strict=True)]
        rows.append((row[0][0], "; ".join(dict.fromkeys(texts))))
    return rows


# Pages written by hand that say more about a method.
_MORE = {"UGDA": "ugda.md", "CPM": "trained.md", "CPMGAN": "trained.md", "ICMSC": "trained.md",
         "COMPLETER": "trained.md", "Marginal": "marginal.md"}  # fmt: skip


def method_page(factory: Any) -> str:
    """How one method works: its tags in words, its docstring, its parameters."""
    from fewview.methods.params import rules_of

    names = _names_of(factory)
    module = _module(factory.__module__)
    parent = _module(factory.__module__.rpartition(".")[0])
    own_folder = getattr(parent, factory.__name__, None) is factory
    shown = parent if own_folder else module
    source = Path(inspect.getfile(factory)).relative_to(ROOT).as_posix()
    rows = [
        ("on the command line", ", ".join(f"`{name}`" for name in names)),
        ("in Python", f"`fewview.create(\"{names[0]}\", base=base)`, or `{factory.__name__}` "
            f"from `{_import_path(factory).rpartition('.')[0]}`"),
        *_in_words_by_name(names),
        ("version", f"{factory.version}; raised whenever results change"),
        ("source", f"`{source}`"),
    ]  # fmt: skip
    rules = rules_of(factory)
    tuned = [f"`{k}`: {', '.join(map(str, r['tune']))}" for k, r in rules.items() if r.get("tune")]
    if tuned:
        rows.append(("settings that `--tune` tries", "; ".join(tuned)))
    more = _MORE.get(factory.__name__)
    lines = [
        f"# {factory.__name__}",
        f"{_first_line(factory)}.",
        _table(("", "what it says of itself"), rows),
        "```bash",
        f"fewview methods {names[0]}",
        f"fewview bench digits --methods proto,{names[0]} --eta 0,0.3,0.5 --splits 3 --episodes 10",
        "```",
        "",
        "## How it works",
        _rst(inspect.cleandoc(shown.__doc__ or "")),
    ]
    if more and (ROOT / "docs" / more).is_file():
        title = (ROOT / "docs" / more).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines += [f"More about it, with what was measured: [{title}](../{more})."]
    lines += [
        "",
        "## Class and parameters",
        _rst(f".. autoclass:: {_import_path(factory)}\n   :no-members:"),
        "What every method can do (`fit_base`, `fit`, `predict`, `predict_proba`, "
        "`predict_set`, `explain`, `diagnose`, `save`) is described with "
        "[Method](../reference/fewview.Method.md).",
    ]
    return _join(lines)


def methods_index() -> str:
    """All methods in one table."""
    from fewview.methods.registry import get_entry, names

    slugs = _method_slugs()
    rows = []
    for name in names():
        entry = get_entry(name)
        method = entry.create()
        tags = method.tags
        if entry.factory in slugs:
            rows.append(
                (
                    f"[`{name}`]({slugs[entry.factory]}.md)",
                    _first_line(entry.factory),
                    {"yes": "together", "-": "each by itself"}.get(
                        method.looks_at_queries, method.looks_at_queries
                    ),
                    "itself" if tags.handles_missing else "filled in",
                    "needed" if tags.needs_base else "helpful",
                    _by_pull(tags, "assumed", "partly assumed", "not needed"),
                    "yes" if tags.trained else "no",
                )
            )
    header = ("name", "what it is", "queries", "missing views", "base classes", "balanced queries",
              "trains networks")  # fmt: skip
    pages = sorted(set(slugs.values()))
    return _join(
        [
            "# How each method works",
            "One page per method, made from its docstring and its tags. "
            "[Which method when](../which-method.md) compares them by results. On the command line "
            "`fewview methods` prints this table and `fewview methods NAME` one page.",
            _table(header, rows),
            _toctree(pages, "hidden"),
        ]
    )


# ------------------------------------------------------------------ reference


def reference_page(name: Name) -> str:
    """One public class or function with its signature and docstring."""
    short = name.path.rpartition(".")[2]
    home = name.path.rpartition(".")[0]
    also = "".join(f", also in `{other.rpartition('.')[0]}`" for other in name.others)
    if inspect.isclass(name.value):
        body = f".. autoclass:: {name.path}"
        if name.path == "fewview.Method":
            body += "\n   :inherited-members: ClassifierMixin, BaseEstimator, ABC"
    else:
        body = f".. autofunction:: {name.path}"
    return _join([f"# {short}", f"`from {home} import {short}`{also}", _rst(body)])


def package_page(package: str, names: Iterable[Name]) -> str:
    """What a package offers."""
    module = _module(package)
    by_value = {id(name.value): name for name in names if name.is_object}
    objects, constants = [], []
    for short in sorted(module.__all__, key=str.lower):
        value = getattr(module, short)
        if id(value) in by_value:
            target = page_of(by_value[id(value)])
            objects.append((f"[`{short}`](../../{target}.md)", _first_line(value)))
        else:
            constants.append((f"`{short}`", f"`{value!r}`"))
    lines = [f"# {package}", _rst(inspect.cleandoc(module.__doc__ or "")),
             _table(("name", "what it is"), objects)]  # fmt: skip
    if constants:
        lines += ["## Values", _table(("name", "value"), constants)]
    return _join(lines)


def reference_index(names: list[Name]) -> str:
    """All public names, by package."""
    listed = list(packages())
    rows = []
    for package in listed:
        text = inspect.cleandoc(_module(package).__doc__ or "").partition("\n")[0]
        rows.append((f"[`{package}`](packages/{package}.md)", _cell(text)))
    pages = [f"packages/{package}" for package in listed] + [
        page_of(name).removeprefix("reference/")
        for name in names
        if name.is_object and page_of(name).startswith("reference/")
    ]
    return _join(
        [
            "# Reference",
            "Every public name, made from its docstring. The examples are run by the tests.",
            _table(("package", "what it answers"), rows),
            _toctree(sorted(set(pages), key=str.lower), "hidden"),
        ]
    )


# ------------------------------------------------------------------ the command line


def contributing_page() -> str:
    """CONTRIBUTING.md, whose links start one folder up."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def commands_page() -> str:
    """Every command with its arguments, options and examples."""
    from typer.main import get_command

    from fewview.cli._app import app

    lines = [
        "# Command line",
        "Every command explains itself with `--help`; this page is made from the same texts. Wrong "
        "input is one message that says what to do, and exit status 2.",
    ]

    def visit(command: Any, words: str) -> None:
        if hasattr(command, "commands"):  # a group; typer has classes of its own for these
            for name, found in command.commands.items():
                if not found.hidden:
                    visit(found, f"{words} {name}")
            return
        lines.extend([f"## {words}", _plain(command.help or "")])
        rows = []
        for parameter in command.params:
            if getattr(parameter, "hidden", False) or parameter.name == "help":
                continue
            if parameter.param_type_name == "argument":
                shown = f"`{(parameter.metavar or parameter.name).upper()}`"
            else:
                options = [*parameter.opts, *parameter.secondary_opts]
                shown = ", ".join(f"`{name}`" for name in options)
            default = parameter.default
            noted = isinstance(default, (str, float, int)) and not isinstance(default, bool)
            text = _plain(getattr(parameter, "help", None) or "")
            rows.append(
                (
                    shown,
                    _cell(text) + (f" Default: `{default}`." if noted and default != "" else ""),
                )
            )
        lines.append(_table(("argument or option", "what it does"), rows))
        examples = [_plain(line).strip() for line in (command.epilog or "").splitlines()[1:]]
        examples = [line for line in examples if line]
        if examples:
            lines.append("```bash")
            for line in examples:
                words_of_it, _, meaning = line.rpartition("  (")
                lines.append(f"{words_of_it}    # {meaning.removesuffix(')')}")
            lines.extend(["```", ""])

    visit(get_command(app), "fewview")
    return _join(lines)


# ------------------------------------------------------------------ all together


def generate() -> dict[str, str]:
    """All pages made from code: path inside docs/ -> Markdown."""
    names = public_names()
    pages = {
        "methods/index.md": methods_index(),
        "reference/index.md": reference_index(names),
        "reference/commands.md": commands_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "contributing.md": contributing_page(),
    }
    for factory, slug in _method_slugs().items():
        pages[f"methods/{slug}.md"] = method_page(factory)
    for package in packages():
        pages[f"reference/packages/{package}.md"] = package_page(package, names)
    for name in names:
        path = f"{page_of(name)}.md"
        if name.is_object and path not in pages:
            pages[path] = reference_page(name)
    return pages


def menu(existing: Iterable[str]) -> str:
    """The menu of the site, from `NAVIGATION`; put at the end of the first page."""
    known = set(existing)
    groups = []
    for title, pages in NAVIGATION.items():
        present = [page for page in pages if f"{page}.md" in known]
        groups.append(_toctree(present, "hidden", f"caption: {title}"))
    return "\n" + "\n".join(groups)


# ------------------------------------------------------------------ small things


def _module(path: str) -> Any:
    return importlib.import_module(path)


def _import_path(factory: Any) -> str:
    """The shortest public path of a class, else the module that holds it."""
    for name in public_names():
        if name.value is factory:
            return name.path
    return f"{factory.__module__}.{factory.__qualname__}"


def _first_line(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return _cell(text.strip().partition("\n\n")[0]).rstrip(".")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """Help texts without the markup of the terminal."""
    text = re.sub(r"(?<!\\)\[/?(?:bold|italic|dim|green|red|cyan)\]", "", text)
    return inspect.cleandoc(text.replace("\\[", "[").replace("\b\n", ""))


def _rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}\n```\n"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _toctree(pages: Iterable[str], *options: str) -> str:
    head = "".join(f":{option if ':' in option else option + ':'}\n" for option in options)
    return "```{toctree}\n" + head + "\n".join(pages) + "\n```\n"


def _join(lines: Iterable[str]) -> str:
    out = []
    inside = False
    for line in lines:
        fence = line.startswith("```") and line.count("```") == 1
        out.append(line if inside or fence else line + "\n")
        inside = inside ^ fence
    return "\n".join(out)
