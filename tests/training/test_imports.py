"""Networks that were trained elsewhere become bundles: `python -m training import`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import model
from model.bundle.health import Explained
from model.errors import NotOffered
from training.__main__ import app
from training.graphs import ExportError, to_onnx

Command = Callable[..., Result]
MODULE = """
    import torch
    from torch import nn


    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Linear(4, 144)

        def forward(self, poses, classes):
            return self.layers(poses).sigmoid().reshape(-1, 1, 12, 12)


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(1, 8, 5, stride=2)
            self.votes = nn.Linear(8 * 16, 3 * 4)
            self.decoder = Decoder()

        def forward(self, images):
            poses = self.votes(self.stem(images).relu().flatten(1)).reshape(-1, 3, 4)
            squared = poses.square().sum(2, keepdim=True)
            poses = poses * squared / (1 + squared) / (squared + 1e-8).sqrt()
            return poses.norm(dim=2), poses


    def make():
        torch.manual_seed(0)
        return Net()
"""


CLASSIFIER = """
    from torch import nn

    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2))
"""


@pytest.fixture
def command() -> Command:
    """`command("net.py:make", ...)` imports a network; errors are raised."""

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(
            app, ["import", *map(str, arguments)], catch_exceptions=False, standalone_mode=False
        )

    return run


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file with a small capsule network for images of 12 x 12 pixels and three classes."""
    file = tmp_path / "net.py"
    file.write_text(dedent(MODULE))
    return file


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """A folder with noise in three classes."""
    rng = np.random.default_rng(0)
    for name in ("circle", "line", "square"):
        (tmp_path / "shapes" / name).mkdir(parents=True)
        for place in range(20):
            pixels = rng.integers(0, 256, (12, 12), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "shapes" / name / f"{place}.png")
    return tmp_path / "shapes"


def classifier(tmp_path: Path, *, output: str = "logits") -> Path:
    """An ONNX file of a network that ends with logits and has no poses."""
    torch.manual_seed(1)
    linear = torch.nn.Linear(3 * 64, 2)
    torch.nn.init.constant_(linear.bias, 5)
    network = torch.nn.Sequential(torch.nn.Flatten(), linear)
    graph = to_onnx(network, {"images": torch.zeros(2, 3, 8, 8)}, (output,))
    (tmp_path / "classifier.onnx").write_bytes(graph.SerializeToString())
    return tmp_path / "classifier.onnx"


def test_a_module_with_a_decoder_has_views(command: Command, module: Path, tmp_path: Path) -> None:
    """Its presence is the module's own, its poses are decoded, and it has no routing."""
    options = ("--name", "shapes", "--classes", "circle, line, square", "--size", 12)
    answer = command(f"{module}:make", *options, "--bundles", tmp_path / "bundles")
    assert "CAPSNET_BUNDLES=" in answer.stdout
    loaded = model.load(tmp_path / "bundles" / "shapes", device="cpu")
    image = np.random.default_rng(3).random((12, 12), np.float32)
    namespace: dict[str, Callable[[], torch.nn.Module]] = {}
    exec(dedent(MODULE), namespace)  # noqa: S102  our own
    with torch.inference_mode():
        presence, _ = namespace["make"]()(torch.from_numpy(image)[None, None])
    answered = loaded.classify(image)
    assert np.allclose(presence[0], answered.lengths, atol=1e-4)
    assert answered.class_name in ("circle", "line", "square")
    assert (12, 12) == np.asarray(loaded.reconstruct(image).reconstruction).shape[-2:]
    assert 4 == len(loaded.perturb(image, dim=1, delta=0.2).pose)
    assert loaded.equivariance(image, steps=2).points is not None
    with pytest.raises(NotOffered):
        loaded.routing(image)


def test_a_folder_scores_and_measures_it(
    command: Command, module: Path, shapes: Path, tmp_path: Path
) -> None:
    """The folder names the classes.

    Afterwards the bundle has neighbours and what a pose explains.
    """
    options = ("--name", "shapes", "--data", shapes, "--size", 12, "--preprocess", "digit")
    target = tmp_path / "bundles" / "shapes"
    answer = command(f"{module}:make", *options, "--bundles", target.parent)
    assert "of 60" in answer.stdout
    manifest = json.loads((target / "manifest.json").read_text())
    assert ["circle", "line", "square"] == manifest["class_names"]
    assert ["decode", "neighbours"] == manifest["offers"]
    assert [] == manifest["directions"]  # twenty pictures of a class are too few
    explained = Explained(**manifest["explained"])
    assert (30, 4) == (explained.count, explained.class_dim)
    loaded = model.load(target, device="cpu")
    assert explained.is_weak == bool(loaded.reconstruct(shapes / "line" / "3.png").notes)
    assert 2 == len(loaded.neighbours(shapes / "line" / "3.png", count=2).neighbours)
    report = tmp_path / "report.html"
    arguments = ["evaluate", target, "--data", shapes, "--report", report]
    again = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert "of 60" in again.stdout
    assert report.is_file()


