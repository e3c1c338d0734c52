from __future__ import annotations

import inspect
import time

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestCentroid

from fewview.datasets import digit_views, get_spec, load, make_digits
from fewview.samples import FewviewError

VIEWS = tuple(get_spec("digits").view_names)


def drawing(*rows: str) -> NDArray[np.float64]:
    """Make one image from eight lines of text; # is full ink."""
    return np.array([[[16.0 if sign == "#" else 0.0 for sign in row] for row in rows]])


RING = drawing(
    "........", "........", "..####..", "..#..#..", "..#..#..", "..####..", "........", "........"
)  # fmt: skip
EIGHT = drawing(
    "........", "..####..", "..#..#..", "..####..", "..#..#..", "..#..#..", "..####..", "........"
)  # fmt: skip
BAR = drawing(
    "........", "...#....", "...#....", "...#....", "...#....", "...#....", "........", "........"
)  # fmt: skip
HOOK = drawing(
    "........", "..#.....", "..#.....", "..#.....", "..###...", "........", "........", "........"
)  # fmt: skip


@pytest.fixture(scope="module")
def views() -> dict[str, NDArray[np.float32]]:
    return digit_views(load_digits().images)


def test_shape_is_that_of_the_specification(views: dict[str, NDArray[np.float32]]) -> None:
    assert {view: block.shape[1] for view, block in views.items()} == get_spec("digits").view_dims
    for block in views.values():
        assert block.shape[0] == 1797
        assert block.dtype == np.float32
        assert np.isfinite(block).all()


def test_labels_are_the_digits() -> None:
    data = make_digits()
    assert data.labels is not None
    assert data.labels.tolist() == load_digits().target.tolist()
    assert data.missing_rate == 0
    assert data.name == "digits"
    assert load("digits") is data


def test_content_hash_is_pinned() -> None:
    """The golden tests of all methods stand on this; see `_rounded` for why it is portable."""
    assert make_digits().fingerprint == get_spec("digits").checksum


def test_no_value_is_near_a_rounding_boundary() -> None:
    """A value half way between two roundings could fall on either side on another machine."""
    import fewview.datasets._digits as module

    grey = load_digits().images
    for compute in (
        module._fourier_magnitudes,
        module._profile_correlations,
        module._karhunen_loeve,
        module._zernike_moments,
        module._morphology,
    ):
        steps = (compute(grey) + module.NUDGE) * 10**module.DECIMALS
        margin = np.abs(steps % 1 - 0.5).min()
        # Errors of double precision are near 1e-16 x 30 x 1e4 = 3e-11 of such a step.
        assert margin > 5e-7


def test_takes_less_than_a_second() -> None:
    images = load_digits().images
    start = time.perf_counter()
    digit_views(images)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_alone_tells_digits_apart(
    view: str, views: dict[str, NDArray[np.float32]]
) -> None:
    """Ten balanced classes: chance is 10 %. Four times chance, even for the coarsest view, cannot
    come from noise (one standard error is 1.4 points on 450 samples)."""
    labels = load_digits().target
    test = np.arange(len(labels)) % 4 == 0
    model = NearestCentroid().fit(views[view][~test], labels[~test])
    accuracy = (model.predict(views[view][test]) == labels[test]).mean()
    assert accuracy > (0.4 if view == "mor" else 0.7)


def test_every_feature_varies(views: dict[str, NDArray[np.float32]]) -> None:
    for view, block in views.items():
        assert (block.std(axis=0) > 0).all(), view


def test_fourier_magnitudes_ignore_place_and_amount_of_ink() -> None:
    moved = np.roll(HOOK, (2, 1), axis=(1, 2))  # stays on the paper
    one, two, three = (digit_views(x)["fou"] for x in (HOOK, moved, HOOK / 2))
    np.testing.assert_allclose(one, two, atol=2e-4)
    np.testing.assert_allclose(one, three, atol=2e-4)
    assert np.abs(one - digit_views(BAR)["fou"]).max() > 0.1


def test_zernike_magnitudes_ignore_place_rotation_and_amount_of_ink() -> None:
    one = digit_views(HOOK)["zer"]
    others = (
        np.roll(HOOK, (2, 1), axis=(1, 2)),
        np.rot90(HOOK, axes=(1, 2)),
        HOOK[:, ::-1, ::-1],
        HOOK / 2,
    )
    for other in others:
        np.testing.assert_allclose(one, digit_views(other)["zer"], atol=2e-4)
    assert np.abs(one - digit_views(BAR)["zer"]).max() > 0.05


