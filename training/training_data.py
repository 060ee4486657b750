"""A run's training images: a published data set, or a folder of pictures by class."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from model.capsnet.network import NetworkConfig
from training.data.datasets import DATASETS, Dataset, Examples, load, split_last
from training.data.folder import SMALL_FOLDER, digest_names, load_folder
from training.data.source import DatasetError
from training.growth import fit_size
from training.recipes import FOLDER, Recipe

_FEW_BATCH, _FEW_STEPS = 16, 1000
_FEW_RECONSTRUCTION = 4.0
"""The least weight of the reconstruction.

A lower one draws much the same blob for all images of a class, a higher one (40) lowers accuracy.
"""


@dataclass(frozen=True)
class FolderSplit:
    """A folder of pictures and how it is divided, so that it can be read again in the same way."""

    folder: str = field(compare=False)
    class_names: tuple[str, ...]
    count: int
    """The number of images."""
    held_out_share: float = 0.1
    """The share of each class that is kept for validation."""
    seed: int = 0
    """The seed that chooses them.

    It is the same for runs of any seed, as one may follow another.
    """
    names: str | None = None
    """The SHA-256 of the sorted relative names of the files, which decide what is held out; None in
    older bundles and checkpoints."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = asdict(self)
        return values | {"held_out": values.pop("held_out_share")}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        values = {**values, "class_names": tuple(values["class_names"])}
        return cls(held_out_share=values.pop("held_out"), **values)


def same_split(one: FolderSplit | None, other: FolderSplit | None) -> bool:
    """Return whether both hold the same images out; names count where both have them."""
    if one and other and not (one.names and other.names):
        other = replace(other, names=one.names)
    return one == other


class TrainingData(NamedTuple):
    """Examples, and a recipe whose network and data set are fitted to them."""

    recipe: Recipe
    dataset: Dataset
    training: Examples
    validation: Examples
    """The last ones, or in a folder those of each class that a seed chose."""
    pictures: FolderSplit | None = None
    """The folder of images; None where the data set is published."""

    @property
    def all(self) -> Examples:
        """Training and validation examples, from which a final run learns."""
        both = (self.training, self.validation)
        images = np.concatenate([examples.images for examples in both])
        return Examples(images, np.concatenate([examples.labels for examples in both]))


def load_published(recipe: Recipe, data_dir: Path) -> TrainingData:
    """The training split that a recipe names, downloaded where it is missing.

    Raises:
        DatasetError: there is no such data set, it does not fit the recipe's network, or a file is
            not the published one.
        training.data.source.DownloadError: no mirror gave a file.
    """
    if recipe.dataset == FOLDER:
        raise DatasetError(
            f"{recipe.name} learns from a folder of your own pictures, with a subfolder for each "
            "class: say where it is with --data FOLDER"
        )
    if recipe.dataset not in DATASETS:
        known = ", ".join(DATASETS)
        raise DatasetError(f"{recipe.dataset} is no published data set ({known}); --data FOLDER?")
    dataset, network = DATASETS[recipe.dataset], recipe.network
    channels, height, width = dataset.image_shape
    sizes = {"channels": channels, "num_classes": len(dataset.class_names)}
    if recipe.task == "single":
        sizes |= {"height": height, "width": width}
    elif network.height < height or (network.height - height) % 2:
        raise DatasetError(
            f"pairs of {dataset.name} lie in the middle of squares of {height}, {height + 2}, "
            f"{height + 4}, ... px, not {network.height}: --set network.height=36 "
            "--set network.width=36"
        )
    wrong = {name: size for name, size in sizes.items() if getattr(network, name) != size}
    if wrong:
        settings = " ".join(f"--set network.{name}={size}" for name, size in wrong.items())
        raise DatasetError(f"{recipe.name}'s network does not fit {dataset.name}: {settings}")
    examples = load(dataset, "train", data_dir)
    return TrainingData(recipe, dataset, *split_last(examples, dataset.held_out_count))


def for_pictures(recipe: Recipe, count: int) -> Recipe:
    """Fit the recipe to a folder of so many images of any kind: not bent, not padded with black.

    Few are learnt in smaller batches for at least _FEW_STEPS steps, less the share that is held
    out; warm-up and averaging of weights shorten with the run by themselves. The best weights
    on held-out images are kept. Pictures are turned and scaled a little rather than mirrored, as
    letters may not be.

    Raises:
        DatasetError: it is for pairs of digits.
    """
    if recipe.task != "single":
        raise DatasetError(f"{recipe.name} learns {recipe.task}, not single pictures of a folder")
    suited = replace(recipe, flip=True, pad="reflect", affine=0.0, elastic_px=0.0)
    if count >= SMALL_FOLDER:
        return suited
    batch_size = min(_FEW_BATCH, recipe.batch_size)
    steps = max(_FEW_STEPS, recipe.epochs * count / recipe.batch_size)
    weight = recipe.mse_weight
    return replace(
        suited,
        flip=False,
        affine=0.5,
        batch_size=batch_size,
        epochs=round(steps * batch_size / count, 1),
        spread_steps=min(recipe.spread_steps, math.ceil(steps / 10)),
        mse_weight=weight and max(weight, _FEW_RECONSTRUCTION),
        keep="best",
    )


def load_pictures(
    recipe: Recipe,
    folder: Path,
    *,
    channels: int | None = None,
    size: tuple[int, int] | None = None,
) -> TrainingData:
    """Load a folder of images by class, and fit the recipe's network to it.

    Args:
        channels: 1 makes all pictures grey, 3 makes all coloured; None lets the pictures decide.
        size: the height and width that pictures are brought to, in pixels; None lets the pictures
            decide (`training.data.picture_size`).

    Raises:
        DatasetError: nothing can be learnt from the folder, or not by this network.
    """
    split = FolderSplit("", (), 0)
    loaded = load_folder(
        folder,
        size=size,
        seed=split.seed,
        channels=channels,
        held_out_share=split.held_out_share,
    )
    dataset = loaded.dataset
    if dataset.name in DATASETS:
        dataset = replace(dataset, name=f"{dataset.name}-folder")
    names, (channels, height, width) = dataset.class_names, dataset.image_shape
    sizes = NetworkConfig(channels, height, width, num_classes=len(names))
    try:
        fitting = replace(fit_size(recipe, sizes), dataset=dataset.name)
    except ValueError as error:
        raise DatasetError(f"{recipe.name} and images of {width}x{height} px: {error}") from error
    count = len(loaded.training.labels) + len(loaded.validation.labels)
    pictures = replace(
        split,
        folder=str(folder.resolve()),
        class_names=names,
        count=count,
        names=digest_names(folder),
    )
    return TrainingData(fitting, dataset, loaded.training, loaded.validation, pictures)


def load_again(recipe: Recipe, pictures: FolderSplit | None, data_dir: Path) -> TrainingData:
    """The training images of an earlier run with this recipe, split as they were then.

    Raises:
        DatasetError: it is not there any more, or is not the same.
    """
    if pictures is None:
        return load_published(recipe, data_dir)
    network = recipe.network
    data = load_pictures(
        recipe,
        Path(pictures.folder),
        channels=network.channels,
        size=(network.height, network.width),
    )
    if not same_split(data.pictures, pictures):
        raise DatasetError(f"{pictures.folder} has changed since the network was trained on it")
    return data._replace(recipe=recipe)
