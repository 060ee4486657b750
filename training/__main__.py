"""The command line: `python -m training --help`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from model import open_bundle
from model.capsnet import build, family_of
from training import export, report
from training.analysis.bundle import analyse, analyse_factors
from training.answers import measure_presence, recalls
from training.card import write_card
from training.command import (
    DATA_DIR,
    EXPECTED,
    BundleName,
    DataDir,
    SkipUnreadable,
    app,
    console,
    typed_command,
)
from training.data.datasets import DATASETS, load
from training.data.folder import FolderSplit, TrainingData, name_of
from training.device import choose_device
from training.imports import analyse_on
from training.pretrained import (
    Stem,
    check_size,
    choose_stem,
    find_weights,
    use_pretrained,
)
from training.recipes import FOLDER, PRESETS, Recipe, SettingError, override
from training.report import advise
from training.state import CHECKPOINT, Checkpoint, Plan, starting_point
from training.tasks import PREVIEW
from training.trainer import Trainer
from training.training_data import (
    MAX_PX,
    load_pictures,
    load_published,
)

__all__ = ["app", "export", "report"]
"""The modules add commands to the application."""
Preset = Annotated[str, typer.Argument(help="Name of a preset: see `presets`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a field of the recipe."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
LoadOwn = Callable[..., tuple[Recipe, TrainingData]]
_TRIAL_MINUTES = 0.5
"""The minutes that each stem is trained for, where the pictures do not decide between two."""
_WORST = 10
"""The number of classes whose recalls end a training."""


@app.command()
def train(
    preset: Preset,
    *,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 1,
    settings: Settings = None,
    data: Annotated[
        Path | None, typer.Option(help="Train on a folder with a subfolder for each class.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_PX, help="Height and width of the pictures of --data."),
    ] = None,
    stem: Annotated[
        Stem | None,
        typer.Option(
            help="What computes features of pictures. `pretrained`: EfficientNet-Lite0, which "
            "learnt 1.3 million photographs. `trained`: convolutions that learn your pictures. "
            "By default, `train pictures` looks at the folder and says what it chose.",
        ),
    ] = None,
    channels: Annotated[int | None, typer.Option(help="1 makes pictures grey, 3 coloured.")] = None,
    skip_unreadable: SkipUnreadable = False,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the run; by default runs/<preset or folder>-<seed>."),
    ] = None,
    data_dir: DataDir = DATA_DIR,
    final: Annotated[
        bool, typer.Option("--final", help="Train on all training examples, without validation.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in run-dir.")] = False,
    resume_or_begin: Annotated[
        bool, typer.Option("--resume-or-begin", help="Continue the run, or begin it.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option(help="Start from the weights of this run or bundle.")
    ] = None,
    transfer: Annotated[
        Path | None,
        typer.Option(help="Start from the weights of this run or bundle that fit this network."),
    ] = None,
    max_minutes: Annotated[
        float, typer.Option(min=0, help="Save and stop after this long; --resume goes on.")
    ] = math.inf,
    device: Device = "auto",
    threads: Annotated[
        int, typer.Option(min=0, help="CPU threads; 0 takes one or all, whichever are faster now.")
    ] = 0,
) -> None:
    """Train PRESET. An interrupt saves a checkpoint, and --resume continues from it."""
    if weights and transfer:
        raise typer.BadParameter("--weights and --transfer exclude each other")
    if data is None and (size or channels or stem or skip_unreadable):
        raise typer.BadParameter("--size, --channels, --stem and --skip-unreadable are for --data")
    sizes = [f"network.{side}={size}" for side in ("height", "width") if size]
    settings = sizes + (settings or [])
    recipe = _recipe(preset, settings if data is None else [])
    directory = run_dir or Path("runs") / f"{_run_name(preset, data)}-{seed}"
    resumes = resume or (resume_or_begin and (directory / CHECKPOINT).exists())
    before = Checkpoint.load(directory / CHECKPOINT) if resumes else None
    source = None if resumes else weights or transfer
    other = starting_point(source) if source else None
    torch_device = choose_device(device, threads=threads)
    reason = ""
    if data is None:
        images = load_published(recipe, data_dir)
    else:
        known = (before and before.pictures) or FolderSplit(skip_unreadable=skip_unreadable)
        load_own = partial(_load_own, recipe, settings, data, channels=channels, split=known)
        if stem is None and before:
            stem = "pretrained" if before.recipe.pretrained else "trained"
        elif stem is None and recipe.dataset == FOLDER and not size:
            try_out = partial(_try_stem, load_own)
            stem, reason = choose_stem(data, channels=channels, try_out=try_out)
        seen = other.pictures.learnt if other and other.pictures else ()
        recipe, images = load_own(stem, seen=seen)
    if final:
        images = images.without_validation()
    validation, split = None if final else images.validation, images.split
    parts = recipe, seed, images.training, validation, directory, split
    plan = Plan(*parts, command=typed_command())
    with plan.locked():
        trainer = Trainer(plan, device=torch_device, resume=resumes)
        if other:
            loaded = trainer.start_from(other, fitting=transfer is not None)
            initialised = [key for key in trainer.network.state_dict() if key not in loaded]
            rest = ", ".join(initialised) or "nothing"
            console.print(f"weights from {source}: {', '.join(loaded)}; initialised: {rest}")
        if split and not trainer.done_steps:
            notices = filter(None, (reason, *images.notices, _describe(trainer)))
            console.print(*notices, sep="\n")
        adapts_threads = not threads and torch_device.type == "cpu"
        if trainer.run(max_minutes=max_minutes, adapts_threads=adapts_threads):
            console.print(*conclude(trainer), sep="\n")
        else:
            console.print(f"stopped at step {trainer.done_steps}; --resume goes on")


@app.command()
def presets() -> None:
    """List what can be trained."""
    table = Table("preset", "family", "data set", "epochs", "parameters", box=None)
    for recipe in PRESETS.values():
        with torch.device("meta"):
            count = sum(weight.numel() for weight in build(recipe.network).parameters())
        family = family_of(recipe.network).name
        dataset = f"{'pairs of ' * (recipe.task == 'pairs')}{recipe.dataset}"
        dataset = "--data FOLDER" if recipe.dataset == FOLDER else dataset
        table.add_row(recipe.name, family, dataset, f"{recipe.epochs:g}", f"{count:,}")
    console.print(table)


@app.command("analyse")
def analyse_(
    bundle: BundleName,
    *,
    data_dir: DataDir = DATA_DIR,
    data: Annotated[
        Path | None, typer.Option(help="The folder of pictures that the network was trained on.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    neighbours: Annotated[
        bool,
        typer.Option(
            "--neighbours", help="Show your own pictures in /neighbours of a private bundle."
        ),
    ] = False,
    factors: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="CSV file: `file`, then your own measures of each picture. Only adds a direction "
            "and a reading for each. Files are relative to --data, or else to the CSV file.",
        ),
    ] = None,
) -> None:
    """Analyse what is inside a bundle, on the images that `train` holds out without `--final`.

    `export` does this too.
    """
    opened = open_bundle(bundle)
    if factors is not None:
        with_factors, sentences = analyse_factors(opened, factors, folder=data)
        if "imported" not in opened.manifest.training:
            write_card(with_factors)
        for sentence in sentences:
            console.print(sentence)
    elif "imported" in opened.manifest.training:
        if data is None:
            raise typer.BadParameter(
                "an imported network needs --data, a folder of pictures like those of its training"
            )
        analyse_on(opened, data, skip_unreadable=skip_unreadable)
    else:
        analyse(opened, data_dir, folder=data, own_images=neighbours or None)
    console.print(f"wrote {opened.path}")


@app.command()
def download(
    dataset: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    *,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Fetch a data set and check it."""
    if dataset not in DATASETS:
        raise typer.BadParameter(f"{dataset} is none of {', '.join(DATASETS)}")
    counts = [
        str(len(load(DATASETS[dataset], split, data_dir).labels)) for split in ("train", "test")
    ]
    console.print(f"{dataset}: {' + '.join(counts)} images")


