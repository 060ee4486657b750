"""Adversarial images: how often an attack succeeds, and how often it is detected.

Attacks move each pixel by at most epsilon, with the gradients of the network:

- FGSM: one step (Goodfellow, Shlens and Szegedy 2015);
- PGD: STEPS steps, each projected back (Madry et al. 2018);
- reconstructive: PGD that also lowers the error of the reconstruction, once the answer is wrong
  (Qin et al. 2019, arXiv 1907.02957, section 5).

Detectors call an image adversarial beyond a threshold that 5 % of unchanged images pass:

- presence: of the most present class is low;
- reconstruction: the reconstruction of the most present class misses much of the image (Frosst,
  Sabour and Hinton 2018, DARCCC, arXiv 1811.06969);
- novelty: the bundle's own rule (`model.bundle.novelty`), with its own threshold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.bundle import MANIFEST, Bundle
from model.bundle.novelty import NoveltyRule
from model.capsnet import Network, build, family_of
from model.capsnet.weights import load as load_network
from model.preprocess import Floats, scale
from model.views.novelty import measure_features, rank
from model.views.rivals import missed_share
from research.compare import lines
from training.data.datasets import DATASETS, Examples, load
from training.figures import make_axes, save
from training.provenance import TestRead, record_read, runs_of
from training.recipes import Recipe, recipe_of
from training.state import CHECKPOINT, Checkpoint, TrainingError

MEASURED = "adversarial.json"
Attack = Literal["FGSM", "PGD", "reconstructive PGD"]
ATTACKS: tuple[Attack, ...] = ("FGSM", "PGD", "reconstructive PGD")
EPSILONS = {True: (2 / 255, 4 / 255, 8 / 255), False: (0.05, 0.1, 0.2)}
"""The largest changes of a pixel in [0, 1]: of photographs, and of images light on dark."""
STEPS = 20
COUNT = 200
"""The number of test images that are attacked, the first that are answered rightly."""
FALSE_ALARMS = 0.05
"""The share of unchanged images beyond a detector's threshold."""
_CALIBRATED = 1000
"""The number of training images that set thresholds."""
_MARGIN = 0.1
"""The lead of a wrong class from which the reconstructive attack lowers the error alone."""
_BATCH = 50


@dataclass(frozen=True)
class Attacked:
    """A network to attack."""

    name: str
    network: Network
    recipe: Recipe
    decodes: bool
    rule: NoveltyRule | None = None
    bundle: Bundle | None = None


def open_attacked(names: Sequence[str] | None, bundles: Path) -> list[Attacked]:
    """Open bundles by name, and runs by folder; by default all bundles for single images.

    Raises:
        TrainingError: there is neither, or it is for pairs.
    """
    opened = []
    for name in names or sorted(path.parent.name for path in bundles.glob(f"*/{MANIFEST}")):
        if (bundles / name / MANIFEST).is_file():
            bundle = Bundle.open(bundles / name)
            manifest, recipe = bundle.manifest, recipe_of(bundle)
            network, decodes = load_network(bundle), "decode" in manifest.offers
            one = Attacked(name, network, recipe, decodes, manifest.novelty, bundle)
        elif (Path(name) / CHECKPOINT).is_file():
            checkpoint = Checkpoint.load(Path(name) / CHECKPOINT)
            network = build(checkpoint.recipe.network)
            network.load_state_dict(checkpoint.network)
            decodes = "decode" in family_of(checkpoint.recipe.network).offers
            one = Attacked(Path(name).name, network.eval(), checkpoint.recipe, decodes)
        else:
            raise TrainingError(f"{name} is no bundle in {bundles} and no run")
        if one.recipe.task == "single" and one.recipe.dataset in DATASETS:
            opened.append(one)
        elif names:
            raise TrainingError(f"{name} is not for single images of a published data set")
    return opened


def read(docs_dir: Path) -> dict[str, Any]:
    """What was measured, by network; nothing where there is no file."""
    path = docs_dir / MEASURED
    return json.loads(path.read_text()) if path.exists() else {}


