"""A row of a large network costs what it takes, in the queue and for a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from model.canvas import draw_image
from model.runtime import Runtime
from service.admission import ROW_S
from service.settings import Settings
from tests.serving import Served, serve

FAST, SLOW = "blocks", "large"
PICTURE = draw_image(np.full((3, 64, 64), 0.7, np.float32), 1)


@pytest.fixture(scope="module")
def settings(sized_bundles: Path) -> Settings:
    """A client that has spent a row waits an hour for the next one."""
    return Settings(
        bundles=sized_bundles,
        default_model=FAST,
        device="cpu",
        threads=1,
        rate_limit_per_key=1 / 3600,
        rate_burst_per_key=1,
    )


@pytest.fixture
def four_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any machine, the slow network decodes a pose in the time of four rows."""
    monkeypatch.setattr(
        Runtime,
        "core_s",
        lambda runtime, graph: (
            ROW_S * (4.2 if (runtime.bundle.manifest.name, graph) == (SLOW, "decode") else 0.2)
        ),
    )


@pytest.fixture
def client(settings: Settings, four_rows: None) -> Iterator[Served]:
    """Both networks, and nobody has asked yet."""
    del four_rows
    with serve(settings) as client:
        yield client


def test_drawing_with_a_large_network_costs_a_key_more(client: Served) -> None:
    """One request is taken, and its rows are owed: a sweep's 176 poses cost several rows each."""
    engine = client.app.state.loaded
    assert 1 == engine.price(FAST, "decode") < engine.price(SLOW, "decode")
    owed = {}
    for model in (FAST, SLOW):
        caller = Served(client.app, client=(model, 1), base_url="http://localhost")
        assert 200 == caller.post(f"/sweep?model={model}", files={"file": PICTURE}).status_code
        refused = caller.post(f"/classify?model={model}", files={"file": PICTURE})
        owed[model] = int(refused.headers["Retry-After"]) / 3600
    assert 176 <= owed[FAST]
    assert 4 * 176 <= owed[SLOW]


@pytest.mark.usefixtures("four_rows")
def test_a_request_beyond_the_queue_is_computed_alone(settings: Settings) -> None:
    """It takes the whole queue, whose limit holds the rows of any view at the least price."""
    with serve(settings, max_waiting_rows=1, max_pictures=1, rate_limit_per_key=0) as client:
        admission, engine = client.app.state.admission, client.app.state.loaded
        assert 176 * engine.price(SLOW, "decode") > admission.limit_cost
        files = {"file": PICTURE}
        swept = client.post(f"/sweep?model={SLOW}", files=files)
        assert 200 == swept.status_code, swept.text
        assert 0 == admission.waiting_cost


def test_images_of_more_pixels_cost_a_key_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of four times the pixels costs as much as four, where it keeps its size."""
    monkeypatch.setattr("service.admission.ROW_S", 1e6)  # decoding costs nothing
    burst = {"rate_limit_per_key": 1 / 3600, "rate_burst_per_key": 5, "threads": 1}
    settings = Settings(models=("mnist-shared",), default_model="mnist-shared", device="cpu")
    statuses = {}
    with serve(settings, **burst) as client:
        for side in (28, 56):
            caller = Served(client.app, client=(f"{side}", 1), base_url="http://localhost")
            files = {"file": draw_image(np.zeros((1, side, side), np.float32), 1)}
            answers = [caller.post("/classify?fit=none", files=files) for _ in range(3)]
            statuses[side] = [answer.status_code for answer in answers]
    assert {28: [200, 200, 200], 56: [200, 200, 429]} == statuses
