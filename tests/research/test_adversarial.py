"""Attacks change images within their bounds, and the table shows what detectors find."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.capsnet import Network
from model.preprocess import scale
from model.runtime import Runtime
from research import adversarial
from research.adversarial import ATTACKS, Attack, attack_images, lead
from tests.training.conftest import trained
from tests.training.published import say_training, write_toys
from training.data.datasets import DATASETS, Examples
from training.provenance import TEST_READS
from training.state import TrainingError

__all__ = ["trained"]


@pytest.fixture
def bundles(bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a bundle of the toys, a published data set for once."""
    monkeypatch.setitem(DATASETS, "toys", write_toys(tmp_path))
    monkeypatch.setattr(adversarial, "STEPS", 2)
    return say_training(bundle_path, tmp_path / "bundles" / "mnist").path.parent


def test_the_lead_is_that_of_the_most_present_wrong_class() -> None:
    """It is positive where the answer is wrong."""
    presence = torch.tensor([[0.9, 0.2, 0.1], [0.3, 0.2, 0.6]])
    assert torch.allclose(torch.tensor([-0.7, 0.3]), lead(presence, torch.tensor([0, 0])))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_stays_within_its_bounds(
    attack: Attack, trained: Network, bars: Examples
) -> None:
    """No pixel moves further than epsilon, nor out of [0, 1]; wrong answers become likelier."""
    images, labels = bars.images.astype(np.float32) / 255, bars.labels
    changed = attack_images(trained, images, labels, attack=attack, epsilon=0.1)
    assert np.abs(changed - images).max() <= 0.1 + 1e-6
    assert 0 <= changed.min() <= changed.max() <= 1
    with torch.inference_mode():
        before, after = (
            lead(trained(torch.from_numpy(one)).presence, torch.from_numpy(labels)).mean()
            for one in (images, changed)
        )
    assert after > before


def test_more_steps_find_more(trained: Network, bars: Examples) -> None:
    """PGD leads at least as far as FGSM does."""
    images, labels = bars.images.astype(np.float32) / 255, bars.labels
    leads = []
    for attack in ATTACKS[:2]:
        changed = attack_images(trained, images, labels, attack=attack, epsilon=0.2)
        with torch.inference_mode():
            presence = trained(torch.from_numpy(changed)).presence
        leads.append(float(lead(presence, torch.from_numpy(labels)).mean()))
    assert leads[0] <= leads[1] + 1e-3


def test_a_bundle_is_attacked_on_its_test_split(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read is on record; table and picture tell each attack and strength."""
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 28, 28), np.uint8)
    presence = Runtime(Bundle.open(bundles / "mnist"), device="cpu").encode(scale(images)).presence
    right = presence.argmax(axis=1)
    labels = np.where(np.arange(20) == 3, (right + 1) % 10, right)
    monkeypatch.setattr(adversarial, "load", lambda *_: Examples(images, labels))
    monkeypatch.setattr(adversarial, "COUNT", 10)
    adversarial.measure_all(
        ["mnist"], bundles=bundles, docs_dir=tmp_path, data_dir=tmp_path, say=lambda _: None
    )
    measured = adversarial.read(tmp_path)
    one = measured["mnist"]
    assert set(ATTACKS) == one["attacks"].keys()
    for strengths in one["attacks"].values():
        assert ["0.050", "0.100", "0.200"] == list(strengths)
    assert {"presence", "reconstruction"} == one["false_alarms"].keys()
    (line,) = (bundles / TEST_READS).read_text().splitlines()
    assert json.loads(line)["protocol"].startswith("adversarial: the first 10 ")
    assert (20, 1) == (json.loads(line)["images"], json.loads(line)["errors"])
    assert 3 * len(ATTACKS) == adversarial.table(measured).count(" PGD |") + 3
    adversarial.draw(measured, tmp_path / "adversarial.png")
    assert (tmp_path / "adversarial.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_no_network_is_refused(bundles: Path) -> None:
    """The message names it."""
    with pytest.raises(TrainingError, match=r"other is no bundle in .* and no run"):
        adversarial.open_attacked(["other"], bundles)


def test_nothing_measured_says_how() -> None:
    """The page has the command."""
    assert "python -m research adversarial" in adversarial.table({})
