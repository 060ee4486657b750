from __future__ import annotations

import gzip
import hashlib
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from model.bundle import CARD, WEIGHTS, Bundle
from model.capsnet import CapsNetConfig
from training.__main__ import app
from training.baseline import BaselineConfig
from training.data.datasets import DATASETS, Dataset, DatasetError, Examples, load
from training.data.pairs import TEST_DIGESTS, digest, fixed_pairs
from training.evaluation.pair_scores import THRESHOLDS
from training.evaluation.scores import score
from training.publication import publishing
from training.publication.export import replacing_folder
from training.publication.findings import WRONG
from training.publication.graphs import ExportError
from training.publication.publishing import publish, record_scores
from training.recipes import Recipe
from training.run.plan import CURVES, METRICS, Plan
from training.run.trainer import Trainer

TINY = Recipe(
    name="tiny",
    dataset="mnist",
    network=CapsNetConfig(conv_channels=4, primary_types=1, decoder_hidden=(8, 8)),
    epochs=1,
    batch_size=8,
)


def write_idx(path: Path, values: np.ndarray) -> str:
    """Write a compressed IDX file; returns the digest of its content."""
    content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    content += values.tobytes()
    path.write_bytes(gzip.compress(content))
    return hashlib.md5(content).hexdigest()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set of noise, 40 training and 20 test images."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module", autouse=True)
def noise(data_dir: Path) -> Dataset:
    """The data set, put in place of MNIST."""
    rng = np.random.default_rng(0)
    folder = data_dir / "mnist"
    folder.mkdir()
    md5 = {}
    for prefix, count in (("train", 40), ("t10k", 20)):
        arrays = {
            "images-idx3": rng.integers(0, 256, (count, 28, 28), dtype=np.uint8),
            "labels-idx1": rng.integers(0, 10, count, dtype=np.uint8),
        }
        for kind, values in arrays.items():
            name = f"{prefix}-{kind}-ubyte"
            md5[name] = write_idx(folder / f"{name}.gz", values)
    return replace(DATASETS["mnist"], md5=md5)


@pytest.fixture(scope="module")
def published(
    data_dir: Path, noise: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Bundle, Path]:
    """The bundle of a short run, and the run's folder."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "mnist", noise)
        patch.setattr(publishing, "HELD_OUT", 10)
        examples: Examples = load(noise, "train", data_dir)
        Trainer(Plan(TINY, 1, examples, None, folder), device=torch.device("cpu")).run(log_every=1)
        bundle = publish(folder, folder / "bundles", name=None, data_dir=data_dir)
    return bundle, folder


def test_bundle_carries_its_training(published: tuple[Bundle, Path]) -> None:
    """Recipe, seed, log and curves go with the network."""
    bundle, folder = published
    training = bundle.manifest.training
    assert (
        TINY.to_dict()["network"]["conv_channels"] == training["recipe"]["network"]["conv_channels"]
    )
    (leg,) = training["lineage"]
    assert (1, 5, ["CPU"]) == (leg["seed"], leg["steps"], leg["devices"])
    assert (folder / METRICS).read_text() == (bundle.path / METRICS).read_text()
    assert (bundle.path / CURVES).stat().st_size > 0


def test_card_owns_up_to_what_is_not_done(published: tuple[Bundle, Path]) -> None:
    """A short training and a missing score are said in the card."""
    card = (published[0].path / CARD).read_text()
    assert "A short training of 1 epochs on a CPU alone" in card.splitlines()[2]
    assert "not measured yet" in card


def test_recorded_score_is_in_manifest_and_card(
    published: tuple[Bundle, Path], data_dir: Path, noise: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evaluate --record` counts every test image and writes what it counted."""
    monkeypatch.setitem(DATASETS, "mnist", noise)
    bundle = published[0]
    scores = score(bundle, data_dir=data_dir)
    record_scores(bundle, scores)
    metrics = Bundle.open(bundle.path).manifest.metrics
    assert (20, scores.errors) == (int(scores.confusion.sum()), metrics["test_errors"])
    assert 100 * scores.errors / 20 == scores.error_percent
    card = (bundle.path / CARD).read_text()
    assert f"({scores.errors} of 20)" in card
    assert f"]({WRONG})" in card
    assert (bundle.path / WRONG).exists()


