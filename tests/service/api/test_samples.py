from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from service.pictures import SAMPLES
from service.settings import Settings
from tests.serving import serve


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


def test_a_bundle_without_samples_has_those_of_its_data_set(client: TestClient) -> None:
    """Ten digits, in order, each with its licence."""
    answer = client.get("/models/mnist/samples").json()
    assert "mnist" == answer["model"]
    assert [(f"{label}.png", label, str(label), "CC BY-SA 3.0") for label in range(10)] == [
        (one["file"], one["label"], one["class_name"], one["licence"]) for one in answer["samples"]
    ]
    assert (SAMPLES / "7.png").read_bytes() == client.get("/models/mnist/samples/7.png").content


def test_a_bundle_s_own_samples_come_first(
    settings: Settings, bundle_path: Path, tmp_path: Path
) -> None:
    """They are listed and served, and nothing else of its folder."""
    folder = Path(shutil.copytree(bundle_path, tmp_path / "mnist")) / "samples"
    folder.mkdir()
    shutil.copy(SAMPLES / "7.png", folder / "seven.png")
    known = {"label": None, "class_name": "a 7", "licence": "mine", "source": "drawn"}
    (folder / "samples.json").write_text(json.dumps([{"file": "seven.png", **known}]))
    with serve(settings, bundles=tmp_path) as client:
        answer = client.get("/models/mnist/samples").json()
        assert [{"file": "seven.png", **known}] == answer["samples"]
        picture = client.get("/models/mnist/samples/seven.png")
        assert ("image/png", (folder / "seven.png").read_bytes()) == (
            picture.headers["content-type"],
            picture.content,
        )
        for file in ("7.png", "samples.json", "..%2Fmanifest.json"):
            assert client.get(f"/models/mnist/samples/{file}").status_code in (404, 422)
