from __future__ import annotations

import io

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from service.pictures import SAMPLES


@pytest.mark.parametrize(
    ("query", "folder"),
    [({}, "."), ({"dataset": "mnist"}, "."), ({"dataset": "fashion-mnist"}, "fashion-mnist")],
)
def test_there_is_a_picture_of_every_class(
    client: TestClient, query: dict[str, str], folder: str
) -> None:
    """Ten of the size that the networks know, digits unless clothes are wanted."""
    answers = [client.get(f"/samples/{label}.png", params=query) for label in range(10)]
    pictures = [Image.open(io.BytesIO(answer.content)) for answer in answers]
    assert {("PNG", "L", (28, 28))} == {(one.format, one.mode, one.size) for one in pictures}
    assert 10 == len({answer.content for answer in answers})
    assert (SAMPLES / folder / "7.png").read_bytes() == answers[7].content


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/samples/10.png", "label"),
        ("/samples/7.png?dataset=letters", "dataset"),
        ("/samples/7.png?data=mnist", "data"),
    ],
)
def test_what_there_is_no_picture_of(client: TestClient, path: str, parameter: str) -> None:
    """The answer names the parameter that is wrong."""
    answer = client.get(path)
    assert 422 == answer.status_code
    assert parameter == answer.json()["parameter"]
