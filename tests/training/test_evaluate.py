from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.bundle import CARD, Bundle, BundleError, write_manifest
from model.bundle.poses import NoveltyRule
from model.pairs import find_masks
from model.preprocess import scale
from model.runtime import Runtime
from tests.training.published import HELD_OUT, RUN, TEST, say_training
from training.answers import answer_images, is_missed, is_wrong
from training.data.datasets import DATASETS, Examples, load
from training.data.pairs import TEST_DIGESTS, TEST_SEED, digest, draw_pairs, fixed_pairs
from training.data.source import DatasetError
from training.evaluate import (
    evaluate,
)
from training.export import conclude_export
from training.figures import WRONG
from training.pair_scores import measure_overlap, score_drawn
from training.provenance import TEST_READS, reads_of
from training.statistics import interval, mean_interval


@pytest.fixture(scope="module")
def noise() -> Examples:
    """Five pairs of noise in the size of the bundle for pairs."""
    rng = np.random.default_rng(0)
    layers = rng.integers(0, 120, (5, 2, 36, 36), dtype=np.uint8)
    labels = np.array([[0, 1], [2, 0], [1, 2], [2, 1], [1, 0]])
    images = layers.sum(axis=1, dtype=np.uint8, keepdims=True)
    return Examples(images, labels, object_images=layers)


def test_a_test_score_is_in_manifest_and_card(bundle: Bundle, data_dir: Path) -> None:
    """Every test image is counted once, and what was counted is written."""
    scores = evaluate(bundle, data_dir)
    manifest = Bundle.open(bundle.path).manifest
    assert scores.metrics() == manifest.metrics
    assert (TEST, TEST) == (sum(recall.images for recall in scores.recalls), scores.images)
    right = sum(recall.right for recall in scores.recalls)
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


def test_false_alarms_are_those_of_the_test_split(bundle: Bundle, data_dir: Path) -> None:
    """The card says how many test images are novel; other kinds are compared with them."""
    ends = (0.0, 2.0)
    rule = NoveltyRule((0.0, 1.0), ends, ends, ends, 1.0, "noise")
    write_manifest(bundle.path, replace(bundle.manifest, novelty=rule))
    evaluate(Bundle.open(bundle.path), data_dir)
    found = Bundle.open(bundle.path).manifest.novelty
    assert found is not None
    assert replace(rule, test_novel_percent=100.0, others=found.others) == found
    assert {f"{TEST} test images"} == {one["typical"] for one in found.others}
    assert "Of the test images, 100 % are novel" in (bundle.path / CARD).read_text()


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
    assert () == reads_of(bundle.path.parent, [replace(RUN, id="another")])


def test_without_a_record_a_test_split_is_not_read(bundle: Bundle, data_dir: Path) -> None:
    """A record that is broken is noticed before; the bundle stays what it was."""
    (bundle.path.parent / TEST_READS).write_text("no record\n")
    before = {path.name: path.read_bytes() for path in bundle.path.iterdir()}
    with pytest.raises(BundleError):
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


def test_scores_of_pairs_are_means_over_digits(
    strokes_bundle_path: Path, noise: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted pair by pair, in batches that do not divide the set."""
    monkeypatch.setattr("training.answers.BATCH", 2)
    runtime = Runtime(Bundle.open(strokes_bundle_path), device="cpu")
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    pairs = answer_images(runtime, noise)
    scores = score_drawn(runtime, pairs)
    assert noise.object_images is not None
    images, layers = scale(noise.images), scale(noise.object_images)
    answers = runtime.encode(images)
    squared, overlaps = [], []
    for n, labels in enumerate(noise.labels.tolist()):
        named = set(np.argsort(answers.presence[n])[-2:].tolist())
        assert (named != set(labels)) == is_wrong(pairs.presence, pairs.labels)[n]
        drawn = runtime.decode(answers.poses[n, labels], np.array(labels))[:, 0]
        squared += np.square(drawn - layers[n]).sum(axis=(1, 2)).tolist()
        masks = find_masks(images[n, 0], drawn, threshold=threshold)
        overlaps += [float(measure_overlap(*one)) for one in zip(masks, layers[n], strict=True)]
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
        monkeypatch.setitem(TEST_DIGESTS, shift_px, digest(pairs))
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
        digits = draw_pairs(seven.labels, 50, TEST_SEED, shift_px=shift_px)[:, :2]
        told = scores.shifts[f"{shift_px} px"]
        wrong = np.any(missed, axis=1)
        assert (50, int(wrong.sum()), 7) == (told["pairs"], told["errors"], told["drawn_pairs"])
        assert int(wrong[:7].sum()) == told["drawn_errors"]
        assert pytest.approx(100 * missed.mean()) == told["digit_error_percent"]
        expected = mean_interval(wrong, digits)
        assert pytest.approx(list(expected), abs=1e-4) == told["interval_percent"]
    assert scores.shifts["4 px"]["interval_percent"] == scores.metrics()["interval_percent"]
