"""Score a bundle on images it was not trained on, and record each read of a test split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from model.bundle import Bundle, Manifest
from model.runtime import Runtime
from training.answers import Answers, Recall, answer_images, is_wrong, recalls
from training.card import describe_score, write_card
from training.confidence import fit_confidence, input_of, measure_images
from training.data.datasets import DATASETS, Examples, load
from training.data.folder import FolderSplit, TrainingData, load_unseen
from training.data.pairs import TEST_PAIRS
from training.data.source import DatasetError
from training.device import open_runtime
from training.explained import measure_explained
from training.figures import WRONG, draw_wrong
from training.novelty import (
    answer_changed,
    answer_others,
    compare_kinds,
    find_threshold,
    score_novelty,
)
from training.pair_scores import score_pairs
from training.provenance import TestRead, reads_of, record_read, runs_of, unseen_by, update_manifest
from training.recipes import recipe_of
from training.statistics import interval, mean_interval
from training.training_data import load_again

ScoredSplit = Literal["test", "validation"]
_SEED = 2


@dataclass(frozen=True)
class Scores:
    """A bundle's scores on a split."""

    split: ScoredSplit
    images: int
    protocol: str
    """The images and the way in which they were answered."""
    errors: int
    """The number of wrong answers."""
    interval_percent: tuple[float, float]
    """The 95 % interval of the error."""
    answers: Answers
    """The images and their answers; of pairs, the first ones of the paper's shift."""
    shifts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The scores of pairs by the largest shift of their digits, the paper's first."""
    recalls: tuple[Recall, ...] = ()
    """The recall of each class, the lowest first; none of pairs."""
    notices: tuple[str, ...] = ()
    """What was left out, and why."""
    confidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How far probabilities and sets of labels hold, by kind of images: see
    `training.confidence`."""
    entries: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the manifest that were measured on a test split: `confidence`, `novelty` and
    `explained`."""

    def metrics(self) -> dict[str, Any]:
        """Return the manifest's metrics, with the protocol that gave them."""
        metrics: dict[str, Any] = {
            f"{self.split}_error_percent": round(100 * self.errors / self.images, 4),
            f"{self.split}_errors": self.errors,
            f"{self.split}_images": self.images,
            "interval_percent": [round(bound, 4) for bound in self.interval_percent],
            "protocol": self.protocol,
        }
        parts = {
            "shifts": dict(self.shifts),
            "recalls": [list(recall) for recall in self.recalls],
            "confidence": dict(self.confidence),
        }
        return metrics | {name: part for name, part in parts.items() if part}

    def headline(self) -> str:
        """The error, in words."""
        return describe_score(self.metrics())

    def details(self) -> list[str]:
        """The recall of each class or the error at each shift, and what was left out."""
        shifts = [
            f"pairs, shift {shift}: {scores['error_percent']:.2f} % wrong"
            for shift, scores in self.shifts.items()
        ]
        recalled = ", ".join(map(str, self.recalls))
        told = [f"answered right, the worst class first: {recalled}"] if recalled else shifts
        return [*told, *self.notices]


