"""The command line: `python -m training --help`."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from model import open_bundle
from model.bundle import Bundle, BundleError
from model.capsnet import build, family_of
from training.advice import advise
from training.answers import measure_presence, most_confused, recalls
from training.data.datasets import DATASETS, load
from training.data.pairs import PUBLISHED_PAIRS, TEST_PAIRS
from training.data.source import DatasetError, DownloadError
from training.data.words import printable
from training.device import DeviceError, choose_device
from training.growth import MAX_PX
from training.pretrained import (
    PretrainedError,
    PublishedWeights,
    check_size,
    find_weights,
    use_pretrained,
)
from training.provenance import ProvenanceError, runs_of, unseen_by
from training.python_file import PythonFileError, run_file
from training.recipes import FOLDER, PRESETS, Recipe, SettingError, override
from training.state import (
    CHECKPOINT,
    Checkpoint,
    Plan,
    TrainingError,
    starting_point,
)
from training.stem_choice import choose_stem
from training.tasks import PREVIEW
from training.threads import ThreadChooser
from training.trainer import Trainer
from training.training_data import (
    FolderSplit,
    TrainingData,
    dataset_name,
    load_pictures,
    load_published,
)

if TYPE_CHECKING:
    from model.bundle import PreprocessRule
    from model.bundle.manifest import PresenceKind

EXPECTED = (
    *(TrainingError, DatasetError, DeviceError, DownloadError, BundleError, ProvenanceError),
    PretrainedError,
    PythonFileError,
)
"""Errors that are printed as one line, without a traceback."""


class _TypedCommands(TyperGroup):
    """Commands that know the words with which they were called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)


_WORDS = "training.words"
app = typer.Typer(cls=_TypedCommands, no_args_is_help=True, pretty_exceptions_enable=False)
console = Console()

