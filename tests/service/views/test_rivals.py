from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from tests.service.views.answers import answer_of, drawing_of

Pixels = Callable[[str], NDArray[np.int64]]

ask = partial(answer_of, "/rivals")


def test_each_class_draws_what_reconstruct_draws(
    client: TestClient, digits: list[bytes], pixels: Pixels
) -> None:
    """With that class as target; and it misses what the formula says."""
    found = ask(client, digits[5], count=10)
    assert set(range(10)) == {one["label"] for one in found["classes"]}
    seen = pixels(found["input"]) / 255
    for one in found["classes"]:
        query = {"target": one["label"]}
        alone = client.post("/reconstruct", params=query, files={"file": digits[5]}).json()
        assert alone["reconstruction"] == one["reconstruction"]
        assert alone["length"] == pytest.approx(one["length"], abs=1e-5)
        missed = np.square(pixels(one["reconstruction"]) / 255 - seen).sum()
        assert missed / (np.square(seen).sum() + 1) == pytest.approx(one["error"], abs=2e-3)


def test_the_most_present_come_first(client: TestClient, digits: list[bytes]) -> None:
    """And `count` of them; the best drawn is among these."""
    found = ask(client, digits[5], count=4)
    lengths = [one["length"] for one in found["classes"]]
    assert sorted(lengths, reverse=True) == lengths
    assert 4 == len(lengths)
    assert (found["label"], found["length"]) == (found["classes"][0]["label"], lengths[0])
    best = min(found["classes"], key=lambda one: one["error"])
    assert best["label"] == found["best_drawn"]


def test_a_decoder_that_learnt_no_absent_class_shows_two(
    client: TestClient, digits: list[bytes]
) -> None:
    """The network's notes say why."""
    assert 2 == len(ask(client, digits[5])["classes"])
    (mnist,) = (one for one in client.get("/models").json()["models"] if one["name"] == "mnist")
    assert "rival_share=0" in mnist["notes"]["rivals"][-1]


def test_there_are_no_more_than_classes(client: TestClient, digits: list[bytes]) -> None:
    """Three, of a network of three."""
    assert 3 == len(ask(client, digits[5], model="strokes", count=64)["classes"])


@pytest.mark.parametrize("query", [{}, {"count": 1}, {"model": "blocks"}])
def test_rivals_are_drawn(query: dict[str, Any], client: TestClient, digits: list[bytes]) -> None:
    """Those of the default, one alone, and those of photographs."""
    drawing_of("/rivals", client, digits[7], **query)
