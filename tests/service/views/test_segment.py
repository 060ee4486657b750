from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from model.views import segment as segmentation
from service.settings import Settings
from tests.pictures import as_png
from tests.service.views.answers import answer_of
from tests.serving import serve
from training.data.datasets import Examples
from training.data.pairs import PairSet, fixed_pairs

Json = dict[str, Any]


EMPTY = np.zeros((1, 36, 36), np.uint8)
MIDDLE = ((0, 0), (4, 4), (4, 4))
"""Where an image of 28x28 pixels lies in one of 36x36."""


def pixels(data_url: str) -> NDArray[np.uint8]:
    """A picture of an answer."""
    content = base64.b64decode(data_url.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)))


def segment(client: TestClient, image: NDArray[np.uint8], **query: Any) -> Json:
    """The answer to a picture."""
    return answer_of("/segment", client, as_png(image), **query)


@pytest.fixture(scope="module")
def pairs(strokes: Examples) -> PairSet:
    """Pairs of crossing strokes."""
    return fixed_pairs(strokes, 20, size=36, shift_px=2, seed=5)


def test_both_strokes_are_found_and_told_apart(client: TestClient, pairs: PairSet) -> None:
    """Labels are right, and each mask covers its own stroke rather than the other one."""
    for image, layers, labels in zip(*pairs, strict=True):
        answer = segment(client, image)
        assert set(labels.tolist()) == {one["label"] for one in answer["segments"]}
        for one in answer["segments"]:
            mask = pixels(one["mask"]) == 255
            own = layers[labels.tolist().index(one["label"])] > 0
            assert 0.6 < (mask & own).sum() / (mask | own).sum()


def test_the_model_for_pairs_answers_without_being_named(
    client: TestClient, pairs: PairSet
) -> None:
    """The default model knows single digits; the loaded one for pairs is taken."""
    answer = segment(client, pairs.images[0])
    assert ("strokes", "none") == (answer["model"], answer["fit"]["fit"])
    names = ["horizontal", "vertical", "diagonal"]
    assert [names[one["label"]] for one in answer["segments"]] == [
        one["class_name"] for one in answer["segments"]
    ]


def test_a_single_stroke_has_one_long_capsule(client: TestClient, strokes: Examples) -> None:
    """`count=auto` finds it alone; `count=2` adds a capsule whose length says that it is absent."""
    single = np.pad(strokes.images[0], MIDDLE)
    (alone,) = segment(client, single, count="auto")["segments"]
    first, second = segment(client, single, count=2)["segments"]
    assert (0, 0) == (alone["label"], first["label"])
    assert second["length"] < 0.5 < first["length"]


def test_a_long_capsule_without_ink_of_its_own_is_left_out(
    client: TestClient, strokes: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`count=auto` wants more than length: here any, and one stroke is still one segment."""
    monkeypatch.setattr(segmentation, "PRESENT", 0.0)
    single = np.pad(strokes.images[0], MIDDLE)
    assert 1 == len(segment(client, single, count="auto")["segments"])
    assert [] == segment(client, EMPTY, count="auto")["segments"]


@pytest.mark.parametrize(("count", "rows"), [(1, 2), (2, 3), ("auto", 4)])
def test_every_class_that_may_be_decoded_has_a_row(
    count: int | str, rows: int, settings: Settings
) -> None:
    """So has the image. With `auto` these are the three classes."""
    query = {"count": count}
    for burst, status in ((rows, 429), (rows + 1, 200)):
        with serve(settings, rate_limit_per_key=1 / 3600, rate_burst_per_key=burst) as client:
            answers = [
                client.post("/segment", params=query, files={"file": as_png(EMPTY)}) for _ in "12"
            ]
        assert [200, status] == [answer.status_code for answer in answers]


def test_an_empty_picture_has_no_segments(client: TestClient) -> None:
    """`count=auto` finds none; `count=2` gives two short capsules that explain nothing."""
    assert [] == segment(client, EMPTY, count="auto")["segments"]
    answer = segment(client, EMPTY)
    assert [0.0, 0.0] == [one["ink_share"] for one in answer["segments"]]
    assert all(one["length"] < 0.5 for one in answer["segments"])
    assert 0.0 == answer["explained_ink"]


def test_other_sizes_are_fitted_to_both_strokes(client: TestClient, pairs: PairSet) -> None:
    """A large picture of two strokes on paper is cropped to the box of both."""
    (image,) = pairs.images[0]
    rows, columns = np.nonzero(image)
    large = np.pad(255 - image.repeat(10, axis=0).repeat(10, axis=1), 60, constant_values=255)
    fit = segment(client, large[None])["fit"]
    assert ("pair", "dark-on-light") == (fit["fit"], fit["polarity"])
    box = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) * 10 + 60
    assert pytest.approx(box.tolist(), abs=8) == fit["box"]


@pytest.mark.parametrize("query", ["", "?model="])
def test_without_a_model_for_pairs(query: str, settings: Settings) -> None:
    """The service says that it has none."""
    with serve(settings, models=("mnist",)) as client:
        answer = client.post(f"/segment{query}", files={"file": as_png(EMPTY)})
    assert 404 == answer.status_code
    assert "no model for overlapping digits is loaded" == answer.json()["detail"]


def test_two_samples_are_laid_over_one_another(client: TestClient, digits: list[bytes]) -> None:
    """Sent or named, the same digits give the same picture, which fits the network untouched."""
    place = {"dx": 3, "dy": -2}
    named = client.get("/overlay", params={"first": 3, "second": 5, **place})
    files = [("file", digits[3]), ("file", digits[5])]
    sent = client.post("/overlay", params=place, files=files)
    assert [200, 200] == [named.status_code, sent.status_code]
    assert named.content == sent.content
    assert (36, 36) == Image.open(io.BytesIO(named.content)).size
    answer = client.post("/segment", files={"file": named.content})
    assert "none" == answer.json()["fit"]["fit"]


@pytest.mark.parametrize(
    ("count", "broken", "status"), [(1, False, 422), (3, False, 413), (1, True, 415)]
)
def test_an_overlay_takes_two_pictures(
    client: TestClient, digits: list[bytes], count: int, status: int, *, broken: bool
) -> None:
    """One is too few, and three are too many; both must be pictures."""
    pictures = [*digits[:count], *([b"not a picture"] if broken else [])]
    answer = client.post("/overlay", files=[("file", picture) for picture in pictures])
    assert status == answer.status_code


def test_an_overlay_is_a_png_alone(client: TestClient) -> None:
    """There is nothing to say in JSON."""
    query = {"first": 3, "second": 5}
    answer = client.get("/overlay", params=query, headers={"Accept": "application/json"})
    assert 406 == answer.status_code
