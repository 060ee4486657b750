"""What `/classify` answers: fits, problems in their places, sets of labels and novelty."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.bundle import Bundle
from model.bundle.poses import NoveltyRule, PoseGaussians
from model.preprocess import scale
from model.runtime import Runtime
from model.views.novelty import measure_features, rank
from service.app import create_app
from service.inference.engine import open_engine
from service.settings import Settings
from tests.extras import CONFIDENCE, HEALTH
from tests.service.views.answers import answer_of

classify = partial(answer_of, "/classify")
RULE = NoveltyRule(
    quantiles=(0.0, 0.5, 1.0),
    length=(0.0, 0.01, 1.0),
    margin=(0.0, 0.001, 1.0),
    error=(0.0, 0.5, 5.0),
    threshold=0.1,
    images="none",
    distance=(0.0, 1.0, 10.0),
    gaussians=PoseGaussians(np.zeros((10, 160), np.float32), np.eye(160, dtype=np.float16)),
)


@pytest.fixture(scope="module")
def studied(bundle_path: Path, settings: Settings) -> Iterator[TestClient]:
    """The service, its bundle with a calibration, a health and a rule of novelty."""
    bundle = Bundle.open(bundle_path)
    manifest = replace(bundle.manifest, confidence=CONFIDENCE, health=HEALTH, novelty=RULE)
    runtime = Runtime(replace(bundle, manifest=manifest), device="cpu", threads=1)
    app = create_app(settings, open_engine({"mnist": runtime}))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def test_a_photo_is_fitted_and_its_strokes_are_found(client: TestClient, photo: bytes) -> None:
    """The fit tells the polarity as it came and the box of the strokes in the photo."""
    (prediction,) = classify(client, photo)["predictions"]
    left, top, right, bottom = prediction["fit"].pop("box")
    assert {"fit": "digit", "polarity": "dark-on-light"} == prediction["fit"]
    assert 50 <= left < right <= 134
    assert 20 <= top < bottom <= 104


def test_a_bad_picture_is_a_problem_in_its_place(client: TestClient, digits: list[bytes]) -> None:
    """The pictures before and after it are answered as if it were not there."""
    good = classify(client, digits[1], digits[2])["predictions"]
    sent = (digits[1], digits[5][:100], b"", digits[2])
    first, *problems, last = classify(client, *sent)["predictions"]
    assert good == [first, last]
    assert [["problem"], ["problem"]] == [list(one) for one in problems]
    expected = [(422, "urn:capsnet:problem:unreadable-picture")]
    expected += [(400, "urn:capsnet:problem:malformed-request")]
    assert expected == [(one["problem"]["status"], one["problem"]["type"]) for one in problems]


def test_a_bad_picture_alone_is_the_answer(client: TestClient, digits: list[bytes]) -> None:
    """With one picture there is nothing else to answer, so the status says it."""
    answer = client.post("/classify", files={"file": digits[5][:100]})
    assert 422 == answer.status_code
    assert "urn:capsnet:problem:unreadable-picture" == answer.json()["type"]


def test_fit_none_refuses_the_misfits_among_several(
    client: TestClient, digits: list[bytes], photo: bytes
) -> None:
    """A picture of another size is a problem in its place, which names the parameter."""
    good, misfit = classify(client, digits[1], photo, fit="none")["predictions"]
    assert "none" == good["fit"]["fit"]
    assert (422, "fit") == (misfit["problem"]["status"], misfit["problem"]["parameter"])


@pytest.mark.parametrize("coverage", [0.5, 0.99])
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


def test_each_image_is_compared_with_training_images(
    studied: TestClient, digits: list[bytes], runtime: Runtime
) -> None:
    """Scores and error are the rule's of that picture."""
    (prediction,) = classify(studied, digits[3], novelty=True)["predictions"]
    image = scale(np.asarray(Image.open(io.BytesIO(digits[3])), np.uint8)[None, None])
    presence, poses = runtime.encode(image)
    label = int(presence.argmax())
    drawn = runtime.decode(poses[:, label], np.array([label]))
    features = measure_features(presence, poses, image, drawn, RULE.gaussians)
    ranks, found = rank(RULE, features), prediction["novelty"]
    names = ("length", "margin", "error", "distance")
    expected = [float(1 - ranks[name][0]) for name in names]
    assert expected == pytest.approx([found[f"{name}_score"] for name in names], abs=1e-4)
    assert max(expected) == pytest.approx(found["score"], abs=1e-4)
    assert float(features["error"][0]) == pytest.approx(found["error"], abs=1e-4)
    assert (found["score"] > 1 - RULE.threshold) == found["novel"]


@pytest.mark.parametrize(("parameter", "value"), [("novelty", True), ("coverage", 0.9)])
def test_a_bundle_without_the_numbers_says_so(
    parameter: str, value: float, client: TestClient, digits: list[bytes]
) -> None:
    """422 names the parameter."""
    answer = client.post("/classify", params={parameter: value}, files={"file": digits[3]})
    assert (422, parameter) == (answer.status_code, answer.json()["parameter"])
