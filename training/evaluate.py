"""Score a bundle on images it was not trained on, and record each read of a test split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from model.bundle import Bundle, Manifest
from model.bundle.explained import Explained
from model.capsnet import Network
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.masks import INK, find_masks
from model.views.presence import most_present
from model.views.segment import candidates, segment
from training.answers import (
    BATCH,
    Recall,
    WrongAnswers,
    confusion,
    decode_each,
    evaluating,
    find_wrong,
    is_missed,
    is_wrong,
    pick_absent,
    recalls,
)
from training.card import CONFIDENCE, EXPLAINED, ROC, WRONG, write_card
from training.data.assemblies import object_of
from training.data.datasets import DATASETS, Dataset, Examples, load
from training.data.pairs import (
    PAPER_PERCENT,
    TEST_DIGESTS,
    TEST_PAIRS,
    TEST_SEED,
    VALIDATION_SEED,
    PairDraw,
    PairSet,
    make_pairs,
    published_pairs,
    validation_pairs,
)
from training.data.source import DatasetError
from training.explained import Splits, measure_explained
from training.figures import draw_confidence, draw_roc, draw_wrong
from training.kinds import draw_kinds, measure_kinds
from training.manifest import update_manifest
from training.novelty import score_novelty, separate
from training.provenance import TestRead, reads_of, record_read, runs_of, unseen_by
from training.recipes import recipe_of
from training.statistics import interval, mean_interval
from training.training_data import FolderSplit, TrainingData, load_again
from training.unseen import load_unseen

ScoredSplit = Literal["test", "validation"]
THRESHOLDS = [step / 50 for step in range(10, 26)]
"""The thresholds among which the best for masks is chosen, as shares of the ink."""


class Answers(NamedTuple):
    """The scored images, and a network's answers to them."""

    examples: Examples
    presence: Floats
    """The presence (N, K) of each class."""
    places: tuple[str, ...] = ()
    """The file of each picture, where it has one."""
    notices: tuple[str, ...] = ()
    """What was left out, and why."""


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
    wrong: WrongAnswers
    """The wrong answers that the card shows; of pairs, only the first."""
    table: Table
    """The confusion, or the scores of each shift of pairs."""
    shifts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The scores of pairs by the largest shift of their digits, the paper's first (`score_shift`).
    """
    novelty: NDArray[np.float64] | None = None
    """The novelty rule's lowest rank of each image, if the bundle has a rule."""
    recalls: tuple[Recall, ...] = ()
    """The recall of each class, the lowest first; none of pairs."""
    answers: Answers | None = None
    """The images and their answers; None of pairs."""
    confidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How far probabilities and sets of labels hold, by kind of images, if the bundle has a
    calibration: see `training.reliability`."""
    explained: Explained | None = None
    """What poses explain of test images."""
    mirrored_errors: int | None = None
    """The number of wrong answers of the mean presence of an image and its mirror image, where
    training mirrored images."""

    def metrics(self) -> dict[str, Any]:
        """Return the manifest's metrics, with the protocol that gave them."""
        metrics: dict[str, Any] = {
            f"{self.split}_error_percent": round(100 * self.errors / self.images, 4),
            f"{self.split}_errors": self.errors,
            f"{self.split}_images": self.images,
            "interval_percent": _rounded(self.interval_percent),
            "protocol": self.protocol,
        }
        recalls = [list(recall) for recall in self.recalls]
        parts: dict[str, Any] = {"shifts": dict(self.shifts), "recalls": recalls}
        parts["confidence"] = dict(self.confidence)
        if self.mirrored_errors is not None:
            parts["mirrored"] = {
                "errors": self.mirrored_errors,
                "interval_percent": _rounded(interval(self.mirrored_errors, self.images)),
            }
        return metrics | {name: part for name, part in parts.items() if part}

    def headline(self) -> str:
        """The error in a sentence."""
        low, high = self.interval_percent
        return (
            f"{self.errors:,} of {self.images:,} wrong: {100 * self.errors / self.images:.2f} % "
            f"(95 % interval {low:.2f} to {high:.2f})"
        )