BundleName = Annotated[
    str, typer.Argument(help="Name of a shipped bundle, or a folder that `export` wrote.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="The folder of pictures that the network was trained on."),
]
TestFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder of new pictures by class to score. With --validation, it is the folder of the "
        "training images.",
    ),
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out files that cannot be read.")
]
Preset = Annotated[str, typer.Argument(help="Name of a preset: see `presets`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a field of the recipe."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
DataDir = Annotated[
    Path,
    typer.Option(
        envvar="CAPSNET_DATA_DIR", help="Folder of data sets; missing files are downloaded."
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace a bundle of that name, whatever made it.")
]
_DATA = Path("data")
_WORST = 10
"""The number of classes whose recalls end a training."""


@app.callback()
def declare(
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A Python file that declares families of your own."
        ),
    ] = None,
) -> None:
    """Train, export and evaluate capsule networks."""
    if file is not None:
        run_file(file)


@app.command()
def train(
    context: typer.Context,
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
        str | None,
        typer.Option(
            metavar="pretrained|trained",
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
    data_dir: DataDir = _DATA,
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
        int, typer.Option(min=0, help="CPU threads; 0 times some steps and keeps the faster.")
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
    resumed = directory if resumes else None
    wanted = stem or ("trained" if size else None)
    published, reason = _choose_stem(wanted, recipe, data, resumed, channels=channels)
    source = None if resumes else weights or transfer
    other = starting_point(source) if source else None
    torch_device = choose_device(device, threads=threads)
    if data is None:
        training_data = load_published(recipe, data_dir)
    else:
        training_data = _load_own(
            recipe,
            settings,
            data,
            published=published,
            channels=channels,
            split=_split(data, resumed, skip=skip_unreadable),
            seen=other.pictures.learnt if other and other.pictures else (),
        )
    recipe, validation = training_data.recipe, None if final else training_data.validation
    training = training_data.all if final else training_data.training
    name = recipe.name if data is None else training_data.dataset.name
    pictures = training_data.pictures
    if pictures and final:
        both = f"{pictures.trained_pictures} {pictures.held_out_pictures}"
        pictures = pictures.model_copy(update={"trained_pictures": both})
    command = typed_command(context.meta[_WORDS])
    plan = Plan(recipe, seed, training, validation, directory, pictures, published, command)
    with plan.locked():
        trainer = Trainer(plan, device=torch_device, resume=resumes)
        say = Console().print
        if other:
            loaded = trainer.state.start_from(other, fitting=transfer is not None)
            initialised = [key for key in trainer.network.state_dict() if key not in loaded]
            rest = ", ".join(initialised) or "nothing"
            say(f"weights from {source}: {', '.join(loaded)}; initialised: {rest}")
        if pictures and not trainer.done_steps:
            for notice in filter(None, (reason, *training_data.notices)):
                say(notice, markup=False)
            say(_describe(trainer))
        chooses = not threads and torch_device.type == "cpu"
        chooser = ThreadChooser() if chooses else None
        if trainer.run(max_minutes=max_minutes, threads=chooser):
            say(f"{name} is trained: {plan.checkpoint_path}")
            names = pictures.class_names if pictures else ()
            for sentence in conclude(trainer, names):
                say(sentence, markup=False)
        else:
            say(f"stopped at step {trainer.done_steps}; --resume goes on")


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


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(help="A run of `train`.")],
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the bundle; by default the recipe's name.")
    ] = None,
    bundles: Annotated[Path, typer.Option(help="Folder to write the bundle to.")] = Path(
        "model/bundles"
    ),
    replace: Replace = False,
    data_dir: DataDir = _DATA,
) -> None:
    """Check that the bundle of a run computes what its network computes, and write it."""
    from training.export import publish  # noqa: PLC0415  training itself needs no onnx

    bundle = publish(run_dir, bundles, name=name, data_dir=data_dir, replace_other=replace)
    for line in conclude_export(bundle):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="An ONNX file that maps images to presence, and perhaps to poses; or "
            "FILE.py:NAME of a torch.nn.Module, or of a function that returns one."
        ),
    ],
    *,
    name: Annotated[str, typer.Option(help="Name of the bundle.")],
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes in order, separated by commas.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of pictures by class, on which the bundle is scored and its poses are "
            "analysed. Without --classes, the subfolders name the classes."
        ),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    decoder: Annotated[
        Path | None,
        typer.Option(help="ONNX file of the decoder, which maps poses and classes to images."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of a module's images.")
    ] = None,
    channels: Annotated[int, typer.Option(min=1, help="Channels of a module's images.")] = 1,
    preprocess: Annotated[
        str, typer.Option(help="How images are fitted: crop, stretch or digit (light strokes).")
    ] = "crop",
    presence: Annotated[
        str, typer.Option(help="What the first output is: length, activation or probability.")
    ] = "length",
    logits: Annotated[
        bool, typer.Option("--logits", help="The first output is logits; a softmax is added.")
    ] = False,
    bundles: Annotated[Path, typer.Option(help="Folder to write the bundle to.")] = Path("bundles"),
    replace: Replace = False,
) -> None:
    """Write the bundle of a network that was trained elsewhere, after checking its answers."""
    from training.foreign import read_foreign  # noqa: PLC0415  training itself needs no onnx
    from training.imports import (  # noqa: PLC0415  as above
        Words,
        analyse_on,
        class_folders,
        import_network,
    )

    if not (classes or data):
        raise typer.BadParameter("give --classes, or --data with a folder for each class")
    names = classes.split(",") if classes else class_folders(data or Path())
    words = Words(
        name=name,
        class_names=[one.strip() for one in names],
        preprocess=cast("PreprocessRule", preprocess),
        presence=cast("PresenceKind", presence),
        logits=logits,
        source=Path(source.rpartition(":")[0] or source).name,
    )
    shape = (channels, size, size) if size else None
    bundle = import_network(
        read_foreign(source, decoder=decoder, image_shape=shape, logits=logits),
        words,
        bundles,
        replace_other=replace,
    )
    if data:
        bundle, sentence = analyse_on(bundle, data, skip_unreadable=skip_unreadable)
        console.print(sentence, markup=False)
    console.print(f"wrote {bundle.path}", highlight=False, markup=False, soft_wrap=True)
    folder = shlex.quote(str(bundle.path.parent))
    console.print(
        f"next: CAPSNET_BUNDLES={folder} python -m service", highlight=False, markup=False
    )


