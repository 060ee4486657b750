from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import CARD, WEIGHTS, Bundle, BundleError, write_manifest
from training.data.datasets import Examples
from training.inside import strangers
from training.publication.findings import ROC, ROUTING_CURVE, SWEEP
from training.publication.study import meet_strangers, study, study_dimensions, study_familiarity
from training.recipes import PRESETS
from training.run.lineage import Leg

TRAINING = {
    "recipe": PRESETS["mnist-compact"].to_dict(),
    "examples": 1000,
    "lineage": [Leg("mnist-compact", "mnist", "digits", 1, 10, 640, 40, 360, ("CPU",)).to_dict()],
}


@pytest.fixture
def bundle(bundle_path: Path, tmp_path: Path) -> Bundle:
    """A bundle that was published but not studied."""
    folder = Path(shutil.copytree(bundle_path, tmp_path / "mnist"))
    write_manifest(folder, replace(Bundle.open(folder).manifest, training=TRAINING))
    return Bundle.open(folder)


@pytest.fixture
def digits() -> Examples:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 28, 28), np.uint8) * (rng.random((40, 28, 28)) < 0.2)
    return Examples(images.astype(np.uint8), np.repeat(np.arange(2, dtype=np.uint8), 20))


def test_a_studied_bundle_tells_what_was_found(bundle: Bundle, digits: Examples) -> None:
    """Names and rule are in the manifest that is read back, and all of it is in the card."""
    studied = study(bundle, digits)
    assert studied.manifest == Bundle.open(bundle.path).manifest
    assert {(label, dim) for label in (0, 1) for dim in range(16)} == {
        (one.label, one.dim) for one in studied.manifest.pose_dimensions
    }
    assert studied.manifest.known is not None
    assert studied.manifest.known.pictures.endswith("which the network was not trained on")
    for drawing in (ROUTING_CURVE, SWEEP):
        with Image.open(bundle.path / drawing) as picture:
            assert "PNG" == picture.format
    card = (bundle.path / CARD).read_text()
    for heading in ("## Pose dimensions", "## Sweeps", "## Routing", "## How sure", "## Limits"):
        assert heading in card.splitlines()


def test_strangers_are_met_by_the_rule_as_it_stands(
    bundle: Bundle, digits: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind's verdict is recorded, and nothing else of the rule changes."""
    monkeypatch.setattr(strangers, "load", lambda *_: digits)
    monkeypatch.setattr(strangers, "COUNT", 5)
    fitted = study_familiarity(bundle, digits)
    met = meet_strangers(fitted, digits, data_dir=tmp_path)
    assert fitted.manifest.known is not None
    assert met.manifest.known is not None
    assert fitted.manifest.known == replace(met.manifest.known, strangers=())
    assert {"noise", "blanks", "letters", "clothes"} == {
        one["kind"] for one in met.manifest.known.strangers
    }
    assert (bundle.path / ROC).exists()
    assert "| letters | 5 |" in (bundle.path / CARD).read_text()


def test_findings_in_other_weights_are_forgotten(bundle: Bundle, digits: Examples) -> None:
    """Names measured on a network that was replaced do not outlive a new measurement."""
    fitted = study_familiarity(bundle, digits)
    assert fitted.manifest.sha256[WEIGHTS] == fitted.manifest.studied_weights
    replaced = replace(fitted, manifest=replace(fitted.manifest, studied_weights="another"))
    assert study_dimensions(replaced, digits).manifest.known is None
    assert study_dimensions(fitted, digits).manifest.known == fitted.manifest.known


def test_without_a_rule_no_strangers_are_met(
    bundle: Bundle, digits: Examples, tmp_path: Path
) -> None:
    """The message names the command that is missing."""
    with pytest.raises(BundleError, match="fit-known"):
        meet_strangers(bundle, digits, data_dir=tmp_path)