def evaluate(
    bundle: Bundle,
    data_dir: Path,
    *,
    split: ScoredSplit = "test",
    folder: Path | None = None,
    skip_unreadable: bool = False,
    pairs: int = TEST_PAIRS,
) -> Scores:
    """Answer a split, one view of each image, through the files that ship.

    A read of a test split goes on record: into the file of test reads next to the bundle, its
    manifest and its card. Probabilities, sets of labels, novelty and what poses explain are then
    measured on test images too. If the network learnt all training images, one random half of the
    test split calibrates them, and they are measured on the other half.

    Held-out images may be read as often as one likes; their scores are kept where there is no test
    split.

    Args:
        split: `validation` is the held-out training images.
        folder: of pictures by class: with `validation`, where those are now that the network was
            trained on; otherwise those that are to be scored in place of a published split. Their
            score goes on record only where the network has no published test split.
        skip_unreadable: whether unreadable files of that folder are left out.
        pairs: of test digits at each shift, if the network is for pairs; at least the published
            ones.

    Raises:
        DatasetError: there is no such split, its images are not the published ones, or all
            training images were trained on.
        BundleError: the network is of a family that is not known here.
        BundleError: the record of test reads is broken.
        OSError: the read cannot be recorded.
    """
    recipe, runtime = recipe_of(bundle), open_runtime(bundle)
    published = DATASETS.get(recipe.dataset)
    if split == "test" and folder is not None:
        scores = score_folder(runtime, folder, skip_unreadable=skip_unreadable)
        if published is not None:
            return scores
    elif split == "test" and published is not None:
        reads_of(bundle.path.parent, runs_of(bundle.manifest.training))  # noticed before the read
        examples = load(published, "test", data_dir)
        scores = _score(runtime, examples, "test", "the published test split", pairs=pairs)
        scores = calibrate(runtime, scores, data_dir)
    elif split == "test":
        raise DatasetError(
            f"{recipe.dataset} has no test split: score new pictures, --data TESTFOLDER, or "
            "held-out ones, --validation"
        )
    else:
        examples, which = _held_out(bundle, data_dir, folder)
        scores = _score(runtime, examples, "validation", which, pairs=pairs)
    if split == "test":
        _record(bundle, scores)
    if split == "test" or published is None:
        _keep(bundle, scores)
    return scores


def training_data_of(bundle: Bundle, data_dir: Path, *, folder: Path | None = None) -> TrainingData:
    """A bundle's training and held-out images.

    Args:
        folder: where the pictures are now, if the network was trained on a folder of them.

    Raises:
        DatasetError: they are not there, or are not those that the network was trained on.
    """
    pictures = bundle.manifest.training.get("pictures")
    split = FolderSplit(**pictures) if pictures else None
    return load_again(recipe_of(bundle), split, data_dir, folder=folder)


def seen_or_not(manifest: Manifest) -> str:
    """Return `trained on` or `not trained on` for the images that are held out by default."""
    return "not trained on" if unseen_by(runs_of(manifest.training)) else "trained on"


def score_folder(runtime: Runtime, folder: Path, *, skip_unreadable: bool = False) -> Scores:
    """Answer the pictures of a folder that training never saw.

    Raises:
        DatasetError: there are none, or a folder in it is no class of the bundle.
    """
    manifest = runtime.bundle.manifest
    if manifest.preprocess == "pair":
        raise DatasetError(f"{manifest.name} is for pairs of digits, not pictures")
    examples, notices = load_unseen(manifest, folder, skip_unreadable=skip_unreadable)
    which = f"{len(examples.labels):,} pictures of a folder"
    which += ", none of which training saw" * ("pictures" in manifest.training)
    return replace(_score(runtime, examples, "test", which), notices=notices)


def _held_out(bundle: Bundle, data_dir: Path, folder: Path | None) -> tuple[Examples, str]:
    """The held-out training images, and what they are.

    Raises:
        DatasetError: there are none.
    """
    runs = runs_of(bundle.manifest.training)
    if not unseen_by(runs):
        raise DatasetError(
            f"{bundle.manifest.name} was trained on all training images (--final): none is held "
            "out, and errors on training images say nothing about new images"
        )
    examples = training_data_of(bundle, data_dir, folder=folder).validation
    which = f"{len(examples.labels):,} held-out training images, which were not trained on"
    if runs[-1].kept_step:
        which += f", but chose the weights of step {runs[-1].kept_step:,}"
    return examples, which