def evaluate(
    bundle: Bundle,
    data_dir: Path,
    *,
    split: ScoredSplit = "test",
    folder: Path | None = None,
    pairs: int = TEST_PAIRS,
) -> Scores:
    """Answer a split, one view of each image, through the files that ship.

    A read of a test split goes on record: into the file of test reads next to the bundle, its
    manifest and its card. What poses explain is then measured on test images too. Held-out images
    may be read as often as one likes; their scores are kept where there is no test split.

    Args:
        split: `validation` is the held-out training images.
        folder: of pictures by class: with `validation`, where those are now that the network was
            trained on; otherwise those that are to be scored in place of a published split. Their
            score goes on record only where the network has no published test split.
        pairs: of test digits at each shift, if the network is for pairs; at least the published
            ones.

    Raises:
        DatasetError: there is no such split, its images are not the published ones, or all
            training images were trained on.
        BundleError: the network is of a family that is not known here.
        training.provenance.ProvenanceError: the record of test reads is broken.
        OSError: the read cannot be recorded.
    """
    manifest = bundle.manifest
    recipe, runs = recipe_of(bundle), runs_of(manifest.training)
    published = DATASETS.get(recipe.dataset)
    if split == "validation":
        if not unseen_by(runs):
            raise DatasetError(
                f"{manifest.name} was trained on all training images (--final): none is held out, "
                "and errors on training images say nothing about new images"
            )
        examples = validation_examples(bundle, data_dir, folder=folder)
        which = f"{len(examples.labels):,} held-out training images, which were not trained on"
        if runs[-1].kept_step:
            which += f", but chose the weights of step {runs[-1].kept_step:,}"
    elif folder is not None:
        runtime = Runtime(bundle)
        scores = score_folder(runtime, folder)
        if published is None:
            _record(bundle, scores)
            _keep(runtime, scores, data_dir)
        return scores
    elif published is None:
        raise DatasetError(
            f"{recipe.dataset} has no test split: score new pictures, --data TESTFOLDER, or "
            "held-out ones, --validation"
        )
    else:
        reads_of(bundle.path.parent, runs)  # a broken record is noticed before the read
        examples = load(published, "test", data_dir)
        which = "the published test split"
    runtime = Runtime(bundle)
    if recipe.task == "pairs":
        scores = score_pairs(runtime, examples, split=split, which=which, count=pairs)
    else:
        objects = object_of(len(examples.labels)) if _shows_objects(published) else None
        scores = score_single(
            runtime, examples, split=split, which=which, mirror=recipe.flip, objects=objects
        )
    if split == "test":
        scores = replace(
            scores,
            confidence=_score_confidence(runtime, examples, data_dir),
            explained=_explain(bundle, examples, data_dir),
        )
        _record(bundle, scores)
    if split == "test" or published is None:
        _keep(runtime, scores, data_dir)
    return scores


def validation_examples(bundle: Bundle, data_dir: Path, *, folder: Path | None = None) -> Examples:
    """The training images that `train` holds out, unless all are trained on (`--final`).

    Raises:
        DatasetError: see `training_data_of`.
    """
    return training_data_of(bundle, data_dir, folder=folder).validation


def training_data_of(bundle: Bundle, data_dir: Path, *, folder: Path | None = None) -> TrainingData:
    """A bundle's training and held-out images.

    Args:
        folder: where the pictures are now, if the network was trained on a folder of them.

    Raises:
        DatasetError: they are not there, or are not those that the network was trained on.
    """
    training = bundle.manifest.training
    pictures = training.get("pictures") and FolderSplit(**training["pictures"])
    if pictures:
        if not (folder or pictures.folder):
            name = bundle.manifest.name
            raise DatasetError(
                f"{name} was trained on a folder of pictures: name the folder with --data FOLDER"
            )
        pictures = pictures.model_copy(update={"folder": str(folder or pictures.folder)})
    return load_again(recipe_of(bundle), pictures, data_dir)


def seen_or_not(manifest: Manifest) -> str:
    """Return `trained on` or `not trained on` for the images that are held out by default."""
    return "not trained on" if unseen_by(runs_of(manifest.training)) else "trained on"


def _score_confidence(
    runtime: Runtime, examples: Examples, data_dir: Path
) -> dict[str, dict[str, Any]]:
    """How far the calibration holds, by kind of images; nothing if the bundle has none."""
    manifest = runtime.bundle.manifest
    if manifest.confidence is None:
        return {}
    return measure_kinds(runtime, manifest.confidence, draw_kinds(manifest, examples, data_dir))


