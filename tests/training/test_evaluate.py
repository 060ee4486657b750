from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import CARD, Bundle, write_manifest
from model.bundle.novelty import NoveltyRule
from model.capsnet import Network
from model.preprocess import scale
from model.runtime import Runtime
from model.views.masks import find_masks
from tests.training.published import HELD_OUT, RUN, TEST, say_training
from training import kinds
from training.__main__ import conclude_export
from training.analysis.bundle import analyse
from training.answers import is_missed
from training.card import EXPLAINED, WRONG
from training.data.datasets import DATASETS, Examples, digest, load
from training.data.pairs import TEST_DIGESTS, TEST_SEED, PairDraw, PairSet, fixed_pairs
from training.data.source import DatasetError
from training.evaluate import (
    evaluate,
    validation_examples,
)
from training.pair_scores import choose_threshold, measure_overlap, score_shift
from training.provenance import TEST_READS, ProvenanceError, reads_of
from training.recipes import Recipe
from training.statistics import interval, mean_interval
from training.training_data import load_pictures


@pytest.fixture(scope="module")
def noise() -> PairSet:
    """Five pairs of noise in the size of the bundle for pairs."""
    rng = np.random.default_rng(0)
    layers = rng.integers(0, 120, (5, 2, 36, 36), dtype=np.uint8)
    labels = np.array([[0, 1], [2, 0], [1, 2], [2, 1], [1, 0]])
    return PairSet(layers.sum(axis=1, dtype=np.uint8, keepdims=True), layers, labels)


def test_a_test_score_is_in_manifest_and_card(bundle: Bundle, data_dir: Path) -> None:
    """Every test image is counted once, and what was counted is written."""
    scores = evaluate(bundle, data_dir)
    manifest = Bundle.open(bundle.path).manifest
    assert scores.metrics() == manifest.metrics
    counts = [int(cell or 0) for column in scores.table.columns[1:] for cell in column.cells]
    assert (TEST, TEST) == (sum(counts), scores.images)
    right = sum(counts[:: manifest.num_classes + 1])
    assert (TEST - right, 100 * scores.errors / TEST) == (
        scores.errors,
        manifest.metrics["test_error_percent"],
    )
    low, high = interval(scores.errors, TEST)
    assert [low, high] == pytest.approx(manifest.metrics["interval_percent"], abs=1e-4)
    card = (bundle.path / CARD).read_text()
    assert f"{scores.errors} wrong)" in card
    assert f"({WRONG})" in card
    assert (bundle.path / WRONG).exists()
    assert f"{low:.2f} to {high:.2f}" in scores.headline()
    assert manifest.explained is not None
    assert ("of the test images", TEST) == (manifest.explained.images, manifest.explained.count)
    assert (bundle.path / EXPLAINED).exists()


@pytest.mark.parametrize(("threshold", "percent"), [(0.0, 0.0), (1.0, 100.0)])
def test_false_alarms_are_those_of_the_test_split(
    bundle: Bundle,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    threshold: float,
    percent: float,
) -> None:
    """The card says how many test images are novel; other kinds are compared with them."""
    monkeypatch.setattr(kinds, "COUNT", 5)
    ends = (0.0, 2.0)
    rule = NoveltyRule((0.0, 1.0), ends, ends, ends, threshold, "noise")
    write_manifest(bundle.path, replace(bundle.manifest, novelty=rule))
    evaluate(Bundle.open(bundle.path), data_dir)
    found = Bundle.open(bundle.path).manifest.novelty
    assert found is not None
    assert replace(rule, test_novel_percent=percent, others=found.others) == found
    assert {f"{TEST} test images"} == {one["typical"] for one in found.others}
    assert f"Of the test images, {percent:g} % are novel" in (bundle.path / CARD).read_text()


def test_every_read_of_a_test_split_is_on_record(bundle: Bundle, data_dir: Path) -> None:
    """In record, manifest and card, also of a bundle made anew, but not those of other runs."""
    evaluate(bundle, data_dir)
    again = say_training(bundle.path, bundle.path.with_name("again"))
    scores = evaluate(again, data_dir)
    reads = reads_of(bundle.path.parent, [RUN])
    assert [(RUN.id, bundle.manifest.version, "test", TEST, scores.errors)] * 2 == [
        (read.run, read.version, read.split, read.images, read.errors) for read in reads
    ]
    assert 2 == len(Bundle.open(again.path).manifest.training["test_reads"])
    assert "read 2 times" in (again.path / CARD).read_text()
    runs = (replace(RUN, id="another"),)
    other = say_training(bundle.path, bundle.path.with_name("other"), runs=runs)
    evaluate(other, data_dir)
    assert "read once" in (other.path / CARD).read_text()


