"""The figure of novelty: digits, other things and what the service says of each."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.canvas import ACCENT, INK
from service.pictures import SAMPLES
from training.figures import make_axes, save
from training.novelty import print_letter

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

ROUTE = "/classify?model=mnist-attention&novelty=true"
DIGITS, LETTERS, GARMENTS = "2479", "ARXBSZ", "17"
_COLUMNS = 7


def draw_novelty(client: TestClient, path: Path) -> None:
    """Draw pictures; above each the predicted class, below its score, coloured if novel."""
    pictures = list(_pictures())
    figure, axes = make_axes(-(-len(pictures) // _COLUMNS), _COLUMNS, image=True)
    for axis, picture in zip(axes.flat, pictures, strict=True):
        file = io.BytesIO()
        picture.save(file, "PNG")
        answer = client.post(
            ROUTE, content=file.getvalue(), headers={"Content-Type": "image/png"}
        ).raise_for_status()
        [said] = answer.json()["predictions"]
        novelty = said["novelty"]
        axis.imshow(picture, cmap="gray", vmin=0, vmax=255)
        axis.set_title(f"read as {said['class_name']}", fontsize="small")
        word = "novel" if novelty["novel"] else "not novel"
        colour = ACCENT if novelty["novel"] else INK
        axis.set_xlabel(f"{novelty['score']:.3f}, {word}", fontsize="small", color=colour)
    save(figure, path)


def _pictures() -> Iterator[Image.Image]:
    """Digits, printed letters, clothes, noise and a blank."""
    for digit in DIGITS:
        yield Image.open(SAMPLES / f"{digit}.png").convert("L")
    for letter in LETTERS:
        yield print_letter(letter, weight=2)
    for garment in GARMENTS:
        yield Image.open(SAMPLES / "fashion-mnist" / f"{garment}.png").convert("L")
    noise = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
    yield Image.fromarray(noise)
    yield Image.new("L", (28, 28), 60)
