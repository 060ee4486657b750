"""Probabilities and sets of labels in `/classify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from model.bundle import Bundle
from model.runtime import Runtime
from service.app import create_app
from service.inference.engine import open_engine
from service.settings import Settings
from tests.health import CONFIDENCE, HEALTH


@pytest.fixture(scope="module")
def studied(bundle_path: Path, settings: Settings) -> Iterator[TestClient]:
    """The service, its bundle with a calibration and a health."""
    bundle = Bundle.open(bundle_path)
    manifest = replace(bundle.manifest, confidence=CONFIDENCE, health=HEALTH)
    runtime = Runtime(replace(bundle, manifest=manifest), device="cpu", threads=1)
    app = create_app(settings, open_engine({"mnist": runtime}))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_a_set_of_labels_is_added(
    studied: TestClient, digits: list[bytes], coverage: float
) -> None:
    """It is the calibration's, the most present class first."""
    files = [("file", digits[3]), ("file", b"no picture"), ("file", digits[8])]
    answer = studied.post("/classify", params={"coverage": coverage}, files=files).json()
    first, broken, last = answer["predictions"]
    assert {"problem"} == broken.keys()
    for prediction in (first, last):
        presence = np.array([prediction["lengths"]], np.float32)
        chosen = np.flatnonzero(CONFIDENCE.find_labels(presence, coverage)[0])
        labels = [one["label"] for one in prediction["labels"]]
        assert set(chosen.tolist()) == set(labels)
        assert prediction["label"] == labels[0]
        assert [str(label) for label in labels] == [
            one["class_name"] for one in prediction["labels"]
        ]
        expected = CONFIDENCE.find_probability(presence)[0]
        assert expected == pytest.approx(prediction["probability"], abs=1e-4)


def test_a_bundle_without_a_calibration_says_so(client: TestClient, digits: list[bytes]) -> None:
    """`GET /models` tells which have one."""
    answer = client.post("/classify", params={"coverage": 0.9}, files={"file": digits[3]})
    assert "the bundle 'mnist' has no calibration" == answer.json()["detail"]
    assert {False} == {one["calibrated"] for one in client.get("/models").json()["models"]}


def test_health_is_shown_in_numbers_and_drawn(studied: TestClient) -> None:
    """By the header that the client sends."""
    answer = studied.get("/models/mnist/health").json()
    assert ("mnist", 20.0, [1.0, 0.9]) == (
        answer["model"],
        answer["capsules"][0]["starved_percent"],
        answer["couplings"][0]["entropy"],
    )
    drawn = studied.get("/models/mnist/health", headers={"Accept": "image/png"})
    assert drawn.content.startswith(b"\x89PNG")
