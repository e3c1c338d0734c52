"""What a method looks like: colour, marker and dash by its name, in every figure and every page.

Colours are written here and nowhere else, as they are on white paper and on a dark screen.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Okabe and Ito's colours, moved a little: every one stands out from white (3 to 1), and any two can
# be told apart by most colour-blind people. Yellow is too faint for lines.
COLOURS = ("#005a9c", "#b84300", "#00875c", "#b3659b", "#cc8400", "#2f9be0", "#1c1c1a")
ON_DARK = ("#4a8fe0", "#e87a35", "#1fb584", "#c683ab", "#f7cf3c", "#a6dcff", "#f4f3ee")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
# In points; the others are 7, and look as large.
SIZES = {"D": 6.5, "P": 8.5, "X": 8.5, "*": 11.0} | dict.fromkeys("^v<>", 8.0)
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 2.5), (9, 3, 2, 3))  # points
PAPER, INK, SOFT, RULE, GREY = "#ffffff", "#1c1c1a", "#595955", "#d9d8d2", "#b3b2ab"
# Names that a page knows colours by: on light, on dark.
PALETTE = {
    "paper": (PAPER, "#16171a"),
    "ink": (INK, "#e9e8e4"),
    "soft": (SOFT, "#a9a8a2"),
    "rule": (RULE, "#3a3b3f"),
    "grey": (GREY, "#5d5e62"),
} | {f"c{k}": pair for k, pair in enumerate(zip(COLOURS, ON_DARK, strict=True))}
# The place in this list is the look: seven colours solid, the same dashed, the same dotted. Methods
# that are often compared have colours of their own.
KNOWN = (
    "marginal", "ugda", "ptmap", "rfs", "bd-cspn", "paddle", "proto",
    "match", "ptmap+ugda", "tim-adm", "partial-nn", "bavardage", "tim", "concat-logistic",
    "concat-hgb", "rfs+ugda", "completer", "alpha-tim", "cpm", "cpm-gan", "icmsc",
    "unem", "concat-nn", "class-impute",
)  # fmt: skip
_N_LOOKS = len(COLOURS) * len(DASHES) * len(MARKERS)


@dataclass(frozen=True)
class Look:
    """Colour (number), marker and dash; `key` is what the switches of a page know a method by."""

    colour: int
    marker: str
    dash: tuple[float, ...]
    key: str = ""

    def line(self, width: float = 1.0) -> dict[str, Any]:
        """The look as options of a matplotlib line of some width."""
        # Matplotlib counts dashes in widths of the line.
        dash = (0, [part / width for part in self.dash]) if self.dash else "-"
        return {"color": COLOURS[self.colour], "linestyle": dash, "linewidth": width} | self.mark()

    def mark(self, size: float = 1.0) -> dict[str, Any]:
        """Its marker as options of a matplotlib line, `size` times as large as usual."""
        points = size * SIZES.get(self.marker, 7.0)
        return {"marker": self.marker, "markersize": points, "markeredgewidth": 0.0}


def look_at(number: int, name: str = "") -> Look:
    """The look of a number: 28 differ in colour or dash, 280 in these or the marker."""
    dash = number // len(COLOURS)
    turn = dash // len(DASHES)
    return Look(
        colour=number % len(COLOURS),
        marker=MARKERS[(number + turn) % len(MARKERS)],
        dash=DASHES[dash % len(DASHES)],
        key=f"{zlib.crc32(name.encode()):08x}" if name else "",
    )


def look_of(name: str) -> Look:
    """What a method looks like, by its name alone: the same beside any others, in any file.

    Known methods have looks that nothing else has; the case of letters does not matter for them.

    Example:
        >>> look_of("proto") == look_of("Proto"), look_of("mine") == look_of("mine")
        (True, True)
    """
    if name.lower() in KNOWN:
        return look_at(KNOWN.index(name.lower()), name.lower())
    others = _N_LOOKS - len(KNOWN)
    return look_at(len(KNOWN) + zlib.crc32(name.encode()) % others, name)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """What methods look like, each by its name."""
    return {name: look_of(name) for name in names}
