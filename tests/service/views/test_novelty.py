from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.bundle import Bundle
from model.bundle.novelty import NoveltyRule, PoseGaussians
from model.preprocess import scale
from model.runtime import Runtime
from model.views.classify import NoveltyReport
from model.views.novelty import Features, measure_features, rank
from service.app import create_app
from service.inference.engine import open_engine
from service.settings import Settings
from tests.directions import make_direction

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
DIRECTIONS = (make_direction(7), make_direction(7, "width", got=0.5))


@pytest.fixture(scope="module")
def studied(bundle_path: Path, settings: Settings) -> Iterator[TestClient]:
    """The service, its bundle with a rule and with directions."""
    bundle = Bundle.open(bundle_path)
    manifest = replace(bundle.manifest, novelty=RULE, directions=DIRECTIONS)
    runtime = Runtime(replace(bundle, manifest=manifest), device="cpu", threads=1)
    with TestClient(
        create_app(settings, open_engine({"mnist": runtime})), base_url="http://localhost"
    ) as client:
        yield client


def expected_features(runtime: Runtime, picture: bytes) -> Features:
    image = scale(np.asarray(Image.open(io.BytesIO(picture)), np.uint8)[None, None])
    presence, poses = runtime.encode(image)
    label = int(presence.argmax())
    drawn = runtime.decode(poses[:, label], np.array([label]))
    return measure_features(presence, poses, image, drawn, RULE.gaussians)


def test_each_image_is_compared_with_training_images(
    studied: TestClient, digits: list[bytes], runtime: Runtime
) -> None:
    """Scores and error are the rule's of that picture; a broken one has none."""
    files = [("file", one) for one in (digits[3], b"no picture", digits[8])]
    answer = studied.post("/classify", params={"novelty": True}, files=files).json()
    first, broken, last = answer["predictions"]
    assert {"problem"} == broken.keys()
    for prediction, picture in ((first, digits[3]), (last, digits[8])):
        features = expected_features(runtime, picture)
        ranks, found = rank(RULE, features), prediction["novelty"]
        assert float(1 - ranks.lowest[0]) == pytest.approx(found["score"], abs=1e-4)
        assert [float(1 - rank[0]) for rank in ranks] == pytest.approx(
            [found[f"{name}_score"] for name in ("length", "margin", "error", "distance")],
            abs=1e-4,
        )
        assert float(features.error[0]) == pytest.approx(found["error"], abs=1e-4)
        assert (found["score"] > 1 - RULE.threshold) == found["novel"]


def test_without_distances_none_is_told(
    bundle_path: Path, settings: Settings, digits: list[bytes]
) -> None:
    """The score is the highest of the others."""
    bundle = Bundle.open(bundle_path)
    manifest = replace(bundle.manifest, novelty=replace(RULE, distance=(), gaussians=None))
    runtime = Runtime(replace(bundle, manifest=manifest), device="cpu", threads=1)
    with TestClient(
        create_app(settings, open_engine({"mnist": runtime})), base_url="http://localhost"
    ) as client:
        answer = client.post("/classify", params={"novelty": True}, files={"file": digits[3]})
    found = answer.json()["predictions"][0]["novelty"]
    assert "distance_score" not in found
    assert found["score"] == max(found[f"{name}_score"] for name in ("length", "margin", "error"))


def test_every_field_is_in_the_docs() -> None:
    """As code, in the page on what the views mean."""
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "views.md").read_text()
    assert [] == [name for name in NoveltyReport.model_fields if f"`{name}`" not in page]


def test_nothing_is_compared_unless_asked(studied: TestClient, digits: list[bytes]) -> None:
    """/classify by itself draws nothing."""
    (prediction,) = studied.post("/classify", files={"file": digits[3]}).json()["predictions"]
    assert "novelty" not in prediction


def test_a_bundle_without_a_rule_says_so(client: TestClient, digits: list[bytes]) -> None:
    """422 names the parameter."""
    answer = client.post("/classify", params={"novelty": True}, files={"file": digits[3]})
    assert (422, "novelty") == (answer.status_code, answer.json()["parameter"])


def test_a_pose_moves_along_a_direction(studied: TestClient, digits: list[bytes]) -> None:
    """In its unit, and only along those that are offered."""
    query = {"target": 7, "delta": 10}
    answers = [
        studied.post(
            "/perturb", params={**query, "direction": name}, files={"file": digits[7]}
        ).json()
        for name in ("slant", "width")
    ]
    moved = np.subtract(answers[0]["perturbed_pose"], answers[0]["pose"])
    assert [0.1] == pytest.approx(moved[moved != 0].tolist(), abs=2e-6)
    assert {"unit", "read", "asked", "measured"} == answers[0]["value"].keys()
    assert ("direction", 422) == (answers[1]["parameter"], answers[1]["status"])


def test_directions_are_listed(studied: TestClient) -> None:
    """GET /models has those that are offered, GET /models/{name} all of them."""
    (summary,) = studied.get("/models").json()["models"]
    assert [("slant", [7])] == [(one["name"], one["labels"]) for one in summary["directions"]]
    manifest = studied.get("/models/mnist").json()
    assert ["slant", "width"] == [one["name"] for one in manifest["directions"]]
    assert RULE.threshold == manifest["novelty"]["threshold"]
