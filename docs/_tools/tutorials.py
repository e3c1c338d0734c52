"""Tutorials: scripts in docs/tutorials that are run when the site is built, and what comes out.

A script is divided by lines `# %%`; a part that begins `# %% [markdown]` is text. Every other part
is run, and what it prints, the value of its last line and the figures it draws follow it on the
page. The same is offered as a notebook (.ipynb). A part that fails ends the build.

    python docs/_tools/tutorials.py omics FOLDER     # one page, its pictures and its notebook
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "tutorials"


@dataclass
class Part:
    """A part of a script, and what came out of it."""

    text: str
    is_code: bool
    said: str = ""
    value: str = ""
    pictures: list[bytes] = field(default_factory=list)


def names() -> list[str]:
    """All tutorials."""
    return sorted(path.stem for path in SCRIPTS.glob("*.py"))


def divide(script: str) -> list[Part]:
    """Divide a script into parts; what stands before the first mark is for nobody."""
    parts = []
    for piece in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        mark, _, body = piece.partition("\n")
        if mark.strip() == "[markdown]":
            lines = [re.sub(r"^# ?", "", line) for line in body.strip().splitlines()]
            parts.append(Part("\n".join(lines), False))
        else:
            parts.append(Part(body.strip(), True))
    return parts


def run(parts: list[Part], called: str) -> None:
    """Run all code of a tutorial in one namespace."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    space: dict[str, Any] = {"__name__": "__main__"}
    for number, part in enumerate(part for part in parts if part.is_code):
        tree = ast.parse(part.text, f"{called}, part {number + 1}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        said, value = io.StringIO(), None
        with contextlib.redirect_stdout(said):
            exec(compile(tree, f"{called}, part {number + 1}", "exec"), space)
            if last is not None:
                expression = ast.Expression(last.value)  # type: ignore[attr-defined]
                value = eval(compile(expression, called, "eval"), space)
        part.said = said.getvalue().rstrip()
        drawn = "matplotlib" in f"{type(value).__module__} {value!r}"  # shown as a picture
        part.value = "" if value is None or drawn else str(value)
        for figure in plt.get_fignums():
            stream = io.BytesIO()
            plt.figure(figure).savefig(stream, format="png", dpi=110, bbox_inches="tight")
            part.pictures.append(stream.getvalue())
        plt.close("all")


def as_page(parts: list[Part], name: str) -> tuple[str, dict[str, bytes]]:
    """A tutorial as Markdown, and its pictures by file name."""
    lines: list[str] = []
    pictures: dict[str, bytes] = {}
    for part in parts:
        if not part.is_code:
            lines += [part.text, ""]
            continue
        lines += ["```python", part.text, "```", ""]
        if part.said:
            lines += ["```text", part.said, "```", ""]
        if part.value.startswith("|"):  # a table
            lines += [part.value, ""]
        elif part.value:
            lines += ["```text", part.value, "```", ""]
        title = re.findall(r"set_title\(\s*f?[\"']([^\"'{]+)", part.text)
        for content in part.pictures:
            file = f"{name}-{len(pictures) + 1}.png"
            pictures[file] = content
            lines += [f"![{title[0] if title else 'What was just drawn'}]({file})", ""]
    return "\n".join(lines), pictures


def as_notebook(parts: list[Part]) -> str:
    """A tutorial with its outputs as a notebook."""
    cells: list[dict[str, Any]] = []
    count = 0
    for number, part in enumerate(parts):
        cell = {"id": f"part-{number}", "metadata": {}, "source": part.text.splitlines(True)}
        if not part.is_code:
            cells.append({"cell_type": "markdown", **cell})
            continue
        count += 1
        outputs: list[dict[str, Any]] = []
        if part.said:
            outputs.append({"output_type": "stream", "name": "stdout", "text": part.said + "\n"})
        if part.value:
            kind = "text/markdown" if part.value.startswith("|") else "text/plain"
            outputs.append(
                {
                    "output_type": "execute_result", "execution_count": count, "metadata": {},
                    "data": {"text/plain": part.value, kind: part.value},
                }
            )  # fmt: skip
        for content in part.pictures:
            data = {"image/png": base64.b64encode(content).decode(), "text/plain": "a figure"}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        cells.append({"cell_type": "code", "execution_count": count, "outputs": outputs, **cell})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1) + "\n"


def write(name: str, folder: Path) -> None:
    """Run one tutorial and write page, pictures and notebook."""
    start = perf_counter()
    parts = divide((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:  # files that a tutorial writes go away
        os.chdir(place)
        try:
            run(parts, name)
        finally:
            os.chdir(before)
    text, pictures = as_page(parts, name)
    took = f"{perf_counter() - start:.0f} s"
    note = (
        f"\n---\n\nEverything above was run when this page was made, in {took}. The same as a "
        f"notebook: {{download}}`{name}.ipynb`.\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text + note, encoding="utf-8")
    (folder / f"{name}.ipynb").write_text(as_notebook(parts), encoding="utf-8")
    for file, content in pictures.items():
        (folder / file).write_bytes(content)


def write_all(folder: Path) -> list[str]:
    """Run every tutorial, each in a process of its own; the names of their pages."""
    for name in names():
        start = perf_counter()
        command = [sys.executable, "-W", "ignore", __file__, name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"tutorial {name} failed:\n{done.stderr[-3000:]}")
        print(f"tutorial {name}: {perf_counter() - start:.0f} s", flush=True)
    return [f"tutorials/{name}.md" for name in names()]


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]).resolve())
