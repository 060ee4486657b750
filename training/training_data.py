"""A run's training images, published or a folder of pictures, and the recipe that fits them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.bundle.entry import describe_fault
from model.capsnet.attention import AttentionConfig
from model.capsnet.decoder import decoder_channels_for
from model.capsnet.network import NetworkConfig
from model.capsnet.stem import Conv, Pretrained, StemLayer, Whiten
from training.data.datasets import DATASETS, load, split_last
from training.data.folder import UNSPLIT, FolderSplit, TrainingData, load_folder
from training.data.source import DatasetError
from training.recipes import FOLDER, Recipe

MAX_PX = 224
"""The largest size that `--size` accepts."""
_ROOM = 1.25
"""A stem takes pictures of so many times the size it was designed for, before it grows."""
_CHANNELS = 32
_WIDEST = (64,)
"""The channels of the coarse grid where up-convolutions replace fully connected layers."""
_SHARP_PX = 128
"""Images with more pixels along the longer side are drawn at half their size and then doubled."""
_DRAWN_PX, _FEW = 64, 8
"""Stages that draw more pixels along the longer side have so few channels."""
_WHOLE_PX, _MIN_SHARE = 96, 0.25
"""Of images with more pixels along the longer side, a smaller share of each batch is reconstructed,
though at least this one, unless the recipe says less."""
_LENGTHS_PX = ("shift_px", "cutout_px")
MIN_BATCH, MIN_STEPS = 16, 800
"""The smallest batch of a folder, and the fewest steps."""
_RECONSTRUCTION = 4.0
"""The least weight of the reconstruction.

A lower one draws much the same blob for all images of a class, a higher one (40) lowers accuracy.
"""
_FEW_OF_A_CLASS = 100
"""Classes of fewer pictures have homogeneous poses: routed ones learnt from 20 explain less of new
pictures, and those learnt from thousands of digits explain more."""


def fit_size(recipe: Recipe, sizes: NetworkConfig) -> Recipe:
    """Fit the recipe to images of another size, number of channels and number of classes.

    The stem grows until its later layers see about as many cells as they were designed for
    (`grow_stem`), so that votes and the time of a step stay within bounds. A decoder
    of up-convolutions gets the stages that the size needs; a fully connected one, whose weights
    grow with the pixels, becomes one. A smaller share of large images is reconstructed. Shifts
    and what is cut out stay the same share of an image.

    Raises:
        ValueError: the network's layers do not fit such images.
    """
    designed = max(recipe.network.height, recipe.network.width)
    longest = max(sizes.height, sizes.width)
    names = ("channels", "height", "width", "num_classes")
    own: dict[str, Any] = {name: getattr(sizes, name) for name in names}
    if stem := getattr(recipe.network, "stem", None):
        own["stem"] = grow_stem(stem, (sizes.height, sizes.width), designed=designed)
    if recipe.network.decoder_channels or longest > _ROOM * designed:
        widest = (recipe.network.decoder_channels or _WIDEST)[0]
        doublings = int(longest > _SHARP_PX)
        drawn = (math.ceil(side / 2**doublings) for side in (sizes.height, sizes.width))
        own["decoder_channels"] = _decoder_channels(*drawn, widest=widest)
        own["decoder_doublings"] = doublings
        own["decoder_hidden"] = recipe.network.decoder_hidden[:1]
    share = max(_MIN_SHARE, recipe.reconstruction_share * min(1, (_WHOLE_PX / longest) ** 2))
    lengths = {name: round(getattr(recipe, name) * longest / designed) for name in _LENGTHS_PX}
    elastic_px = recipe.elastic_px * longest / designed
    return replace(
        recipe,
        network=replace(recipe.network, **own),
        reconstruction_share=min(recipe.reconstruction_share, round(share, 2)),
        elastic_px=elastic_px,
        **lengths,
    )


def _decoder_channels(height: int, width: int, *, widest: int) -> tuple[int, ...]:
    """Channels as usual, and few in the stages that draw more than _DRAWN_PX pixels.

    The time of a stage grows with its pixels, so that the last ones take the most.
    """
    channels = decoder_channels_for(height, width, widest=widest)
    longest, last = max(height, width), len(channels) - 1
    return tuple(
        min(count, _FEW) if longest / 2 ** (last - stage) > _DRAWN_PX else count
        for stage, count in enumerate(channels)
    )


def grow_stem(
    stem: Sequence[StemLayer], size: tuple[int, int], *, designed: int
) -> tuple[StemLayer, ...]:
    """Add layers that halve an image of this height and width (pixels), until the stem fits it.

    The stem was designed for squares of `designed` pixels and fits squares of 5/8 to 5/4 of that
    side. An oblong image is halved until its area fits, as long as its shorter side does.

    New layers come first, where channels are few; whitening stays before them. A pretrained network
    has its own.
    """
    if isinstance(stem[0], Pretrained):
        return tuple(stem)
    shorter, longer, halvings = min(size), max(size), 0
    most, least = _ROOM * designed, _ROOM * designed / 2
    while shorter * longer > most**2 and (shorter + 1) // 2 > least:
        shorter, longer, halvings = (shorter + 1) // 2, (longer + 1) // 2, halvings + 1
    first = 1 if isinstance(stem[0], Whiten) else 0
    return (*stem[:first], *[Conv(_CHANNELS, 3, 2, padding=1)] * halvings, *stem[first:])


def load_published(recipe: Recipe, data_dir: Path) -> TrainingData:
    """The training split that a recipe names, downloaded where it is missing.

    Raises:
        DatasetError: there is no such data set, it does not fit the recipe's network, or a file is
            not the published one or cannot be downloaded.
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
    return TrainingData(dataset, *split_last(examples, dataset.held_out_count))


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


