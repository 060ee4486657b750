"""Published weights in the stem: their names, their padding, and whether they are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model.capsnet import build
from model.capsnet.network import NetworkConfig
from model.capsnet.pretrained import ARCHITECTURES, Architecture, PretrainedNetwork, Stage
from training.data.datasets import Examples
from training.export import describe, export_bundle
from training.growth import fit_size
from training.pretrained import (
    PACKAGE,
    PretrainedError,
    PublishedWeights,
    check_size,
    find_weights,
    load_weights,
    use_pretrained,
)
from training.recipes import PRESETS, Recipe
from training.state import Plan, TrainingState

Names = Iterator[tuple[str, str]]
CPU = torch.device("cpu")


def package_names() -> Names:
    """The convolutions and norms of EfficientNet-Lite0 in the package's file."""
    yield "_conv_stem", "_bn0"
    for block in range(16):
        if block:
            yield f"_blocks.{block}._expand_conv", f"_blocks.{block}._bn0"
        yield f"_blocks.{block}._depthwise_conv", f"_blocks.{block}._bn1"
        yield f"_blocks.{block}._project_conv", f"_blocks.{block}._bn2"
    yield "_conv_head", "_bn1"


def timm_names() -> Names:
    """The same in timm's files."""
    yield "conv_stem", "bn1"
    for stage, blocks in enumerate((1, 2, 2, 3, 3, 4, 1)):
        for block in range(blocks):
            names = ("conv_dw", "conv_pw") if not stage else ("conv_pw", "conv_dw", "conv_pwl")
            for number, name in enumerate(names, 1):
                prefix = f"blocks.{stage}.{block}."
                yield prefix + name, f"{prefix}bn{number}"
    yield "conv_head", "bn2"


def torchvision_names() -> Names:
    """The convolutions and norms of MobileNetV2 in torchvision's file."""
    yield "features.0.0", "features.0.1"
    for block in range(1, 18):
        widening = [("0.0", "0.1")] * (block > 1)
        filters = f"{len(widening)}"
        narrow = int(filters) + 1
        for conv, norm in (*widening, (f"{filters}.0", f"{filters}.1"), (narrow, narrow + 1)):
            yield f"features.{block}.conv.{conv}", f"features.{block}.conv.{norm}"
    yield "features.18.0", "features.18.1"


def random_weights(network: str, names: Names) -> dict[str, Tensor]:
    """Weights of an architecture by the names of a file; those of a layer are its number."""
    layers = [
        part
        for part in PretrainedNetwork(3, network).modules()
        if isinstance(part, torch.nn.Conv2d | torch.nn.BatchNorm2d)
    ]
    tensors = dict[str, Tensor]()
    for number, (conv, norm) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        conv_name, norm_name = next(names)
        tensors[f"{conv_name}.weight"] = torch.full_like(conv.weight, number)
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensors[f"{norm_name}.{name}"] = torch.full_like(getattr(norm, name), number)
    assert next(names, None) is None
    return tensors


@pytest.mark.parametrize(
    ("file", "network", "names"),
    [
        ("efficientnet-lite0-57934424.pth", "efficientnet-lite0", package_names),
        ("tf_efficientnet_lite0-0aa007d2.pth", "efficientnet-lite0", timm_names),
        ("efficientnet_lite0_ra-37913777.pth", "efficientnet-lite0-timm", timm_names),
        ("mobilenet_v2-b0353104.pth", "mobilenet-v2", torchvision_names),
    ],
)
def test_published_weights_load(
    file: str, network: str, names: Callable[[], Names], tmp_path: Path
) -> None:
    """By the names of the program that saved them, each into its own layer."""
    torch.save(random_weights(network, names()), tmp_path / file)
    published = find_weights(str(tmp_path / file))
    assert (network, f"{file}, under the licence of that file") == published[1:]
    layer = PretrainedNetwork(3, network)
    load_weights(torch.nn.Sequential(layer), published)
    convs = [part for part in layer.modules() if isinstance(part, torch.nn.Conv2d)]
    assert [*map(float, range(len(convs)))] == [conv.weight.mean().item() for conv in convs]


def test_files_of_other_networks_are_refused(tmp_path: Path) -> None:
    """The message names what is known, or the layer that does not fit."""
    torch.save({"layer1.weight": torch.zeros(3)}, tmp_path / "resnet.pth")
    with pytest.raises(PretrainedError, match="EfficientNet-Lite0"):
        find_weights(str(tmp_path / "resnet.pth"))
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(PretrainedError, match="cannot be read"):
        find_weights(str(tmp_path / "text.pth"))
    with pytest.raises(PretrainedError, match=r"nowhere\.pth is neither"):
        find_weights("nowhere.pth")
    weights = random_weights("mobilenet-v2", torchvision_names())
    weights["features.3.conv.1.0.weight"] = torch.zeros(2, 1, 3, 3)
    torch.save(weights, tmp_path / "narrow.pth")
    with pytest.raises(PretrainedError, match="no weights of a known network"):
        find_weights(str(tmp_path / "narrow.pth"))
    narrow = PublishedWeights(tmp_path / "narrow.pth", "mobilenet-v2", "mine")
    with pytest.raises(PretrainedError, match=r"convolution 7 is \(2, 1, 3, 3\), not \(144,"):
        load_weights(PretrainedNetwork(3, "mobilenet-v2"), narrow)