@app.command()
def evaluate(
    bundle: BundleName,
    *,
    data_dir: DataDir = _DATA,
    data: TestFolder = None,
    skip_unreadable: SkipUnreadable = False,
    validation: Annotated[
        bool,
        typer.Option(
            "--validation",
            help="Score held-out training images instead; --data names their folder.",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="HTML file to write; with --data, report.html by default."),
    ] = None,
    pairs: Annotated[
        int,
        typer.Option(min=PUBLISHED_PAIRS, help="For networks for pairs: test pairs at each shift."),
    ] = TEST_PAIRS,
) -> None:
    """Score a bundle on the test split, record that it was read, and print the scores.

    With --data, score a folder of pictures that training never saw, and write a report.
    """
    from model.runtime import Runtime  # noqa: PLC0415  training itself needs no onnx
    from training.evaluate import ScoredSplit, score_folder  # noqa: PLC0415  as above
    from training.evaluate import evaluate as score  # noqa: PLC0415  as above

    opened = open_bundle(bundle)
    split: ScoredSplit = "validation" if validation else "test"
    if "imported" in opened.manifest.training:
        if data is None:
            raise typer.BadParameter("an imported network needs --data, a folder to score")
        scores = score_folder(Runtime(opened), data, skip_unreadable=skip_unreadable)
    else:
        scores = score(
            opened,
            data_dir,
            split=split,
            folder=data,
            skip_unreadable=skip_unreadable,
            pairs=pairs,
        )
    console.print(f"{opened.manifest.name}: {scores.headline()}")
    console.print(scores.table)
    for notice in scores.answers.notices if scores.answers else ():
        console.print(notice, markup=False)
    target = report or (Path("report.html") if data and not validation else None)
    if target and scores.answers:
        from training.report import write_report  # noqa: PLC0415  as above

        write_report(Runtime(opened), scores, target)
        console.print(f"wrote {target}")


