"""One name, one product: a table, a figure or the claims."""

from __future__ import annotations

from fewview.paper._compute import Desk
from fewview.paper._pictures import Picture
from fewview.paper._printed import TABLES
from fewview.paper._sheets import Sheet
from fewview.paper._studies import BEYOND, Wish


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
        from fewview.paper._beside import make_table

        return make_table(name, wish, desk, command).sheet
    if name == "claims":
        from fewview.paper._claims import make_claims

        return make_claims(wish, desk, command)
    if name in BEYOND:
        import fewview.paper._beyond as beyond

        return beyond.make_figure(name, wish, desk, command)
    import fewview.paper._figure3 as figure3
    import fewview.paper._figure4 as figure4
    import fewview.paper._figure5 as figure5
    import fewview.paper._figure6 as figure6
    import fewview.paper._figure7 as figure7

    if name == "figure3":
        return figure3.make_figure(wish, command)
    if name == "figure6":
        return figure6.make_figure(wish, command)
    makers = {"figure4": figure4, "figure5": figure5, "figure7": figure7}
    return makers[name].make_figure(wish, desk, command)  # type: ignore[no-any-return]
