"""Published weights in the stem: found, loaded, frozen, computed once, and exported."""

from __future__ import annotations

import io
from copy import deepcopy
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from model.capsnet import build
from model.capsnet.network import NetworkConfig
from model.capsnet.pretrained import PretrainedNetwork, Stage
from training.data.augment import BatchStream
from training.data.datasets import Examples
from training.export import describe, export_bundle
from training.pretrained import (
    PACKAGE,
    FeatureMemory,
    PublishedWeights,
    Stem,
    check_size,
    choose_stem,
    find_weights,
    remember_features,
    use_pretrained,
)
from training.recipes import PRESETS, Recipe, SettingError
from training.state import Plan
from training.trainer import Trainer
from training.training_data import fit_size

CPU = torch.device("cpu")
NOWHERE = PublishedWeights(Path(), "mine")
needs_package = pytest.mark.skipif(
    not find_spec(PACKAGE.replace("-", "_")), reason=f"needs {PACKAGE}"
)
Picture = Image.Image


@needs_package
def test_published_weights_are_loaded_and_frozen(tmp_path: Path) -> None:
    """Each layer has its own; one step leaves them, statistics too. The card names their origin."""
    published = find_weights()
    assert f"{PACKAGE} {metadata.version(PACKAGE)}, Apache-2.0" == published.origin
    recipe = fit_size(use_pretrained(PRESETS["pictures"], published), NetworkConfig(3, 96, 96))
    recipe = replace(recipe, batch_size=4)
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 96, 96), np.uint8)
    plan = Plan(recipe, 1, Examples(images, np.arange(4)), None, tmp_path)
    trainer = Trainer(plan, device=CPU)
    stem = trainer.network.get_submodule("stem.0")
    tensors = torch.load(published.file, weights_only=True)
    expected = [tensor for tensor in tensors.values() if tensor.ndim == 4]
    convs = [part.weight for part in stem.modules() if isinstance(part, torch.nn.Conv2d)]
    torch.testing.assert_close(expected, [conv.detach() for conv in convs], rtol=0, atol=0)
    torch.testing.assert_close(stem.last[1].running_var, tensors["_bn1.running_var"])  # type: ignore[union-attr, index]
    before = {name: value.clone() for name, value in stem.state_dict().items()}
    trainer.step()
    torch.testing.assert_close(before, dict(stem.state_dict()), rtol=0, atol=0)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what installs it."""
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(SettingError, match=f"needs {PACKAGE}, which `make install-training`"):
        find_weights()


def test_a_pretrained_stem_needs_room_and_colour() -> None:
    """At least 3x3 cells of 32 pixels, and images of 1 or 3 channels."""
    with pytest.raises(SettingError, match="at least 96 pixels, not 64x64"):
        check_size(64, 64)
    recipe = use_pretrained(PRESETS["pictures"], NOWHERE)
    with pytest.raises(ValueError, match="1 or 3 channels"):
        fit_size(recipe, NetworkConfig(5, 128, 128))
    with pytest.raises(SettingError, match="mnist-shared has no self-attention"):
        use_pretrained(PRESETS["mnist-shared"], NOWHERE)


def test_grey_images_are_three_equal_channels() -> None:
    """A network for grey images answers as the one for colour does."""
    torch.manual_seed(0)
    grey, colour = (PretrainedNetwork(channels).eval() for channels in (1, 3))
    grey.load_state_dict(colour.state_dict())
    images = torch.rand(2, 1, 96, 96)
    with torch.inference_mode():
        torch.testing.assert_close(grey(images), colour(images.expand(-1, 3, -1, -1)))


def test_a_pretrained_stem_is_exported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folded, in 16 bits, with graphs that compute what it does, whatever its padding."""
    stages = (Stage(1, 8, 1, 1, 3), Stage(2, 8, 2, 2, 5))
    for name, value in {"STAGES": stages, "FIRST": 8, "FEATURES": 32}.items():
        monkeypatch.setattr(f"model.capsnet.pretrained.{name}", value)
    recipe = use_pretrained(PRESETS["pictures"], NOWHERE)
    network = build(
        replace(
            fit_size(recipe, NetworkConfig(3, 30, 35, num_classes=2)).network,
            decoder_hidden=(8,),
            decoder_channels=(8, 8),
        )
    ).eval()
    rng = np.random.default_rng(0)
    validation = Examples(rng.integers(0, 256, (8, 3, 30, 35), np.uint8), np.arange(8) % 2)
    facts = {"dataset": "noise", "class_names": ("a", "b"), "preprocess": "crop"}
    manifest = describe(network, name="small", **facts)
    bundle = export_bundle(network, manifest, tmp_path, validation=validation)
    assert [8, 9] == [bundle.manifest.layers[0].rows, bundle.manifest.layers[0].columns]


def test_features_are_the_same_and_computed_once() -> None:
    """By a network and its running average together; a full memory computes the rest again."""
    recipe = use_pretrained(PRESETS["pictures"], NOWHERE)
    network = build(fit_size(recipe, NetworkConfig(3, 96, 96, num_classes=2)).network).eval()
    average, images = deepcopy(network), torch.randint(0, 256, (3, 3, 96, 96)) / 255
    stem = network.get_submodule("stem.0")
    assert isinstance(stem, PretrainedNetwork)
    expected, calls = stem(images), []
    stem.register_module("last", stem.last)
    stem.last.register_forward_hook(lambda *_: calls.append(1))
    small = FeatureMemory(deepcopy(stem), limit_bytes=0)
    remember_features(network, average)
    for own in (stem, average.get_submodule("stem.0"), stem):
        torch.testing.assert_close(own(images), expected)
    assert 1 == len(calls)
    torch.testing.assert_close(small(images), expected)
    torch.testing.assert_close(small(images.flip(0)), expected.flip(0))


def test_views_repeat() -> None:
    """Epochs with the same view have the same images in another order; other views differ."""
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 12, 12), np.uint8)
    recipe = Recipe("r", batch_size=20, views=2, flip=True, cutout_px=3)
    stream = BatchStream(Examples(images, np.arange(20)), recipe, seed=1, device=CPU)
    epochs = []
    for epoch in range(3):
        batch = stream.batch(epoch)
        epochs.append(batch.images[batch.labels[:, 0].argsort()])
    torch.testing.assert_close(epochs[0], epochs[2])
    assert (epochs[0] != epochs[1]).any()
    assert (stream.batch(0).labels != stream.batch(2).labels).any()


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
