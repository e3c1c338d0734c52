"""The answer first: which method to use under which conditions, and one row per method below.

Verdicts are those of the one comparison (`results/_comparing.py`); nothing here decides anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import numpy as np
from markupsafe import Markup, escape

from fewview.drawing._looks import look_of
from fewview.drawing._small import spark, whisker
from fewview.errors import FewviewError
from fewview.report._contents import Contents, costs
from fewview.report._elements import (
    Answer,
    Card,
    Entry,
    Section,
    Table,
    TableRow,
    extreme_level,
    listed,
    plural,
)
from fewview.report._provenance import commands
from fewview.results._comparing import (
    TASK,
    VERDICTS,
    Panel,
    Winner,
    rank_panels,
    winner,
    winners,
)
from fewview.results._intervals import PairedComparison, average_ranks, split_interval
from fewview.results._store import NO_STORE

ALONE, NO_BASE, SKEWED = "one-by-one", "no-base", "skewed"
SWITCHES = (
    (ALONE, "Queries come one by one"),
    (NO_BASE, "There are no base classes"),
    (SKEWED, "Classes have unequal numbers of queries"),
)
Flags = tuple[str, str, str]  # queries together, use of base classes, assumes balance


def flags(panel: Panel) -> dict[str, Flags | None]:
    """What the methods of a panel are, as their authors declared; None where they are not known."""
    from fewview.methods.registry import create

    out: dict[str, Flags | None] = {}
    for name, by_eta in panel.results.items():
        cell = next(iter(by_eta.values()))[0].cell
        try:
            method = create(cell.method)
            if "padding" in method.get_params(deep=False) and cell.padding:
                method.set_params(padding=cell.padding)
        except (FewviewError, TypeError, ValueError):
            out[name] = None
            continue
        pull = method.tags.balanced
        balance = "partly" if 0 < pull < 1 else "yes" if pull else "-"
        out[name] = method.looks_at_queries, method.use_of_base, balance
    return out


# ---------------------------------------------------------------------- the card


def answers(contents: Contents, after: dict[str, tuple[str, str]] | None = None) -> Section:
    """Which method to use, under conditions that can be switched; who wins at every rate.

    `after` says where to look next, and in which words, by the titles of panels.
    """
    groups: dict[tuple[object, ...], list[Panel]] = {}
    for panel in contents.panels:
        fields = ("dataset", *(field for field in TASK if field != "query_counts"))
        groups.setdefault(tuple(getattr(panel.cell, f) for f in fields), []).append(panel)
    words = []
    if len(contents.panels) > 1:
        for ranked in rank_panels(contents.panels)[:1]:
            ranking = ranked.ranking
            if ranked.unit != "data sets":
                continue
            words.append(
                f"Over {plural(ranking.n_blocks, 'data set')}, {ranking.names[0]} has the best "
                f"average rank, {ranking.ranks[0]:.2f} of {len(ranking.names)}."
            )
    found = [one for panel in contents.panels for one in winners(panel)]
    if left_out := {name for one in found for name in one.left_out}:
        words.append(
            "Not compared everywhere, because class splits or missing rates are lacking: "
            f"{listed(sorted(left_out))}."
        )
    table = Table(
        "Who wins where: the most accurate method at every missing rate, and how far it is ahead "
        "of the second best. Differences are paired over class splits; p and the interval are of "
        "Wilcoxon's signed-rank test (of the paired t test where splits are too few for it), "
        "corrected by Holm's method for all methods compared with the best.",
        ("data set", "#missing rate", "best method", "#accuracy (%)", "second best",
         "#ahead by (points)", "#95 % interval", "#splits won", "#p (Holm)", "how sure"),
        [_winner_row(one) for one in found],
        id="winners",
    )  # fmt: skip
    cards = [_card(some, after or {}) for some in groups.values()]
    return Section("Which method to use", words, cards=cards, tables=[table], id="answer")


def _card(panels: Sequence[Panel], after: dict[str, tuple[str, str]]) -> Card:
    """The answer of one data set and task; panels differ in how many queries classes have."""
    usual = next((p for p in panels if p.cell.query_counts == "balanced"), panels[0])
    skewed = next((p for p in panels if p.cell.query_counts != "balanced"), None)
    out = []
    for on in product((False, True), repeat=3):
        chosen = [key for (key, _), is_on in zip(SWITCHES, on, strict=True) if is_on]
        panel = skewed if SKEWED in chosen else usual
        when = " ".join(chosen)
        out.append(_answer(panel, usual, chosen, when))
    # What a switch says is not said again.
    title = re.sub(r" \(query counts [^,)]+\)|query counts [^,)]+, |, query counts [^,)]+", "",
                   usual.title)  # fmt: skip
    return Card(title, SWITCHES, out, after.get(usual.title))


def _answer(panel: Panel | None, usual: Panel, chosen: list[str], when: str) -> Answer:
    if panel is None:
        (command, *_) = commands(
            r for some in usual.results.values() for rs in some.values() for r in rs
        )
        wanted = command.removesuffix(f" --store {NO_STORE}") + " --query-counts dirichlet:2"
        return Answer(when, "No results with unequal numbers of queries are here.", code=wanted)
    known = flags(panel)
    allowed = [
        name
        for name, flag in known.items()
        if (ALONE not in chosen or (flag is not None and flag[0] == "-"))
        and (NO_BASE not in chosen or (flag is not None and flag[1] == "for scaling"))
    ]
    found = winner(panel, allowed)
    rest = _excluded(known, allowed)
    if found is None:
        return Answer(when, "None of these methods can be used under these conditions.", note=rest)
    return Answer(when, _said(found, panel), _groups(found), rest)


def _excluded(known: dict[str, Flags | None], allowed: list[str]) -> str:
    out = [name for name in known if name not in allowed]
    return f"Left out under these conditions: {listed(out)}." if out else ""


def _said(found: Winner, panel: Panel) -> str:
    mean, low, high = overall(panel, found.best)
    over = "" if found.eta is None else f" at missing rate {found.eta:.3g}"
    text = f"Use {found.best}: {found.accuracy:.1f} % right{over}"
    if low is not None and abs(mean - found.accuracy) < 0.05:
        text += f" (95 % interval {low:.1f} to {high:.1f})"
    pair = found.pair
    if pair is None:
        return f"{text}; no other method was run."
    text += f", paired {pair.difference:+.1f} points over {pair.two}"
    if found.n_splits < 2:
        unit = "repetition" if panel.cell.fixed else "class split"
        return f"{text}. With one {unit} nothing can be said about chance."
    return f"{text} ({pair.low:+.1f} to {pair.high:+.1f})."


def _groups(found: Winner) -> list[tuple[str, list[tuple[str, str, str]]]]:
    return [
        (VERDICTS[verdict], [(look_of(p.two).key, p.two, _margin(p)) for p in pairs])
        for verdict, pairs in found.groups.items()
    ]


def _margin(pair: PairedComparison) -> str:
    if not np.isfinite(pair.low):
        return f"{pair.difference:+.1f}"
    return f"{pair.difference:+.1f} ({pair.low:+.1f} to {pair.high:+.1f})"


def _winner_row(winner: Winner) -> TableRow:
    rate = Entry("all, mean", -1.0)
    if winner.eta is not None:
        rate = Entry(f"{winner.eta:.3g}", winner.eta)
    ahead: TableRow = ["-", "-", "-", "-"]
    if pair := winner.pair:
        interval = f"{pair.low:+.1f} to {pair.high:+.1f}" if np.isfinite(pair.low) else "-"
        p = Entry("-")
        if np.isfinite(pair.p):
            p = Entry(extreme_level(pair.p) or f"{pair.p:.3f}", pair.p)
        ahead = [f"{pair.difference:+.1f}", interval, f"{pair.wins} of {pair.n_splits}", p]
    if pair is None:
        sure = "no other method"
    elif winner.n_splits < 2:
        sure = "one split: cannot be said"
    elif winner.tied:
        sure = "clear of the second only" if winner.clear else "may be chance"
    else:
        sure = "clear"
    best = [winner.best, f"{winner.accuracy:.1f}", winner.second or "-"]
    strong = winner.clear and not winner.tied
    return [winner.panel, rate, *best, *ahead, Entry(sure, strong=strong)]


# ---------------------------------------------------------------------- the leaderboard


def overall(panel: Panel, name: str) -> tuple[float, float | None, float | None]:
    """Mean accuracy of a method over missing rates, and its 95 % interval over class splits."""
    by_split: dict[int, list[np.ndarray]] = {}
    for results in panel.results[name].values():
        for result in results:
            by_split.setdefault(result.cell.split, []).append(result.metrics.accuracy)
    tables = [np.mean(some, axis=0) for some in by_split.values()]
    mean = 100 * float(np.mean(np.concatenate(tables)))
    if panel.cell.fixed or len(tables) < 2 or len({len(t) for t in tables}) > 1:
        return mean, None, None
    low, high = split_interval(np.stack(tables), bounds=(0.0, 1.0))
    return mean, 100 * low, 100 * high


def leaderboard(contents: Contents, shown: Sequence[str]) -> Section:
    """One row per method; its check boxes steer every figure and table below."""
    words = [
        "Check boxes show and hide methods in every figure and table below. The one that was "
        "checked or pointed at last is drawn with its interval.",
    ]
    tables = [_leaders(panel, shown, k) for k, panel in enumerate(contents.panels)]
    return Section("Leaderboard", words, tables=tables, id="leaders")


def _leaders(panel: Panel, shown: Sequence[str], place: int) -> Table:
    spent, known = {cost.method: cost for cost in costs(panel)}, flags(panel)
    compared = panel.comparison()
    ranks: dict[str, float] = {}
    wins: dict[str, float] = {}
    if len(compared.names) > 1:
        ranking = average_ranks(compared.means.T, compared.names)
        ranks = dict(zip(ranking.names, ranking.ranks, strict=True))
        beaten = (compared.means[:, None] > compared.means).mean(axis=2)
        level = (compared.means[:, None] == compared.means).mean(axis=2)
        shares = (beaten + level / 2).sum(axis=1) - 0.5  # but not against itself
        wins = dict(zip(compared.names, shares / (len(compared.names) - 1), strict=True))
    found = {name: overall(panel, name) for name in panel.methods}
    rows_of = {name: [panel.row(name, eta) for eta in panel.etas] for name in panel.methods}
    levels = {name: [row["accuracy"] for row in rows if row] for name, rows in rows_of.items()}
    every = [v for values in levels.values() for v in values]
    numbers = [v for three in found.values() for v in three if v is not None]
    ends, span = (min(every), max(every)), (min(numbers), max(numbers))
    several = len(panel.etas) > 1
    rows: list[TableRow] = []
    for name in panel.methods:
        look, (mean, low, high), cost = look_of(name), found[name], spent[name]
        checked = " checked" if name in shown else ""
        box = Markup(
            f'<label class="pick"><input type="checkbox" data-m="{look.key}" '
            f'value="{escape(name)}"{checked}> {use_key(look.key)} <span>{escape(name)}</span>'
            "</label>"
        )
        interval = "" if low is None else f" {low:.1f} to {high:.1f}"
        row: TableRow = [
            Entry(box),
            Entry(f"{mean:.1f}", mean, strong=not rows),
            Entry(whisker(mean, low, high, span, look) + interval, low),
        ]
        if several:
            curve = spark(levels[name], ends, look)
            fall = levels[name][-1] - levels[name][0]
            row.append(Entry(curve + f" {fall:+.1f}", fall))
        row += [
            Entry(f"{ranks[name]:.2f}", ranks[name]) if name in ranks else "-",
            Entry(f"{100 * wins[name]:.0f} %", wins[name]) if name in wins else "-",
            Entry(f"{cost.milliseconds:.3g}", cost.milliseconds),
            _flag_words(known[name], cost.complete),
        ]
        rows.append(row)
    heads = ["method", "#mean accuracy (%)", "#95 % interval"]
    heads += [f"#from rate {panel.etas[0]:.3g} to {panel.etas[-1]:.3g}"] if several else []
    return Table(
        f"{panel.title}: {panel.task}. Mean over missing rates with its interval over class "
        "splits; rank and share of comparisons won against the others, class split by class "
        "split; milliseconds per episode; what a method needs or assumes.",
        [*heads, "#rank", "#wins", "#ms", "needs and assumes"],
        rows,
        id=f"leaders-{place}",
    )


def use_key(switch: str) -> Markup:
    """The line and marker of a method, drawn once on the page and used everywhere."""
    return Markup(
        f'<svg class="key" viewBox="0 0 36 16" aria-hidden="true"><use href="#k-{switch}"/></svg>'
    )


def _flag_words(flag: Flags | None, complete: bool) -> str:
    words = [] if complete else ["lacks rates"]
    if flag is None:
        return ", ".join([*words, "not known here"])
    together, base, balance = flag
    words += {"yes": ["all queries at once"], "by padding": ["gaps filled from queries"]}.get(
        together, []
    )
    words += {
        "needed": ["base classes"],
        "learns from them if given": ["learns from base classes"],
    }.get(base, [])
    words += {
        "yes": ["equal numbers of queries"],
        "partly": ["about equal numbers of queries"],
    }.get(balance, [])
    return ", ".join(words) or "nothing"
