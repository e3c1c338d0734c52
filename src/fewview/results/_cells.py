"""What is one result? A `Cell`: one data set, class split, missing rate, method, episode range.

A cell knows everything that its numbers depend on. The content hash of those fields is its key in
the store; the other fields (the method as typed, the number of the split) are for people.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

from fewview.results._metrics import Answers, EpisodeMetrics


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One unit of work and of results.

    Attributes:
        dataset: name of the data set; episodes are drawn from it, so it is part of the key.
        data_checksum: fingerprint of the data.
        base: name of the data set that the base classes come from.
        base_checksum: fingerprint of that data set.
        base_classes: the base classes, in the order of that data set's classes.
        novel: the novel classes, in the order of the data's classes.
        way: classes per task.
        shot: supports per class.
        queries: queries per class.
        query_counts: `"balanced"`, `"dirichlet:A"` or `"dominant:S"`, see `TaskSpec`.
        missing: how views go missing, as `MissingRule.describe` writes it.
        eta: missing rate.
        method_class: class of the method.
        parameters: all resolved parameters of the method, sorted.
        method_version: version of the method and of the methods it is made of.
        sampler_version: version of the episode sampler.
        seed: of episodes, drawn splits and everything random in methods.
        dtype: float type.
        device: kind of device, `"cpu"` or `"cuda"`.
        start: first episode.
        stop: episode after the last.
        tune: how settings are chosen on base classes; empty when they are not.
        method: the method exactly as typed. Not part of the key.
        scaling: per-view scaling, for people; the key has it among the parameters.
        padding: rule for missing views, likewise.
        split: number of the class split (or of the repetition). Not part of the key.
        fixed: the data set has one fixed split. Not part of the key.

    Example:
        >>> cell = example_cell()
        >>> len(cell.hash), cell.hash == example_cell(method="proto:scaling=scale").hash
        (64, True)
        >>> newer = example_cell(method_version="2")
        >>> newer.hash == cell.hash, newer.identity == cell.identity
        (False, True)
    """

    dataset: str
    data_checksum: str
    base: str
    base_checksum: str
    base_classes: tuple[str, ...]
    novel: tuple[str, ...]
    way: int
    shot: int
    queries: int
    query_counts: str
    missing: str
    eta: float
    method_class: str
    parameters: str
    method_version: str
    sampler_version: int
    seed: int
    dtype: str
    device: str
    start: int
    stop: int
    tune: str = ""
    method: str = ""
    scaling: str = ""
    padding: str = ""
    split: int = 0
    fixed: bool = False

    NOT_IN_KEY: ClassVar[tuple[str, ...]] = (
        "base", "method", "scaling", "padding", "split", "fixed",
    )  # fmt: skip
    VERSIONS: ClassVar[tuple[str, ...]] = ("method_version", "sampler_version")

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return self.stop - self.start

    def key(self) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        names = [item.name for item in fields(self) if item.name not in self.NOT_IN_KEY]
        return {name: getattr(self, name) for name in names}

    @cached_property
    def hash(self) -> str:
        """Content hash: sha256 of the key as canonical JSON."""
        return content_hash(self.key())

    @cached_property
    def identity(self) -> str:
        """Content hash without versions: equal for a cell and its stale predecessors."""
        return content_hash({k: v for k, v in self.key().items() if k not in self.VERSIONS})

    def describe(self) -> str:
        """Write the cell in a few words, for progress lines."""
        gaps = f"{100 * self.eta:.3g} % of views missing"
        return f"{self.dataset}, split {self.split + 1}, {gaps}, {self.method}"


def content_hash(value: Any) -> str:
    """Hash plain values: sha256 of JSON with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def example_cell(**changes: Any) -> Cell:
    """Make a cell that stands for no real data, for examples and tests."""
    values: dict[str, Any] = {
        "dataset": "digits", "data_checksum": "0" * 64, "base": "digits", "base_checksum": "0" * 64,
        "base_classes": ("0", "1", "2", "3", "4", "5"), "novel": ("6", "7", "8", "9"), "way": 3,
        "shot": 1, "queries": 30, "query_counts": "balanced", "missing": "uniform", "eta": 0.3,
        "method_class": "Proto", "parameters": "dtype=float32,padding=episode,scaling=scale",
        "method_version": "1", "sampler_version": 1, "seed": 0, "dtype": "float32", "device": "cpu",
        "start": 0, "stop": 40, "method": "proto", "scaling": "scale", "padding": "episode",
    }  # fmt: skip
    return Cell(**(values | changes))


@dataclass(frozen=True, kw_only=True)
class Result:
    """The numbers of one cell.

    Attributes:
        cell: what was run.
        metrics: one number per episode and metric.
        seconds: time of scoring.
        seconds_base: time of preparing from base classes, choice of settings included. Cells that
            share a preparation all carry its full time.
        chosen: settings chosen on base classes, by `--tune` or by the method itself,
            `parameter=value` in sorted order; or empty.
        created: when, UTC, ISO 8601.
        host: where.
        versions: of Python and libraries, and the number of threads, as JSON.
        answers: probabilities of every query, where they were to be kept; a store gives them by
            `Store.answers` alone.
    """

    cell: Cell
    metrics: EpisodeMetrics
    seconds: float
    seconds_base: float
    chosen: str = ""
    created: str = ""
    host: str = ""
    versions: str = "{}"
    answers: Answers | None = field(default=None, compare=False)
