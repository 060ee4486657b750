from __future__ import annotations

from functools import partial

import numpy as np
from fastapi.testclient import TestClient

from tests.service.views.answers import answer_of, drawing_of

sweep = partial(answer_of, "/sweep")


def test_by_default_it_is_the_paper_s(client: TestClient, digits: list[bytes]) -> None:
    """All sixteen dimensions by eleven deltas."""
    answer = sweep(client, digits[7])
    assert list(range(16)) == answer["dims"]
    assert [-0.25, 0.25] == [answer["deltas"][0], answer["deltas"][-1]]
    assert [11] * 16 == [len(row) for row in answer["images"]]


def test_each_picture_is_that_of_perturb(client: TestClient, digits: list[bytes]) -> None:
    """One cell of the grid is what /perturb draws for its dimension and delta."""
    query = {"start": -0.5, "stop": 1, "step": 0.75, "target": 3}
    answer = sweep(client, digits[7], dims=[15, 4], **query)
    assert ([15, 4], [-0.5, 0.25, 1.0]) == (answer["dims"], answer["deltas"])
    for dim, row in zip(answer["dims"], answer["images"], strict=True):
        for delta, image in zip(answer["deltas"], row, strict=True):
            single = client.post(
                "/perturb",
                params={"dim": dim, "delta": delta, "target": 3},
                files={"file": digits[7]},
            ).json()
            assert single["perturbed"] == image
            assert single["pose"] == answer["pose"]


def test_png_is_a_grid_of_the_pictures(client: TestClient, digits: list[bytes]) -> None:
    """The drawing grows with its rows, columns and scale, and holds light strokes on dark cells."""
    sizes = {}
    for dims, scale in (([4], 1), ([4, 5], 1), ([4], 4)):
        picture = drawing_of("/sweep", client, digits[7], dims=dims, scale=scale)
        sizes[len(dims), scale] = picture.size
        assert np.asarray(picture).min() < 128
    assert 30 == sizes[2, 1][1] - sizes[1, 1][1]
    assert 11 * 3 * 28 == sizes[1, 4][0] - sizes[1, 1][0]
