"""The command line: `python -m training --help`."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from model.bundle import Bundle, BundleError
from training.data.datasets import DATASETS, HELD_OUT, DatasetError, Examples, hold_out, load
from training.data.download import DownloadError
from training.hardware.device import DeviceError, choose_device
from training.hardware.memory import keep_freed_memory
from training.hardware.processes import joined_processes
from training.recipes import PRESETS, Recipe
from training.run.checkpoint import Checkpoint, CheckpointError
from training.run.plan import CHECKPOINT, Plan, TrainingError
from training.run.trainer import Trainer
from training.table.command import app as table

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, export and evaluate capsule networks.",
)
figures = typer.Typer(no_args_is_help=True, help="Draw a figure of the README.")
app.add_typer(figures, name="figure")
app.add_typer(table, name="table")
console = Console()

DataDir = Annotated[
    Path, typer.Option(envvar="CAPSNET_DATA_DIR", help="Data sets; missing files are downloaded.")
]
BundleDir = Annotated[Path, typer.Argument(help="A folder that `export` wrote.")]
_DATA = Path("data")


@app.command()
def train(
    preset: Annotated[str, typer.Argument(help=f"One of {', '.join(PRESETS)}.")],
    *,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 1,
    epochs: Annotated[
        float | None, typer.Option(help="Instead of the preset's; the schedule follows.")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="By default runs/<preset>-<seed>.")] = None,
    data_dir: DataDir = _DATA,
    final: Annotated[
        bool, typer.Option("--final", help="Train on all training examples, without validation.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in run-dir.")] = False,
    resume_or_begin: Annotated[
        bool, typer.Option("--resume-or-begin", help="Continue it if it has begun.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option(help="Start from the weights of the run in this folder.")
    ] = None,
    transfer: Annotated[
        Path | None,
        typer.Option(help="Start from those weights of the run in this folder that fit."),
    ] = None,
    max_minutes: Annotated[
        float, typer.Option(min=0, help="Save and stop after this long; --resume goes on.")
    ] = math.inf,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes them all.")] = 0,
) -> None:
    """Train PRESET. Interrupting saves; --resume continues exactly.

    `torchrun --nproc-per-node 2 -m training train PRESET` shares each batch among processes.
    """
    if weights and transfer:
        raise typer.BadParameter("--weights and --transfer exclude each other")
    recipe, where = _recipe(preset, epochs), choose_device(device)
    directory = run_dir or Path("runs") / f"{preset}-{seed}"
    if threads:
        torch.set_num_threads(threads)
    if where.type == "cpu":
        keep_freed_memory()
    with joined_processes(where) as processes:
        with processes.leader_first():
            examples = load(DATASETS[recipe.dataset], "train", data_dir)
        training, validation = (examples, None) if final else hold_out(examples, HELD_OUT)
        plan = Plan(recipe, seed, training, validation, directory)
        with plan.locked() if processes.leads else nullcontext():
            goes_on = resume_or_begin and plan.checkpoint_path.exists()
            trainer = Trainer(plan, device=where, resume=resume or goes_on, processes=processes)
            tell = Console(quiet=not processes.leads).print
            if not goes_on:
                _take_weights(trainer, all_of=weights, fitting_of=transfer, tell=tell)
            if trainer.run(max_minutes=max_minutes):
                tell(f"{preset} is trained: {plan.checkpoint_path}")
            else:
                tell(f"stopped at step {trainer.done_steps}; --resume goes on")


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(help="A run of `train`.")],
    *,
    name: Annotated[str | None, typer.Option(help="By default the preset's name.")] = None,
    bundles: Annotated[Path, typer.Option(help="Folder to write the bundle to.")] = Path(
        "model/bundles"
    ),
    bits: Annotated[int, typer.Option(help="In which large weights are stored, 8 or 16.")] = 16,
    data_dir: DataDir = _DATA,
) -> None:
    """Write the bundle of a run, after checking that it computes what the network does."""
    if bits not in (8, 16):
        raise typer.BadParameter(f"--bits are 8 or 16, not {bits}")
    from training.publication.publishing import publish  # noqa: PLC0415  training itself needs no onnx

    bundle = publish(run_dir, bundles, name=name, data_dir=data_dir, bits=bits)
    console.print(f"wrote {bundle.path}")


@app.command()
def evaluate(
    bundle_dir: Annotated[Path, typer.Argument(help="A folder that `export` wrote.")],
    *,
    data_dir: DataDir = _DATA,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the scores and pictures of the wrong answers.")
    ] = False,
) -> None:
    """Read the test split once, through the bundle, and print what it scores."""
    from training.evaluation.scores import score  # noqa: PLC0415  training itself needs no onnx
    from training.publication.publishing import record_scores  # noqa: PLC0415  as above

    bundle = Bundle.open(bundle_dir)
    scores = score(bundle, data_dir=data_dir)
    if record:
        record_scores(bundle, scores)
    console.print(f"{bundle.manifest.name}: {scores.headline()}")
    console.print(scores.table(bundle.manifest.class_names))
    if not record:
        console.print("not recorded: --record keeps it in manifest and card")


@figures.command("segmentation")
def draw_segmentation_figure(
    bundle_dir: Annotated[Path, typer.Option("--bundle", help="Of overlapping digits.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG file to write.")],
    columns: Annotated[int, typer.Option(min=1, help="So many pairs are shown.")] = 10,
    data_dir: DataDir = _DATA,
) -> None:
    """Draw the first pairs of the held-out training digits: taken apart, and what is not there."""
    from training.publication.figures import draw_first_pairs  # noqa: PLC0415  as above

    draw_first_pairs(Bundle.open(bundle_dir), output, columns=columns, data_dir=data_dir)
    console.print(f"wrote {output}")


@app.command()
def name_dimensions(bundle_dir: BundleDir, *, data_dir: DataDir = _DATA) -> None:
    """Find out what each pose dimension does; `export` does so too."""
    from training.publication import study  # noqa: PLC0415  training itself needs no onnx

    bundle = Bundle.open(bundle_dir)
    bundle = study.study_dimensions(bundle, study.load_digits(bundle, data_dir))
    for one in bundle.manifest.pose_dimensions:
        if one.name != "none":
            console.print(f"{one.label} {one.dim:2} {one.name}: {one.effect}, {one.strength:.2f}")


@app.command()
def draw_routing(bundle_dir: BundleDir, *, data_dir: DataDir = _DATA) -> None:
    """Draw how much each of nine routing iterations changes; `export` does so too."""
    from training.publication import study  # noqa: PLC0415  training itself needs no onnx

    bundle = Bundle.open(bundle_dir)
    study.study_routing(bundle, study.load_digits(bundle, data_dir))


@app.command()
def fit_known(bundle_dir: BundleDir, *, data_dir: DataDir = _DATA) -> None:
    """Fit, on pictures like the training's alone, which look known; `export` does so too."""
    from training.publication import study  # noqa: PLC0415  training itself needs no onnx

    bundle = Bundle.open(bundle_dir)
    rule = study.study_familiarity(bundle, study.load_digits(bundle, data_dir)).manifest.known
    assert rule is not None
    console.print(f"known from a score of {rule.threshold}, by {rule.pictures}")


