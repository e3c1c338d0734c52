"""A matplotlib figure as an `svg` element of a page: small, and dressed by the page's style sheet.

Text stays text, colours are classes, so that a page can be dark, and what belongs to a method is in
one group that can be switched. It is imported where a page is made, because it loads matplotlib.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex
from matplotlib.path import Path

from fewview.drawing._charts import LETTERS
from fewview.drawing._looks import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {light: name for name, (light, _) in reversed(PALETTE.items())}
_ANCHORS = {"center": ' text-anchor="middle"', "right": ' text-anchor="end"'}


def svg_element(
    figure: Figure, title: str = "", description: str = "", kind: str = "chart"
) -> Markup:
    """Write a figure of `drawing._charts` as an element of a page, of the class `kind`.

    Title and description are read aloud; a figure without a title is an ornament. They also give
    identifiers inside the figure, so another one on the same page has another title or description.
    """
    width, height = (round(72 * side, 1) for side in figure.get_size_inches())
    artists = [child for whole in (figure, *figure.axes) for child in whole.get_children()]
    words = {str(a.get_gid()): str(a.get_label()).split("\n") for a in artists if a.get_gid()}
    id = f"f{zlib.crc32(f'{title}. {description}'.encode()):08x}"
    renderer = _PageRenderer(width, height, id, words)
    figure.patch.set_visible(False)  # the page is the paper
    figure.draw(renderer)
    figure.patch.set_visible(True)
    aloud = 'aria-hidden="true"'
    if title:
        aloud = f'role="img" aria-label="{escape(title)}. {escape(description)}"'
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" {aloud} '
        f'class="{kind}" font-size="{LETTERS:g}" fill="none">{renderer.body()}</svg>'
    )


class _PageRenderer(RendererBase):
    """Writes what matplotlib draws.

    An artist that belongs to a method is named (by its gid) `kind.number.key.class...`. The group
    of the method gets the key and the classes, and the style sheet colours its kinds. Everything
    else gets a class for its colour.
    """

    def __init__(self, width: float, height: float, id: str, words: dict[str, list[str]]) -> None:
        super().__init__()
        self._size = width, height
        self._id, self._words = id, words
        self._names = [""]  # of the artists that are being drawn, each inside the one before
        self._shapes: dict[str, str] = {}
        self._parts: list[str] = []
        self._group = ""  # that is being written

    def body(self) -> str:
        """Everything inside the element."""
        self._add("", "")
        shapes = "".join(f'<path id="{name}" d="{d}"/>' for d, name in self._shapes.items())
        return (f"<defs>{shapes}</defs>" if shapes else "") + "".join(self._parts)

    def _add(self, element: str, name: str) -> None:
        group = ""
        if name:
            _, _, key, *classes = name.split(".")
            switch = f' data-m="{key}"' if key else ""
            group = f'<g class="series {" ".join(classes)}"{switch}>'
        if group != self._group:
            self._parts += (["</g>"] if self._group else []) + [group]
            self._group = group
        self._parts.append(element)

    def _paint(self, gc: Any, face: Any = None) -> str:
        """Attributes for stroke and fill."""
        width, (_, dashes) = gc.get_linewidth(), gc.get_dashes()
        dash = f' stroke-dasharray="{" ".join(f"{d:.3g}" for d in dashes)}"' if dashes else ""
        if self._names[-1]:
            return f' class="{self._names[-1].partition(".")[0]}"{dash}'
        classes = []
        if width > 0 and gc.get_rgb()[3] > 0:
            classes.append(f"s-{_name(gc.get_rgb())}")
            dash += f' stroke-width="{width:g}"' if width != 1 else ""
        if face is not None and to_hex(face, keep_alpha=True)[-2:] != "00":
            classes.append(f"f-{_name(face)}")
        return f' class="{" ".join(classes)}"{dash}'

    # -------------------------------------------------------------- what matplotlib calls

    def open_group(self, s: str, gid: str | None = None) -> None:
        """An artist begins."""
        self._names.append(gid or self._names[-1])

    def close_group(self, s: str) -> None:
        """An artist ends."""
        self._names.pop()

    def get_canvas_width_height(self) -> tuple[float, float]:
        """Size in drawing units."""
        return self._size

    def get_text_width_height_descent(
        self, s: str, prop: Any, ismath: Any
    ) -> tuple[float, float, float]:
        """Size of text, guessed: the font is chosen where the page is read."""
        size = prop.get_size_in_points()
        return 0.55 * size * len(s), size, 0.19 * size

    def draw_path(self, gc: Any, path: Path, transform: Any, rgbFace: Any = None) -> None:
        """A line or an area."""
        if d := _outline(path, transform, self._size[1]):
            self._add(f'<path{self._paint(gc, rgbFace)} d="{d}"/>', self._names[-1])

    def draw_markers(
        self, gc: Any, marker_path: Path, marker_trans: Any, path: Path, trans: Any,
        rgbFace: Any = None,
    ) -> None:  # fmt: skip
        """The same shape at many places; a pointer that rests on one reads its words."""
        shape = _outline(marker_path, marker_trans, 0.0, digits=2)
        places = [ends[-2:] for ends, _ in path.iter_segments(trans, simplify=False)]
        words = self._words.get(self._names[-1], [])
        inner = []
        for k, (left, up) in enumerate(places):
            x, y = _n(left), _n(self._size[1] - up)
            tag, at = "path", f'd="{shape}" transform="translate({x},{y})"'
            if len(places) > 1:
                name = self._shapes.setdefault(shape, f"{self._id}-{len(self._shapes)}")
                tag, at = "use", f'href="#{name}" x="{x}" y="{y}"'
            told = f"<title>{escape(words[k])}</title>" if k < len(words) and words[k] else ""
            inner.append(f"<{tag} {at}>{told}</{tag}>" if told else f"<{tag} {at}/>")
        if inner:
            self._add(f"<g{self._paint(gc, rgbFace)}>{''.join(inner)}</g>", self._names[-1])

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float,
        ismath: Any = False, mtext: Any = None,
    ) -> None:  # fmt: skip
        """One line of text, held where it was asked for: at its start, middle or end."""
        across, up = mtext.get_transform().transform(mtext.get_unitless_position())
        at = np.array([across, self._size[1] - up])
        # Matplotlib knows how far below that place the letters stand.
        down = np.array([np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))])
        x, y = at + np.dot(down, (x, y) - at) * down
        place = f'x="{_n(x)}" y="{_n(y)}"'
        if angle:
            place = f'transform="translate({_n(x)},{_n(y)}) rotate({-angle:g})"'
        size = prop.get_size_in_points()
        letters = "" if size == LETTERS else f' font-size="{size:g}"'
        colour = _name(gc.get_rgb())
        kind = self._names[-1].partition(".")[0] or (f"f-{colour}" if colour != "ink" else "")
        kind = f' class="{kind}"' if kind else ""
        anchor = _ANCHORS.get(mtext.get_ha(), "")
        self._add(f"<text {place}{anchor}{letters}{kind}>{escape(s)}</text>", self._names[-1])


def _name(colour: Any) -> str:
    """The name of a colour, which is another one on a dark screen."""
    if (found := to_hex(colour)) not in _NAMES:
        raise ValueError(f"{found}: a page has the colours of drawing/_looks.py and no others")
    return _NAMES[found]


def _outline(path: Path, transform: Any, height: float, digits: int = 1) -> str:
    """The `d` of a path: relative steps between rounded places, which stay true to the places."""
    out, scale = [], 10**digits
    at = start = (0, 0)

    def n(value: int) -> str:
        return f"{value / scale:g}"

    for points, code in path.iter_segments(transform, simplify=False):
        if code == Path.CLOSEPOLY:
            out.append("z")
            at = start
            continue
        pairs = zip(points[::2], points[1::2], strict=True)
        to = [(round(x * scale), round((height - y) * scale)) for x, y in pairs]
        steps = [(x - at[0], y - at[1]) for x, y in to]
        dx, dy = steps[-1]
        at = to[-1]
        if code == Path.MOVETO:
            start = at
            out.append(f"M{n(at[0])},{n(at[1])}")
        elif code != Path.LINETO:
            letter = "q" if code == Path.CURVE3 else "c"
            out.append(letter + " ".join(f"{n(x)},{n(y)}" for x, y in steps))
        elif dx and dy:
            out.append(f"l{n(dx)},{n(dy)}")
        elif dx or dy:
            out.append(f"h{n(dx)}" if dx else f"v{n(dy)}")
    return "".join(out)


def _n(value: float) -> str:
    """A coordinate with one decimal, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
