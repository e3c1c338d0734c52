"""Build the documentation site: pages of docs/ and pages made from the code, by Sphinx.

python docs/_tools/build.py                    # into build/docs; warnings are errors
python docs/_tools/build.py --builder dummy    # check links and markup, write nothing
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent))

import pages  # type: ignore[import-not-found]
import tutorials  # type: ignore[import-not-found]

DOCS = Path(__file__).resolve().parents[1]


def assemble(sources: Path) -> list[str]:
    """Put written and generated pages into one fresh folder, and return their names."""
    written = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    texts = {**written, **pages.generate()}
    shutil.rmtree(sources, ignore_errors=True)
    run = tutorials.write_all(sources / "tutorials")
    texts["index.md"] += pages.menu([*texts, *run])
    for folder in ("images", "_static"):
        shutil.copytree(DOCS / folder, sources / folder)
    for name, text in texts.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text, encoding="utf-8")
    return sorted([*texts, *run])


def main() -> int:
    """Assemble, then run Sphinx; the exit status is Sphinx's own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=DOCS.parent / "build" / "docs")
    parser.add_argument("--builder", default="html", help="of Sphinx: html, dummy, linkcheck, ...")
    options = parser.parse_args()
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        print("Sphinx is not installed: pip install -e '.[dev]'", file=sys.stderr)
        return 2
    beside = options.output.parent
    sources, trees = (beside / f"{options.output.name}-{part}" for part in ("sources", "trees"))
    start = perf_counter()
    listed = assemble(sources)
    # Everything anew: a page that came or went changes what links on other pages mean.
    shutil.rmtree(options.output, ignore_errors=True)
    status = build_main(
        [
            "-q", "-E", "-W", "--keep-going", "-b", options.builder, "-c", str(DOCS),
            "-d", str(trees), str(sources), str(options.output),
        ]
    )  # fmt: skip
    if status == 0:
        took = f"{perf_counter() - start:.0f} s"
        print(f"{len(listed)} pages in {took}, the first one {options.output / 'index.html'}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