def test_without_a_record_a_test_split_is_not_read(bundle: Bundle, data_dir: Path) -> None:
    """A record that is broken is noticed before; the bundle stays what it was."""
    (bundle.path.parent / TEST_READS).write_text("no record\n")
    before = {path.name: path.read_bytes() for path in bundle.path.iterdir()}
    with pytest.raises(ProvenanceError):
        evaluate(bundle, data_dir)
    assert before == {path.name: path.read_bytes() for path in bundle.path.iterdir()}


def test_held_out_images_may_be_read_without_one(bundle: Bundle, data_dir: Path) -> None:
    """Nothing is written; the protocol says that the network has not seen them."""
    before = {path.name: path.read_bytes() for path in bundle.path.iterdir()}
    scores = evaluate(bundle, data_dir, split="validation")
    assert HELD_OUT == scores.metrics()["validation_images"]
    assert "which were not trained on" in scores.protocol
    assert before == {path.name: path.read_bytes() for path in bundle.path.iterdir()}
    assert not (bundle.path.parent / TEST_READS).exists()


def test_images_that_were_trained_on_are_not_scored(bundle_path: Path, data_dir: Path) -> None:
    """A network that was trained with --final has seen them all; so has one that follows."""
    final, own = replace(RUN, held_out=0), replace(RUN, id="another")
    for name, runs in (("final", (final,)), ("after", (final, own))):
        bundle = say_training(bundle_path, data_dir / name, runs=runs)
        with pytest.raises(
            DatasetError, match=r"mnist was trained on all training images \(--final"
        ):
            evaluate(bundle, data_dir, split="validation")


def test_findings_made_meanwhile_are_kept(
    bundle: Bundle, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analysis and an evaluation of one bundle may run at the same time."""
    monkeypatch.setattr(kinds, "COUNT", 5)
    found = analyse(bundle, data_dir).manifest
    scores = evaluate(bundle, data_dir)
    kept = Bundle.open(bundle.path).manifest
    assert scores.calibration
    scored = {"metrics": scores.metrics(), "explained": scores.explained}
    scored |= {"novelty": scores.calibration.novelty}
    assert replace(found, training=kept.training, **scored) == kept


@pytest.mark.parametrize(("held_out", "option"), [(HELD_OUT, " --validation"), (0, "")])
def test_a_bundle_without_a_score_is_to_be_evaluated_next(
    held_out: int, option: str, bundle_path: Path, data_dir: Path
) -> None:
    """On held-out images, or on the test split where the network was trained on all others."""
    runs = (replace(RUN, held_out=held_out),)
    bundle = say_training(bundle_path, data_dir / "my bundles" / "mnist", runs=runs)
    wrote, then = conclude_export(bundle)
    assert f"wrote {bundle.path}" == wrote
    assert f"next: python -m training evaluate '{bundle.path}'{option}" == then


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of grey pictures of two classes."""
    rng = np.random.default_rng(0)
    for place, name in enumerate(("dark", "light")):
        (tmp_path / "shades" / name).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 100, (28, 28), np.uint8) + np.uint8(100 * place)
            Image.fromarray(pixels).save(tmp_path / "shades" / name / f"{number}.png")
    return tmp_path / "shades"


@pytest.fixture
def shades(bundle_path: Path, pictures: Path, tmp_path: Path) -> Bundle:
    """A bundle that learnt the folder."""
    data = load_pictures(Recipe("tiny"), pictures)
    assert data.pictures is not None
    bundle = say_training(bundle_path, tmp_path / "bundles" / "shades", dataset="shades")
    training = {**bundle.manifest.training, "pictures": data.pictures.model_dump(mode="json")}
    manifest = replace(bundle.manifest, dataset="shades", training=training)
    write_manifest(bundle.path, manifest)
    return Bundle.open(bundle.path)


def test_a_folder_of_pictures_is_scored_on_the_held_out_ones(
    shades: Bundle, tmp_path: Path
) -> None:
    """Its only scores are kept, under a name of their own."""
    evaluate(shades, tmp_path, split="validation")
    metrics = Bundle.open(shades.path).manifest.metrics
    assert 8 == metrics["validation_images"]
    assert "of 8 held-out images" in (shades.path / CARD).read_text()


def test_a_folder_that_moved_is_named(shades: Bundle, pictures: Path, tmp_path: Path) -> None:
    """Pictures are found where they are now, and missed where they were."""
    pictures.rename(tmp_path / "moved")
    with pytest.raises(DatasetError):
        validation_examples(shades, tmp_path)
    assert 8 == len(validation_examples(shades, tmp_path, folder=tmp_path / "moved").labels)


