"""Pieces of HTML that stand in notebooks and on pages alike: bars, views that are there, tables.

They need no script, suit light and dark backgrounds (colours in the middle, text as around it) and
do not rely on colour: what is missing is hatched, what speaks against is on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
.fewview{font-size:.92em;line-height:1.45}
.fewview table{border-collapse:collapse;margin:.5em 0;background:none;color:inherit;width:auto;
font-size:inherit;font-variant-numeric:tabular-nums}
.fewview caption{text-align:left;color:inherit;padding:.15em 0;caption-side:top}
.fewview :is(th,td){padding:.15em .7em;text-align:right;border:0;white-space:nowrap;
border-bottom:1px solid rgba(128,128,128,.4);background:none;position:static;max-width:none}
.fewview :is(th,td).l{text-align:left}
.fewview tbody th{font-weight:normal;text-align:left}
.fewview tr.sum>*{font-weight:600}
.fewview .wide{overflow-x:auto;max-width:100%;position:relative}
.fewview .v{display:inline-block;border:1px solid #808080;border-radius:.3em;padding:0 .4em;
margin:.1em .15em .1em 0}
.fewview .no{border-style:dashed;background:repeating-linear-gradient(135deg,
rgba(128,128,128,.38) 0 1.5px,transparent 1.5px 6px)}
.fewview .b{display:inline-block;position:relative;width:6em;height:.8em;vertical-align:-.05em}
.fewview .b.two::before{content:"";position:absolute;left:50%;top:-.2em;bottom:-.2em;
border-left:1px solid #808080}
.fewview .b i{position:absolute;top:0;bottom:0;background:#3579bd;border-radius:.1em}
.fewview .b i.minus{background:#c2621b}
.fewview .b i.others{background:repeating-linear-gradient(90deg,#808080 0 3px,transparent 3px 5px)}
@media(max-width:30rem){.fewview .b{width:3em}.fewview :is(th,td){padding:.15em .35em}
.fewview thead th{white-space:normal;min-width:3em}.fewview .side :is(th,td.l){white-space:normal}}
.fewview .q{display:inline-block;min-width:4.2em;text-align:right;white-space:nowrap}
.fewview .h{display:inline-flex;align-items:flex-end;height:1.3em;gap:1px;vertical-align:-.25em}
.fewview .h i{width:4px;background:#3579bd;min-height:1px}
.fewview details{margin:.2em 0}
.fewview summary{cursor:pointer;padding:.15em 0}
.fewview .aloud{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.fewview .side{display:flex;flex-wrap:wrap;gap:.2em 2.2em;align-items:flex-start}
.fewview p{margin:.4em 0}
"""


def framed(body: str) -> str:
    """A piece for a notebook, with the style that it needs."""
    return f'<div class="fewview"><style>{STYLE}</style>{body}</div>'


def markup_table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    row_heads: bool = True,
    left: Sequence[int] = (),
    sums: int = 0,
    scroll: bool = False,
) -> str:
    """A table; `rows` are markup already, `caption` and `head` are text.

    Columns in `left` are aligned to the left; the last `sums` rows stand out. With `scroll` a wide
    table moves in a box of its own.
    """

    left = (*left, -1)  # names of rows are to the left anyway

    def aligned(place: int) -> str:
        return ' class="l"' if place in left else ""

    heads = "".join(
        f'<th scope="col"{aligned(-1 if row_heads and not k else k)}>{escape(text)}</th>'
        for k, text in enumerate(head)
    )
    lines = []
    for number, row in enumerate(rows):
        first = f'<th scope="row">{row[0]}</th>' if row_heads else f"<td>{row[0]}</td>"
        cells = "".join(f"<td{aligned(k + 1)}>{cell}</td>" for k, cell in enumerate(row[1:]))
        mark = ' class="sum"' if number >= len(rows) - sums else ""
        lines.append(f"<tr{mark}>{first}{cells}</tr>")
    out = (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )
    box = f'<div class="wide" role="region" aria-label="{escape(caption)}" tabindex="0">'
    return f"{box}{out}</div>" if scroll else out


def view_marks(names: Sequence[str], has: Sequence[bool]) -> str:
    """Names of views, those that a sample lacks hatched."""
    return "".join(
        f'<span class="v">{escape(name)}</span>'
        if there
        else f'<span class="v no">{escape(name)}<span class="aloud"> is missing</span></span>'
        for name, there in zip(names, has, strict=True)
    )


def share_bar(share: float, text: str, kind: str = "") -> str:
    """A bar for a number between 0 and 1, and its text."""
    mark = f' class="{kind}"' if kind else ""
    bar = f'<span class="b"><i{mark} style="left:0;width:{100 * share:.3g}%"></i></span>'
    return f'{bar}<span class="q">{escape(text)}</span>'


def signed_bar(value: float, largest: float, kind: str = "") -> str:
    """A number, and a bar to the right of the middle, or to the left where it is negative."""
    width = 50 * min(abs(value) / largest, 1.0) if largest > 0 else 0.0
    start = 50.0 if value >= 0 else 50 - width
    mark = kind or ("minus" if value < 0 else "")
    mark = f' class="{mark}"' if mark else ""
    bar = f'<span class="b two"><i{mark} style="left:{start:.3g}%;width:{width:.3g}%"></i></span>'
    return f'{bar}<span class="q">{value:+.2f}</span>'


def histogram(counts: Sequence[int], words: str) -> str:
    """Bars side by side; `words` are read aloud and shown on demand."""
    most = max([1, *counts])
    bars = "".join(f'<i style="height:{100 * count / most:.0f}%"></i>' for count in counts)
    return f'<span class="h" role="img" aria-label="{escape(words)}">{bars}</span>'
