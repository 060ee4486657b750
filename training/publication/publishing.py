"""From a run to a published bundle: the manifest, the scores and the model card."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from model.bundle import Bundle, Manifest, PreprocessRule, write_manifest
from model.capsnet import CapsNet
from model.runtime import Runtime
from training.data.datasets import DATASETS, HELD_OUT, Dataset, Examples, hold_out, load
from training.data.pairs import TEST_DIGESTS, PairSet, published_pairs, validation_pairs
from training.evaluation.digit_scores import Scores, score_digits
from training.evaluation.pair_scores import PairScores, choose_threshold, score_pairs
from training.evaluation.wrong_answers import draw_wrong
from training.paper import MULTIMNIST_SHIFT_PX
from training.publication.card import write_card
from training.publication.export import export_bundle
from training.publication.figures import draw_segmentation
from training.publication.findings import WRONG
from training.publication.graphs import OPSET, ExportError
from training.publication.study import study
from training.recipes import Recipe
from training.run.checkpoint import Checkpoint
from training.run.curves import draw_curves
from training.run.plan import CHECKPOINT, CURVES, METRICS


def publish(run_dir: Path, bundles: Path, *, name: str | None, data_dir: Path) -> Bundle:
    """Export a run's network, and write its card.

    Raises:
        training.run.checkpoint.CheckpointError: there is no readable run.
        training.publication.graphs.ExportError: the network has no capsules, or the bundle would
            not compute what it does.
    """
    checkpoint = Checkpoint.load(run_dir / CHECKPOINT)
    recipe, config = checkpoint.recipe, checkpoint.recipe.network
    if recipe.baseline:
        raise ExportError(f"{recipe.name} has no capsules to look into; it is for comparison")
    dataset = DATASETS[recipe.dataset]
    network = CapsNet(config)
    network.load_state_dict(checkpoint.network)
    _, digits = hold_out(load(dataset, "train", data_dir), HELD_OUT)
    validation: Examples | PairSet = digits
    mask_threshold = None
    if recipe.task == "pairs":
        validation = validation_pairs(digits, size=config.image_size, shift_px=recipe.shift_px)
        mask_threshold = choose_threshold(network, validation)
    manifest = Manifest(
        name=name or recipe.name,
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
    bundle = export_bundle(network, manifest, bundles / manifest.name, validation=validation)
    draw_curves(run_dir / METRICS, bundle.path / CURVES, title=manifest.name)
    shutil.copy(run_dir / METRICS, bundle.path / METRICS)
    return study(bundle, digits)


def _rule(recipe: Recipe, dataset: Dataset) -> PreprocessRule:
    """How pictures of other sizes become images: strokes are looked for in drawn digits alone."""
    if recipe.task == "pairs":
        return "pair"
    return "digit" if dataset.kind == "digits" else "stretch"


def score(bundle: Bundle, *, data_dir: Path, record: bool) -> Scores:
    """Answer the test split: one view of each image, through the files that ship.

    Args:
        record: write the scores into the manifest and the card, and draw the wrong answers.

    Raises:
        training.data.datasets.DatasetError: the pairs are not those that the docs describe.
    """
    recipe = bundle.manifest.training["recipe"]
    examples = load(DATASETS[recipe["dataset"]], "test", data_dir)
    scores = _score(Runtime(bundle), examples)
    if record:
        _record(bundle, scores)
    return scores


def _record(bundle: Bundle, scores: Scores) -> None:
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


def _tell_again(before: int, now: int) -> str:
    """What the protocol adds where this bundle had a score already."""
    if now == before:
        return "; read again, this score known, to draw the wrong answers: as many were wrong"
    return f"; an earlier read had counted {before:,} wrong"


def _score(runtime: Runtime, examples: Examples) -> Scores:
    manifest = runtime.bundle.manifest
    threshold = manifest.mask_threshold
    if threshold is None:
        return score_digits(runtime, examples)
    scored = {
        shift_px: score_pairs(
            runtime,
            published_pairs(examples, size=manifest.image_size, shift_px=shift_px),
            mask_threshold=threshold,
        )
        for shift_px in TEST_DIGESTS
    }
    shifts = {shift_px: scores for shift_px, (scores, _) in scored.items()}
    return PairScores(shifts, threshold, scored[MULTIMNIST_SHIFT_PX][1])


def draw_first_pairs(bundle: Bundle, target: Path, *, columns: int, data_dir: Path) -> None:
    """Draw a bundle at work on the first pairs that also validate: chosen by their seed alone.

    Raises:
        ExportError: the bundle is not for overlapping digits.
    """
    manifest = bundle.manifest
    if manifest.mask_threshold is None:
        raise ExportError(f"{manifest.name} is not for overlapping digits")
    recipe = manifest.training["recipe"]
    _, digits = hold_out(load(DATASETS[recipe["dataset"]], "train", data_dir), HELD_OUT)
    pairs = validation_pairs(digits, size=manifest.image_size, shift_px=recipe["shift_px"])
    target.parent.mkdir(parents=True, exist_ok=True)
    draw_segmentation(Runtime(bundle), PairSet(*(array[:columns] for array in pairs)), target)