def test_scores_of_pairs_are_means_over_digits(
    strokes_bundle_path: Path, noise: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted pair by pair, in batches that do not divide the set."""
    monkeypatch.setattr("training.pair_scores.BATCH", 2)
    runtime = Runtime(Bundle.open(strokes_bundle_path), device="cpu")
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    scores, wrong = score_shift(runtime, noise)
    images, layers = scale(noise.images), scale(noise.object_images)
    answers = runtime.encode(images)
    errors, squared, overlaps = 0, [], []
    for n, labels in enumerate(noise.labels.tolist()):
        errors += set(np.argsort(answers.presence[n])[-2:].tolist()) != set(labels)
        drawn = runtime.decode(answers.poses[n, labels], np.array(labels))[:, 0]
        squared += np.square(drawn - layers[n]).sum(axis=(1, 2)).tolist()
        masks = find_masks(images[n, 0], drawn, threshold=threshold)
        overlaps += [float(measure_overlap(*one)) for one in zip(masks, layers[n], strict=True)]
    assert errors == len(wrong.images)
    assert pytest.approx(scores["squared_error"], rel=1e-4) == np.mean(squared)
    assert pytest.approx(scores["mask_iou"], abs=1e-4) == np.mean(overlaps)


@pytest.fixture
def pairs_bundle(strokes_bundle_path: Path, data_dir: Path) -> Bundle:
    """The bundle for pairs, which learnt the toys."""
    return say_training(strokes_bundle_path, data_dir / "bundles" / "strokes")


@pytest.fixture
def seven(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Examples:
    """The toys of the test split, of which seven pairs are published."""
    monkeypatch.setattr("training.data.pairs.PUBLISHED_PAIRS", 7)
    examples = load(DATASETS["toys"], "test", data_dir)
    for shift_px in TEST_DIGESTS:
        pairs = fixed_pairs(examples, 7, size=36, shift_px=shift_px, seed=TEST_SEED)
        monkeypatch.setitem(TEST_DIGESTS, shift_px, digest(*pairs))
    return examples


def test_more_pairs_than_are_published_are_made_a_few_at_a_time(
    pairs_bundle: Bundle, data_dir: Path, seven: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are named, as if made at once; the first are drawn; the interval knows the digits."""
    monkeypatch.setattr("training.pair_scores.BATCH", 8)
    scores = evaluate(pairs_bundle, data_dir, pairs=50)
    runtime = Runtime(Bundle.open(pairs_bundle.path), device="cpu")
    for shift_px in TEST_DIGESTS:
        pairs = fixed_pairs(seven, 50, size=36, shift_px=shift_px, seed=TEST_SEED)
        missed = is_missed(runtime.encode(scale(pairs.images)).presence, pairs.labels)
        digits = PairDraw(seven.labels, shift_px=shift_px).draw(50, TEST_SEED)[:, :2]
        told = scores.shifts[f"{shift_px} px"]
        wrong = missed.any(axis=1)
        assert (50, int(wrong.sum()), 7) == (told["pairs"], told["errors"], told["drawn_pairs"])
        assert int(wrong[:7].sum()) == told["drawn_errors"]
        assert pytest.approx(100 * missed.mean()) == told["digit_error_percent"]
        expected = mean_interval(wrong, digits)
        assert pytest.approx(list(expected), abs=1e-4) == told["interval_percent"]
    assert scores.shifts["4 px"]["interval_percent"] == scores.metrics()["interval_percent"]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [([1, 1, 0, 0], 1.0), ([1, 0, 0, 0], 0.5), ([0, 1, 1, 0], 1 / 3), ([0, 0, 1, 1], 0.0)],
)
def test_overlap_of_a_mask_with_the_true_ink(mask: list[int], expected: float) -> None:
    """Shared pixels among all pixels of either; faint pixels are no ink."""
    layer = np.array([[[0.1, 1.0, 0.09, 0.0]]], np.float32)
    assert pytest.approx(expected) == measure_overlap(np.array([[mask]], bool), layer).item()


@pytest.mark.parametrize(
    ("own", "foreign", "least", "most"), [(0.4, 0.0, 0.2, 0.28), (1.0, 0.6, 0.38, 0.5)]
)
def test_the_threshold_with_the_best_masks_is_chosen(
    network: Network,
    monkeypatch: pytest.MonkeyPatch,
    *,
    own: float,
    foreign: float,
    least: float,
    most: float,
) -> None:
    """A low one for a digit that is drawn faintly, a high one for strokes that are not its own."""
    layers = np.zeros((3, 2, 28, 28), np.uint8)
    layers[:, 0, :, :20] = layers[:, 1, :, 8:] = 255
    pairs = PairSet(layers.max(axis=1, keepdims=True), layers, np.array([[0, 1], [9, 0], [3, 7]]))
    drawn = layers.astype(np.float32) / 255
    drawn[:, 1] = np.maximum(own * drawn[:, 1], foreign * drawn[:, 0])
    monkeypatch.setattr("training.pair_scores.decode_each", lambda *_: drawn)
    assert least <= choose_threshold(network, pairs) <= most