def main() -> None:
    """Run the command line; expected failures are one line, not a traceback."""
    try:
        app()
    except EXPECTED as error:
        Console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
        raise SystemExit(1) from error


def _recipe(preset: str, settings: list[str]) -> Recipe:
    """The preset with other settings."""
    if preset not in PRESETS:
        near = "".join(f". Did you mean {one!r}?" for one in get_close_matches(preset, PRESETS, 1))
        raise typer.BadParameter(f"{preset} is none of {', '.join(PRESETS)}{near}")
    try:
        return override(PRESETS[preset], settings)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def _load_own(
    recipe: Recipe,
    settings: list[str],
    folder: Path,
    stem: Stem | None,
    *,
    channels: int | None,
    split: FolderSplit,
    seen: Collection[str] = (),
) -> tuple[Recipe, TrainingData]:
    """The recipe that suits the pictures of a folder, with other settings, and the pictures.

    Args:
        seen: fingerprints of pictures that the weights have learnt from.
    """
    fixed = {"name", "dataset", "task", "channels", "num_classes"}
    if stem == "pretrained":
        recipe = use_pretrained(recipe, find_weights())
    names = {setting.partition("=")[0].removeprefix("network.") for setting in settings}
    try:
        network = override(recipe, settings, fixed=fixed).network  # before the folder is read
        size = (network.height, network.width)
        if recipe.pretrained:
            check_size(*size)
        asked = recipe.pretrained or not names.isdisjoint({"height", "width"})
        fitted, data = load_pictures(
            recipe,
            folder,
            channels=channels,
            size=size if asked else None,
            seen=seen,
            split=split,
        )
        return override(fitted, settings, fixed=fixed), data
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def _try_stem(load_own: LoadOwn, stem: Stem) -> float:
    """The error on held-out pictures, in percent, after half a minute of training with a stem."""
    recipe, data = load_own(stem)
    with TemporaryDirectory() as directory:
        plan = Plan(recipe, 1, data.training, data.validation, Path(directory), data.split)
        trainer = Trainer(plan, device=torch.device("cpu"))
        trainer.run(max_minutes=_TRIAL_MINUTES, adapts_threads=True)
        return 100.0 if trainer.error_percent is None else trainer.error_percent


