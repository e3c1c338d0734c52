from __future__ import annotations

import numpy as np
import pytest

import fewview.evaluate._tuning as tuning_module
from fewview import FewviewError, MultiViewData, TaskSpec, create
from fewview.episodes.divide import divide
from fewview.evaluate import make_grid, run
from fewview.evaluate._tuning import candidates, describe_tuning, pretended_task
from fewview.evaluate._workbench import choice_key
from fewview.results._cells import example_cell
from fewview.results._store import Store


def grid(**changes: object):  # type: ignore[no-untyped-def]
    options = {"methods": "proto", "eta": "0.5", "splits": 2, "episodes": 6, "tune": True}
    return make_grid(["digits"], **(options | changes))  # type: ignore[arg-type]


def test_present_settings_come_first_and_typed_ones_stay() -> None:
    listed = candidates(create("proto:padding=zero"))
    assert listed[0] == {"scaling": "by-width", "padding": "zero"}
    assert len(listed) == len({tuple(setting.items()) for setting in listed})
    assert all(set(setting) == {"scaling"} for setting in candidates(create("proto"), ["padding"]))
    assert describe_tuning([]) == ""
    text = describe_tuning([{"padding": "episode"}, {"padding": "zero"}])
    assert text == "1:4x15:padding=episode|zero"


def test_folds_are_of_base_classes_only() -> None:
    data = MultiViewData(np.ones((48, 2)), labels=np.repeat(np.arange(8), 6))
    task, n_novel = pretended_task(data, TaskSpec(way=3, shot=1, queries=15))
    assert (task.way, task.queries, n_novel) == (3, 5, 4)
    for division in divide(data, n_novel, 4, "tuning folds", 0):
        both = [*division.known.classes.tolist(), *division.unknown.classes.tolist()]
        assert sorted(both) == list(range(8))
        assert division.unknown.classes.tolist() == sorted(division.novel.tolist())
    with pytest.raises(FewviewError, match="at least 3"):
        pretended_task(data[data.labels < 2], TaskSpec())


def test_tuned_cells_are_cells_of_their_own_and_choices_are_kept(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = tmp_path / "a.sqlite"
    tuned = run(grid(), store)
    plain = run(grid(tune=False), store)
    assert (tuned.computed, plain.computed) == (2, 2)
    for result in tuned.results.values():
        assert "padding=" in result.chosen
        assert "scaling=" in result.chosen
        assert result.seconds_base > 0
    with Store(store, write=False) as reader:
        kept = reader.all_choices()
    assert len(kept) == 2
    # More episodes of the same splits: the choice is taken from the store.
    more = run(grid(episodes=8), store)
    with Store(store, write=False) as reader:
        assert reader.all_choices() == kept
    assert {r.chosen for r in more.results.values()} == {r.chosen for r in tuned.results.values()}


def test_novel_classes_are_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    usual = tuning_module.choose

    def spy(method, settings, base, *rest):  # type: ignore[no-untyped-def]
        seen.append(set(base.classes.tolist()))
        return usual(method, settings, base, *rest)

    monkeypatch.setattr("fewview.evaluate._workbench.choose", spy)
    outcome = run(grid())
    assert len(seen) == 2
    for cell, classes in zip(outcome.cells, seen, strict=True):
        assert classes == {int(name) for name in cell.base_classes}
        assert classes.isdisjoint(int(name) for name in cell.novel)


def test_everything_fixed_by_the_user_leaves_nothing_to_choose() -> None:
    outcome = run(grid(methods="proto:padding=zero:scaling=scale"))
    assert all(cell.tune == "" for cell in outcome.cells)


def test_a_choice_depends_on_the_base_set_alone() -> None:
    key = choice_key(example_cell())
    assert key == choice_key(example_cell(novel=("6", "7", "8"), start=5, data_checksum="1" * 64))
    assert key != choice_key(example_cell(eta=0.5))
    assert key != choice_key(example_cell(base_checksum="1" * 64))