def _score(
    runtime: Runtime, examples: Examples, split: ScoredSplit, which: str, *, pairs: int = TEST_PAIRS
) -> Scores:
    """Answer every image once, with the most present class; or pairs of digits.

    Of images that show the same objects, the interval of the error is as if objects were drawn.

    Args:
        which: describes the images.
        pairs: of test digits at each shift.
    """
    manifest, count = runtime.bundle.manifest, len(examples.labels)
    if manifest.of_pairs:
        return Scores(split=split, **score_pairs(runtime, examples, split, which, pairs))
    answers = answer_images(runtime, examples)
    wrong = is_wrong(answers.presence, examples.labels)
    low, high = interval(int(wrong.sum()), count)
    if answers.objects is not None:
        low, high = mean_interval(wrong, answers.objects)
    return Scores(
        split=split,
        images=count,
        protocol=f"{which}, through this bundle; one view of each image, one network, float32",
        errors=int(wrong.sum()),
        interval_percent=(max(0.0, low), high),
        answers=answers,
        recalls=recalls(examples.labels, answers.presence, manifest.class_names),
    )


def calibrate(runtime: Runtime, scores: Scores, data_dir: Path) -> Scores:
    """Measure on a test split what poses explain, and confidence and novelty of single images.

    A network that learnt all training images has no other images to calibrate its confidence and
    its novelty threshold: one random half of the test split does that, and is not measured. Too few
    images, or objects, calibrate nothing: then there is no confidence. Images of other kinds are
    measured too.
    """
    manifest, measured, entries = runtime.bundle.manifest, scores.answers, dict[str, Any]()
    if "decode" in manifest.offers:
        training = load(DATASETS[recipe_of(runtime.bundle).dataset], "train", data_dir)
        entries["explained"], _ = measure_explained(
            runtime, training, measured, described="of the test images"
        )
    if measured.are_pairs:
        return replace(scores, entries=entries)
    confidence, rule, protocol = manifest.confidence, manifest.novelty, scores.protocol
    if not unseen_by(runs_of(manifest.training)):
        fitted, measured = measured.halves(seed=_SEED)
        described = f"{len(fitted.labels):,} test images, drawn at random"
        confidence = fit_confidence(fitted, kind=input_of(manifest), described=described)
        if rule:
            threshold = find_threshold(score_novelty(runtime, fitted, rule))
            rule = replace(rule, threshold=threshold, threshold_images=described)
        protocol += f"; {described}, calibrate confidence and novelty"
    counted, measures = f"{len(measured.labels):,} test images", dict[str, Mapping[str, Any]]()
    others = answer_others(runtime, data_dir)
    if confidence:
        kinds = {counted: measured, **answer_changed(runtime, measured), **others}
        measures = {kind: measure_images(confidence, answers) for kind, answers in kinds.items()}
        entries["confidence"] = confidence
    if rule:
        ranks = score_novelty(runtime, measured, rule)
        novel_percent = round(100 * float((ranks < rule.threshold).mean()), 2)
        rule = replace(rule, test_novel_percent=novel_percent)
        entries["novelty"] = compare_kinds(runtime, rule, others, ranks, counted)
    return replace(scores, confidence=measures, entries=entries, protocol=protocol)


def _record(bundle: Bundle, scores: Scores) -> None:
    """Put the read of a test split on record."""
    manifest = bundle.manifest
    read = TestRead(
        run=runs_of(manifest.training)[-1].id,
        version=manifest.version,
        dataset=manifest.dataset,
        split=scores.split,
        images=scores.images,
        errors=scores.errors,
        protocol=scores.protocol,
    )
    record_read(bundle.path.parent, read)


def _keep(bundle: Bundle, scores: Scores) -> None:
    """Write scores into manifest and card, and draw the wrong answers."""

    def add(manifest: Manifest) -> Manifest:
        training = dict(manifest.training)
        if scores.split == "test":
            reads = reads_of(bundle.path.parent, runs_of(training))
            training["test_reads"] = [asdict(read) for read in reads]
        return replace(manifest, training=training, metrics=scores.metrics(), **scores.entries)

    draw_wrong(scores.answers, bundle.manifest.class_names, bundle.path / WRONG)
    write_card(update_manifest(bundle, add))
