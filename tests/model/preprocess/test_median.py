from __future__ import annotations

import numpy as np
import pytest

from model.preprocess.median import median


@pytest.mark.parametrize("count", [1, 2, 3, 4, 111, 112, 5000])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_median_equals_numpys(count: int, kind: type[np.floating]) -> None:
    """To the last bit, for odd and even numbers of values, some of them equal."""
    values = np.random.default_rng(count).integers(0, 300, count).astype(kind) / kind(255)
    assert float(np.median(values)) == median(values)
