"""A run's training images: a published data set, or a folder of pictures by class."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from model.capsnet.network import NetworkConfig
from training.data.datasets import DATASETS, Dataset, Examples, load, split_last
from training.data.folder import load_folder, name_of
from training.data.pictures import content_of
from training.data.source import DatasetError
from training.growth import fit_size
from training.recipes import FOLDER, Recipe

MIN_BATCH, MIN_STEPS = 16, 800
"""The smallest batch of a folder, and the fewest steps."""
_RECONSTRUCTION = 4.0
"""The least weight of the reconstruction.

A lower one draws much the same blob for all images of a class, a higher one (40) lowers accuracy.
"""


class FolderSplit(BaseModel):
    """A folder of pictures and how it is divided, so that it can be read again in the same way."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    folder: str = ""
    class_names: tuple[str, ...] = ()
    count: int = 0
    """The number of images."""
    held_out: float = 0.1
    """The share of each class that is kept for validation."""
    seed: int = 0
    """The seed that chooses them.

    It is the same for runs of any seed, as one may follow another.
    """
    learnt: tuple[str, ...] = ()
    """Fingerprints of the pictures that the weights have learnt from, in this run or an earlier one
    whose weights it took."""
    held_out_pictures: tuple[str, ...] = ()
    """Fingerprints of the pictures that are held out."""
    skip_unreadable: bool = False
    """Whether unreadable files are left out."""
    class_counts: tuple[int, ...] = ()
    """The number of training pictures of each class."""

    def is_same(self, other: FolderSplit | None) -> bool:
        """Return whether both hold out the same pictures of as many, in the same classes."""
        if other is None:
            return False
        names = ("class_names", "count", "held_out", "seed", "held_out_pictures")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def uses(self) -> dict[str, str]:
        """What training did with pictures, by the hash of their content."""
        held_out = dict.fromkeys(map(content_of, self.held_out_pictures), "held out")
        return held_out | dict.fromkeys(map(content_of, self.learnt), "learnt from")


class TrainingData(NamedTuple):
    """Examples, and a recipe whose network and data set are fitted to them."""

    recipe: Recipe
    dataset: Dataset
    training: Examples
    validation: Examples
    """The last ones, or in a folder those of each class that a seed chose."""
    pictures: FolderSplit | None = None
    """The folder of images; None where the data set is published."""
    notices: tuple[str, ...] = ()
    """What the folder's owner should know before the training."""

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
    """Fit the recipe to so many training images of any kind: not bent, not padded with black.

    A batch has sqrt(2.5 count) images, at least MIN_BATCH and at most the recipe's. There are as
    many steps as the recipe's epochs take in its own batches, at least MIN_STEPS. So the passes
    over the images fall smoothly as images become more, from many to the recipe's own. Warm-up and
    averaging of weights shorten with the run by themselves. At least MIN_BATCH images of a batch
    are reconstructed, because a decoder that sees four of them learns to draw too slowly.

    Classes are drawn equally often. The best weights on held-out images are kept. Pictures are
    turned and scaled a little. They are not mirrored, as letters and arrows may not be: `--set
    flip=true`.

    Raises:
        DatasetError: it is for pairs of digits.
    """
    if recipe.task != "single":
        raise DatasetError(f"{recipe.name} learns {recipe.task}, not single pictures of a folder")
    batch_size = min(max(MIN_BATCH, round(math.sqrt(2.5 * count))), recipe.batch_size)
    steps = max(MIN_STEPS, recipe.epochs * count / recipe.batch_size)
    share, weight = min(1.0, round(MIN_BATCH / batch_size, 2)), recipe.mse_weight
    return replace(
        recipe,
        flip=False,
        pad="reflect",
        affine=0.5,
        elastic_px=0.0,
        even_classes=True,
        batch_size=batch_size,
        epochs=round(steps * batch_size / count, 2),
        spread_steps=min(recipe.spread_steps, math.ceil(steps / 10)),
        mse_weight=weight and max(weight, _RECONSTRUCTION),
        reconstruction_share=max(recipe.reconstruction_share, share),
        keep="best",
    )


def dataset_name(folder: Path) -> str:
    """A folder's name as that of its data set, which no published one has."""
    name = name_of(folder)
    return f"{name}-folder" if name in DATASETS else name


def load_pictures(
    recipe: Recipe,
    folder: Path,
    *,
    channels: int | None = None,
    size: tuple[int, int] | None = None,
    seen: Collection[str] = (),
    split: FolderSplit | None = None,
) -> TrainingData:
    """Load a folder of images by class, and fit the recipe's network to it.

    Args:
        channels: 1 makes all pictures grey, 3 makes all coloured; None lets the pictures decide.
        size: the height and width that pictures are brought to, in pixels; None lets the pictures
            decide (`training.data.folder.choose_size`).
        seen: fingerprints of pictures that the weights have learnt from, which are not held out.
        split: an earlier one of this folder, which is used again, or only its share, its seed and
            whether unreadable files are skipped.

    Raises:
        DatasetError: nothing can be learnt from the folder, or not by this network.
    """
    split = split or FolderSplit()
    loaded = load_folder(
        folder,
        size=size,
        seed=split.seed,
        channels=channels,
        held_out_share=split.held_out,
        seen=seen,
        held_out=split.held_out_pictures,
        skip_unreadable=split.skip_unreadable,
    )
    dataset = replace(loaded.dataset, name=dataset_name(folder))
    names, (channels, height, width) = dataset.class_names, dataset.image_shape
    recipe = for_pictures(recipe, len(loaded.training.labels))
    sizes = NetworkConfig(channels, height, width, num_classes=len(names))
    try:
        fitting = replace(fit_size(recipe, sizes), dataset=dataset.name)
    except ValueError as error:
        raise DatasetError(f"{recipe.name} and images of {width}x{height} px: {error}") from error
    count = len(loaded.training.labels) + len(loaded.validation.labels)
    pictures = FolderSplit(
        folder=str(folder.resolve()),
        class_names=names,
        count=count,
        held_out=split.held_out,
        seed=split.seed,
        learnt=tuple(dict.fromkeys((*loaded.trained, *seen, *split.learnt))),
        held_out_pictures=tuple(loaded.held_out),
        skip_unreadable=split.skip_unreadable,
        class_counts=np.bincount(loaded.training.labels, minlength=len(names)).tolist(),
    )
    training, validation, notices = loaded.training, loaded.validation, loaded.notices
    return TrainingData(fitting, dataset, training, validation, pictures, tuple(notices))


def load_again(recipe: Recipe, pictures: FolderSplit | None, data_dir: Path) -> TrainingData:
    """The training images of an earlier run with this recipe, split as they were then.

    Raises:
        DatasetError: it is not there any more, or is not the same.
    """
    if pictures is None:
        return load_published(recipe, data_dir)
    network, folder = recipe.network, Path(pictures.folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not there: say where the pictures are with --data FOLDER")
    size = (network.height, network.width)
    # fingerprints tell whether the pictures are the same, so other files may be skipped
    split = pictures.model_copy(update={"skip_unreadable": True})
    data = load_pictures(recipe, folder, channels=network.channels, size=size, split=split)
    now = data.pictures
    assert now is not None
    known = {*pictures.learnt, *pictures.held_out_pictures}
    if not pictures.is_same(now) or not known.issuperset(now.learnt):
        raise DatasetError(f"{pictures.folder} has changed since the network was trained on it")
    return data._replace(recipe=recipe, pictures=pictures)
