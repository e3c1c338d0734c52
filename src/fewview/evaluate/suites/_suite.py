"""The frozen suite: one file says what is run, and this reads it and makes grids of it.

A form of the suite (`lite`, `full`) is a list of data sets, class splits and tasks; a panel is a
kind of gaps, of queries, shots and missing rates. Data that are not here are skipped with a reason.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fewview.datasets._catalogue import data_folder, get_spec, is_present
from fewview.datasets._loading import load
from fewview.episodes._sampler import SAMPLER_VERSION
from fewview.evaluate._grid import Grid
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData

FOLDER = Path(__file__).parent
SUITE = "fewview-1"
FORMS = ("lite", "full")


@dataclass(frozen=True)
class Panel:
    """A kind of tasks."""

    name: str
    missing: str
    query_counts: str
    shot: int
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Entrant:
    """A data set of the suite: what it is known by, and which panels it takes part in."""

    name: str
    checksum: str
    queries: int
    panels: tuple[str, ...]
    folder: str | None = None  # of tables in the data folder
    source: str = ""  # where these come from

    def read(self, data_dir: str | None) -> str | MultiViewData:
        """The data as a grid takes them; an error where they are not here, or are others."""
        if self.folder is None:
            for name in filter(None, (get_spec(self.name).base_from, self.name)):
                if not is_present(name, data_dir):
                    way = "fetch" if get_spec(name).fetchable else "info"
                    does = "gets it" if way == "fetch" else "says where it comes from"
                    raise FewviewError(f"{name} is not here: 'fewview data {way} {name}' {does}")
            data = load(self.name, data_dir)
        else:
            path = data_folder(data_dir) / self.folder
            if not path.is_dir():
                raise FewviewError(f"no tables in {path}: {self.source}")
            data = MultiViewData.read(path, partial_rows="mean")
        if not data.fingerprint.startswith(self.checksum):
            raise FewviewError("these are not the data that the suite was frozen with")
        return self.name if self.folder is None else data


@dataclass(frozen=True)
class Suite:
    """One form of the suite.

    Example:
        >>> suite = read_suite("lite")
        >>> suite.name, suite.form, len(suite.splits), suite.episodes
        ('fewview-1', 'lite', 5, 10)
    """

    name: str
    form: str
    seed: int
    splits: tuple[int, ...]
    episodes: int
    panels: tuple[Panel, ...]
    data: tuple[Entrant, ...]
    methods: Mapping[str, str]  # name -> version at the time of freezing

    @property
    def title(self) -> str:
        """Name and form as one word."""
        return f"{self.name}-{self.form}"

    @property
    def settings(self) -> list[tuple[str, str]]:
        """(panel, data set) of everything that a whole run has, in order."""
        return [(panel, one.name) for one in self.data for panel in one.panels]

    @property
    def n_settings(self) -> int:
        """Settings, every missing rate one."""
        known = {panel.name: panel for panel in self.panels}
        return sum(len(known[panel].rates) for panel, _ in self.settings)

    def grids(
        self, methods: Sequence[str], data_dir: str | None, device: str = "cpu"
    ) -> tuple[list[tuple[Panel, Grid]], dict[str, str]]:
        """Grids of the data that are here, and why other data are skipped."""
        known = {panel.name: panel for panel in self.panels}
        out, skipped = [], {}
        for one in self.data:
            try:
                given = one.read(data_dir)
            except FewviewError as error:
                skipped[one.name] = str(error).partition("\n")[0]
                continue
            for panel in (known[name] for name in one.panels):
                grid = Grid(
                    datasets=(given,), methods=tuple(methods), etas=panel.rates, shot=panel.shot,
                    queries=one.queries, splits=self.splits, episodes=self.episodes,
                    query_counts=panel.query_counts, missing=panel.missing, seed=self.seed,
                    device=device, data_dir=data_dir,
                )  # fmt: skip
                out.append((panel, grid))
        return out, skipped


@cache
def read_suite(form: str, path: str | os.PathLike[str] | None = None) -> Suite:
    """Read a form of the suite from its file."""
    file = FOLDER / f"{SUITE}.toml" if path is None else Path(path)
    content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    if form not in content["forms"]:
        raise FewviewError(f"no form {form!r} of the suite; use {' or '.join(content['forms'])}")
    if content["sampler_version"] != SAMPLER_VERSION:
        raise FewviewError(
            f"{content['name']} was frozen with version {content['sampler_version']} of the "
            f"episode sampler, and this is version {SAMPLER_VERSION}: its tasks cannot be drawn "
            "here; use the fewview that it came with"
        )
    panels = tuple(
        Panel(**(fields | {"rates": tuple(fields["rates"])})) for fields in content["panels"]
    )
    chosen = content["forms"][form]
    data = []
    for name in chosen["data"]:
        fields = content["data"][name]
        out = fields.get("without", ())
        names = [p.name for p in panels if p.name in fields.get("only", [q.name for q in panels])]
        data.append(
            Entrant(
                name, fields["checksum"], fields["queries"],
                tuple(panel for panel in names if panel not in out), fields.get("folder"),
                fields.get("source", ""),
            )
        )  # fmt: skip
    return Suite(
        content["name"], form, content["seed"], tuple(chosen["splits"]), chosen["episodes"],
        panels, tuple(data), dict(content["methods"]),
    )  # fmt: skip