def _run_name(preset: str, data: Path | None) -> str:
    """The name of a run's folder: that of the folder of pictures, as it is spelt."""
    if data is None:
        return preset
    folder = data.resolve().name
    return name_of(data) if not folder or folder.lower() in DATASETS else folder


def _describe(trainer: Trainer) -> str:
    """A summary of a run on a folder of pictures, before it starts."""
    plan = trainer.plan
    network = plan.recipe.network
    return (
        f"{len(plan.training.labels):,} pictures of {network.num_classes} classes to learn from, "
        f"{plan.held_out_count:,} held out, seen at {network.width}x{network.height} px: "
        f"{trainer.total_steps:,} steps of {plan.recipe.batch_size}; {plan.directory / PREVIEW} "
        "shows what the network draws"
    )


def conclude(trainer: Trainer) -> Iterator[str]:
    """The conclusion of a complete run, from its answers to held-out images, as sentences.

    They say which weights were kept and, of a folder's classes, how many images of each are
    answered right, and what to do next.
    """
    plan, validation, error_percent = trainer.plan, trainer.plan.validation, trainer.error_percent
    name = plan.recipe.dataset if plan.split else plan.recipe.name
    yield f"{name} is trained: {plan.checkpoint_path}"
    if validation is None or error_percent is None:
        return
    if best := trainer.best:
        yield (
            f"kept the weights of step {best.step:,}, the best on held-out images: "
            f"{best.error_percent:.2f} % validation error"
        )
    if not plan.split:
        return
    class_names = plan.split.class_names
    presence = measure_presence(trainer.result, validation.images, trainer.device)
    found = recalls(validation.labels, presence, class_names)
    worst = ", ".join(map(str, found[:_WORST])) + ", ..." * (len(found) > _WORST)
    yield f"held-out images answered right, the worst class first: {worst}"
    counts = np.bincount(plan.training.labels, minlength=len(class_names)).tolist()
    yield from advise(
        validation.labels,
        presence,
        class_names,
        pictures=dict(zip(class_names, counts, strict=True)),
        size_px=max(plan.recipe.network.image_shape[1:]),
        pretrained=bool(plan.recipe.pretrained),
    )


if __name__ == "__main__":
    main()
