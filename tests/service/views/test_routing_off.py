from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.preprocess import scale
from model.runtime import Runtime
from service.settings import Settings
from tests.service.views.answers import answer_of, drawing_of
from tests.serving import serve

ask = partial(answer_of, "/routing-off")


def test_off_is_the_first_iteration(
    client: TestClient, digits: list[bytes], runtime: Runtime
) -> None:
    """Of a network that routes by agreement; `routed` is the last one."""
    found = ask(client, digits[7])
    assert ["routed", "uniform", "one-iteration"] == [one["name"] for one in found["variants"]]
    pixels = scale(np.asarray(Image.open(io.BytesIO(digits[7])), np.uint8)[None])
    steps = runtime.trace(pixels[None]).classes.presence[0]
    for variant, step in zip(found["variants"], (2, 0, 1), strict=True):
        assert np.allclose(steps[step], variant["lengths"], atol=1e-5)
        assert [int(steps[step].argmax())] == variant["labels"]
        assert [str(variant["labels"][0])] == variant["class_names"]
    assert found["length"] == pytest.approx(max(found["variants"][0]["lengths"]))


def test_an_answer_that_changes_is_told(client: TestClient, digits: list[bytes]) -> None:
    """By comparing the labels of each variant with those as routed."""
    for digit in digits:
        found = ask(client, digit)
        first, *others = found["variants"]
        assert first["changed"] is False
        assert [one["labels"] != first["labels"] for one in others] == [
            one["changed"] for one in others
        ]
        assert any(one["changed"] for one in others) == found["changed"]


def test_pairs_have_two_labels(client: TestClient, digits: list[bytes]) -> None:
    """Those of a network that takes two overlapping digits apart, by label."""
    for variant in ask(client, digits[1], model="strokes")["variants"]:
        assert sorted(set(variant["labels"])) == variant["labels"]
        assert 2 == len(variant["labels"])


def test_each_family_says_what_it_can(family_bundles: Path, digits: list[bytes]) -> None:
    """Variants follow from the routing; a network without routing has none."""
    settings = Settings(bundles=family_bundles, default_model="tiny-dynamic", device="cpu")
    with serve(settings) as client:
        for family in ("attention", "shared", "matrix"):
            found = ask(client, digits[3], model=f"tiny-{family}")
            assert ["routed", "uniform"] == [one["name"] for one in found["variants"]]
        query = {"model": "tiny-baseline"}
        answer = client.post("/routing-off", params=query, files={"file": digits[3]})
        assert (409, "urn:capsnet:problem:not-offered") == (
            answer.status_code,
            answer.json()["type"],
        )


@pytest.mark.parametrize("model", ["mnist", "strokes", "blocks"])
def test_bars_are_drawn(model: str, client: TestClient, digits: list[bytes]) -> None:
    """For digits, pairs and photographs."""
    assert (900, 320) == drawing_of("/routing-off", client, digits[7], model=model).size
