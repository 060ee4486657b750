"""Analyse a finished bundle, and write the findings to its manifest, card and figures.

Everything is measured on the training images that `train` holds out without `--final`, never on
a test split. Here, they are called held-out images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.bundle import NEIGHBOURS, NOVELTY, Bundle, BundleError, Manifest
from model.bundle.directions import Direction
from model.bundle.neighbours import NeighbourImages
from model.canvas import showing
from model.capsnet import Network, build
from model.capsnet.weights import load
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training import novelty
from training.analysis.directions import (
    FITTED,
    SCORED,
    fit_directions,
    show_alone,
    show_pairs,
)
from training.analysis.factors import fit_factors, known_factors, read_factors
from training.analysis.health import measure_health
from training.analysis.neighbours import choose_images, collect
from training.answers import encode
from training.card import CONFIDENCE, EXPLAINED, HEALTH, ROC, ROUTING, SWEEP, write_card
from training.confidence import (
    Answered,
    cross_validate,
    fit_confidence,
    input_of,
)
from training.data.datasets import DATASETS, Examples, factors_of
from training.data.pairs import validation_pairs
from training.evaluate import seen_or_not, training_data_of, validation_examples
from training.explained import Splits, measure_explained
from training.figures import (
    draw_confidence,
    draw_health,
    draw_roc,
    draw_routing,
    draw_sweeps,
)
from training.kinds import draw_others
from training.manifest import Content, update_manifest
from training.novelty import compare_kinds, fit_novelty, score_novelty
from training.pair_scores import choose_threshold
from training.provenance import runs_of, unseen_by
from training.random_sample import draw_rows, objects_of, split_rows, take
from training.recipes import recipe_of

_SWEPT = 2
"""The number of classes whose sweeps are drawn."""
ITERATIONS = 9
"""Routing is traced for this many iterations."""
_ROUTED, _BATCH = 256, 8
"""The number of images whose routing is traced, in all and at a time."""
_SEED = 4


def analyse(bundle: Bundle, data_dir: Path, *, folder: Path | None = None) -> Bundle:
    """Analyse confidence, poses, routing, masks or novelty, and neighbours. Writes the card.

    Args:
        folder: of the pictures by class, if the network was trained on such a folder.

    Raises:
        training.data.datasets.DatasetError: there are no such images.
    """
    with showing(bundle.manifest.shown_channels):
        return _analyse(bundle, data_dir, folder=folder)


def _analyse(bundle: Bundle, data_dir: Path, *, folder: Path | None) -> Bundle:
    examples, offers = validation_examples(bundle, data_dir, folder=folder), bundle.manifest.offers
    bundle = analyse_confidence(bundle, examples)
    if bundle.manifest.layers and bundle.manifest.layers[-1].iterations > 1:
        analyse_routing(bundle, examples)
    if "trace" in offers:
        bundle = analyse_health(bundle, examples)
    if "decode" in offers:
        bundle = analyse_explained(bundle, data_dir, folder=folder)
        learnt = training_data_of(bundle, data_dir, folder=folder).training
        bundle = analyse_directions(bundle, examples, learnt)
        if bundle.manifest.mask_threshold is None:
            bundle = analyse_novelty(bundle, examples, data_dir)
        else:
            bundle = analyse_masks(bundle, examples)
        bundle = analyse_neighbours(bundle, data_dir, folder=folder, own_images=False)
    write_card(bundle)
    return bundle


def analyse_imported(bundle: Bundle, examples: Examples, *, source: str) -> Bundle:
    """Analyse the poses of a network that was trained elsewhere; there is no card.

    Fits directions, fits the novelty rule to enough images, measures what poses explain of half of
    the images, and keeps the poses that `/neighbours` compares with.

    Args:
        examples: images that are like those of its training.
        source: of the images, in words.

    Raises:
        BundleError: the network has no poses.
    """
    if not bundle.manifest.class_dim:
        raise BundleError(f"{bundle.path}: the network has no poses to analyse")
    if len(examples.labels) > 1:
        runtime = Runtime(bundle)
        fitted, scored = (
            show_alone(runtime, take(examples, rows), FITTED)
            for rows in split_rows(examples.labels, seed=0)
        )
        bundle = _record_directions(bundle, fit_directions(runtime, fitted, scored))
    if len(examples.labels) >= novelty.MIN_IMAGES:
        described = f"{len(examples.labels):,} images of the {source}"
        halves = _halves(bundle, examples)
        rule = fit_novelty(Runtime(bundle), *halves, described=described)
        arrays = {NOVELTY: rule.gaussians} if rule.gaussians else {}
        bundle = _record(bundle, arrays, novelty=rule)
    if len(examples.labels) > 1:
        learnt, rest = (take(examples, rows) for rows in split_rows(examples.labels, seed=0))
        splits = Splits(learnt, rest)
        described = f"of half of the images of the {source}; PCA is fitted to the other half"
        bundle = _record(bundle, explained=measure_explained(bundle, splits, described=described))
    return _keep_neighbours(bundle, collect(bundle, examples, licence="", source=source))


def analyse_confidence(bundle: Bundle, examples: Examples) -> Bundle:
    """Fit the calibration on held-out images, and draw it; the card is not written.

    It stays as it was if the network learnt these images: `evaluate` then calibrates it on test
    images. Networks for pairs have none. Scores of an older calibration on test images are removed.
    """
    manifest, runs = bundle.manifest, runs_of(bundle.manifest.training)
    if manifest.mask_threshold is not None or not unseen_by(runs):
        return bundle
    presence, kind = encode(Runtime(bundle), examples.images).presence, input_of(manifest)
    objects = objects_of(manifest.dataset, len(examples.labels))
    answered = Answered(presence, examples.labels, objects)
    described = f"{len(examples.labels):,} held-out training images"
    if step := runs[-1].kept_step:
        described += f", which also chose the weights of step {step:,}: expect a lower coverage"
    confidence = fit_confidence(answered, kind=kind, described=described)
    (bundle.path / CONFIDENCE).unlink(missing_ok=True)
    if confidence and (measures := cross_validate(answered, kind=kind)):
        confidence = replace(confidence, cross_validated=measures)
        scores = {"held-out images": measures}
        draw_confidence(scores, bundle.path / CONFIDENCE, title=manifest.name)

    def add(manifest: Manifest) -> Manifest:
        metrics = {name: value for name, value in manifest.metrics.items() if name != "confidence"}
        return replace(manifest, metrics=metrics, confidence=confidence)

    return _update(bundle, add)


def analyse_explained(bundle: Bundle, data_dir: Path, *, folder: Path | None = None) -> Bundle:
    """Measure what poses explain of held-out images, next to PCA, and draw it.

    Raises:
        training.data.datasets.DatasetError: there are no such images.
    """
    data = training_data_of(bundle, data_dir, folder=folder)
    described = f"of the last training images, which the network was {seen_or_not(bundle.manifest)}"
    figure = bundle.path / EXPLAINED
    explained = measure_explained(bundle, data, described=described, figure=figure)
    return _record(bundle, explained=explained)


def analyse_health(bundle: Bundle, examples: Examples) -> Bundle:
    """Measure the health of the capsules, and draw it; the card is not written.

    Raises:
        BundleError: the network has no routing to trace.
    """
    if "trace" not in bundle.manifest.offers:
        raise BundleError(f"{bundle.path}: the network has no routing to trace")
    described = f"of the last training images, which the network was {seen_or_not(bundle.manifest)}"
    health = measure_health(bundle, examples, described=described)
    draw_health(health, bundle.path / HEALTH, title=bundle.manifest.name)
    return _record(bundle, health=health)


def analyse_neighbours(
    bundle: Bundle, data_dir: Path, *, folder: Path | None = None, own_images: bool = True
) -> Bundle:
    """Choose training images that `/neighbours` compares others with; the card is not written.

    Args:
        folder: of the pictures by class, if the network was trained on such a folder.
        own_images: whether those pictures go into the bundle, or their poses alone.

    Raises:
        training.data.datasets.DatasetError: there are no such images.
        BundleError: the network has no poses.
    """
    if not bundle.manifest.class_dim:
        raise BundleError(f"{bundle.path}: the network has no poses to compare")
    data = training_data_of(bundle, data_dir, folder=folder)
    return _keep_neighbours(bundle, choose_images(bundle, data, own_images=own_images))


def analyse_factors(
    bundle: Bundle, table: Path, *, folder: Path | None
) -> tuple[Bundle, list[str]]:
    """Fit directions to a user's own measures of pictures; the card is not written.

    Args:
        table: a CSV file: see `training.analysis.factors.read_factors`.
        folder: that its file names are relative to; by default the table's own.

    Returns:
        The bundle, and a sentence on each column and class.

    Raises:
        training.data.datasets.DatasetError: the table cannot be used.
        BundleError: the network has no poses, or is for pairs of digits.
    """
    manifest, runtime = bundle.manifest, Runtime(bundle)
    if "decode" not in manifest.offers or manifest.mask_threshold is not None:
        raise BundleError(f"{bundle.path}: factors need poses of one object")
    columns, shown = read_factors(runtime, table, folder or table.parent)
    fits = list(fit_factors(runtime, shown, shown.none(), columns))
    found = [one for fit in fits for one in fit.found]
    return _record_directions(bundle, found), [fit.sentence for fit in fits]


def _keep_neighbours(bundle: Bundle, neighbours: NeighbourImages) -> Bundle:
    assert neighbours.gallery

    def add(manifest: Manifest) -> Manifest:
        offers = tuple(dict.fromkeys((*manifest.offers, "neighbours")))
        return replace(manifest, neighbours=neighbours, offers=offers)

    return _update(bundle, add, {NEIGHBOURS: neighbours.gallery})


def analyse_directions(bundle: Bundle, examples: Examples, learnt: Examples) -> Bundle:
    """Fit the directions of poses, and draw what they do to held-out images.

    Args:
        examples: held-out images.
        learnt: the training images before them. Where the factors of both are known, they get
            directions too.
    """
    runtime, manifest = Runtime(bundle), bundle.manifest
    if manifest.mask_threshold is not None:
        shift_px = recipe_of(bundle).shift_px
        fitted, scored = (
            show_pairs(runtime, digits, count, shift_px=shift_px)
            for digits, count in ((learnt, FITTED), (examples, SCORED))
        )
    else:
        fitted, scored = show_alone(runtime, learnt, FITTED), show_alone(runtime, examples, SCORED)
    found = list(fit_directions(runtime, fitted, scored))
    dataset = DATASETS.get(manifest.dataset)
    if known := dataset and factors_of(dataset, "train"):
        columns, values = known_factors(known)
        cut = len(learnt.labels)
        parts = (learnt, FITTED, values[:cut]), (examples, SCORED, values[cut:])
        fitted, scored = (show_alone(runtime, *part) for part in parts)
        fits = fit_factors(runtime, fitted, scored, columns)
        found += [one for fit in fits for one in fit.found]
    bundle = _record_directions(bundle, found)
    images = _centre(examples, bundle)
    offered = Counter(one.label for one in bundle.manifest.directions if one.offered)
    labels = sorted(np.unique(images.labels).tolist(), key=lambda label: -offered[label])
    draw_sweeps(runtime, bundle.manifest, images, sorted(labels[:_SWEPT]), bundle.path / SWEEP)
    return bundle


def refit_directions(bundle: Bundle, data_dir: Path, *, folder: Path | None = None) -> Bundle:
    """Fit the directions alone, on the images that the network learnt from and on held-out ones.

    Raises:
        training.data.datasets.DatasetError: there are no such images.
        BundleError: the network has no decoder.
    """
    if "decode" not in bundle.manifest.offers:
        raise BundleError(f"{bundle.path}: the network has no decoder")
    with showing(bundle.manifest.shown_channels):
        examples = validation_examples(bundle, data_dir, folder=folder)
        learnt = training_data_of(bundle, data_dir, folder=folder).training
        return analyse_directions(bundle, examples, learnt)


def analyse_masks(bundle: Bundle, digits: Examples) -> Bundle:
    """Choose the threshold of masks on pairs of held-out digits."""
    size, shift_px = bundle.manifest.height, recipe_of(bundle).shift_px
    pairs = validation_pairs(digits, size=size, shift_px=shift_px)
    return _record(bundle, mask_threshold=choose_threshold(load(bundle), pairs))


def analyse_routing(bundle: Bundle, examples: Examples) -> None:
    """Draw how much each of nine routing iterations changes (Sabour 2017, figure A.1)."""
    rows = draw_rows(examples.labels, _ROUTED, seed=_SEED)
    images = scale(_centre(take(examples, rows), bundle).images)
    title = f"{bundle.manifest.name}: {ITERATIONS} routing iterations"
    draw_routing(measure_changes(load(bundle), images), bundle.path / ROUTING, title=title)


def measure_changes(network: Network, images: Floats) -> dict[str, Floats]:
    """Measure the mean absolute changes of the class capsules' logits and couplings, by iteration.

    Args:
        network: is routed for more iterations than it was trained.
        images: (N, C, H, W).

    Returns:
        (ITERATIONS,) each, the mean over images, classes and capsules: by how much what an
        iteration computes differs from what it began with.

    Raises:
        ValueError: its routing has no iterations.
    """
    longer = with_iterations(network, ITERATIONS + 1)
    parts, sizes = [], []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            trace = longer.trace(torch.from_numpy(images[start : start + _BATCH])).classes
            steps = torch.stack((trace.logits, trace.couplings))  # (2, N, R, K, I)
            parts.append(steps.diff(dim=2).abs().mean(dim=(1, 3, 4)).numpy())
            sizes.append(trace.logits.shape[0])
    logits, couplings = np.average(parts, axis=0, weights=sizes)
    return {"logit": logits, "coupling": couplings}


def with_iterations(network: Network, iterations: int) -> Network:
    """A network of the same weights that routes for so many iterations, in evaluation mode."""
    changes: dict[str, Any] = {"routing_iterations": iterations}
    if not hasattr(network.config, *changes):
        raise ValueError(f"{type(network).__name__} does not iterate")
    longer = build(replace(network.config, **changes))
    longer.load_state_dict(network.state_dict())
    return longer.eval()


def analyse_novelty(bundle: Bundle, examples: Examples, data_dir: Path) -> Bundle:
    """Fit the novelty rule on held-out images alone; report what it makes of other kinds.

    Other kinds are compared with the half that chose the threshold, unless the network has learnt
    it: then `evaluate` chooses the threshold on test images, and compares others with them. Of
    fewer than `novelty.MIN_IMAGES` images there is no rule.
    """
    manifest, runtime = bundle.manifest, Runtime(bundle)
    if len(examples.labels) < novelty.MIN_IMAGES:
        return _record(bundle, novelty=None)
    described = f"{len(examples.labels):,} training images that the network was "
    fitted, half = _halves(bundle, examples)
    rule = fit_novelty(runtime, fitted, half, described=described + seen_or_not(manifest))
    is_unseen = unseen_by(runs_of(manifest.training)) > 0
    typical = score_novelty(runtime, half, rule) if is_unseen else None
    others = draw_others(manifest, data_dir)
    rule, curves = compare_kinds(runtime, rule, others, typical, f"{len(half):,} held-out images")
    (bundle.path / ROC).unlink(missing_ok=True)
    if curves:
        draw_roc(curves, bundle.path / ROC)
    arrays = {NOVELTY: rule.gaussians} if rule.gaussians else {}
    return _record(bundle, arrays, novelty=rule)


def _halves(bundle: Bundle, examples: Examples) -> list[NDArray[np.uint8]]:
    """Two random halves (N, C, H, W) of images, which share no object."""
    objects = objects_of(bundle.manifest.dataset, len(examples.labels))
    halves = split_rows(examples.labels, seed=_SEED, objects=objects)
    return [examples.images[rows] for rows in halves]


def _centre(examples: Examples, bundle: Bundle) -> Examples:
    """Images, padded with black to the network's size."""
    margins = [
        (room // 2, room - room // 2)
        for room in np.subtract(bundle.manifest.image_shape, examples.images.shape[1:]).tolist()
    ]
    return Examples(np.pad(examples.images, [(0, 0), *margins]), examples.labels)


def _record_directions(bundle: Bundle, found: Iterable[Direction]) -> Bundle:
    """Write directions into the manifest, in place of those of the same class and name."""
    fitted = {(one.label, one.name): one for one in found}
    kept = bundle.manifest.directions
    if bundle.manifest.analysed_version != bundle.manifest.version:
        kept = ()
    return _record(
        bundle,
        directions=(
            *(one for one in kept if (one.label, one.name) not in fitted),
            *fitted.values(),
        ),
    )


def _record(bundle: Bundle, files: Mapping[str, Content] | None = None, **findings: Any) -> Bundle:
    """Write findings into the manifest: see `_update`."""
    return _update(bundle, lambda manifest: replace(manifest, **findings), files)


def _update(
    bundle: Bundle,
    add: Callable[[Manifest], Manifest],
    files: Mapping[str, Content] | None = None,
) -> Bundle:
    """Add findings to the manifest as it is now; findings about other weights are removed."""

    def change(manifest: Manifest) -> Manifest:
        version = manifest.version
        if manifest.analysed_version != version:
            offers = tuple(offer for offer in manifest.offers if offer != "neighbours")
            manifest = replace(manifest, offers=offers, neighbours=None)
            manifest = replace(manifest, directions=(), novelty=None, analysed_version=version)
            manifest = replace(manifest, confidence=None, explained=None, health=None)
        return add(manifest)

    return update_manifest(bundle, change, files)
