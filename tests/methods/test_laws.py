"""Every registered method keeps every law; and every law notices a method that breaks it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fewview import Method, Proto, State, Tags, create, param
from fewview.episodes.batch import EpisodeBatch
from fewview.methods.estimator.laws import LAWS, broken_laws, check_method
from fewview.methods.registry import names

SMALL = {
    "cpm": "cpm:latent=16:epochs=4:query_epochs=4",
    "cpm-gan": "cpm-gan:latent=16:epochs=4:query_epochs=4:discriminator_hidden=8",
    "icmsc": "icmsc:width=32:epochs=4+4:view_width=32",
    "completer": "completer:width=32:code=8:epochs=4:warm_up=2:learning_rate=0.003",
}
# Four epochs of tiny networks learn next to nothing: what they share with all others is asked.
UNTRAINED = ("learns", "odd shapes", "precision and device", "tasks apart")
SLOW = ("concat-hgb",)  # half a second a task: few of them


@pytest.mark.parametrize("name", names())
def test_every_method_keeps_every_law(name: str) -> None:
    left_out = UNTRAINED if name in SMALL else ()
    laws = [law for law in LAWS if law not in left_out]
    n_tasks = 3 if name in SLOW else None
    found = dict(broken_laws(create(SMALL.get(name, name)), only=laws, n_tasks=n_tasks))
    assert not found


def broken(scores: Any, **members: Any) -> Method:
    """Prototypes with another `scores`, under the name of the law that it breaks."""
    kind = type("Broken", (Proto,), {"scores": scores, "name": "proto", **members})
    made: Method = kind()
    return made


def plain(self: Any, batch: EpisodeBatch) -> Tensor:
    return Proto.scores(self, batch, State())


def by_place(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    return plain(self, batch) + 5 * torch.arange(batch.n_query)[:, None] * torch.eye(batch.way)[0]


def first_support(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    return plain(self, batch) + batch.support[0][:, :1, :1] * torch.arange(batch.way)


def first_class(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    return plain(self, batch) + torch.eye(batch.way)[0]


def first_view(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    only = replace(batch, support=batch.support[:1], query=batch.query[:1])
    return plain(self, only)


def over_tasks(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    found = plain(self, batch)
    return found * found.abs().mean()


def labels_read(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    found = plain(self, batch)
    return found if batch.query_labels is None else found + batch.query_labels[..., None]


def together(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    found = plain(self, batch)
    return found - found.mean(1, keepdim=True)


def in_place(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    batch.query[0].mul_(2)
    return plain(self, batch)


def global_numbers(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    return plain(self, batch) + 1e-12 * torch.rand(1)


def infinite(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    return plain(self, batch) / batch.query[0].square().sum((1, 2))[:, None, None]


def one_query_too_few(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    if batch.n_query == 1:
        return torch.zeros(batch.n_tasks, 1, batch.way) + torch.eye(batch.way)[0]
    return plain(self, batch)


def half_precision(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    found = plain(self, batch)
    return found if batch.dtype == torch.float64 else -found


def by_row(self: Any, X: Any, *, inductive: bool = False) -> Any:
    found = Proto.predict_proba(self, X)
    found[0] = found[0, ::-1]
    return found


def nothing(self: Any, batch: EpisodeBatch, state: State) -> Tensor:
    return 0 * plain(self, batch)


@dataclass(frozen=True)
class Learnt(State):
    """Something that depends on the task."""

    shot: Tensor


def learn_shot(self: Any, base: Any, task: Any, seed: int) -> Learnt:
    return Learnt(torch.tensor(float(max(task.shots))))


BREAKERS: dict[str, Any] = {
    "queries permuted": (by_place, {}),
    "supports permuted": (first_support, {}),
    "classes renumbered": (first_class, {}),
    "views permuted": (first_view, {}),
    "tasks apart": (over_tasks, {}),
    "rows and names": (Proto.scores, {"predict_proba": by_row}),
    "query labels unread": (None, {}),
    "inductive": (together, {}),
    "no side effects": (in_place, {}),
    "odd shapes": (one_query_too_few, {}),
    "finite": (infinite, {}),
    "precision and device": (half_precision, {}),
    "learns": (nothing, {}),
    "estimator": (nothing, {"predict": lambda self, X: np.array([self.classes_[1]] * len(X))}),
    "depends on": (Proto.scores, {"learn": learn_shot}),
}


@pytest.mark.parametrize("law", [law for law in BREAKERS if law != "query labels unread"])
def test_a_broken_method_is_found(law: str) -> None:
    scores, members = BREAKERS[law]
    with pytest.raises(AssertionError, match=law):
        check_method(broken(scores, **members), only=[law])


def test_random_numbers_of_the_process_are_found() -> None:
    assert dict(broken_laws(broken(global_numbers), only=["no side effects"]))


def test_query_labels_are_gone_before_scores() -> None:
    class Peeking(Proto):
        name = "proto"

        def score_batch(self, batch: EpisodeBatch, fitted: Any) -> Tensor:
            return labels_read(self, batch, State())

    assert dict(broken_laws(Peeking(), only=["query labels unread"]))


def test_values_of_gaps_are_found() -> None:
    class Reading(Proto):
        name = "proto"

        def score_episodes(self, data: Any, episodes: Any, fitted: Any) -> Tensor:
            found = super().score_episodes(data, episodes, fitted)
            return found + float(data.views["a"][episodes.query].max())

    assert dict(broken_laws(Reading(), only=["gaps unread"]))


def test_an_unrelated_query_with_an_opinion_is_found() -> None:
    class Sure(Proto):
        name = "proto"

        def _even_where_unrelated(self, batch: EpisodeBatch, scores: Tensor) -> Tensor:
            return scores

    assert dict(broken_laws(Sure(), only=["unrelated query"]))


def test_a_parameter_without_a_decorator_is_found() -> None:
    class Undeclared(Proto):
        name = "proto"
        strength: float = param(1.0, above=0)

    assert "dataclass" in dict(broken_laws(Undeclared(), only=["parameters"]))["parameters"]


def test_a_parameter_that_nobody_checks_is_found() -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Unchecked(Proto):
        name: ClassVar[str] = "proto"
        strength: float = param(1.0, above=0)

        def check(self) -> None:
            """Nothing."""

    assert dict(broken_laws(Unchecked(), only=["parameters", "bad input"]))


def test_statistics_that_forget_a_part_are_found() -> None:
    class Forgetful:
        def __init__(self) -> None:
            self.total = 0.0

        def update(self, data: Any) -> None:
            self.total = float(len(data))

        def merge(self, other: Any) -> Any:
            return self

    @dataclass(kw_only=True, eq=False, repr=False)
    class Summing(Proto):
        name: ClassVar[str] = "proto"

        def learn(self, base: Any, task: Any, seed: int) -> State:
            return Learnt(torch.tensor(float(len(base))))

        def statistics(self, sample: Any) -> Any:
            return Forgetful()

        def learn_from(self, statistics: Any, task: Any, seed: int, sample: Any) -> State:
            return Learnt(torch.tensor(statistics.total))

        def scores(self, batch: EpisodeBatch, state: Any) -> Tensor:
            return plain(self, batch) * state.shot / 1000

    assert dict(broken_laws(Summing(), only=["parts equal whole"]))


def test_a_model_that_loses_something_is_found() -> None:
    class Counting(Proto):
        name = "proto"

        def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
            return plain(self, batch) * (1 + getattr(self, "seed_", 0) + len(vars(self)))

    assert dict(broken_laws(Counting(), only=["saved and loaded"]))


def test_tags_say_that_random_answers_are_compared_on_average() -> None:
    class Rough(Proto):
        name = "proto"
        tags: ClassVar[Tags] = Tags(random=True)

    check_method(Rough, only=["queries permuted", "tasks apart"])


def test_an_unknown_law_is_refused() -> None:
    with pytest.raises(ValueError, match="no law 'gravity'"):
        check_method(Proto(), only=["gravity"])
