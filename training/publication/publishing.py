"""From a run to a published bundle, and from its scores to its manifest and card."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from model.bundle import NAME, Bundle, Manifest, PreprocessRule, write_manifest
from model.capsnet import CapsNet
from training.data.datasets import DATASETS, HELD_OUT, Dataset, Examples, hold_out, load
from training.data.pairs import PairSet, validation_pairs
from training.evaluation.pair_scores import choose_threshold
from training.evaluation.scores import Scores
from training.evaluation.wrong_answers import draw_wrong
from training.publication.card import write_card
from training.publication.export import export_bundle, replacing_folder
from training.publication.findings import WRONG
from training.publication.graphs import OPSET, ExportError
from training.publication.study import study
from training.recipes import Recipe
from training.run.checkpoint import Checkpoint
from training.run.curves import draw_curves
from training.run.plan import CHECKPOINT, CURVES, METRICS


def publish(
    run_dir: Path, bundles: Path, *, name: str | None, data_dir: Path, bits: int = 16
) -> Bundle:
    """Export a run's network, its weights stored in so many bits, and write its card.

    An older bundle of that name is replaced at the end, when all is there.

    Raises:
        training.run.checkpoint.CheckpointError: there is no readable run.
        training.publication.graphs.ExportError: the network has no capsules, the name is not one
            for a bundle, or the bundle would not compute what the network does, or not as well.
    """
    checkpoint = Checkpoint.load(run_dir / CHECKPOINT)
    recipe = checkpoint.recipe
    if recipe.baseline:
        raise ExportError(f"{recipe.name} has no capsules to look into; it is for comparison")
    if not (run_dir / METRICS).is_file():
        raise ExportError(f"{run_dir} has no {METRICS}, of which the curves are drawn")
    name = name or recipe.name
    if not NAME.fullmatch(name):
        raise ExportError(f"{name!r} is not a bundle name: small letters, digits and hyphens")
    network = CapsNet(recipe.network)
    network.load_state_dict(checkpoint.network)
    _, digits = hold_out(load(DATASETS[recipe.dataset], "train", data_dir), HELD_OUT)
    validation: Examples | PairSet = digits
    threshold = None
    if recipe.task == "pairs":
        size, shift_px = recipe.network.image_size, recipe.shift_px
        validation = validation_pairs(digits, size=size, shift_px=shift_px)
        threshold = choose_threshold(network, validation)
    manifest = _describe(checkpoint, name=name, mask_threshold=threshold)
    target = bundles / name
    with replacing_folder(target) as folder:
        bundle = export_bundle(network, manifest, folder, validation=validation, bits=bits)
        draw_curves(run_dir / METRICS, folder / CURVES, title=name)
        shutil.copy(run_dir / METRICS, folder / METRICS)
        study(bundle, digits)
    return Bundle.open(target)


def record_scores(bundle: Bundle, scores: Scores) -> None:
    """Write scores into the manifest and the card, and draw the wrong answers."""
    metrics = scores.metrics()
    if before := bundle.manifest.metrics:
        metrics["earlier_errors"] = [*before.get("earlier_errors", ()), before["test_errors"]]
    recorded = Bundle(bundle.path, replace(bundle.manifest, metrics=metrics))
    picture = bundle.path / WRONG
    if len(scores.wrong.images):
        draw_wrong(scores.wrong, recorded.manifest.class_names, picture)
    else:
        picture.unlink(missing_ok=True)
    write_manifest(bundle.path, recorded.manifest)
    write_card(recorded)


def _describe(checkpoint: Checkpoint, *, name: str, mask_threshold: float | None) -> Manifest:
    """The manifest of a run's network, but for what exporting it fills in."""
    recipe, config = checkpoint.recipe, checkpoint.recipe.network
    dataset = DATASETS[recipe.dataset]
    return Manifest(
        name=name,
        dataset=dataset.name if recipe.task == "digits" else f"multi{dataset.name}",
        class_names=dataset.class_names,
        image_size=config.image_size,
        class_dim=config.class_dim,
        preprocess=_rule(recipe, dataset),
        mask_threshold=mask_threshold,
        routing_iterations=config.routing_iterations,
        primary_types=config.primary_types,
        primary_grid=config.grid_size,
        opset=OPSET,
        primary_field_px=config.primary_field_px,
        primary_stride_px=config.primary_stride_px,
        training={
            "recipe": recipe.to_dict(),
            "examples": checkpoint.examples,
            "lineage": [leg.to_dict() for leg in checkpoint.lineage],
        },
    )


def _rule(recipe: Recipe, dataset: Dataset) -> PreprocessRule:
    """How pictures of other sizes become images: strokes are looked for in drawn digits alone."""
    if recipe.task == "pairs":
        return "pair"
    return "digit" if dataset.kind == "digits" else "stretch"