def measure_all(
    names: Sequence[str] | None,
    *,
    bundles: Path,
    docs_dir: Path,
    data_dir: Path,
    say: Callable[[str], None],
) -> None:
    """Attack networks on test images, and add the results to the file; reads go on record."""
    for one in open_attacked(names, bundles):
        say(f"{one.name}: attacked")
        dataset = DATASETS[one.recipe.dataset]
        training, test = (load(dataset, split, data_dir) for split in ("train", "test"))
        found = measure(one, training, test)
        if one.bundle:
            _record(one.bundle, found, bundles)
        measured = {**read(docs_dir), one.name: found}  # others may have written by now
        ordered = {key: measured[key] for key in sorted(measured)}
        (docs_dir / MEASURED).write_text(f"{json.dumps(ordered, indent=1)}\n")


def measure(one: Attacked, training: Examples, test: Examples) -> dict[str, Any]:
    """Attack the first test images that are answered rightly.

    Args:
        training: of which the last _CALIBRATED set the thresholds of detectors.
    """
    clean = _features(one, scale(training.images[-_CALIBRATED:]))
    thresholds = {name: float(np.quantile(value, FALSE_ALARMS)) for name, value in clean.items()}
    if one.rule:
        thresholds["novelty"] = one.rule.threshold
    images, labels, (read_count, wrong_count) = _answered_rightly(one.network, test)
    if not len(images):
        raise TrainingError(f"{one.name} answers no test image rightly")
    normal = _features(one, images)
    result: dict[str, Any] = {
        "version": one.bundle.manifest.version if one.bundle else "",
        "images": len(images),
        "read": read_count,
        "wrong": wrong_count,
        "false_alarms": _detected(normal, thresholds),
        "attacks": {},
    }
    for attack in ATTACKS if one.decodes else ATTACKS[:2]:
        result["attacks"][attack] = {}
        for epsilon in EPSILONS[one.recipe.network.channels == 3]:
            changed = attack_images(one.network, images, labels, attack=attack, epsilon=epsilon)
            features = _features(one, changed)
            wrong = _answer(one.network, changed) != labels
            result["attacks"][attack][f"{epsilon:.3f}"] = {
                "success": round(float(wrong.mean()), 4),
                "detected": _detected(
                    {name: value[wrong] for name, value in features.items()}, thresholds
                ),
            }
    return result


def attack_images(
    network: Network,
    images: Floats,
    labels: NDArray[np.int64],
    *,
    attack: Attack,
    epsilon: float,
) -> Floats:
    """Change images (N, C, H, W) by at most epsilon, so that labels (N,) are not the answers."""
    parts = []
    for start in range(0, len(images), _BATCH):
        batch = torch.from_numpy(images[start : start + _BATCH])
        truth = torch.from_numpy(labels[start : start + _BATCH])
        parts.append(_attack(network, batch, truth, attack, epsilon).numpy())
    return np.concatenate(parts)


def lead(presence: Tensor, labels: Tensor) -> Tensor:
    """By how much the most present wrong class leads the right one, (N,), of presence (N, K)."""
    right = presence.gather(1, labels[:, None])[:, 0]
    others = presence.scatter(1, labels[:, None], -torch.inf)
    return others.max(dim=1).values - right


def _attack(
    network: Network, images: Tensor, labels: Tensor, attack: Attack, epsilon: float
) -> Tensor:
    steps = 1 if attack == "FGSM" else STEPS
    size = epsilon if steps == 1 else 2.5 * epsilon / steps
    changed = images.clone()
    for _ in range(steps):
        changed.requires_grad_()
        presence, poses = network(changed)
        gain = lead(presence, labels)
        if attack == "reconstructive PGD":
            answers = presence.argmax(dim=1)
            chosen = poses.take_along_dim(answers[:, None, None], dim=1)[:, 0]
            decoded = network.decode(chosen, answers)
            missed = (changed - decoded).square().sum(dim=(1, 2, 3))
            share = missed / (changed.square().sum(dim=(1, 2, 3)) + 1)
            gain = gain.clamp(max=_MARGIN) - share * (gain > 0)
        (slope,) = torch.autograd.grad(gain.sum(), changed)
        with torch.no_grad():
            moved = changed + size * slope.sign()
            changed = moved.clamp(images - epsilon, images + epsilon).clamp(0, 1)
    return changed.detach()


def _answered_rightly(
    network: Network, test: Examples
) -> tuple[Floats, NDArray[np.int64], tuple[int, int]]:
    """The first COUNT test images with a right answer; how many were read for them, and wrong."""
    images, labels, found, count = [], [], 0, 0  # found: right answers
    while found < COUNT and count < len(test.labels):
        batch = scale(test.images[count : count + _BATCH])
        truth = test.labels[count : count + _BATCH]
        right = _answer(network, batch) == truth
        images.append(batch[right])
        labels.append(truth[right])
        found, count = found + int(right.sum()), count + len(truth)
    return np.concatenate(images)[:COUNT], np.concatenate(labels)[:COUNT], (count, count - found)


