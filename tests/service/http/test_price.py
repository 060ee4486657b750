"""A row of a large network costs what it takes, in the queue and for a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from model.canvas import draw_image
from service.inference.price import ROW_S, row_prices
from service.settings import Settings
from tests.serving import Served, serve

FAST, SLOW = "blocks", "large"
PICTURE = draw_image(np.full((3, 64, 64), 0.7, np.float32), 1)


@pytest.fixture(scope="module")
def settings(sized_bundles: Path) -> Settings:
    """Whoever has spent a row waits an hour for the next one."""
    return Settings(
        bundles=sized_bundles,
        default_model=FAST,
        device="cpu",
        threads=1,
        rate_limit_per_key=1 / 3600,
        rate_burst_per_key=1,
    )


@pytest.fixture
def client(settings: Settings) -> Iterator[Served]:
    """Both networks, and nobody has asked yet."""
    with serve(settings) as client:
        yield client


def test_a_row_costs_the_time_that_it_takes() -> None:
    """At least one row; the quickest encoder is the unit where it is slower than a row."""
    times = {("quick", "encode"): ROW_S / 3, ("quick", "decode"): ROW_S / 50}
    large = {("large", "encode"): 1.5 * ROW_S, ("large", "decode"): 3.5 * ROW_S}
    assert [1, 1, 1, 3] == list(row_prices(times | large).values())
    assert [1, 2] == list(row_prices(large).values())
    assert {("gpu", "encode"): 1} == row_prices({("gpu", "encode"): 0.0})


def test_drawing_with_a_large_network_costs_a_key_more(client: Served) -> None:
    """One request is taken, and its rows are owed: a sweep's 176 poses cost several rows each."""
    engine = client.app.state.health.engine
    assert 1 == engine.price(FAST, "decode") < engine.price(SLOW, "decode")
    owed = {}
    for model in (FAST, SLOW):
        caller = Served(client.app, client=(model, 1), base_url="http://localhost")
        assert 200 == caller.post(f"/sweep?model={model}", files={"file": PICTURE}).status_code
        refused = caller.post(f"/classify?model={model}", files={"file": PICTURE})
        owed[model] = int(refused.headers["Retry-After"]) / 3600
    assert 176 <= owed[FAST] < 2 * 176 <= owed[SLOW]


def test_a_request_beyond_the_queue_is_computed_alone(settings: Settings) -> None:
    """It takes the whole queue, whose limit holds the rows of any view at the least price."""
    with serve(settings, max_waiting_rows=1, max_pictures=1, rate_limit_per_key=0) as client:
        admission, engine = client.app.state.admission, client.app.state.health.engine
        assert 176 * engine.price(SLOW, "decode") > admission.limit
        files = {"file": PICTURE}
        swept = client.post(f"/sweep?model={SLOW}", files=files)
        assert 200 == swept.status_code, swept.text
        assert 0 == admission.waiting
