"""From a run to a published bundle: the manifest, the scores and the model card."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.bundle import Bundle, Manifest, write_manifest
from model.capsnet import CapsNet
from model.preprocess import scale
from model.runtime import Runtime
from training.card import write_card
from training.checkpoint import Checkpoint
from training.curves import draw_curves
from training.datasets import DATASETS, HELD_OUT, hold_out, load
from training.evaluation import confusion
from training.export import export_bundle
from training.graphs import OPSET
from training.study import study
from training.trainer import CHECKPOINT, CURVES, METRICS

_BATCH = 250


@dataclass(frozen=True)
class Scores:
    """Test scores of one bundle."""

    images: int
    errors: int
    confusion: NDArray[np.int64]
    """(K, K): row is the true class, column the answer."""

    @property
    def error_percent(self) -> float:
        """Wrong answers of a hundred."""
        return 100 * self.errors / self.images


def publish(run_dir: Path, bundles: Path, *, name: str | None, data_dir: Path) -> Bundle:
    """Export a run's network, and write its card.

    Raises:
        training.checkpoint.CheckpointError: there is no readable run.
        training.export.ExportError: the bundle would not compute what the network does.
    """
    checkpoint = Checkpoint.load(run_dir / CHECKPOINT)
    recipe, config = checkpoint.recipe, checkpoint.recipe.network
    dataset = DATASETS[recipe.dataset]
    network = CapsNet(config)
    network.load_state_dict(checkpoint.network)
    _, validation = hold_out(load(dataset, "train", data_dir), HELD_OUT)
    manifest = Manifest(
        name=name or recipe.name,
        dataset=dataset.name,
        class_names=dataset.class_names,
        image_size=config.image_size,
        class_dim=config.class_dim,
        preprocess="digit",
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
    return study(bundle, validation)


def score(bundle: Bundle, *, data_dir: Path, record: bool) -> Scores:
    """Answer the test split: one view of each image, through the files that ship.

    Args:
        record: write the scores into the manifest and the card.
    """
    manifest = bundle.manifest
    examples = load(DATASETS[manifest.dataset], "test", data_dir)
    runtime = Runtime(bundle)
    answers = np.concatenate(
        [
            runtime.encode(scale(examples.images[start : start + _BATCH])).lengths.argmax(axis=1)
            for start in range(0, len(examples.images), _BATCH)
        ]
    )
    counts = confusion(examples.labels, answers, manifest.num_classes)
    errors = int(counts.sum() - np.trace(counts))
    scores = Scores(len(answers), errors, counts)
    if record:
        metrics = {
            "test_error_percent": round(scores.error_percent, 4),
            "test_errors": errors,
            "test_images": scores.images,
            "protocol": "the published test split, read once through this bundle; one view of "
            "each image, one network, float32",
        }
        recorded = replace(manifest, metrics=metrics)
        write_manifest(bundle.path, recorded)
        write_card(Bundle(bundle.path, recorded))
    return scores
