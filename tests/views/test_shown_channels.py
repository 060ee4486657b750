"""Figures of images with five channels show three: those that the bundle names."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.bundle import Bundle, write_manifest
from model.loaded import LoadedBundle
from model.views import NAMES, find_view

DRAWN = [name for name in NAMES if find_view(name).draw and not find_view(name).of_pairs]
"""All views with a drawing, but for those of pairs of digits."""
CHOSEN = (0, 1, 4)
IMAGE = np.random.default_rng(1).random((5, 20, 24)).astype(np.float32)
NEEDED: dict[str, dict[str, Any]] = {
    "perturb": {"dim": 1, "delta": 0.25},
    "sweep": {"dims": [0]},
    "morph": {"target": 1},
}


def pixels(png: bytes) -> np.ndarray:
    """The pixels of a drawing."""
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.fixture(scope="module")
def bundles(
    sized_bundles: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoadedBundle, LoadedBundle]:
    """A bundle of five channels, as it is and with a choice of them."""
    plain = LoadedBundle(Bundle.open(sized_bundles / "bands"), device="cpu")
    folder = tmp_path_factory.mktemp("chosen") / "bands"
    folder.mkdir()
    for file in (sized_bundles / "bands").iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "manifest.json").unlink()
    write_manifest(folder, replace(plain.bundle.manifest, shown_channels=CHOSEN))
    return plain, LoadedBundle(Bundle.open(folder), device="cpu")


def ask(bundle: LoadedBundle, name: str) -> Any:
    """The answer of a view about as many images as it takes."""
    count, method = find_view(name).pictures[0], getattr(bundle, name)
    if name == "decode":
        return method(np.full(16, 0.1, np.float32), label=1)
    return method(*[IMAGE.transpose(1, 2, 0)] * count, **NEEDED.get(name, {}))


@pytest.mark.parametrize("name", DRAWN)
def test_every_view_draws_the_channels_that_the_bundle_names(
    name: str, bundles: tuple[LoadedBundle, LoadedBundle]
) -> None:
    """Where images are in the drawing, another choice draws other pixels."""
    plain, chosen = (ask(bundle, name) for bundle in bundles)
    drawings = pixels(plain.png()), pixels(chosen.png())
    assert drawings[0].shape == drawings[1].shape
    same = name in ("equivariance", "routing_off", "neighbours")
    assert same or (drawings[0] != drawings[1]).any()


def test_json_shows_them_too(bundles: tuple[LoadedBundle, LoadedBundle]) -> None:
    """Red, green and blue are the three of the bundle, or the last, the middle and the first."""
    for bundle, channels in zip(bundles, [(4, 2, 0), CHOSEN], strict=True):
        answer = ask(bundle, "reconstruct")
        shown = pixels(base64.b64decode(answer.dict()["input"].partition(",")[2]))
        expected = (IMAGE[list(channels)] * 255 + 0.5).astype(np.uint8)
        np.testing.assert_array_equal(expected.transpose(1, 2, 0), shown)
        assert (5, 20, 24) == answer.input.shape