def score_folder(runtime: Runtime, folder: Path) -> Scores:
    """Answer the pictures of a folder that training never saw.

    Raises:
        DatasetError: there are none, or a folder in it is no class of the bundle.
    """
    if runtime.bundle.manifest.preprocess == "pair":
        raise DatasetError(f"{runtime.bundle.manifest.name} is for pairs of digits, not pictures")
    pictures = load_unseen(runtime, folder)
    which = f"{len(pictures.places):,} pictures of a folder"
    which += ", none of which training saw" * pictures.unseen
    scores = score_single(runtime, pictures.examples, split="test", which=which)
    assert scores.answers
    answers = scores.answers._replace(places=pictures.places, notices=pictures.notices)
    return replace(scores, answers=answers)


def _encode_presence(runtime: Runtime, examples: Examples) -> Floats:
    """The presence (N, K) of the classes in each image."""
    parts = [
        runtime.encode(scale(examples.images[rows])).presence for rows in _slices(examples.labels)
    ]
    return np.concatenate(parts)


def score_single(
    runtime: Runtime,
    examples: Examples,
    *,
    split: ScoredSplit,
    which: str,
    mirror: bool = False,
    objects: NDArray[np.int64] | None = None,
) -> Scores:
    """Answer every image once, with the most present class.

    Args:
        which: describes the images.
        mirror: also count the wrong answers of the mean presence of an image and its mirror image.
        objects: which object (N,) each image shows; None where each has its own.
    """
    presence = _encode_presence(runtime, examples)
    names = runtime.bundle.manifest.class_names
    counts = confusion(examples.labels, most_present(presence, 1)[:, 0], len(names))
    table = Table("true \\ answer", *names)
    for name, row in zip(names, counts, strict=True):
        table.add_row(name, *(str(count) if count else "" for count in row))
    protocol = f"{which}, through this bundle; one view of each image, one network, float32"
    wrong = find_wrong(examples, presence)
    rule = runtime.bundle.manifest.novelty
    errors = len(wrong.images)
    mirrored_errors = None
    if mirror:
        mirrored = examples._replace(images=examples.images[..., ::-1].copy())
        twice_the_mean = presence + _encode_presence(runtime, mirrored)
        mirrored_errors = len(find_wrong(examples, twice_the_mean).images)
    return Scores(
        split=split,
        images=len(presence),
        protocol=protocol,
        errors=errors,
        interval_percent=_interval(is_wrong(presence, examples.labels), objects),
        wrong=wrong,
        table=table,
        recalls=recalls(examples.labels, presence, names),
        answers=Answers(examples, presence),
        novelty=score_novelty(runtime, scale(examples.images), rule) if rule else None,
        mirrored_errors=mirrored_errors,
    )


def _interval(wrong: NDArray[np.bool_], objects: NDArray[np.int64] | None) -> tuple[float, float]:
    """The interval of an error; of images that share objects, as if objects were drawn anew."""
    if objects is None:
        return interval(int(wrong.sum()), len(wrong))
    low, high = mean_interval(wrong, objects)
    return max(0.0, low), high


def _shows_objects(dataset: Dataset | None) -> bool:
    """Whether many images of a data set show one object."""
    return dataset is not None and dataset.kind == "assemblies"


def _explain(bundle: Bundle, examples: Examples, data_dir: Path) -> Explained | None:
    """What poses explain of test images, next to PCA; None where there is no decoder."""
    if "decode" not in bundle.manifest.offers:
        return None
    training = load(DATASETS[recipe_of(bundle).dataset], "train", data_dir)
    splits, figure = Splits(training, examples), bundle.path / EXPLAINED
    return measure_explained(bundle, splits, described="of the test images", figure=figure)


