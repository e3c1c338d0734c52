"""Drawings as small as a word, for the cells of tables: a curve, an interval, a heat map.

Plain `svg` text without matplotlib: a page has hundreds of them. Colours are classes of the page's
style sheet, as in `_svg.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from fewview.drawing._looks import Look

# Steps between nothing and full colour in a heat map.
STEPS = 10


def _svg(width: float, height: float, body: str, kind: str, title: str = "") -> Markup:
    aloud = f'role="img" aria-label="{escape(title)}"' if title else 'aria-hidden="true"'
    return Markup(f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" {aloud}>{body}</svg>')


def _place(value: float, ends: tuple[float, float], size: float, margin: float = 4.0) -> float:
    """Where a value stands between the ends of a scale."""
    low, high = ends
    share = (value - low) / (high - low) if high > low else 0.5
    return round(margin + (size - 2 * margin) * min(max(share, 0.0), 1.0), 1)


def spark(values: Sequence[float], ends: tuple[float, float], look: Look) -> Markup:
    """A small curve through values at equal steps, on a scale that its neighbours share."""
    at = [
        (_place(k, (0, max(len(values) - 1, 1)), 96), 24 - _place(v, ends, 24))
        for k, v in enumerate(values)
    ]
    steps = "".join(f"L{x:g},{y:.3g}" for x, y in at[1:])
    x, y = at[-1]
    return _svg(
        96, 24,
        f'<g class="series c{look.colour} on"><path class="line" d="M{at[0][0]:g},{at[0][1]:.3g}'
        f'{steps}"/><circle class="mark" cx="{x:g}" cy="{y:.3g}" r="2.5"/></g>',
        "spark",
    )  # fmt: skip


def whisker(
    mean: float, low: float | None, high: float | None, ends: tuple[float, float], look: Look
) -> Markup:
    """A point with its interval, on a scale that its neighbours share."""
    bar = ""
    if low is not None and high is not None:
        bar = f'<path class="bar" d="M{_place(low, ends, 96):g},9H{_place(high, ends, 96):g}"/>'
    mark = f'<circle class="mark" cx="{_place(mean, ends, 96):g}" cy="9" r="3.5"/>'
    return _svg(96, 18, f'<g class="series c{look.colour} on">{bar}{mark}</g>', "spark")


def heat(shares: Any, names: Sequence[str], title: str) -> Markup:
    """A square of shares [true, said] between 0 and 1, rows and columns named.

    Right answers, on the diagonal, and wrong ones have colours of their own; wrong ones are drawn
    three times as strong, so that one in ten is seen.
    """
    shares = np.asarray(shares, dtype=float)
    n = len(names)
    left = 8.0 + 6.5 * max(map(len, names), default=0)
    cell = max(10.0, min(24.0, 190.0 / max(n, 1)))
    body = [f'<g stroke-width="1" transform="translate({left:g},16) scale({cell:.4g})">']
    wrong = ~np.eye(n, dtype=bool)
    for kind, chosen, strength in (("s-c0", ~wrong, 1.0), ("s-c1", wrong, 3.0)):
        level = np.ceil(np.clip(np.nan_to_num(shares) * strength, 0, 1) * STEPS).astype(int)
        for step in range(1, STEPS + 1):
            # Thick strokes, one for neighbours of the same level.
            d = "".join(
                f"M{first},{true}.5h{last - first}"
                for true, row in enumerate(chosen & (level == step))
                for first, last in runs(row)
            )
            if d:
                body.append(f'<path class="{kind}" opacity="{step / STEPS:g}" d="{d}"/>')
    body.append('</g><g text-anchor="end">')
    for k, name in enumerate(names):
        middle = 20 + cell * (k + 0.5)
        body.append(f'<text x="{left - 4:g}" y="{middle:.4g}">{escape(name)}</text>')
    body.append('</g><g text-anchor="middle">')
    if max(map(len, names), default=0) * 6.5 <= cell:
        for k, name in enumerate(names):
            body.append(f'<text x="{left + cell * (k + 0.5):.4g}" y="12">{escape(name)}</text>')
    body.append("</g>")
    side = cell * n
    body.append(f'<path class="s-rule" d="M{left:g},16h{side:.4g}v{side:.4g}h-{side:.4g}z"/>')
    return _svg(
        left + side + 4, side + 20, "".join(body), 'chart heat" font-size="11" fill="none', title
    )


def runs(row: Any) -> list[tuple[int, int]]:
    """Where neighbours are all true: the first place of each run, and the one after its last.

    Example:
        >>> runs([True, True, False, True])
        [(0, 2), (3, 4)]
    """
    ends = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(row, dtype=int), [0]])))
    return [(int(a), int(b)) for a, b in ends.reshape(-1, 2)]


def digits_of(values: Any, low: Any, high: Any) -> tuple[str, int]:
    """A row of numbers as one digit each, 0 at `low` and 9 at `high`, and how many make a line.

    Rows of more than 40 numbers, and squares from 16 on, are cut into lines so that they are nearly
    square: pixels of an image then show the image. Rows of more than 256 are averaged over
    neighbours.
    """
    values, low, high = (np.asarray(part, dtype=float) for part in (values, low, high))
    spread = np.where(high > low, high - low, 1.0)
    shares = np.clip(np.nan_to_num((values - low) / spread, nan=0.0), 0.0, 1.0)
    if len(shares) > 256:
        bounds = np.linspace(0, len(shares), 257).round().astype(int)
        shares = np.array([shares[a:b].mean() for a, b in pairwise(bounds)])
    count = len(shares)
    line = count
    wide = int(np.sqrt(count))
    if count > 40 or (count == wide**2 and wide > 3):
        line = max((k for k in range(1, wide + 1) if count % k == 0), default=count)
        line = line if line >= wide / 2 else 16
    return "".join(str(round(9 * share)) for share in shares), line
