"""The licences of everything that fewview needs or names, as one page: docs/licences.md.

    python release/licences.py            # write the page, from what is installed here
    python release/licences.py --check    # 1 if the page is another one
    python release/licences.py --gpu      # with a torch for GPUs: note what that brings

Libraries are followed from pyproject.toml through what each one says it needs on this Python;
licences are those that the libraries state about themselves. Data sets are those of the catalogue
and of the benchmarks.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
GPU = ROOT / "release" / "results" / "gpu-licences.json"
HEAVY = ("nvidia", "cuda-", "triton")  # come with builds of torch for NVIDIA's GPUs alone
# In this order: who needs more is named after who needs less.
GROUPS = ("", "frames", "omics", "cluster", "test", "docs", "dev")
# Where a library writes a whole licence or nothing into its field, its classifier says which.
SHORT = {
    "BSD License": "BSD", "MIT License": "MIT", "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF (matplotlib's own)",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "ISC License (ISCL)": "ISC",
    "GNU General Public License (GPL)": "GPL (parts)", "Public Domain": "public domain",
}  # fmt: skip
# Sets that the documentation measures and that are in no catalogue.
COPIES = ("distributed with papers on multi-view clustering", "no licence stated; for research")
CCLE = "Cancer Cell Line Encyclopedia: metabolomics 2019-05-02, RPPA 2018-10-03, drugs 2015-02-24"
OTHER_DATA = {
    "ccle": (CCLE, "research use"),
    "soybean": (
        "UCI Machine Learning Repository, https://archive.ics.uci.edu/dataset/90/soybean+large",
        "CC BY 4.0 as on other sets of UCI; its page could not be opened to confirm it",
    ),
    **dict.fromkeys(("movies617", "newsgroups", "wikipedia"), COPIES),
}


def normal(name: str) -> str:
    """A library's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> dict[str, str]:
    """All libraries, with the first group that needs them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    out: dict[str, str] = {}
    for group in GROUPS:
        lines = project["optional-dependencies"][group] if group else project["dependencies"]
        left = [Requirement(line) for line in lines if not line.startswith("fewview[")]
        while left:
            requirement = left.pop()
            name = normal(requirement.name)
            if name in out and not requirement.extras:
                continue
            try:
                found = distribution(name)
            except PackageNotFoundError:
                continue  # for another system
            out.setdefault(name, group)
            for line in found.requires or ():
                inner = Requirement(line)
                extras = requirement.extras or {""}
                fits = inner.marker is None or any(
                    inner.marker.evaluate({"extra": extra}) for extra in extras
                )
                if fits and normal(inner.name) not in out:
                    left.append(inner)
    return out


def licence(found: Distribution) -> str:
    """What a library says of itself, short."""
    facts = found.metadata
    stated = (facts.get("License-Expression") or facts.get("License") or "").strip()
    first = stated.partition("\n")[0].strip()
    if first == stated and 0 < len(stated) < 120 and not stated.startswith("Copyright"):
        return stated
    if re.fullmatch(r"[\w.+ -]+ License", first):
        return first
    classes = [
        line.rpartition(" :: ")[2]
        for line in facts.get_all("Classifier") or ()
        if line.startswith("License")
    ]
    if not classes and all(".dist-info" in str(file) for file in found.files or ("?",)):
        return "has no code, only needs others"
    return ", ".join(SHORT.get(name, name) for name in classes) or "not stated"


def page() -> str:
    """All in two tables."""
    from fewview.datasets._catalogue import get_spec, names

    lines = [
        "# Licences",
        "",
        "fewview is under the MIT licence. This page is made by `python release/licences.py` from",
        "what the libraries state about themselves and from the catalogue of data sets.",
        "",
        "## Libraries",
        "",
        "None of them comes with fewview; pip installs them. *Needed for* is empty where everybody",
        "needs it, else it is the extra that brings it. What builds of torch for NVIDIA's GPUs",
        "bring besides is in the second table; CPU builds do not.",
        "",
        "| library | licence | needed for |",
        "|---|---|---|",
    ]
    groups = needed()
    for name in sorted(groups, key=lambda name: (GROUPS.index(groups[name]), name)):
        if not name.startswith(HEAVY):
            lines.append(f"| {name} | {licence(distribution(name))} | {groups[name]} |")
    noted = json.loads(GPU.read_text(encoding="utf-8"))
    lines += [
        "",
        "## Libraries of NVIDIA's GPUs",
        "",
        f"What torch {noted['torch']} from PyPI brings on Linux, as these state about themselves.",
        "",
        "| library | licence |",
        "|---|---|",
        *(f"| {name} | {stated} |" for name, stated in noted["libraries"].items()),
    ]
    lines += [
        "",
        "## Data",
        "",
        "Only `digits` can be used at once; its images come with scikit-learn. No other data come",
        "with fewview, nor anything computed sample by sample. `fewview data info NAME` says how",
        "to get a set and what to cite.",
        "",
        "| data set | source | licence or terms |",
        "|---|---|---|",
    ]
    known = {name: (get_spec(name).source, get_spec(name).licence) for name in names()}
    for name, (source, terms) in sorted({**known, **OTHER_DATA}.items()):
        linked = re.sub(r"(?<!<)(https?://[^\s,;)]+)", r"<\1>", source)
        lines.append(f"| `{name}` | {linked} | {terms} |")
    return "\n".join(lines) + "\n"


def note_gpu() -> None:
    """Note what the torch that is installed here brings for NVIDIA's GPUs."""
    found = {
        normal(item.metadata["Name"]): licence(item)
        for item in distributions()
        if normal(item.metadata["Name"]).startswith(HEAVY)
    }
    if not found:
        sys.exit("no library of NVIDIA's GPUs is here; run this with a torch for GPUs")
    torch = distribution("torch").version.partition("+")[0]
    content = {"torch": torch, "libraries": dict(sorted(found.items()))}
    GPU.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Write the page, compare, or note what the second table needs."""
    if "--gpu" in sys.argv:
        note_gpu()
        print(f"written: {GPU}; now without --gpu in the environment of 'make install'")
        return 0
    text = page()
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("the page is what the command makes" if same else f"{PAGE} differs")
        return int(not same)
    PAGE.write_text(text, encoding="utf-8")
    print(f"written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