def load_pictures(
    recipe: Recipe,
    folder: Path,
    *,
    channels: int | None = None,
    size: tuple[int, int] | None = None,
    seen: Collection[str] = (),
    split: FolderSplit = UNSPLIT,
) -> tuple[Recipe, TrainingData]:
    """Load a folder of images by class, and fit the recipe's network to it.

    Presets for folders get homogeneous poses where there are few pictures of a class.

    Args:
        channels: 1 makes all pictures grey, 3 makes all coloured; None lets the pictures decide.
        size: the height and width that pictures are brought to, in pixels; None lets the pictures
            decide (`training.data.folder.choose_size`).
        seen: fingerprints of pictures that the weights have learnt from, which are not held out.
        split: an earlier one of this folder, which is used again, or only whether unreadable files
            are skipped.

    Raises:
        DatasetError: nothing can be learnt from the folder, or not by this network.
    """
    data = load_folder(folder, size=size, channels=channels, seen=seen, split=split)
    count, names = len(data.training.labels), data.dataset.class_names
    channels, height, width = data.dataset.image_shape
    recipe = for_pictures(recipe, count)
    sizes = NetworkConfig(channels, height, width, num_classes=len(names))
    try:
        fitting = replace(fit_size(recipe, sizes), dataset=data.dataset.name)
    except ValueError as error:
        reason = describe_fault(error)
        raise DatasetError(f"{recipe.name} and images of {width}x{height} px: {reason}") from error
    few = count < _FEW_OF_A_CLASS * len(names)
    if few and recipe.dataset == FOLDER and isinstance(fitting.network, AttentionConfig):
        network = replace(fitting.network, pose="homogeneous")
        fitting = replace(fitting, network=network, frozen=tuple({*fitting.frozen, "decoder"}))
    return fitting, data


def load_again(
    recipe: Recipe, split: FolderSplit | None, data_dir: Path, *, folder: Path | None = None
) -> TrainingData:
    """The training images of an earlier run with this recipe, split as they were then.

    Args:
        folder: where the pictures are now, if the run was trained on a folder of them.

    Raises:
        DatasetError: it is not there any more, or is not the same.
    """
    if split is None:
        return load_published(recipe, data_dir)
    network, folder = recipe.network, folder or Path(split.folder or recipe.dataset)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not there: say where the pictures are with --data FOLDER")
    size = (network.height, network.width)
    # fingerprints tell whether the pictures are the same, so other files may be skipped
    lenient = split.model_copy(update={"skip_unreadable": True})
    data = load_folder(folder, channels=network.channels, size=size, split=lenient)
    now = data.split
    assert now is not None
    known = {*split.learnt, *split.held_out_pictures}
    if not split.is_same(now) or not known.issuperset(now.learnt):
        raise DatasetError(f"{folder} has changed since the network was trained on it")
    return data._replace(split=split)