@pytest.mark.skipif(not find_spec(PACKAGE.replace("-", "_")), reason=f"needs {PACKAGE}")
def test_the_weights_of_the_package_load() -> None:
    """They are those of EfficientNet-Lite0; the card names package, version and licence."""
    published = find_weights("pretrained")
    assert "efficientnet-lite0" == published.network
    assert f"{PACKAGE} {metadata.version(PACKAGE)}, Apache-2.0" == published.origin
    layer = PretrainedNetwork(3, published.network)
    load_weights(layer, published)
    tensors = torch.load(published.file, weights_only=True)
    torch.testing.assert_close(layer.last[0].weight, tensors["_conv_head.weight"])


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what installs it."""
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(PretrainedError, match=f"needs {PACKAGE}, which `make install-training`"):
        find_weights("pretrained")


def test_a_pretrained_stem_needs_room_and_colour() -> None:
    """At least 3x3 cells of 32 pixels, and images of 1 or 3 channels."""
    with pytest.raises(PretrainedError, match="at least 96 pixels, not 64x64"):
        check_size(64, 64)
    recipe = use_pretrained(PRESETS["pictures"], PublishedWeights(Path(), "mobilenet-v2", "mine"))
    with pytest.raises(ValueError, match="1 or 3 channels"):
        fit_size(recipe, NetworkConfig(5, 128, 128))
    with pytest.raises(PretrainedError, match="mnist-shared has no self-attention"):
        use_pretrained(PRESETS["mnist-shared"], PublishedWeights(Path(), "mobilenet-v2", ""))


@pytest.fixture
def published(tmp_path: Path) -> PublishedWeights:
    """Weights of MobileNetV2 near zero, as torchvision names them."""
    torch.manual_seed(0)
    tensors = random_weights("mobilenet-v2", torchvision_names())
    small = {name: torch.rand_like(tensor) / 10 for name, tensor in tensors.items()}
    torch.save(small, tmp_path / "mobilenet_v2.pth")
    return find_weights(str(tmp_path / "mobilenet_v2.pth"))


def test_published_weights_are_frozen(published: PublishedWeights, tmp_path: Path) -> None:
    """One step leaves them, statistics too."""
    recipe = use_pretrained(PRESETS["pictures"], published)
    recipe = fit_size(recipe, NetworkConfig(3, 96, 96))
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 96, 96), np.uint8)
    plan = Plan(recipe, 1, Examples(images, np.arange(4)), None, tmp_path, weights=published)
    state = TrainingState(plan, device=CPU)
    stem = state.network.get_submodule("stem.0")
    before = {name: value.clone() for name, value in stem.state_dict().items()}
    state.begin_step(1e-3)
    poses = state.network(torch.rand(4, 3, 96, 96)).poses
    (poses - 1).square().sum().backward()
    state.move()
    state.end_step()
    torch.testing.assert_close(before, dict(stem.state_dict()), rtol=0, atol=0)


def test_grey_images_are_three_equal_channels() -> None:
    """A network for grey images answers as the one for colour does."""
    torch.manual_seed(0)
    grey, colour = (PretrainedNetwork(channels, "mobilenet-v2").eval() for channels in (1, 3))
    grey.load_state_dict(colour.state_dict())
    images = torch.rand(2, 1, 96, 96)
    with torch.inference_mode():
        torch.testing.assert_close(grey(images), colour(images.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("size", [(96, 128), (97, 111)])
def test_features_have_the_size_of_the_geometry(name: str, size: tuple[int, int]) -> None:
    """With either padding, of even and odd sides."""
    weights = PublishedWeights(Path(), name, "")
    recipe: Recipe = fit_size(use_pretrained(PRESETS["pictures"], weights), NetworkConfig(3, *size))
    network = build(recipe.network).eval()
    (layer,) = network.layers
    assert (3, 4) == (layer.rows, layer.columns) or (4, 4) == (layer.rows, layer.columns)
    with torch.inference_mode():
        features = network.get_submodule("stem")(torch.rand(1, 3, *size))
    assert (64, layer.rows, layer.columns) == features.shape[1:]


@pytest.mark.parametrize("same", [False, True])
def test_a_pretrained_stem_is_exported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, same: bool
) -> None:
    """Folded, in 16 bits, with graphs that compute what it does, whatever its padding."""
    stages = (Stage(1, 8, 1, 1, 3), Stage(2, 8, 2, 2, 5))
    small = Architecture(stages, (0.5,) * 3, (0.25,) * 3, 1e-3, same=same, first=8, features=32)
    monkeypatch.setitem(ARCHITECTURES, "small", small)
    recipe = use_pretrained(PRESETS["pictures"], PublishedWeights(Path(), "small", "mine"))
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
    bundle = export_bundle(network, manifest, tmp_path / "small", validation=validation)
    assert [8, 9] == [bundle.manifest.layers[0].rows, bundle.manifest.layers[0].columns]
