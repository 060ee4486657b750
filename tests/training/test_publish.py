"""From a finished run to a bundle with its log, curves and card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from model.bundle import CARD, MANIFEST, Bundle, BundleError
from model.bundle.samples import SAMPLES, read_samples
from model.capsnet import load
from model.capsnet.baseline import BaselineConfig
from model.preprocess import scale
from model.runtime import Runtime
from tests.training.published import TRAINING, write_toys
from training.__main__ import app
from training.answers import measure_presence
from training.data.datasets import DATASETS
from training.data.source import DatasetError
from training.export import export
from training.figures import DECODED, FIGURES, WRONG
from training.metrics import METRICS
from training.recipes import Recipe
from training.state import Plan
from training.trainer import Trainer
from training.training_data import load_pictures, load_published

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    """One epoch of five steps with a network that is quickly exported."""
    return Recipe(
        "tiny",
        dataset="toys",
        network=BaselineConfig(convs=(2,), kernels=(3,), pooling=True, hidden=(8,)),
        loss="cross-entropy",
        mse_weight=0,
        epochs=1,
        batch_size=8,
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the toys, which are a published data set here."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "toys", write_toys(folder))
        yield folder


@pytest.fixture(scope="module")
def run_dir(recipe: Recipe, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the toys."""
    training = load_published(recipe, data_dir).training
    plan = Plan(recipe, 1, training, None, tmp_path_factory.mktemp("run"))
    assert Trainer(plan, device=CPU).run(log_every=1)
    return plan.directory


def test_a_published_bundle_carries_its_training(
    run_dir: Path, data_dir: Path, tmp_path: Path, recipe: Recipe
) -> None:
    """Recipe, runs, log, curves and card go with the network, which answers as it was trained."""
    export(run_dir, bundles=tmp_path, data_dir=data_dir)
    bundle = Bundle.open(tmp_path / "tiny")
    training = bundle.manifest.training
    (run,) = training["runs"]
    assert recipe == Recipe.from_dict(training["recipe"])
    assert ("tiny", 1, "toys") == (run["preset"], run["seed"], run["dataset"])
    assert [] == training["test_reads"]
    assert (run_dir / METRICS).read_text() == (bundle.path / METRICS).read_text()
    for name in (CARD, FIGURES):
        assert (bundle.path / name).stat().st_size > 0
    assert not (bundle.path / SAMPLES).exists()  # the licence is not known
    examples = load_published(recipe, data_dir).without_validation().training
    assert TRAINING == len(examples.labels)
    expected = measure_presence(load(bundle), examples.images, CPU)
    actual = Runtime(bundle, device="cpu").encode(scale(examples.images)).presence
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_images_become_samples_where_their_licence_is_known(
    run_dir: Path, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are held-out images, and the index names the licence."""
    monkeypatch.setitem(DATASETS, "toys", replace(DATASETS["toys"], licence="CC0-1.0"))
    export(run_dir, bundles=tmp_path, data_dir=data_dir)
    bundle = Bundle.open(tmp_path / "tiny")
    recipe = Recipe.from_dict(bundle.manifest.training["recipe"])
    known = {image.tobytes() for image in load_published(recipe, data_dir).validation.images}
    for sample in read_samples(bundle.path / SAMPLES, len(bundle.manifest.class_names)):
        assert "CC0-1.0" == sample.licence
        assert np.asarray(Image.open(bundle.path / SAMPLES / sample.file)).tobytes() in known


def test_own_pictures_stay_out_of_a_private_bundle(
    tiny_attention: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found where they are now; otherwise neighbours, samples and figures show them."""
    monkeypatch.setattr("training.novelty.COUNT", 5)
    rng = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        for number in range(6):
            picture = Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8))
            picture.save(tmp_path / "pets" / kind / f"{number}.png")
    recipe, data = load_pictures(tiny_attention, tmp_path / "pets")
    recipe = replace(recipe, epochs=1)
    plan = Plan(recipe, 1, data.training, data.validation, tmp_path / "run", data.split)
    Trainer(plan, device=CPU).run(log_every=1)
    command = ["export", str(tmp_path / "run"), "--bundles", str(tmp_path), "--name"]
    shown = CliRunner().invoke(app, [*command, "shown"], catch_exceptions=False)
    assert "/neighbours shows your own pictures (10 training images); --private" in shown.output
    (tmp_path / "pets").rename(tmp_path / "moved")
    with pytest.raises(DatasetError, match="is not there: say where the pictures are with --data"):
        CliRunner().invoke(app, [*command, "private", "--private"], catch_exceptions=False)
    moved = [*command, "private", "--private", "--data", str(tmp_path / "moved")]
    private = CliRunner().invoke(app, moved, catch_exceptions=False)
    assert "private: the bundle has none of your pictures" in private.output
    for name, licence in (("shown", "yours"), ("private", "")):
        bundle = Bundle.open(tmp_path / name)
        assert str(tmp_path) not in (bundle.path / MANIFEST).read_text()
        described = bundle.manifest.neighbours
        assert described
        assert described.gallery
        assert (licence, bool(licence)) == (described.licence, bool(described.gallery.sheet.size))
        assert (bundle.path / SAMPLES).exists() == bool(licence)
        assert (bundle.path / WRONG).exists() <= bool(licence)
    drawn = [np.asarray(Image.open(tmp_path / name / DECODED)) for name in ("shown", "private")]
    assert len(drawn[0]) > len(drawn[1])  # sweeps alone, without the pictures above them


def test_the_bundle_of_another_run_is_not_replaced(run_dir: Path, tmp_path: Path) -> None:
    """Before anything is computed, unless that is asked for."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / MANIFEST).write_text('{"training": {"imported": "net.onnx"}}')
    with pytest.raises(BundleError, match=r"import of net\.onnx: choose another --name"):
        export(run_dir, bundles=tmp_path, data_dir=tmp_path)
    with pytest.raises(DatasetError, match="is missing"):
        export(run_dir, bundles=tmp_path, data_dir=tmp_path, replace=True)
