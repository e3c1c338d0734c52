from __future__ import annotations

import numpy as np
import pytest

from fewview import MultiViewData
from fewview.datasets import make_few_shot


@pytest.fixture
def task() -> tuple[MultiViewData, MultiViewData]:
    """Three supports of each of four classes, and their other samples; some lack a view."""
    samples = make_few_shot(10, 20, {"shape": 5, "colour": 8, "sound": 3}, separation=3.0, seed=1)
    novel = samples[samples.codes >= 6]
    mask = np.ones(novel.mask.shape, dtype=bool)
    mask[1::4, 0] = mask[2::4, 1] = False
    data = novel.with_mask(mask)
    rows = np.concatenate([np.flatnonzero(data.codes == code)[:3] for code in range(4)])
    return data[rows], data[np.setdiff1d(np.arange(len(data)), rows)]
