"""One name, one product: who makes each table, each figure, the claims and the other studies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fewview.paper._beside import make_splits, make_table
from fewview.paper._claims import make_claims
from fewview.paper._compute import Desk
from fewview.paper._curves import make_curves
from fewview.paper._pictures import Picture
from fewview.paper._printed import TABLES
from fewview.paper._sheets import Sheet
from fewview.paper._studies import BEYOND, Wish
from fewview.paper._task_figures import make_figure3, make_figure4, make_figure6

MAKERS: dict[str, Callable[[Wish, Desk, str], Sheet | Picture]] = {
    **{name: partial(make_table, name) for name in TABLES},
    **{name: partial(make_curves, name) for name in ("figure5", "figure7", *BEYOND)},
    "figure3": make_figure3,
    "figure4": make_figure4,
    "figure6": make_figure6,
    "claims": make_claims,
    "splits": make_splits,
}


def make(name: str, wish: Wish, desk: Desk, command: str) -> Sheet | Picture:
    """Compute (or look up) and make what a name stands for; `command` is what was typed."""
    return MAKERS[name](wish, desk, command)
