"""A pretrained stem that is not trained computes the features of each image once."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from model.capsnet.network import Network
from model.capsnet.pretrained import PretrainedNetwork
from model.preprocess import WHITE

LIMIT_BYTES = 2**30
"""The memory for features; images beyond it are computed each time."""


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
    """Let the pretrained stem of a network, if it has one and no weight of it is trained, remember.

    Images must be multiples of 1/255, as all training images without distortion are.

    Args:
        average: the same network, or the running average of its weights. It shares the memory.
    """
    for name, module in network.named_modules():
        trained = any(weight.requires_grad for weight in module.parameters())
        if isinstance(module, PretrainedNetwork) and not trained:
            memory = FeatureMemory(module)
            for own in (module, average.get_submodule(name)):
                own.forward = memory
