from __future__ import annotations

import io
from pathlib import Path

import httpx
import pytest
from PIL import Image

from training.data.datasets import DATASETS, hold_out, load

PICTURES = 50


@pytest.mark.data
def test_clothes_are_told_apart(
    clothes_bundle_name: str, service: httpx.Client, data_dir: Path
) -> None:
    """The class names are those of clothes, and most training pictures get the right one."""
    training = load(DATASETS["fashion-mnist"], "train", data_dir, fetch=False)
    _, clothes = hold_out(training, 5000)
    files = []
    for pixels in clothes.images[:PICTURES]:
        file = io.BytesIO()
        Image.fromarray(pixels[0]).save(file, "PNG")
        files.append(("file", ("picture.png", file.getvalue(), "image/png")))
    answer = service.post("/classify", params={"model": clothes_bundle_name}, files=files)
    names = [one["class_name"] for one in answer.json()["predictions"]]
    right = [DATASETS["fashion-mnist"].class_names[label] for label in clothes.labels[:PICTURES]]
    assert sum(map(str.__eq__, names, right)) >= 0.8 * PICTURES
