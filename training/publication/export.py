"""From a trained network to a bundle: graphs, rounded weights, a manifest and a parity check."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.bundle import (
    ENCODER_HALF,
    GRAPHS,
    WEIGHTS,
    Bundle,
    Manifest,
    digest,
    write_manifest,
)
from model.capsnet import CapsNet
from model.cpu import open_session
from model.preprocess import scale
from model.runtime import Runtime
from training.evaluation.answers import Labelled, answer, is_wrong, measure_lengths
from training.publication.graphs import ExportError, in_half_precision, write_graphs
from training.publication.storage import round_weights

PARITY_BATCHES = (1, 2, 7, 32)
PARITY_TOLERANCE = 1e-4
BATCH_TOLERANCE = 1e-5
"""How far an image's answer may move with what else is in its batch."""
HALF_IMAGES = 200
HALF_TOLERANCE = 1e-2
"""How far lengths of the float16 graph may lie from those of the network in float16."""


def export_bundle(
    network: CapsNet,
    manifest: Manifest,
    target: Path,
    *,
    validation: Labelled,
    bits: int = 16,
) -> Bundle:
    """Write `target`, or nothing.

    Args:
        network: the trained network; its weights are rounded as they will be stored.
        manifest: everything but the digests and what rounding did, which are filled in here.
        target: the bundle's folder; an older bundle there is replaced at the end.
        validation: images on which the effect of rounding is measured.
        bits: in which large weights are stored, 8 or 16.

    Raises:
        ExportError: rounding made the network worse, a graph holds an operator that CUDA graphs
            cannot capture, or the exported network does not compute what the trained one does.
    """
    network = network.cpu().eval()
    rounding = round_measured(network, validation, bits)
    with replacing_folder(target) as folder:
        write_graphs(network, folder, bits)
        digests = {name: digest(folder / name, folder) for name in (*GRAPHS, WEIGHTS)}
        half = measure_half_precision(network, folder, validation)
        write_manifest(
            folder, replace(manifest, sha256=digests, rounding=rounding, half_precision=half)
        )
        check_parity(network, Runtime(Bundle.open(folder), device="cpu"))
    return Bundle.open(target)


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """An empty folder of the same name, which takes `target`'s place if the block succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        folder = Path(scratch) / target.name
        folder.mkdir()
        yield folder
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)


def round_measured(network: CapsNet, validation: Labelled, bits: int) -> dict[str, Any]:
    """Round the large weights as they will be stored, in place.

    Some answers near the border between two classes change either way. The network is worse where
    those lost outnumber those won by more than chance explains: two standard deviations of so many
    tosses of a coin.

    Returns:
        what that did to lengths and answers on the validation images.

    Raises:
        ExportError: a weight does not fit, or the network is worse for it.
    """
    device, labels = torch.device("cpu"), validation.labels
    lengths = measure_lengths(network, validation.images, device=device)
    round_weights(network, bits)
    rounded = measure_lengths(network, validation.images, device=device)
    moved = float(np.abs(rounded[:500] - lengths[:500]).max())
    before, after = (is_wrong(given, labels) for given in (lengths, rounded))
    lost, won = int((after & ~before).sum()), int((before & ~after).sum())
    if not math.isfinite(moved) or lost - won > 2 * math.sqrt(lost + won):
        raise ExportError(
            f"weights in {bits} bits lose {lost} right answers of {len(labels)} and win {won}"
            + ("; store 16 bits" if bits < 16 else "")
        )
    return {
        "stored_bits": bits,
        "validation_images": len(labels),
        "errors_before": int(before.sum()),
        "errors_after": int(after.sum()),
        "answers_changed": _count_changes(lengths, rounded, labels),
        "largest_length_change": moved,
    }


def measure_half_precision(network: CapsNet, folder: Path, validation: Labelled) -> dict[str, Any]:
    """What the float16 encoder does to lengths and answers on some validation digits.

    Measured with torch, whose float16 convolutions round their results on a CPU as on CUDA;
    onnxruntime's CPU provider computes much of the graph in float32.

    Returns:
        the entry of the manifest.

    Raises:
        ExportError: the graph is not the encoder's.
    """
    images = scale(validation.images[:HALF_IMAGES])
    with torch.inference_mode():
        full = network(torch.from_numpy(images)).lengths.numpy()
        half = in_half_precision(network)(torch.from_numpy(images)).lengths.numpy()
    graph = open_session(folder / ENCODER_HALF).run(["lengths"], {"images": images})[0]
    _compare(ENCODER_HALF, graph, half, HALF_TOLERANCE)
    return {
        "validation_images": len(images),
        "answers_changed": _count_changes(full, half, validation.labels[:HALF_IMAGES]),
        "largest_length_change": float(np.abs(half - full).max()),
    }


def check_parity(network: CapsNet, runtime: Runtime) -> None:
    """Compare a loaded bundle with the network holding the same rounded weights.

    Images are random strokes-like noise: sparse, in [0, 1], seeded.

    Raises:
        ExportError: an output differs by more than 1e-4, or an image's answer moves by more than
            1e-5 with its batch; of the output's largest number, where that is over 1 (as logits
            and votes may be).
    """
    generator = torch.Generator().manual_seed(0)
    size, config = network.config.image_size, network.config
    images = torch.rand(max(PARITY_BATCHES), 1, size, size, generator=generator)
    images = images * (torch.rand(images.shape, generator=generator) < 0.2)
    classes = torch.arange(len(images)) % config.num_classes
    with torch.inference_mode():
        view = network.look_inside(images)
        expected = network(images)
        own = expected.poses[torch.arange(len(images)), classes]
        drawn = network.decode(own, classes)
    for count in PARITY_BATCHES:
        part = images[:count].numpy()
        pairs = {
            "encoder": zip(runtime.encode(part), expected, strict=True),
            "decoder": ((runtime.decode(own[:count].numpy(), classes[:count].numpy()), drawn),),
            "routing": zip(
                runtime.route(part),
                (*view.trace[:2], view.trace.poses, view.primary_lengths, view.votes),
                strict=True,
            ),
        }
        for graph, outputs in pairs.items():
            for actual, wanted in outputs:
                _compare(graph, actual, wanted[:count].numpy(), PARITY_TOLERANCE)
    alone = runtime.encode(images[:1].numpy())
    together = runtime.encode(images.numpy())
    for single, batched in zip(alone, together, strict=True):
        _compare("an image alone and in a batch", single, batched[:1], BATCH_TOLERANCE)


def _count_changes(
    before: NDArray[np.float32], after: NDArray[np.float32], labels: NDArray[np.uint8]
) -> int:
    """Images whose answer follows from the lengths (N, K) after, but not from those before."""
    return int((answer(before, labels) != answer(after, labels)).any(axis=1).sum())


def _compare(what: str, actual: Any, expected: Any, tolerance: float) -> None:
    """Refuse what is off by more than the tolerance, of the largest number where that is over 1."""
    difference = float(np.abs(actual - expected).max())
    bound = tolerance * max(1.0, float(np.abs(expected).max()))
    if actual.shape != expected.shape or not difference <= bound:
        raise ExportError(f"{what}: off by {difference:.2e}, more than {bound:.1e}")