def test_zernike_moment_of_a_known_shape() -> None:
    """Four dots at the corners of a square: all at radius 1/2 of the disc, which reaches to twice
    the root mean square radius, 90 degrees apart. So Z(2,0) = 3/pi |2/4 - 1|, and Z(n,m) vanishes
    unless m is a multiple of 4, where Z(4,4) = 5/pi / 16."""
    image = np.zeros((1, 8, 8))
    image[0, [2, 2, 5, 5], [2, 5, 2, 5]] = 16
    orders = [(n, m) for n in range(2, 9) for m in range(n % 2, n + 1, 2)]
    moments = dict(zip(orders, digit_views(image)["zer"][0].tolist(), strict=True))
    assert moments[2, 0] == pytest.approx(3 / np.pi / 2, abs=1e-4)
    assert moments[4, 4] == pytest.approx(5 / np.pi / 16, abs=1e-4)
    assert all(value == 0 for (_, m), value in moments.items() if m % 4)


def test_pixel_averages() -> None:
    image = np.arange(64, dtype=float).reshape(1, 8, 8) / 4
    expected = [
        image[0, r : r + 2, c : c + 2].mean() for r in range(0, 8, 2) for c in range(0, 8, 2)
    ]
    np.testing.assert_allclose(digit_views(image)["pix"][0], expected, atol=1e-4)


def test_karhunen_loeve_coefficients_are_uncorrelated_and_ordered(
    views: dict[str, NDArray[np.float32]],
) -> None:
    covariance = np.cov(views["kar"].astype(np.float64).T)
    variances = np.diag(covariance)
    assert (np.diff(variances) < 0).all()
    off = covariance - np.diag(variances)
    assert np.abs(off).max() < 1e-3 * variances.min()
    pixels = load_digits().images.reshape(-1, 64)
    share = variances.sum() / pixels.var(axis=0, ddof=1).sum()
    assert 0.95 < share < 1  # 32 of 64 directions hold nearly all of the variance


def test_karhunen_loeve_sees_no_labels() -> None:
    assert list(inspect.signature(digit_views).parameters) == ["images"]


@pytest.mark.parametrize(
    ("image", "parts_minus_holes"),
    [(RING, 0), (EIGHT, -1), (BAR, 1), (RING + np.roll(BAR, 4, axis=2), 1),
     (np.eye(8)[None] * 16, 1)],
)  # fmt: skip
def test_euler_number(image: NDArray[np.float64], parts_minus_holes: int) -> None:
    assert digit_views(image)["mor"][0, 0] == parts_minus_holes


def test_morphology_of_simple_shapes() -> None:
    bar, ring = digit_views(BAR)["mor"][0], digit_views(RING)["mor"][0]
    # A bar of 1 x 5 full pixels: outline 2 x (1 + 5), ink 5; squared distances 4, 1, 0, 1, 4.
    assert bar[1] == pytest.approx(12 / 5)
    assert bar[2] == pytest.approx(2 / 8)
    assert bar[3] == pytest.approx(1)  # a line
    assert bar[4] == bar[5] == 0
    assert ring[3] == ring[4] == ring[5] == 0  # round, upright, even
    slanted = digit_views(np.eye(8)[None] * 16)["mor"][0]
    assert slanted[4] == pytest.approx(1)
    assert digit_views(HOOK)["mor"][0, 5] == -digit_views(HOOK[:, ::-1])["mor"][0, 5] != 0


def test_profile_correlations_of_a_symmetric_shape() -> None:
    """The ring looks the same from all four sides, so the six correlations between two different
    sides at shift 0 are those of a profile of length one with itself: 1."""
    block = digit_views(RING)["fac"][0]
    assert (block <= 1).all()
    assert (block >= 0).all()
    pairs = [
        (i, j, s) for i in range(6) for j in range(i, 6) for s in range(1 if i == j else -3, 4)
    ]
    assert len(pairs) == block.size
    place = {pair: index for index, pair in enumerate(pairs)}
    for first in range(4):
        for second in range(first + 1, 4):
            assert block[place[first, second, 0]] == pytest.approx(1)


def test_a_single_dot_gives_numbers() -> None:
    dot = np.zeros((1, 8, 8))
    dot[0, 3, 3] = 1
    for block in digit_views(dot).values():
        assert np.isfinite(block).all()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.ones((2, 7, 8)), r"shape \(2, 7, 8\)"),
        (np.full((1, 8, 8), np.nan), "without NaN"),
        (-np.ones((1, 8, 8)), "from 0 to 16"),
        (np.zeros((1, 8, 8)), "image 0 is blank"),
    ],
)
def test_bad_images(images: NDArray[np.float64], message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        digit_views(images)
