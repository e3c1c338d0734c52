"""The embedded default: scikit-learn's 1797 digits of 8 x 8 pixels, described by six views.

The views follow UCI Multiple Features (the paper's Handwritten) in spirit: the same six kinds of
measurement, at the size that 64 pixels carry. They are plain numpy, take a fraction of a second
and are rounded to four decimals, so that the content hash does not depend on the linear algebra
library.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError
from fewview.samples._data import MultiViewData

SIDE = 8
FULL = 16.0  # the darkest grey level of these images
HALF = FULL / 2
N_KARHUNEN_LOEVE = 32
ZERNIKE_ORDER = 8
PROFILE_SHIFTS = 3
FOURIER_CUT = 4
DECIMALS = 4
NUDGE = 1e-10

FloatArray = NDArray[np.floating[Any]]


@lru_cache(maxsize=1)
def make_digits() -> MultiViewData:
    """Make the embedded data set: 1797 samples, ten classes, six views.

    Returns:
        Views `fou` (40 Fourier magnitudes), `fac` (123 profile correlations), `kar` (32
        Karhunen-Loeve coefficients), `pix` (16 averages of 2 x 2 pixels), `zer` (23 Zernike
        moments) and `mor` (6 morphological measures); labels are the digits 0 to 9.

    Example:
        >>> make_digits()
        MultiViewData(digits: 1797 samples, views: fou[40], fac[123], kar[32], pix[16], zer[23], \
mor[6], 10 classes, 0.0% of views missing)
    """
    from sklearn.datasets import load_digits

    bundle = load_digits()
    return MultiViewData(digit_views(bundle.images), bundle.target.tolist(), name="digits")


def digit_views(images: Any) -> dict[str, NDArray[np.float32]]:
    """Describe 8 x 8 grey images (0 = paper, 16 = ink) by six views.

    Every view but `kar` describes each image by itself. The Karhunen-Loeve basis is that of all
    images given, classes unseen: it is unsupervised, no label enters it. It belongs to how the
    data were made, as in UCI Multiple Features, and not to any method; what a method learns it
    learns from base classes only.

    Args:
        images: [n, 8, 8], each with some ink.

    Returns:
        View name -> float32 [n, width], in the order fou, fac, kar, pix, zer, mor.

    Example:
        >>> image = np.zeros((1, 8, 8))
        >>> image[0, 1:7, 3:5] = 16
        >>> {view: block.shape[1] for view, block in digit_views(image).items()}
        {'fou': 40, 'fac': 123, 'kar': 32, 'pix': 16, 'zer': 23, 'mor': 6}
    """
    grey = np.asarray(images, dtype=np.float64)
    if grey.ndim != 3 or grey.shape[1:] != (SIDE, SIDE):
        raise FewviewError(f"images have shape {grey.shape}; they must be [n, {SIDE}, {SIDE}]")
    if not (np.isfinite(grey).all() and (grey >= 0).all()):
        raise FewviewError(f"images must hold grey levels from 0 to {FULL:g}, without NaN")
    blank = np.flatnonzero(grey.sum(axis=(1, 2)) == 0)
    if blank.size:
        raise FewviewError(f"image {blank[0]} is blank; drop it, nothing can be measured on it")
    blocks = {
        "fou": _fourier_magnitudes(grey),
        "fac": _profile_correlations(grey),
        "kar": _karhunen_loeve(grey),
        "pix": _pixel_averages(grey),
        "zer": _zernike_moments(grey),
        "mor": _morphology(grey),
    }
    return {view: _rounded(block) for view, block in blocks.items()}


def _rounded(block: FloatArray) -> NDArray[np.float32]:
    """Round to four decimals so that the last bit of a computation never shows.

    Some ratios fall exactly half way between two roundings (0.28125); a nudge far above rounding
    errors and far below the last decimal decides those. Adding zero turns -0.0 into 0.0, which
    a content hash would tell apart.
    """
    return (np.round(block + NUDGE, DECIMALS) + 0.0).astype(np.float32)


def _fourier_magnitudes(grey: FloatArray) -> FloatArray:
    """Low frequencies of half the spectrum, padded to 16 x 16, magnitude per total ink, [n, 40]."""
    spectrum = np.abs(np.fft.fft2(grey, s=(2 * SIDE, 2 * SIDE)))
    rows, columns = np.mgrid[-FOURIER_CUT : FOURIER_CUT + 1, : FOURIER_CUT + 1].reshape(2, -1)
    # Frequency zero is the total ink itself, and the other half is symmetric.
    kept = (columns > 0) | (rows > 0)
    ink = grey.sum(axis=(1, 2))
    magnitudes: FloatArray = spectrum[:, rows[kept] % (2 * SIDE), columns[kept]] / ink[:, None]
    return magnitudes


def _profile_correlations(grey: FloatArray) -> FloatArray:
    """Correlations between the outlines of a digit at several shifts, [n, 123].

    Six profiles of eight numbers: the way from each of the four edges to the ink, and the ink in
    every row and every column, each scaled to length one. Correlated are all pairs at shifts -3
    to 3; a profile with itself at shifts 1 to 3 only, as shift 0 gives one.
    """
    turned = grey.transpose(0, 2, 1)
    edges = (grey, grey[:, :, ::-1], turned, turned[:, :, ::-1])
    ink = (grey.sum(axis=2) / FULL, grey.sum(axis=1) / FULL)
    profiles = np.stack([*map(_way_to_ink, edges), *ink], axis=1)
    length = np.sqrt((profiles**2).sum(axis=2, keepdims=True))
    # An edge with ink all along it has a profile of zeros; it correlates with nothing.
    profiles = profiles / np.where(length > 0, length, 1.0)
    columns = []
    for first, second in combinations_with_replacement(range(6), 2):
        for shift in range(1 if first == second else -PROFILE_SHIFTS, PROFILE_SHIFTS + 1):
            one = profiles[:, first, max(0, -shift) : SIDE - max(0, shift)]
            two = profiles[:, second, max(0, shift) : SIDE - max(0, -shift)]
            columns.append((one * two).sum(axis=1))
    return np.stack(columns, axis=1)


def _way_to_ink(grey: FloatArray) -> FloatArray:
    """Steps, with fractions, from the left edge until half a pixel of ink is met, [n, 8 rows]."""
    met = np.cumsum(grey, axis=2)
    way: FloatArray = np.clip(1.0 - met / HALF, 0.0, None).sum(axis=2)
    return way


def _karhunen_loeve(grey: FloatArray) -> FloatArray:
    """Coefficients along the 32 directions of largest variance over all images, [n, 32]."""
    pixels = grey.reshape(len(grey), -1)
    total = pixels.sum(axis=0)
    # Grey levels are whole numbers, so this scatter matrix (times n) is exact whatever the order
    # of summation; only the eigenvectors carry rounding errors.
    scatter = len(pixels) * (pixels.T @ pixels) - np.outer(total, total)
    vectors = np.linalg.eigh(scatter / len(pixels) ** 2)[1][:, ::-1][:, :N_KARHUNEN_LOEVE]
    # The sign of an eigenvector is arbitrary: let its largest entry be positive.
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    coefficients: FloatArray = (pixels - total / len(pixels)) @ vectors
    return coefficients


def _pixel_averages(grey: FloatArray) -> FloatArray:
    """Average grey of every block of 2 x 2 pixels, [n, 16]."""
    blocks = grey.reshape(-1, SIDE // 2, 2, SIDE // 2, 2)
    averages: FloatArray = blocks.mean(axis=(2, 4)).reshape(len(grey), -1)
    return averages


def _zernike_moments(grey: FloatArray) -> FloatArray:
    """Magnitudes of the Zernike moments of orders 2 to 8, [n, 23].

    The unit disc is centred on the digit's centre of mass and reaches to twice its root mean square
    radius: position, size, rotation and amount of ink do not count. Orders 0 and 1 say nothing
    after that centring.
    """
    ink, across, down = _centred(grey)
    reach = 2.0 * np.sqrt(_moment(grey, across**2 + down**2))
    # A single dot has no radius, and any will do: all of its ink lies at the centre.
    points = (across + 1j * down) / np.where(reach > 0, reach, 1.0)[:, None, None]
    squared = points.real**2 + points.imag**2
    weights = np.where(squared <= 1.0, grey, 0.0) / ink[:, None, None]
    # Powers by repeated multiplication: exact to the last bit on every machine, unlike cpow.
    circles = [np.ones_like(points)]
    rings = [np.ones_like(squared)]
    for _ in range(ZERNIKE_ORDER):
        circles.append(circles[-1] * points)
        rings.append(rings[-1] * squared)
    columns = []
    for order in range(2, ZERNIKE_ORDER + 1):
        for turns in range(order % 2, order + 1, 2):
            half = (order - turns) // 2
            radial = sum(
                (-1) ** k * comb(order - k, k) * comb(order - 2 * k, half - k) * rings[half - k]
                for k in range(half + 1)
            )
            moment = (weights * radial * circles[turns]).sum(axis=(1, 2))
            columns.append((order + 1) / np.pi * np.abs(moment))
    return np.stack(columns, axis=1)


def _morphology(grey: FloatArray) -> FloatArray:
    """Six measures of the shape as a whole, [n, 6].

    Euler number of the inked half (parts minus holes), length of the outline per ink, mean squared
    distance from the centre of mass, elongation (0 round, 1 a line), slant (correlation of across
    and down), and skewness downwards (does the ink thin out below?).
    """
    ink, across, down = _centred(grey)
    wide, high = _moment(grey, across**2), _moment(grey, down**2)
    mixed = _moment(grey, across * down)
    # A line one pixel thin has no spread across it: its slant and skewness are zero, not NaN.
    tiny = np.finfo(np.float64).tiny
    spread = np.maximum(wide + high, tiny)
    framed = np.pad(grey, ((0, 0), (1, 1), (1, 1)))
    outline = np.abs(np.diff(framed, axis=1)).sum(axis=(1, 2))
    outline = outline + np.abs(np.diff(framed, axis=2)).sum(axis=(1, 2))
    return np.stack(
        [
            _euler_number(grey >= HALF),
            outline / ink,
            (wide + high) / SIDE,
            np.sqrt((wide - high) ** 2 + 4 * mixed**2) / spread,
            mixed / np.maximum(np.sqrt(wide * high), tiny),
            _moment(grey, down**3) / np.maximum(high * np.sqrt(high), tiny),
        ],
        axis=1,
    )


def _centred(grey: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return total ink [n], and coordinates across and down from the centre of mass [n, 8, 8]."""
    ink = grey.sum(axis=(1, 2))
    position = np.arange(SIDE, dtype=np.float64)
    across = position - (grey.sum(axis=1) @ position / ink)[:, None]
    down = position - (grey.sum(axis=2) @ position / ink)[:, None]
    shape = grey.shape
    return ink, np.broadcast_to(across[:, None, :], shape), np.broadcast_to(down[:, :, None], shape)


def _moment(grey: FloatArray, values: FloatArray) -> FloatArray:
    """Average `values` over the ink of every image, [n]."""
    average: FloatArray = (grey * values).sum(axis=(1, 2)) / grey.sum(axis=(1, 2))
    return average


def _euler_number(inked: NDArray[np.bool_]) -> FloatArray:
    """Count parts minus holes, pixels touching at a corner counting as joined, [n].

    By counting 2 x 2 windows (S. B. Gray, Local properties of binary images in two dimensions,
    1971): (windows with one pixel - with three - 2 x with two on a diagonal) / 4.
    """
    framed = np.pad(inked, ((0, 0), (1, 1), (1, 1))).astype(np.int64)
    corner, right = framed[:, :-1, :-1], framed[:, :-1, 1:]
    below, opposite = framed[:, 1:, :-1], framed[:, 1:, 1:]
    count = corner + right + below + opposite
    diagonal = (count == 2) & (corner == opposite)
    ones, threes = (count == 1).sum(axis=(1, 2)), (count == 3).sum(axis=(1, 2))
    euler: FloatArray = (ones - threes - 2 * diagonal.sum(axis=(1, 2))) / 4
    return euler
