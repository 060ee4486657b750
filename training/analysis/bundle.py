"""Analyse a finished bundle, and write the findings to its manifest, card and figures.

Everything is measured on the training images that `train` holds out without `--final`, never on
a test split. Here, they are called held-out images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from model.bundle import NEIGHBOURS, NOVELTY, Bundle, BundleError, Manifest
from model.bundle.confidence import Confidence
from model.bundle.directions import Direction
from model.bundle.poses import NoveltyRule
from model.canvas import showing
from model.runtime import Runtime
from training.analysis.directions import FITTED, fit_directions, measure_objects
from training.analysis.factors import fit_factors, read_factors, show_values
from training.analysis.health import measure_health
from training.analysis.neighbours import collect
from training.answers import Answers, answer_images
from training.card import write_card
from training.confidence import cross_validate, fit_confidence, input_of
from training.data.assemblies import KNOWN
from training.data.datasets import draw_rows, rank_in_class
from training.data.folder import TrainingData
from training.data.pairs import fixed_pairs, validation_pairs
from training.device import open_runtime
from training.evaluate import seen_or_not, training_data_of
from training.explained import measure_explained
from training.figures import DECODED, draw_decoded, draw_sweeps
from training.novelty import MIN_IMAGES, answer_others, compare_kinds, fit_novelty, score_novelty
from training.pair_scores import choose_threshold
from training.provenance import runs_of, unseen_by, update_manifest
from training.recipes import recipe_of

MEASURED = 5000
"""The number of learnt images, half as many pairs, whose poses are measured; more of many classes.
"""
_SEED = 4


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
    described = f"of the last training images, which the network was {seen_or_not(manifest)}"
    if own_images is None:
        own_images = bool(manifest.neighbours and manifest.neighbours.licence)
    learnt, held_out = _answer_data(runtime, data)
    found, rows = dict[str, Any](), dict[str, Any]()
    if not held_out.are_pairs and unseen_by(runs_of(manifest.training)):
        found["confidence"] = measure_confidence(bundle, held_out)
    if "trace" in manifest.offers:
        found["health"] = measure_health(bundle, held_out, described=described)
    if "decode" in manifest.offers:
        found["explained"], rows = measure_explained(
            runtime, data.training, held_out, described=described
        )
        found["directions"] = list(measure_directions(runtime, learnt, held_out))
        licence = "yours" * own_images if data.split else data.dataset.licence
        source = f"{'folder ' * bool(data.split)}{recipe_of(bundle).dataset}"
        with showing(manifest.shown_channels):
            found["neighbours"] = collect(bundle, learnt, licence=licence, source=source)
        if held_out.are_pairs:
            found["mask_threshold"] = choose_threshold(runtime, held_out)
        else:
            found["novelty"] = measure_novelty(runtime, held_out, data_dir)
    bundle = write_findings(bundle, **found)
    if "decode" in manifest.offers:
        is_private = "pictures" in manifest.training and not own_images
        with showing(manifest.shown_channels):
            sweeps = draw_sweeps(runtime, bundle.manifest, held_out)
            draw_decoded(sweeps, {} if is_private else rows, bundle.path / DECODED)
    write_card(bundle)
    return bundle


def analyse_imported(bundle: Bundle, answers: Answers, *, source: str) -> Bundle:
    """Analyse a network with poses that was trained elsewhere; there is no card.

    Fits directions, fits the novelty rule to enough images, measures what poses explain of half of
    the images, and keeps the poses that `/neighbours` compares with.

    Args:
        answers: to images that are like those of its training.
        source: of the images, in words.
    """
    runtime, count = open_runtime(bundle), len(answers.labels)
    answers = answers.draw(count, seed=_SEED)
    found: dict[str, Any] = {
        "neighbours": collect(bundle, answers, licence="", source=source),
        "directions": fit_directions(runtime, measure_objects(bundle.manifest, answers)),
    }
    halves = answers.halves(seed=_SEED)
    if count >= MIN_IMAGES:
        described = f"{count:,} images of the {source}"
        found["novelty"] = fit_novelty(runtime, *halves, described=described)
    if count > 1:
        described = f"of half of the images of the {source}; PCA is fitted to the other half"
        found["explained"], _ = measure_explained(runtime, *halves, described=described)
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
    if "decode" not in manifest.offers or manifest.of_pairs:
        raise BundleError(f"{bundle.path}: factors need poses of one object")
    columns, shown = read_factors(runtime, table, folder or table.parent)
    fits = list(fit_factors(runtime, shown, None, columns))
    directions = [direction for _, direction in fits if direction]
    return write_findings(bundle, directions=directions), [sentence for sentence, _ in fits]


def write_findings(bundle: Bundle, **found: Any) -> Bundle:
    """Write entries into the manifest as it is now.

    Directions join those of other names. Arrays of novelty and neighbours become files.
    """
    files: dict[str, Callable[[BinaryIO], object]] = {}
    if (rule := found.get("novelty")) and rule.gaussians:
        files[NOVELTY] = rule.gaussians.save
    if neighbours := found.get("neighbours"):
        files[NEIGHBOURS] = neighbours.gallery.save
    directions = list(found.pop("directions", ()))

    def change(manifest: Manifest) -> Manifest:
        offers = dict.fromkeys(manifest.offers)
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


def measure_confidence(bundle: Bundle, answers: Answers) -> Confidence | None:
    """Fit the calibration on held-out images, and measure it on those left out of a fit.

    If the network learnt these images, `evaluate` calibrates it on test images instead.
    """
    manifest = bundle.manifest
    kind, described = input_of(manifest), f"{len(answers.labels):,} held-out training images"
    if step := runs_of(manifest.training)[-1].kept_step:
        described += f", which also chose the weights of step {step:,}: expect a lower coverage"
    confidence = fit_confidence(answers, kind=kind, described=described)
    if confidence and (measures := cross_validate(answers, kind=kind)):
        confidence = replace(confidence, cross_validated=measures)
    return confidence


def measure_novelty(runtime: Runtime, answers: Answers, data_dir: Path) -> NoveltyRule | None:
    """Fit the novelty rule on held-out images alone; report what it makes of other kinds.

    Other kinds are compared with the half that chose the threshold, unless the network has learnt
    it: then `evaluate` chooses the threshold on test images, and compares others with them. Of
    fewer than `novelty.MIN_IMAGES` images there is no rule.
    """
    manifest, count = runtime.bundle.manifest, len(answers.labels)
    if count < MIN_IMAGES:
        return None
    described = f"{count:,} training images that the network was {seen_or_not(manifest)}"
    fitted, half = answers.halves(seed=_SEED)
    rule = fit_novelty(runtime, fitted, half, described=described)
    is_unseen = unseen_by(runs_of(manifest.training)) > 0
    typical = score_novelty(runtime, half, rule) if is_unseen else None
    counted = f"{len(half.labels):,} held-out images"
    return compare_kinds(runtime, rule, answer_others(runtime, data_dir), typical, counted)


def measure_directions(runtime: Runtime, learnt: Answers, held_out: Answers) -> Iterator[Direction]:
    """Fit the directions of poses; what is known of rendered images gets directions too."""
    both = (learnt, held_out)
    yield from fit_directions(runtime, *(measure_objects(runtime.manifest, part) for part in both))
    if learnt.values is not None:
        known, scored = map(show_values, both)
        for _, direction in fit_factors(runtime, known, scored, KNOWN):
            if direction:
                yield direction


def _answer_data(runtime: Runtime, data: TrainingData) -> tuple[Answers, Answers]:
    """Answer a sample of the learnt images, and all held-out ones, each in random order.

    Of a network for pairs, pairs of them are answered.
    """
    if runtime.manifest.of_pairs:
        sizes = {"size": runtime.manifest.height, "shift_px": recipe_of(runtime.bundle).shift_px}
        pairs = fixed_pairs(data.training, MEASURED // 2, seed=_SEED, **sizes)
        others = validation_pairs(data.validation, **sizes)
        return answer_images(runtime, pairs), answer_images(runtime, others)
    each = max(FITTED, MEASURED // runtime.manifest.num_classes)
    answered = []
    for examples, count in ((data.training, each), (data.validation, math.inf)):
        labels = examples.labels
        order = draw_rows(labels, len(labels), seed=_SEED, objects=examples.objects)
        rows = order[rank_in_class(labels[order]) < count]
        answered.append(answer_images(runtime, examples.at(rows)))
    return answered[0], answered[1]


def _join(known: Iterable[Direction], new: list[Direction]) -> tuple[Direction, ...]:
    """Known directions, and new ones in place of those of the same class and name."""
    names: Mapping[tuple[int, str], Direction] = {(one.label, one.name): one for one in new}
    return (*(one for one in known if (one.label, one.name) not in names), *names.values())