def score_pairs(
    runtime: Runtime, digits: Examples, *, split: ScoredSplit, which: str, count: int = TEST_PAIRS
) -> Scores:
    """Classify `count` fixed pairs at each reported shift; decode and segment the first ones.

    Of test digits the first pairs are the published ones; of held-out digits all are those of the
    training's validation.
    """
    manifest = runtime.bundle.manifest
    make, seed, reaches = validation_pairs, VALIDATION_SEED, [recipe_of(runtime.bundle).shift_px]
    if split == "test":
        make, seed, reaches = published_pairs, TEST_SEED, list(TEST_DIGESTS)
    shifts: dict[str, dict[str, Any]] = {}
    shown = []
    for shift_px in reaches:
        drawn = make(digits, size=manifest.height, shift_px=shift_px)
        total = max(count, len(drawn.labels)) if split == "test" else len(drawn.labels)
        draws = PairDraw(digits.labels, shift_px=shift_px).draw(total, seed)
        missed = find_missed(runtime, digits, draws, shift_px=shift_px)
        scores, examples = score_shift(runtime, drawn)
        wrong = np.asarray(missed.any(axis=1))
        shifts[f"{shift_px} px"] = {
            "pairs": total,
            "errors": int(wrong.sum()),
            "error_percent": round(100 * float(wrong.mean()), 4),
            "interval_percent": _rounded(mean_interval(wrong, draws[:, :2])),
            "digit_error_percent": round(100 * float(missed.mean()), 4),
            "drawn_pairs": len(drawn.labels),
            "drawn_errors": len(examples.images),
            **scores,
        }
        shown.append(examples)
    table = Table(
        *("pairs", "wrong, %", "95 % interval", "digits missed, %"),
        *("squared error", "IoU of masks", "auto wrong: pairs, %", "singles, %"),
    )
    for name, percent in PAPER_PERCENT.items():
        table.add_row(f"Sabour 2017, {name}", percent)
    keys = ["digit_error_percent", "squared_error", "mask_iou"]
    keys += ["auto_pair_error_percent", "auto_single_error_percent"]
    for name, scores in shifts.items():
        low, high = scores["interval_percent"]
        cells = [f"{scores['error_percent']:.2f}", f"{low:.2f} to {high:.2f}"]
        table.add_row(f"this bundle, shift {name}", *cells, *(f"{scores[key]:.2f}" for key in keys))
    first = next(iter(shifts.values()))
    protocol = (
        f"{first['pairs']:,} fixed pairs of digits of {which}, for each shift, through this "
        "bundle; a pair is wrong unless the two most present classes are its two labels; the "
        f"interval is as if digits were drawn anew; {first['drawn_pairs']:,} of the pairs are "
        "decoded, from the capsules of the true labels; a mask is where a digit gets "
        f"{manifest.mask_threshold:g} of the ink; one network, float32"
    )
    return Scores(
        split=split,
        images=first["pairs"],
        protocol=protocol,
        errors=first["errors"],
        interval_percent=tuple(first["interval_percent"]),
        wrong=shown[0],
        table=table,
        shifts=shifts,
    )


def find_missed(
    runtime: Runtime, digits: Examples, draws: NDArray[np.int64], *, shift_px: int
) -> NDArray[np.bool_]:
    """Return which digits (N, 2) of pairs are not named. Pairs are made a few at a time.

    Args:
        draws: (N, 6), as `PairDraw.draw` gives them.
    """
    size, parts = runtime.bundle.manifest.height, []
    for part in _slices(draws):
        pairs = make_pairs(digits, draws[part], size=size, shift_px=shift_px)
        parts.append(is_missed(runtime.encode(scale(pairs.images)).presence, pairs.labels))
    return np.concatenate(parts)


def score_shift(runtime: Runtime, pairs: PairSet) -> tuple[dict[str, Any], WrongAnswers]:
    """Score pairs that are drawn. Digits are decoded from the capsules of the true labels.

    - squared_error: of a digit's reconstruction against the digit alone, summed over pixels;
    - mask_iou: intersection over union of a digit's mask and its true ink;
    - true_ink, present_ink: sum of a digit's pixels, and of its reconstruction's;
    - absent_ink: the same where a class is decoded that is neither there nor named;
    - auto_pair_error_percent: pairs in which `count=auto` does not find just these two;
    - auto_single_error_percent: the same of the first digit alone.

    All are means over digits.
    """
    parts = [_measure(runtime, pairs.part(rows)) for rows in _slices(pairs.labels)]
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    wrong = find_wrong(pairs, values.pop("presence"))
    means = {name: round(float(value.mean(dtype=np.float64)), 4) for name, value in values.items()}
    return means, wrong


def choose_threshold(network: Network, pairs: PairSet) -> float:
    """The threshold that gives the best masks of these pairs. On the CPU."""

    def decode(poses: Floats, classes: NDArray[np.int64]) -> Floats:
        return network.decode(torch.from_numpy(poses), torch.from_numpy(classes)).numpy()

    parts = []
    with evaluating(network), torch.inference_mode():
        for rows in _slices(pairs.labels):
            poses = network(torch.from_numpy(scale(pairs.images[rows]))).poses.numpy()
            parts.append(decode_each(decode, poses, pairs.labels[rows]))
    decoded = np.concatenate(parts)
    images, object_images = scale(pairs.images)[:, 0], scale(pairs.object_images)
    overlaps = [
        measure_overlap(find_masks(images, decoded, threshold=threshold), object_images).mean()
        for threshold in THRESHOLDS
    ]
    return THRESHOLDS[int(np.argmax(overlaps))]