@pytest.mark.parametrize("is_module", [False, True])
def test_logits_become_probabilities(command: Command, tmp_path: Path, *, is_module: bool) -> None:
    """Of an ONNX file and of a module. Without a decoder there are no poses."""
    source: object = classifier(tmp_path)
    if is_module:
        (tmp_path / "plain.py").write_text(dedent(CLASSIFIER))
        source = f"{tmp_path / 'plain.py'}:network"
    sizes = ("--size", 8, "--channels", 3) if is_module else ()
    options = ("--classes", "a,b", "--logits", "--bundles", tmp_path)
    command(source, "--name", "two", *sizes, *options)
    loaded = model.load(tmp_path / "two", device="cpu")
    manifest = loaded.bundle.manifest
    assert ("probability", (), 3) == (manifest.presence, manifest.offers, manifest.channels)
    answered = loaded.classify(np.random.default_rng(3).random((8, 8, 3), np.float32))
    assert 1 == pytest.approx(float(np.sum(answered.lengths)), abs=1e-5)
    assert {"encoder.onnx", "weights.safetensors"} == manifest.sha256.keys()


def test_logits_are_no_presence(command: Command, tmp_path: Path) -> None:
    """A network that ends with them needs `--logits`, whatever its output is called."""
    options = ("--name", "two", "--classes", "a,b", "--bundles", tmp_path)
    with pytest.raises(ExportError, match="give --logits"):
        command(classifier(tmp_path, output="presence"), *options)
    with pytest.raises(ExportError, match="outputs of the encoder are scores, not logits"):
        command(classifier(tmp_path, output="scores"), *options, "--logits")


def test_numbers_that_are_none_are_refused(command: Command, tmp_path: Path) -> None:
    """NaN is neither below 0 nor above 1."""
    graph = onnx.load(classifier(tmp_path))
    graph.graph.node.append(onnx.helper.make_node("Sqrt", ["logits"], ["root"]))
    graph.graph.node.append(onnx.helper.make_node("Neg", ["root"], ["minus"]))
    graph.graph.node.append(onnx.helper.make_node("Sqrt", ["minus"], ["presence"]))
    graph.graph.output[0].name = "presence"
    (tmp_path / "nan.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(ExportError, match=r"not in \[0, 1\]"):
        command(tmp_path / "nan.onnx", "--name", "n", "--classes", "a,b", "--bundles", tmp_path)


@pytest.mark.parametrize("place", ["../secret.txt", "secret.txt", "pipe.onnx.data"])
def test_weights_lie_beside_the_model_alone(place: str, command: Command, tmp_path: Path) -> None:
    """A model cannot bring a file from elsewhere into a bundle, or wait for a pipe."""
    for folder in (tmp_path, tmp_path.parent):
        (folder / "secret.txt").write_bytes(b"top secret " * 200)
    os.mkfifo(tmp_path / "pipe.onnx.data")
    graph = onnx.load(classifier(tmp_path))
    leak = onnx.TensorProto(
        name="leak", data_type=onnx.TensorProto.UINT8, dims=[2200], raw_data=b""
    )
    onnx.external_data_helper.set_external_data(leak, place)
    leak.ClearField("raw_data")
    graph.graph.initializer.append(leak)
    (tmp_path / "pipe.onnx").write_bytes(graph.SerializeToString())
    options = ("--name", "two", "--classes", "a,b", "--logits", "--bundles", tmp_path)
    with pytest.raises(ExportError, match="cannot be read as an ONNX file"):
        command(tmp_path / "pipe.onnx", *options)


@pytest.mark.parametrize(
    ("source", "size", "why"),
    [
        ("{}/net.py:make", 0, "give --size"),
        ("{}/net.py:other", 12, "has no 'other'"),
        ("{}/net.py:make", 9, "does not take images of 1x9x9"),
        ("{}/nothing.onnx", 0, "cannot be read as an ONNX file"),
        ("{}/net.py", 0, "cannot be read as an ONNX file"),
    ],
)
@pytest.mark.usefixtures("module")
def test_an_unreadable_network_is_said(
    source: str, size: int, why: str, command: Command, tmp_path: Path
) -> None:
    """In one sentence, with the option that helps."""
    options = ["--size", size] if size else []
    with pytest.raises(ExportError, match=why):
        command(source.format(tmp_path), "--name", "x", "--classes", "a,b,c", *options)