def test_a_score_read_again_says_so(
    published: tuple[Bundle, Path], data_dir: Path, noise: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the protocol knows that the score was known, and whether it changed."""
    monkeypatch.setitem(DATASETS, "mnist", noise)
    path = published[0].path
    scores = score(published[0], data_dir=data_dir)
    record_scores(Bundle.open(path), scores)
    record_scores(Bundle.open(path), scores)
    manifest = Bundle.open(path).manifest
    other = replace(manifest, metrics={**manifest.metrics, "test_errors": 1234})
    record_scores(Bundle(path, other), scores)
    *_, first, second = Bundle.open(path).manifest.metrics["earlier_errors"]
    assert (scores.errors, 1234) == (first, second)
    assert f"before, {scores.errors}, " in (card := (path / CARD).read_text())
    assert ", 1,234 were wrong." in card


def test_scoring_changes_nothing(
    published: tuple[Bundle, Path], data_dir: Path, noise: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking at a score leaves the bundle as it was."""
    monkeypatch.setitem(DATASETS, "mnist", noise)
    before = {path.name: path.read_bytes() for path in published[0].path.iterdir()}
    score(published[0], data_dir=data_dir)
    assert before == {path.name: path.read_bytes() for path in published[0].path.iterdir()}


@pytest.fixture(scope="module")
def published_pairs(
    data_dir: Path, noise: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    """The bundle of one step on pairs of noise, exported in 8 bits by the command line."""
    folder = tmp_path_factory.mktemp("pairs")
    recipe = replace(
        TINY, task="pairs", network=replace(TINY.network, image_size=36), epochs=8e-5, shift_px=4
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "mnist", noise)
        patch.setattr(publishing, "HELD_OUT", 10)
        patch.setattr("training.data.pairs.VALIDATION_PAIRS", 6)
        examples = load(noise, "train", data_dir)
        Trainer(Plan(recipe, 1, examples, None, folder), device=torch.device("cpu")).run()
        options = ["--bundles", str(folder / "bundles"), "--data-dir", str(data_dir)]
        arguments = ["export", str(folder), "--bits", "8", *options]
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    return Bundle.open(folder / "bundles" / recipe.name)


def test_bundle_of_pairs_says_so(published_pairs: Bundle) -> None:
    """Data set, preprocessing and the threshold of masks follow from the task."""
    manifest = published_pairs.manifest
    assert ("multimnist", "pair", 36) == (
        manifest.dataset,
        manifest.preprocess,
        manifest.image_size,
    )
    assert manifest.mask_threshold in THRESHOLDS
    assert "two overlapping digits" in (published_pairs.path / CARD).read_text()


def test_manifest_and_card_say_in_how_many_bits_weights_are_stored(
    published: tuple[Bundle, Path], published_pairs: Bundle
) -> None:
    """`--bits 8` stores them so, and a card tells size and effect."""
    for bundle, bits, storage in (
        (published[0], 16, "16 bits"),
        (published_pairs, 8, "8 bits with a scale for each channel"),
    ):
        card = (bundle.path / CARD).read_text()
        size_mb = (bundle.path / WEIGHTS).stat().st_size / 1e6
        assert bits == bundle.manifest.rounding["stored_bits"]
        assert f"| {size_mb:.1f} MB in {storage}, computed in 32 |" in card
        assert f"Storing the weights in {storage} changed" in card


def test_bundle_of_clothes_says_so(
    data_dir: Path, noise: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has their names, scales other pictures whole, and its card speaks of no digits."""
    dataset = replace(DATASETS["fashion-mnist"], md5=noise.md5)
    monkeypatch.setitem(DATASETS, dataset.name, dataset)
    monkeypatch.setattr(publishing, "HELD_OUT", 10)
    (tmp_path / dataset.name).symlink_to(data_dir / noise.name)
    recipe = replace(TINY, dataset=dataset.name, flip=True, average_decay=0.5)
    plan = Plan(recipe, 1, load(dataset, "train", tmp_path), None, tmp_path / "run")
    Trainer(plan, device=torch.device("cpu")).run(log_every=1)
    bundle = publish(plan.directory, tmp_path / "bundles", name=None, data_dir=tmp_path)
    scores = score(bundle, data_dir=tmp_path)
    manifest = Bundle.open(bundle.path).manifest
    assert ("fashion-mnist", "stretch") == (manifest.dataset, manifest.preprocess)
    assert ("Trouser", "Bag") == (manifest.class_names[1], manifest.class_names[8])
    assert "paper" not in scores.headline()
    assert "digit" not in (bundle.path / CARD).read_text()


def test_recorded_scores_of_pairs(
    published_pairs: Bundle, data_dir: Path, noise: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both shifts are in the manifest and in the card, the paper's in front."""
    monkeypatch.setitem(DATASETS, "mnist", noise)
    monkeypatch.setattr("training.data.pairs.TEST_PAIRS", 7)
    examples = load(noise, "test", data_dir)
    for shift_px in (4, 6):
        pairs = fixed_pairs(examples, 7, size=36, shift_px=shift_px, seed=2017)
        monkeypatch.setitem(TEST_DIGESTS, shift_px, digest(pairs))
    record_scores(published_pairs, score(published_pairs, data_dir=data_dir))
    metrics = Bundle.open(published_pairs.path).manifest.metrics
    assert ["4 px", "6 px"] == list(metrics["shifts"])
    assert metrics["test_errors"] == metrics["shifts"]["4 px"]["errors"]
    card = (published_pairs.path / CARD).read_text()
    assert f"({metrics['test_errors']} of 7)" in card
    assert "pairs at shift 4 that were answered wrongly" in card
    assert {"| 4 px |", "| 6 px |"} <= {line[:8] for line in card.splitlines()}


def test_other_test_pairs_than_the_published_ones_are_refused(
    published_pairs: Bundle, data_dir: Path, noise: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are comparable only on the same pairs, bit for bit."""
    monkeypatch.setitem(DATASETS, "mnist", noise)
    with pytest.raises(DatasetError, match="not the published ones"):
        score(published_pairs, data_dir=data_dir)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "nowhere"], "no checkpoint"),
        (["evaluate", "nowhere"], "cannot be read"),
        (["train", "mnist", "--device", "tpu9"], "device tpu9 does not work"),
        (["train", "cifar"], "none of"),
        (["train", "mnist", "--data-dir", "broken"], "not the published file"),
    ],
)
def test_command_line_fails_with_a_sentence(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    """What can be expected to go wrong is one message, without a traceback."""
    (tmp_path / "broken" / "mnist").mkdir(parents=True)
    (tmp_path / "broken" / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"no")
    root = Path(publishing.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-m", "training", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert message in output
    assert "Traceback" not in output


def test_a_network_without_capsules_is_not_published(tmp_path: Path) -> None:
    """Its run trains to the end, and `export` says why it stays one."""
    recipe = replace(TINY, baseline=BaselineConfig(channels=(2,), kernels=(3,), hidden=(4,)))
    digits = Examples(np.zeros((8, 28, 28), np.uint8), np.arange(8, dtype=np.uint8))
    Trainer(Plan(recipe, 1, digits, None, tmp_path / "run"), device=torch.device("cpu")).run()
    with pytest.raises(ExportError, match="no capsules"):
        publish(tmp_path / "run", tmp_path, name=None, data_dir=tmp_path)


@pytest.fixture
def unfinished(tmp_path: Path) -> tuple[Path, Path]:
    """A run without its log, and a bundle that is there already."""
    digits = Examples(np.zeros((8, 28, 28), np.uint8), np.arange(8, dtype=np.uint8))
    Trainer(Plan(TINY, 1, digits, None, tmp_path / "run"), device=torch.device("cpu")).run()
    (tmp_path / "run" / METRICS).unlink()
    (tmp_path / TINY.name).mkdir()
    (tmp_path / TINY.name / CARD).write_text("the bundle before")
    return tmp_path / "run", tmp_path / TINY.name


def test_a_run_without_its_log_is_not_published(unfinished: tuple[Path, Path]) -> None:
    """The bundle that is there stays what it was."""
    run, bundle = unfinished
    with pytest.raises(ExportError, match=r"has no metrics\.jsonl"):
        publish(run, bundle.parent, name=None, data_dir=bundle.parent)
    assert "the bundle before" == (bundle / CARD).read_text()


def test_an_impossible_name_is_refused(unfinished: tuple[Path, Path]) -> None:
    """Before anything is computed."""
    run, bundle = unfinished
    (run / METRICS).touch()
    with pytest.raises(ExportError, match="'My Net' is not a bundle name"):
        publish(run, bundle.parent, name="My Net", data_dir=bundle.parent)


def test_a_bundle_is_replaced_when_all_is_there(tmp_path: Path) -> None:
    """What fails on the way leaves the bundle before it, and nothing else."""
    target = tmp_path / "digits"
    for text in ("old", "new"):
        with replacing_folder(target) as folder:
            (folder / CARD).write_text(text)
    with pytest.raises(FileNotFoundError), replacing_folder(target) as folder:
        (folder / "missing").rename(folder / CARD)
    assert "new" == (target / CARD).read_text()
    assert [target] == list(tmp_path.iterdir())
