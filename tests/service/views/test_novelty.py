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


def test_a_bundle_without_a_rule_says_so(client: TestClient, digits: list[bytes]) -> None:
    """422 names the parameter."""
    answer = client.post("/classify", params={"novelty": True}, files={"file": digits[3]})
    assert (422, "novelty") == (answer.status_code, answer.json()["parameter"])
