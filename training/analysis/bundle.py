"""Analyse a finished bundle, and write the findings to its manifest, card and figures.

Everything is measured on the training images that `train` holds out without `--final`, never on
a test split. Here, they are called held-out images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from model.bundle import NEIGHBOURS, NOVELTY, Bundle, BundleError, Manifest
from model.bundle.confidence import Confidence
from model.bundle.directions import Direction
from model.bundle.novelty import NoveltyRule
from model.canvas import showing
from model.capsnet.families import load
from model.runtime import Runtime
from training.analysis.directions import FITTED, SCORED, fit_directions, show_alone, show_pairs
from training.analysis.factors import fit_factors, known_factors, read_factors
from training.analysis.health import measure_health
from training.analysis.neighbours import choose_images, collect
from training.answers import encode
from training.card import write_card
from training.confidence import Answered, cross_validate, fit_confidence, input_of
from training.data.datasets import DATASETS, Examples, factors_of, objects_of, split_rows
from training.data.pairs import validation_pairs
from training.device import open_runtime
from training.evaluate import seen_or_not, training_data_of
from training.explained import measure_explained
from training.figures import DECODED, draw_decoded, draw_sweeps
from training.novelty import MIN_IMAGES, compare_kinds, draw_others, fit_novelty, score_novelty
from training.pair_scores import choose_threshold
from training.provenance import Content, runs_of, unseen_by, update_manifest
from training.recipes import recipe_of

_SWEPT = 2
"""The number of classes whose sweeps are drawn."""
_SEED = 4
_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("confidence", "explained", "health", "neighbours", "novelty")),
    "directions": (),
}
"""The entries of a bundle that is not analysed."""


def analyse(
    bundle: Bundle, data_dir: Path, *, folder: Path | None = None, own_images: bool | None = None
) -> Bundle:
    """Analyse confidence, health, poses, masks or novelty, and neighbours.

    All findings are written at once, and then the card.

    Args:
        folder: of the pictures by class, if the network was trained on such a folder.
        own_images: whether those pictures go into the bundle for `/neighbours`, or their poses
            alone; by default as before.

    Raises:
        training.data.datasets.DatasetError: there are no such images.
    """
    manifest, runtime = bundle.manifest, open_runtime(bundle)
    data = training_data_of(bundle, data_dir, folder=folder)
    held_out, is_for_pairs = data.validation, manifest.mask_threshold is not None
    described = f"of the last training images, which the network was {seen_or_not(manifest)}"
    if own_images is None:
        own_images = bool(manifest.neighbours and manifest.neighbours.licence)
    found = dict[str, Any]()
    with showing(manifest.shown_channels):
        if not is_for_pairs and unseen_by(runs_of(manifest.training)):
            found["confidence"] = measure_confidence(bundle, held_out)
        if "trace" in manifest.offers:
            found["health"] = measure_health(bundle, held_out, described=described)
        if "decode" in manifest.offers:
            found["explained"], rows = measure_explained(
                bundle, data.training, held_out, described=described
            )
            found["directions"] = measure_directions(runtime, data.training, held_out)
            sweeps = _draw_sweeps(runtime, held_out, found["directions"])
            is_private = "pictures" in manifest.training and not own_images
            draw_decoded(sweeps, {} if is_private else rows, bundle.path / DECODED)
            found["neighbours"] = choose_images(bundle, data, own_images=own_images)
        if "decode" in manifest.offers and is_for_pairs:
            size, shift_px = manifest.height, recipe_of(bundle).shift_px
            pairs = validation_pairs(held_out, size=size, shift_px=shift_px)
            found["mask_threshold"] = choose_threshold(load(bundle), pairs)
        elif "decode" in manifest.offers:
            found["novelty"] = measure_novelty(runtime, held_out, data_dir)
    bundle = write_findings(bundle, **found)
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
    runtime, count = open_runtime(bundle), len(examples.labels)
    found: dict[str, Any] = {
        "neighbours": collect(bundle, examples, licence="", source=source),
        "directions": fit_directions(runtime, show_alone(runtime, examples, FITTED)),
    }
    if count >= MIN_IMAGES:
        described = f"{count:,} images of the {source}"
        found["novelty"] = fit_novelty(runtime, *_halves(bundle, examples), described=described)
    if count > 1:
        halves = [examples.at(rows) for rows in split_rows(examples.labels, seed=0)]
        described = f"of half of the images of the {source}; PCA is fitted to the other half"
        found["explained"], _ = measure_explained(bundle, *halves, described=described)
    return write_findings(bundle, **found)


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
    manifest, runtime = bundle.manifest, open_runtime(bundle)
    if "decode" not in manifest.offers or manifest.mask_threshold is not None:
        raise BundleError(f"{bundle.path}: factors need poses of one object")
    columns, shown = read_factors(runtime, table, folder or table.parent)
    fits = list(fit_factors(runtime, shown, None, columns))
    directions = [fit.direction for fit in fits if fit.direction]
    return write_findings(bundle, directions=directions), [fit.sentence for fit in fits]


def write_findings(bundle: Bundle, **found: Any) -> Bundle:
    """Write entries into the manifest as it is now; findings about other weights are removed.

    Directions join those of other names. Arrays of novelty and neighbours become files.
    """
    files: dict[str, Content] = {}
    if (rule := found.get("novelty")) and rule.gaussians:
        files[NOVELTY] = rule.gaussians
    if neighbours := found.get("neighbours"):
        files[NEIGHBOURS] = neighbours.gallery
    directions = list(found.pop("directions", ()))

    def change(manifest: Manifest) -> Manifest:
        offers = dict.fromkeys(manifest.offers)
        if manifest.analysed_version != manifest.version:
            offers.pop("neighbours", None)
            manifest = replace(manifest, offers=tuple(offers), **_NOTHING)
        if neighbours:
            offers["neighbours"] = None
        if "confidence" in found:  # the scores are those of another calibration
            metrics = {key: one for key, one in manifest.metrics.items() if key != "confidence"}
            manifest = replace(manifest, metrics=metrics)
        return replace(
            manifest,
            **found,
            directions=_join(manifest.directions, directions),
            offers=tuple(offers),
            analysed_version=manifest.version,
        )

    return update_manifest(bundle, change, files)


def measure_confidence(bundle: Bundle, examples: Examples) -> Confidence | None:
    """Fit the calibration on held-out images, and measure it on those left out of a fit.

    If the network learnt these images, `evaluate` calibrates it on test images instead.
    """
    manifest = bundle.manifest
    presence, kind = encode(open_runtime(bundle), examples.images).presence, input_of(manifest)
    objects = objects_of(manifest.dataset, len(examples.labels))
    answered = Answered(presence, examples.labels, objects)
    described = f"{len(examples.labels):,} held-out training images"
    if step := runs_of(manifest.training)[-1].kept_step:
        described += f", which also chose the weights of step {step:,}: expect a lower coverage"
    confidence = fit_confidence(answered, kind=kind, described=described)
    if confidence and (measures := cross_validate(answered, kind=kind)):
        confidence = replace(confidence, cross_validated=measures)
    return confidence


def measure_directions(runtime: Runtime, learnt: Examples, held_out: Examples) -> list[Direction]:
    """Fit the directions of poses; known factors of rendered images get directions too."""
    manifest = runtime.bundle.manifest
    parts = ((learnt, FITTED), (held_out, SCORED))
    if manifest.mask_threshold is not None:
        shift_px = recipe_of(runtime.bundle).shift_px
        shown = [show_pairs(runtime, *part, shift_px=shift_px) for part in parts]
        return list(fit_directions(runtime, *shown))
    found = list(fit_directions(runtime, *(show_alone(runtime, *part) for part in parts)))
    dataset = DATASETS.get(manifest.dataset)
    if known := dataset and factors_of(dataset, "train"):
        columns, values = known_factors(known)
        cut = len(learnt.labels)
        fitted = show_alone(runtime, learnt, FITTED, values[:cut])
        scored = show_alone(runtime, held_out, SCORED, values[cut:])
        fits = fit_factors(runtime, fitted, scored, columns)
        found += [fit.direction for fit in fits if fit.direction]
    return found


def measure_novelty(runtime: Runtime, examples: Examples, data_dir: Path) -> NoveltyRule | None:
    """Fit the novelty rule on held-out images alone; report what it makes of other kinds.

    Other kinds are compared with the half that chose the threshold, unless the network has learnt
    it: then `evaluate` chooses the threshold on test images, and compares others with them. Of
    fewer than `novelty.MIN_IMAGES` images there is no rule.
    """
    bundle, manifest = runtime.bundle, runtime.bundle.manifest
    if len(examples.labels) < MIN_IMAGES:
        return None
    described = f"{len(examples.labels):,} training images that the network was "
    fitted, half = _halves(bundle, examples)
    rule = fit_novelty(runtime, fitted, half, described=described + seen_or_not(manifest))
    is_unseen = unseen_by(runs_of(manifest.training)) > 0
    typical = score_novelty(runtime, half, rule) if is_unseen else None
    others = draw_others(manifest, data_dir)
    return compare_kinds(runtime, rule, others, typical, f"{len(half):,} held-out images")


def _draw_sweeps(
    runtime: Runtime, examples: Examples, directions: list[Direction]
) -> list[Image.Image]:
    """Draw the directions of an image of each of the classes with the most directions."""
    bundle = runtime.bundle
    manifest, images = (
        replace(bundle.manifest, directions=tuple(directions)),
        _centre(examples, bundle),
    )
    offered = Counter(one.label for one in directions if one.offered)
    labels = sorted(np.unique(images.labels).tolist(), key=lambda label: -offered[label])
    return draw_sweeps(runtime, manifest, images, sorted(labels[:_SWEPT]))


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


def _join(known: Iterable[Direction], new: list[Direction]) -> tuple[Direction, ...]:
    """Known directions, and new ones in place of those of the same class and name."""
    names: Mapping[tuple[int, str], Direction] = {(one.label, one.name): one for one in new}
    return (*(one for one in known if (one.label, one.name) not in names), *names.values())
