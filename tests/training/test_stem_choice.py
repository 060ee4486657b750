"""A folder of photographs gets the pretrained stem, other pictures the trained one."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from training.stem_choice import Stem, choose_stem

Picture = Image.Image


def photograph(seed: int, noise: float = 6) -> Picture:
    """Soft light and the noise of a camera, as JPEG."""
    generator = np.random.default_rng(seed)
    soft = Image.fromarray(generator.integers(0, 256, (5, 5, 3), np.uint8))
    light = np.asarray(soft.resize((240, 200), Image.Resampling.BICUBIC), float)
    pixels = (light + generator.normal(0, noise, light.shape)).clip(0, 255).astype(np.uint8)
    return jpeg(Image.fromarray(pixels))


def drawing(seed: int) -> Picture:
    """Discs of even colours, with soft edges, as JPEG."""
    generator = np.random.default_rng(seed)
    picture = Image.new("RGB", (480, 400), tuple(generator.integers(0, 256, 3).tolist()))
    for left, top, size in generator.integers(20, 200, (4, 3)).tolist():
        colour = tuple(generator.integers(0, 256, 3).tolist())
        ImageDraw.Draw(picture).ellipse((left, top, left + size, top + size), colour)
    return jpeg(picture.resize((240, 200), Image.Resampling.LANCZOS))


def jpeg(picture: Picture) -> Picture:
    """The same picture, saved and opened again."""
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=88)
    return Image.open(content)


def folder(path: Path, pictures: list[Picture]) -> Path:
    """A folder with these pictures in each of two classes."""
    for name in ("a", "b"):
        (path / name).mkdir()
        for number, picture in enumerate(pictures):
            picture.save(path / name / f"{number}.png")
    return path


def untried(stem: Stem) -> float:
    raise AssertionError(f"{stem} was tried, although the pictures decide")


@pytest.mark.parametrize(
    ("pictures", "stem", "word"),
    [
        pytest.param([photograph(seed) for seed in range(3)], "pretrained", "photographs"),
        pytest.param([drawing(seed) for seed in range(3)], "trained", "drawings"),
        pytest.param([photograph(seed).convert("L") for seed in range(3)], "trained", "grey"),
        pytest.param([photograph(seed).resize((40, 40)) for seed in range(3)], "trained", "pixels"),
    ],
    ids=["photographs", "drawings", "grey", "small"],
)
def test_pictures_decide(tmp_path: Path, pictures: list[Picture], stem: str, word: str) -> None:
    """With a reason that names what was seen, and how to choose otherwise."""
    other = "trained" if stem == "pretrained" else "pretrained"
    chosen, sentence = choose_stem(folder(tmp_path, pictures), channels=None, try_out=untried)
    assert stem == chosen
    assert word in sentence
    assert f"--stem {other}" in sentence


def test_a_grey_network_has_a_trained_stem(tmp_path: Path) -> None:
    """Who asks for one channel gets it."""
    assert (
        "trained" == choose_stem(folder(tmp_path, [photograph(1)]), channels=1, try_out=untried)[0]
    )


def test_a_trial_decides_where_pictures_do_not(tmp_path: Path) -> None:
    """Both stems are tried; the sentence has both errors and says how to choose otherwise."""
    halves = [photograph(number) for number in range(4)]
    for number, half in enumerate(halves):
        half.paste(drawing(number).crop((0, 0, 150, 200)))
    errors: dict[Stem, float] = {"pretrained": 40.0, "trained": 10.0}
    stem, sentence = choose_stem(
        folder(tmp_path, halves), channels=None, try_out=lambda kind: errors[kind]
    )
    assert "trained" == stem
    assert all(part in sentence for part in ("40 %", "10 %", "--stem pretrained"))
