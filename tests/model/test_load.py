"""`model.load`, as the README shows it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import model
from model.bundle import BundleError
from model.capsnet import load
from model.loaded import LoadedBundle
from service.pictures import SAMPLES

PICTURE, IMAGES = ("prepare", "classify"), ("encode", "trace")
"""Methods that take a picture, and those that take prepared images."""


def test_a_network_in_four_lines() -> None:
    """A picture's digit, its reconstruction, and how its capsules agreed."""
    mnist = model.load("mnist", device="cpu")
    image = mnist.prepare(SAMPLES / "7.png")
    presence, poses = mnist.encode(image)
    (drawn,) = mnist.decode(poses[0, 7], 7).images
    trace = mnist.trace(image)

    assert [7] == presence.argmax(axis=1).tolist()
    assert ((1, 1, 28, 28), (1, 10), (1, 10, 16)) == (image.shape, presence.shape, poses.shape)
    assert np.square(drawn - image).mean() < 0.02
    np.testing.assert_allclose(trace.classes.presence[:, -1], presence, atol=1e-4)
    shapes = "ClassTrace(couplings=(1, 3, 10, 1152), logits=(1, 3, 10, 1152), presence=(1, 3, 10), "
    assert str(trace.classes).startswith(shapes)


@pytest.mark.parametrize("name", ["minst", "nowhere/mnist", ".", ""])
def test_a_name_that_is_none_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it looks like a bundle's name or like a folder, with the names that there are."""
    monkeypatch.chdir(tmp_path)
    for ask in (model.load, load):
        with pytest.raises(
            BundleError, match=f"{name!r} is neither .* ships: .*, cifar10, .*, mnist-"
        ):
            ask(name)


@pytest.fixture(scope="module")
def strokes(bundle_path: Path) -> LoadedBundle:
    """An untrained network of grey images, 28x28 pixels, ten classes, poses of 16 numbers."""
    return model.load(bundle_path, device="cpu")


def test_a_picture_is_classified_in_one_call() -> None:
    """Label, name, length and poses are those of the encoder."""
    mnist = model.load("mnist-attention", device="cpu")
    answer = mnist.classify(SAMPLES / "4.png", poses=True)
    lengths, poses = mnist.encode(mnist.prepare(SAMPLES / "4.png"))
    expected = (4, mnist.class_names[4], lengths.max())
    assert expected == (answer.label, answer.class_name, answer.length)
    assert tuple("0123456789") == mnist.class_names
    np.testing.assert_array_equal(poses[0], answer.poses)


@pytest.mark.parametrize(
    "kind",
    ["path", "text", "bytes", "bytearray", "file", "uint8", "int64", "floats", "truth", "channels"],
)
def test_pictures_come_as_people_have_them(strokes: LoadedBundle, kind: str) -> None:
    """Every unmistakable kind is prepared as the file is."""
    path = SAMPLES / "3.png"
    pixels = np.asarray(Image.open(path).convert("L"))
    kinds: dict[str, Any] = {
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "bytearray": bytearray(path.read_bytes()),
        "file": io.BytesIO(path.read_bytes()),
        "uint8": pixels,
        "int64": pixels.astype(np.int64),
        "floats": pixels / 255,
        "truth": pixels > 127,
        "channels": np.stack([pixels] * 3),
    }
    wanted: Any = Image.fromarray((pixels > 127).astype(np.uint8) * 255)
    expected = strokes.prepare(wanted if kind == "truth" else path)
    np.testing.assert_allclose(strokes.prepare(kinds[kind]), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("methods", "given", "error", "message"),
    [
        (PICTURE, 7, TypeError, "a picture is a path, .* or an array, not int"),
        (PICTURE, b"no picture", ValueError, "the picture is none of PNG, JPEG"),
        (PICTURE, np.full((28, 28), 255.0), ValueError, "has values from 0 to 1, not 255 .*uint8"),
        (PICTURE, np.full((28, 28), 256), ValueError, "int64 .* from 0 to 255, not 256 to 256$"),
        (PICTURE, np.full((28, 28), np.nan), ValueError, "from 0 to 1, not nan"),
        (PICTURE, np.zeros((1, 1, 28, 28)), ValueError, r"\(C, H, W\), not \(1, 1, 28, 28\)"),
        (PICTURE, np.zeros(28), ValueError, r"not \(28,\)"),
        (PICTURE, np.zeros((0, 28)), ValueError, r"not \(0, 28\)"),
        (PICTURE, np.array([["a"]]), TypeError, "an array of numbers, not of <U1"),
        (IMAGES, np.zeros((1, 1, 28, 28), np.uint8), TypeError, "not of uint8; divide by 255"),
        (IMAGES, np.full((1, 1, 28, 28), 255.0), ValueError, r"in \[0, 1\], these from 255 to 255"),
        (IMAGES, np.full((1, 1, 28, 28), -1.0), ValueError, "these from -1 to -1"),
        (IMAGES, np.full((1, 1, 28, 28), np.nan), ValueError, "these from nan to nan"),
        (IMAGES, np.zeros((28, 28)), ValueError, r"\(N, 1, 28, 28\), not \(28, 28\); `prepare`"),
        (IMAGES, np.zeros((1, 28, 28)), ValueError, r"not \(1, 28, 28\)"),
        (IMAGES, np.zeros((1, 3, 28, 28)), ValueError, r"not \(1, 3, 28, 28\)"),
        (IMAGES, np.zeros((0, 1, 28, 28)), ValueError, r"not \(0, 1, 28, 28\)"),
        (("trace",), np.zeros((1, 1, 56, 28)), ValueError, r"not \(1, 1, 56, 28\)"),
        (IMAGES, "7.png", TypeError, "an array of floats, not of <U5"),
    ],
    ids=str,
)
def test_what_is_no_picture_is_refused(
    strokes: LoadedBundle,
    methods: tuple[str, ...],
    given: Any,
    error: type[Exception],
    message: str,
) -> None:
    """With a sentence that says what is wanted, before onnxruntime sees it."""
    for method in methods:
        with pytest.raises(error, match=message):
            getattr(strokes, method)(given)


def test_several_pictures_fail_one_by_one(strokes: LoadedBundle) -> None:
    """One alone raises its problem; a view of pairs refuses a network of single digits."""
    good, broken = map(vars, strokes.classify([SAMPLES / "7.png", b"no picture"]))
    assert strokes.class_names[good["label"]] == good["class_name"]
    assert 415 == broken["problem"].status
    with pytest.raises(ValueError, match="was not trained on overlapping digits"):
        strokes.segment(SAMPLES / "7.png")