@app.command()
def meet_strangers(bundle_dir: BundleDir, *, data_dir: DataDir = _DATA) -> None:
    """Try what `fit-known` gave on noise, blanks, letters and clothes, and record it."""
    from training.publication import study  # noqa: PLC0415  training itself needs no onnx

    bundle = Bundle.open(bundle_dir)
    digits = study.load_digits(bundle, data_dir)
    rule = study.meet_strangers(bundle, digits, data_dir=data_dir).manifest.known
    assert rule is not None
    for kind in rule.strangers:
        console.print(f"{kind['kind']}: AUC {kind['auc']}, {kind['known_percent']} % known")


@app.command()
def download(
    dataset: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    *,
    data_dir: DataDir = _DATA,
) -> None:
    """Fetch a data set and check it."""
    if dataset not in DATASETS:
        raise typer.BadParameter(f"{dataset} is none of {', '.join(DATASETS)}")
    splits: list[Examples] = [
        load(DATASETS[dataset], split, data_dir) for split in ("train", "test")
    ]
    console.print(f"{dataset}: {' + '.join(str(len(one.labels)) for one in splits)} images")


def _take_weights(
    trainer: Trainer, *, all_of: Path | None, fitting_of: Path | None, tell: Callable[[str], None]
) -> None:
    """From the run in one of these folders, if one is named."""
    if all_of:
        trainer.state.start_from(Checkpoint.load(all_of / CHECKPOINT))
    if fitting_of:
        taken = trainer.state.transfer_from(Checkpoint.load(fitting_of / CHECKPOINT))
        anew = [name for name in trainer.network.state_dict() if name not in taken]
        tell(f"from {fitting_of}: {', '.join(taken)}")
        tell(f"anew: {', '.join(anew) or 'nothing'}")


def main() -> None:
    """Run the command line; expected failures are one line, not a traceback."""
    expected = (
        TrainingError,
        CheckpointError,
        DatasetError,
        DeviceError,
        DownloadError,
        BundleError,
    )
    try:
        app()
    except expected as error:
        Console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
        raise SystemExit(1) from error


def _recipe(preset: str, epochs: float | None) -> Recipe:
    if preset not in PRESETS:
        raise typer.BadParameter(f"{preset} is none of {', '.join(PRESETS)}")
    recipe = PRESETS[preset]
    try:
        return recipe if epochs is None else replace(recipe, epochs=epochs)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    main()
