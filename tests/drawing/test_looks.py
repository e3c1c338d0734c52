"""What methods look like: a function of the name, the same in every figure and every file."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from fewview.drawing._looks import COLOURS, KNOWN, ON_DARK, PALETTE, Look, look_at, look_of, looks
from fewview.methods.registry import names

# Colours as seen by people without one kind of cones (Machado, Oliveira and Fernandes, 2009).
SIGHT = {
    "usual": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> NDArray[np.float64]:
    parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: str) -> NDArray[np.float64]:
    xyz = TO_XYZ @ np.clip(np.array(SIGHT[sight]) @ linear(colour), 0, 1) / (0.9505, 1, 1.089)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("colours", [COLOURS, ON_DARK], ids=["light", "dark"])
def test_colours_are_told_apart(colours: tuple[str, ...], sight: str) -> None:
    gaps = [
        np.linalg.norm(lab(one, sight) - lab(two, sight)) for one, two in combinations(colours, 2)
    ]
    assert min(gaps) > 16  # of Okabe and Ito's own, the two that are most alike: 16


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_from_the_page(side: int) -> None:
    paper = TO_XYZ[1] @ linear(PALETTE["paper"][side])
    for name, pair in PALETTE.items():
        if name in ("ink", "soft") or name[1:].isdigit():
            here = TO_XYZ[1] @ linear(pair[side])
            ratio = (max(here, paper) + 0.05) / (min(here, paper) + 0.05)
            assert ratio >= (4.5 if name in ("ink", "soft") else 3.0), name


def test_known_methods_have_fixed_looks() -> None:
    assert set(KNOWN) == set(names())
    together = looks(KNOWN)
    assert len({(look.colour, look.dash) for look in together.values()}) == len(KNOWN)
    assert len({(look.marker, look.dash) for look in together.values()}) == len(KNOWN)
    for name in KNOWN:
        assert looks([name, "mine", "proto:padding=zero"])[name] == together[name]
        assert looks([name.upper()])[name.upper()] == together[name]


def test_other_methods_look_as_their_names_say() -> None:
    others = [f"method-{k}" for k in range(30)]
    alone = {name: look_of(name) for name in others}
    assert len({(look.colour, look.dash, look.marker) for look in alone.values()}) > 20
    shuffled = random.Random(0).sample(others, len(others))
    assert looks([*shuffled, "proto"]) == alone | {"proto": look_of("proto")}
    assert list(looks(shuffled)) == shuffled
    assert len({look.key for look in alone.values()}) == 30


def test_no_other_method_looks_like_a_known_one() -> None:
    def seen(look: Look) -> tuple[object, ...]:
        return look.colour, look.dash, look.marker

    known = {seen(look_of(name)) for name in KNOWN}
    assert not known & {seen(look_of(f"mine-{k}")) for k in range(2000)}


def test_there_are_280_looks() -> None:
    assert len({look_at(k) for k in range(280)}) == 280