def _answer(network: Network, images: Floats) -> NDArray[np.int64]:
    return np.concatenate([presence.argmax(axis=1) for presence, _ in _encode(network, images)])


def _encode(network: Network, images: Floats) -> list[tuple[Floats, Floats]]:
    with torch.inference_mode():
        batches = torch.split(torch.from_numpy(images), _BATCH)
        return [tuple(part.numpy() for part in network(batch)) for batch in batches]


def _features(one: Attacked, images: Floats) -> dict[str, NDArray[np.floating[Any]]]:
    """What each detector looks at, (N,): low values are suspicious."""
    presence, poses = map(np.concatenate, zip(*_encode(one.network, images), strict=True))
    answers = presence.argmax(axis=1)
    features: dict[str, NDArray[np.floating[Any]]] = {"presence": presence.max(axis=1)}
    if one.decodes:
        own = torch.from_numpy(poses[np.arange(len(answers)), answers])
        with torch.inference_mode():
            decoded = one.network.decode(own, torch.from_numpy(answers)).numpy()
        features["reconstruction"] = -missed_share(images, decoded)
        if one.rule:
            found = measure_features(presence, poses, images, decoded, one.rule.gaussians)
            features["novelty"] = rank(one.rule, found).lowest
    return features


def _detected(
    features: Mapping[str, NDArray[np.floating[Any]]], thresholds: Mapping[str, float]
) -> dict[str, float]:
    """The share of images that each detector calls adversarial; none of no images."""
    return {
        name: round(float((value < thresholds[name]).mean()), 4)
        for name, value in features.items()
        if len(value)
    }


def _record(bundle: Bundle, result: Mapping[str, Any], bundles: Path) -> None:
    manifest = bundle.manifest
    read = TestRead(
        run=runs_of(manifest.training)[-1].id,
        version=manifest.version,
        dataset=manifest.dataset,
        split="test",
        images=result["read"],
        errors=result["wrong"],
        protocol=f"adversarial: the first {result['images']} that are answered rightly, attacked "
        f"by {', '.join(result['attacks'])}",
    )
    record_read(bundles, read)


def table(measured: Mapping[str, Any]) -> str:
    """A row for each network, attack and strength."""
    rows = []
    for name, one in measured.items():
        alarms = one["false_alarms"]
        rows.append((f"`{name}`", "none", "", "", *_shares(alarms)))
        for attack, strengths in one["attacks"].items():
            for epsilon, found in strengths.items():
                success = f"{100 * found['success']:.0f} %"
                rows.append(("", attack, epsilon, success, *_shares(found["detected"])))
    if not rows:
        return "Not measured yet: `python -m research adversarial`."
    head = ("network", "attack", "epsilon", "success", *(f"by {name}" for name in _DETECTORS))
    picture = "![Attacks that succeed and stay undetected](pictures/adversarial.png)"
    return f"{picture}\n\n{lines(head, rows)}"


def draw(measured: Mapping[str, Any], target: Path) -> None:
    """Draw the share of attacked images that are answered wrongly and not detected."""
    if not measured:
        return
    detectors = ("reconstruction", "novelty")
    figure, axes = make_axes(len(detectors), len(ATTACKS), title="wrong and not detected, share")
    for row, detector in zip(axes, detectors, strict=True):
        for axis, attack in zip(row, ATTACKS, strict=True):
            for name, one in measured.items():
                strengths = one["attacks"].get(attack, {})
                undetected = [
                    found["success"] * (1 - found["detected"].get(detector, 0))
                    for found in strengths.values()
                ]
                axis.plot([float(epsilon) for epsilon in strengths], undetected, "o-", label=name)
            axis.set(title=attack, xlabel="epsilon", ylim=(-0.03, 1.03))
        row[0].set_ylabel(f"by {detector}")
    named = axes[0, 0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=4, fontsize="x-small", frameon=False)
    save(figure, target)


_DETECTORS = ("presence", "reconstruction", "novelty")


def _shares(found: Mapping[str, float]) -> list[str]:
    return [f"{100 * found[name]:.0f} %" if name in found else "" for name in _DETECTORS]