def measure_overlap(masks: NDArray[np.bool_], object_images: Floats) -> NDArray[np.float64]:
    """Compute the intersection over union of masks and the ink of images (..., H, W): (...)."""
    true = object_images >= INK
    shared, either = ((masks & true).sum(axis=(-2, -1)), (masks | true).sum(axis=(-2, -1)))
    return np.asarray(shared / np.maximum(either, 1))


def _measure(runtime: Runtime, pairs: PairSet) -> dict[str, NDArray[Any]]:
    """Scores of each of the digits (N, 2), and presence (N, K)."""
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    images, object_images = scale(pairs.images), scale(pairs.object_images)
    presence, poses = runtime.encode(images)
    decoded = decode_each(runtime.decode, poses, pairs.labels)
    absent = decode_each(runtime.decode, poses, pick_absent(presence, pairs.labels)[:, None])
    masks = find_masks(images[:, 0], decoded, threshold=threshold)
    return {
        "presence": presence,
        "squared_error": np.square(decoded - object_images).sum(axis=(2, 3)),
        "mask_iou": measure_overlap(masks, object_images),
        "true_ink": object_images.sum(axis=(2, 3)),
        "present_ink": decoded.sum(axis=(2, 3)),
        "absent_ink": absent.sum(axis=(2, 3)),
        "auto_pair_error_percent": 100 * ~_are_counted(runtime, images, pairs.labels),
        "auto_single_error_percent": 100
        * ~_are_counted(runtime, object_images[:, :1], pairs.labels[:, :1]),
    }


def _are_counted(runtime: Runtime, images: Floats, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether `count=auto` finds just these classes (N, L) in images (N, 1, H, W): (N,)."""
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    presence, poses = runtime.encode(images)
    right = []
    for image, lengths, capsules, expected in zip(images, presence, poses, labels, strict=True):
        classes = candidates(lengths, "auto")
        decoded = (
            runtime.decode(capsules[classes], classes)[:, 0] if len(classes) else images[:0, 0]
        )
        segmentation = segment(
            image[0], lengths, classes, decoded, threshold=threshold, count="auto"
        )
        right.append(set(segmentation.labels.tolist()) == set(expected.tolist()))
    return np.array(right)


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


def _keep(runtime: Runtime, scores: Scores, data_dir: Path) -> None:
    """Write scores into manifest and card, and draw the wrong answers.

    Images of other kinds are compared with test images, which no network has learnt.
    """
    bundle = runtime.bundle
    rule = compared = bundle.manifest.novelty
    if rule and scores.novelty is not None and scores.split == "test":
        described = f"{scores.images:,} test images"
        found = separate(runtime, rule, data_dir, typical=scores.novelty, described=described)
        draw_roc(found.curves, bundle.path / ROC)
        percent = round(100 * float(np.mean(scores.novelty < rule.threshold)), 2)
        compared = replace(rule, test_novel_percent=percent, others=found.others)

    def add(manifest: Manifest) -> Manifest:
        training = manifest.training
        novelty = compared if manifest.novelty == rule else manifest.novelty
        if scores.split == "test":
            reads = reads_of(bundle.path.parent, runs_of(training))
            training = {**training, "test_reads": [asdict(read) for read in reads]}
        seeds = {key: value for key, value in manifest.metrics.items() if key == "seeds"}
        metrics = scores.metrics() | seeds  # of networks that differ in their seed
        explained = scores.explained or manifest.explained
        return replace(
            manifest, metrics=metrics, training=training, novelty=novelty, explained=explained
        )

    (bundle.path / WRONG).unlink(missing_ok=True)
    if len(scores.wrong.images):
        draw_wrong(scores.wrong, bundle.manifest.class_names, bundle.path / WRONG)
    if scores.confidence:
        name = bundle.manifest.name
        draw_confidence(scores.confidence, bundle.path / CONFIDENCE, title=name)
    write_card(update_manifest(bundle, add))


def _slices(labels: NDArray[np.int64]) -> list[slice]:
    return [slice(start, start + BATCH) for start in range(0, len(labels), BATCH)]


def _rounded(bounds: tuple[float, float]) -> list[float]:
    return [round(bound, 4) for bound in bounds]
