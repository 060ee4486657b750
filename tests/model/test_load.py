"""`model.load`, as the README shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import model
from model.bundle import BundleError
from model.runtime import NotOffered
from service.pictures import SAMPLES


def test_a_network_in_four_lines() -> None:
    """A picture's digit, its reconstruction, and how its capsules agreed."""
    mnist = model.load("mnist", device="cpu")
    image = mnist.prepare(SAMPLES / "7.png")
    presence, poses = mnist.encode(image)
    drawn = mnist.decode(poses[:, 7], presence.argmax(axis=1))
    trace = mnist.trace(image)

    assert [7] == presence.argmax(axis=1).tolist()
    assert ((1, 1, 28, 28), (1, 10), (1, 10, 16)) == (image.shape, presence.shape, poses.shape)
    assert np.square(drawn - image).mean() < 0.02
    np.testing.assert_allclose(trace.classes.presence[:, -1], presence, atol=1e-4)


def test_a_picture_may_be_open_already(bundle_path: Path) -> None:
    """Files and pictures are prepared alike, whatever their size and polarity."""
    network = model.load(bundle_path, device="cpu")
    picture = Image.open(SAMPLES / "3.png")
    np.testing.assert_array_equal(network.prepare(SAMPLES / "3.png"), network.prepare(picture))
    large = picture.resize((280, 280)).point(lambda value: 255 - value)
    assert (1, 1, 28, 28) == network.prepare(large, fit="stretch").shape


def test_a_colour_network_in_four_lines(colour_bundle_path: Path) -> None:
    """The picture is cropped to the network's shape, its colours kept."""
    blocks = model.load(colour_bundle_path, device="cpu")
    image = blocks.prepare(Image.new("RGB", (64, 64), (255, 0, 0)))
    assert (1, 3, 24, 32) == image.shape
    np.testing.assert_array_equal([1, 0, 0], image[0].mean(axis=(1, 2)))
    presence, poses = blocks.encode(image)
    assert (1, 3) == presence.shape
    assert (1, 3, 24, 32) == blocks.decode(poses[:, 1], np.ones(1, np.int64)).shape


def test_what_a_network_does_not_offer_is_said(family_bundles: Path) -> None:
    """A network without capsules answers, and neither draws nor routes."""
    baseline = model.load(family_bundles / "tiny-baseline", device="cpu")
    image = baseline.prepare(SAMPLES / "3.png")
    assert 1 == pytest.approx(baseline.encode(image).presence.sum(), abs=1e-5)
    with pytest.raises(NotOffered, match="tiny-baseline cannot decode"):
        baseline.decode(np.zeros((1, 16), np.float32), np.zeros(1, np.int64))
    with pytest.raises(NotOffered, match="tiny-baseline has no routing"):
        baseline.trace(image)


@pytest.mark.parametrize("name", ["minst", "nowhere/mnist", ".", ""])
def test_a_name_that_is_none_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it looks like a bundle's name or like a folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BundleError, match=r"manifest\.json cannot be read"):
        model.load(name)


def test_a_bundle_here_is_loaded(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the folder that is the bundle, and from the one around it."""
    monkeypatch.chdir(bundle_path)
    assert "mnist" == model.load(".", device="cpu").bundle.manifest.name
    monkeypatch.chdir(bundle_path.parent)
    assert bundle_path.name == "mnist"
    assert Path("strokes") == model.find("strokes")
