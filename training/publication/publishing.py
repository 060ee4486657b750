"""From a run to a published bundle, and from its scores to its manifest and card."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from model.bundle import Bundle, Manifest, PreprocessRule, write_manifest
from model.capsnet import CapsNet
from training.data.datasets import DATASETS, HELD_OUT, Dataset, Examples, hold_out, load
from training.data.pairs import PairSet, validation_pairs
from training.evaluation.pair_scores import choose_threshold
from training.evaluation.scores import Scores
from training.evaluation.wrong_answers import draw_wrong
from training.publication.card import write_card
from training.publication.export import export_bundle
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

    Raises:
        training.run.checkpoint.CheckpointError: there is no readable run.
        training.publication.graphs.ExportError: the network has no capsules, or the bundle would
            not compute what it does, or not as well.
    """
    checkpoint = Checkpoint.load(run_dir / CHECKPOINT)
    recipe = checkpoint.recipe
    if recipe.baseline:
        raise ExportError(f"{recipe.name} has no capsules to look into; it is for comparison")
    network = CapsNet(recipe.network)
    network.load_state_dict(checkpoint.network)
    _, digits = hold_out(load(DATASETS[recipe.dataset], "train", data_dir), HELD_OUT)
    validation: Examples | PairSet = digits
    threshold = None
    if recipe.task == "pairs":
        size, shift_px = recipe.network.image_size, recipe.shift_px
        validation = validation_pairs(digits, size=size, shift_px=shift_px)
        threshold = choose_threshold(network, validation)
    manifest = _describe(checkpoint, name=name or recipe.name, mask_threshold=threshold)
    target = bundles / manifest.name
    bundle = export_bundle(network, manifest, target, validation=validation, bits=bits)
    draw_curves(run_dir / METRICS, bundle.path / CURVES, title=manifest.name)
    shutil.copy(run_dir / METRICS, bundle.path / METRICS)
    return study(bundle, digits)


def record_scores(bundle: Bundle, scores: Scores) -> None:
    """Write scores into the manifest and the card, and draw the wrong answers."""
    metrics = scores.metrics()
    before = bundle.manifest.metrics
    if before:
        metrics["protocol"] += _tell_again(before["test_errors"], metrics["test_errors"])
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
            "seed": checkpoint.seed,
            "steps": checkpoint.step,
            "examples": checkpoint.examples,
            "held_out_for_validation": checkpoint.held_out,
            "device": checkpoint.device,
            "hours": round((checkpoint.seconds_before + checkpoint.seconds) / 3600, 2),
            "started_from": checkpoint.started_from,
            "transferred": list(checkpoint.transferred),
        },
    )


def _rule(recipe: Recipe, dataset: Dataset) -> PreprocessRule:
    """How pictures of other sizes become images: strokes are looked for in drawn digits alone."""
    if recipe.task == "pairs":
        return "pair"
    return "digit" if dataset.kind == "digits" else "stretch"


def _tell_again(before: int, now: int) -> str:
    """What the protocol adds where this bundle had a score already."""
    if now == before:
        return "; read again, this score known, to draw the wrong answers: as many were wrong"
    return f"; an earlier read had counted {before:,} wrong"
