from __future__ import annotations

import pytest

from service.rate import Rate


def test_rate_tells_how_long_rows_take() -> None:
    """Rows a second over the last batches; a second where nothing is known."""
    rate = Rate()
    assert 1.0 == rate.seconds_for(50)
    rate.note(100, 2.0)
    assert 1.0 == pytest.approx(rate.seconds_for(50))
