"""One name, one product: a table, a figure or the claims."""

from __future__ import annotations

from fewview.report.reproduce.compute import Desk
from fewview.report.reproduce.drawing import Picture
from fewview.report.reproduce.paper import TABLES
from fewview.report.reproduce.sheets import Sheet
from fewview.report.reproduce.studies import BEYOND, Wish


def make(name: str, wish: Wish, desk: Desk, command: str) -> Sheet | Picture:
    """Compute (or look up) and make what a name stands for.

    Args:
        name: one of `studies.NAMES`.
        wish: how to run it.
        desk: where results live.
        command: what was typed, for the record.

    Returns:
        A sheet, or a picture with the numbers behind it.
    """
    if name in TABLES:
        from fewview.report.reproduce.tables import make_table

        return make_table(name, wish, desk, command).sheet
    if name == "claims":
        from fewview.report.reproduce.claims import make_claims

        return make_claims(wish, desk, command)
    if name in BEYOND:
        from fewview.report.reproduce import beyond

        return beyond.make_figure(name, wish, desk, command)
    from fewview.report.reproduce import figure3, figure4, figure5, figure6, figure7

    if name == "figure3":
        return figure3.make_figure(wish, command)
    if name == "figure6":
        return figure6.make_figure(wish, command)
    makers = {"figure4": figure4, "figure5": figure5, "figure7": figure7}
    return makers[name].make_figure(wish, desk, command)  # type: ignore[no-any-return]