@app.command()
def analyse(
    bundle: BundleName,
    *,
    data_dir: DataDir = _DATA,
    data: DataFolder = None,
    skip_unreadable: SkipUnreadable = False,
    neighbours: Annotated[
        bool,
        typer.Option(
            "--neighbours", help="Show your own pictures in /neighbours, in place of poses alone."
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
    from training.analysis.bundle import analyse as analyse_bundle  # noqa: PLC0415  as above
    from training.analysis.bundle import analyse_factors  # noqa: PLC0415  as above
    from training.card import write_card  # noqa: PLC0415  as above

    opened = open_bundle(bundle)
    if factors is not None:
        with_factors, sentences = analyse_factors(opened, factors, folder=data)
        if "imported" not in opened.manifest.training:
            write_card(with_factors)
        for sentence in sentences:
            console.print(sentence, markup=False)
    elif "imported" in opened.manifest.training:
        from training.imports import analyse_on  # noqa: PLC0415  as above

        if data is None:
            raise typer.BadParameter(
                "an imported network needs --data, a folder of pictures like those of its training"
            )
        _, sentence = analyse_on(opened, data, skip_unreadable=skip_unreadable)
        console.print(sentence, markup=False)
    else:
        analyse_bundle(opened, data_dir, folder=data, own_images=neighbours)
    console.print(f"wrote {opened.path}")


@app.command()
def download(
    dataset: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    *,
    data_dir: DataDir = _DATA,
) -> None:
    """Fetch a data set and check it."""
    if dataset not in DATASETS:
        raise typer.BadParameter(f"{dataset} is none of {', '.join(DATASETS)}")
    counts = [
        str(len(load(DATASETS[dataset], split, data_dir).labels)) for split in ("train", "test")
    ]
    console.print(f"{dataset}: {' + '.join(counts)} images")


def typed_command(words: Sequence[str]) -> str:
    """The command as it was typed, for a card that others may read.

    Absolute paths may tell whose machine it was. Those near the current folder are written from
    there, so that the command still runs in it; of others only the last part is kept.
    """

    def without_machine(path: re.Match[str]) -> str:
        relative = os.path.relpath(path[0])
        return Path(path[0]).name if relative.startswith("../../..") else relative

    named = [re.sub(r"(?:^|(?<==))/.*", without_machine, word) for word in words]
    return printable(shlex.join(["python", "-m", "training", *named]))


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


def _split(folder: Path, resumed: Path | None, *, skip: bool) -> FolderSplit | None:
    """How a folder is divided: as before in the run that is resumed, or else as usual."""
    if resumed:
        return Checkpoint.load(resumed / CHECKPOINT).pictures
    return FolderSplit(folder=str(folder), skip_unreadable=skip)


def _load_own(
    recipe: Recipe,
    settings: list[str],
    folder: Path,
    *,
    published: PublishedWeights | None,
    **options: Any,
) -> TrainingData:
    """The pictures of a folder, and the recipe that suits them, with other settings.

    Args:
        options: of `load_pictures`.
    """
    fixed = {"name", "dataset", "task", "channels", "num_classes"}
    if published:
        recipe = use_pretrained(recipe, published)
    names = {setting.partition("=")[0].removeprefix("network.") for setting in settings}
    try:
        network = override(recipe, settings, fixed=fixed).network  # before the folder is read
        size = (network.height, network.width)
        if published:
            check_size(*size)
        asked = published or not names.isdisjoint({"height", "width"})
        data = load_pictures(recipe, folder, size=size if asked else None, **options)
        return data._replace(recipe=override(data.recipe, settings, fixed=fixed))
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def _choose_stem(
    stem: str | None,
    recipe: Recipe,
    folder: Path | None,
    resumed: Path | None,
    *,
    channels: int | None,
) -> tuple[PublishedWeights | None, str | None]:
    """The weights of a pretrained stem, or None, and a sentence if the pictures decided that.

    Args:
        stem: what the user chose, if anything.
        resumed: the run that goes on, whose stem is kept.
    """
    if stem not in (None, "pretrained", "trained"):
        raise typer.BadParameter(f"--stem is pretrained or trained, not {stem}")
    reason = None
    if stem is None and folder is not None and recipe.dataset == FOLDER:
        if resumed:
            stem = "pretrained" if Checkpoint.load(resumed / CHECKPOINT).recipe.pretrained else None
        else:
            stem, reason = choose_stem(folder, channels=channels)
    return find_weights() if stem == "pretrained" else None, reason


def _run_name(preset: str, data: Path | None) -> str:
    """The name of a run's folder: that of the folder of pictures, as it is spelt."""
    if data is None:
        return preset
    folder = data.resolve().name
    return dataset_name(data) if not folder or folder.lower() in DATASETS else folder


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


def conclude(trainer: Trainer, class_names: Sequence[str] = ()) -> Iterator[str]:
    """The conclusion of a complete run, from its answers to held-out images, as sentences.

    They say which weights were kept and, of a folder's classes, how many images of each are
    answered right, and what to do next.
    """
    validation, error_percent = trainer.plan.validation, trainer.error_percent
    if validation is None or error_percent is None:
        return
    if best := trainer.state.best:
        yield (
            f"kept the weights of step {best.step:,}, the best on held-out images: "
            f"{best.error_percent:.2f} % validation error"
        )
    if not class_names:
        return
    presence = measure_presence(trainer.state.kept_network(), validation.images, trainer.device)
    found = recalls(validation.labels, presence, class_names)
    worst = ", ".join(map(str, found[:_WORST])) + ", ..." * (len(found) > _WORST)
    yield f"held-out images answered right, the worst class first: {worst}"
    counts = np.bincount(trainer.plan.training.labels, minlength=len(class_names)).tolist()
    yield from advise(
        validation.labels,
        found,
        pictures=dict(zip(class_names, counts, strict=True)),
        size_px=max(trainer.plan.recipe.network.image_shape[1:]),
        pretrained=bool(trainer.plan.recipe.pretrained),
        confused=most_confused(validation.labels, presence, class_names),
    )


def conclude_export(bundle: Bundle) -> Iterator[str]:
    """Yield the lines that end an export: the bundle's path, its score and the next command."""
    from training.card import describe_error  # noqa: PLC0415  training itself needs no onnx

    manifest, path = bundle.manifest, bundle.path
    runs = runs_of(manifest.training)
    scored = not {"test_errors", "validation_errors"}.isdisjoint(manifest.metrics)
    yield f"wrote {path}"
    if scored:
        yield f"error: {describe_error(manifest)}"
    if scored or (runs[-1].dataset not in DATASETS and not unseen_by(runs)):
        bundles = f"CAPSNET_BUNDLES={shlex.quote(str(path.parent))}"
        yield f"next: {bundles} CAPSNET_DEFAULT_MODEL={manifest.name} python -m service"
    else:
        option = " --validation" if unseen_by(runs) else ""
        if "pictures" in manifest.training:
            option += " --data FOLDER"
        yield f"next: python -m training evaluate {shlex.quote(str(path))}{option}"


if __name__ == "__main__":
    main()
