"""Sanity checks of the views: do they change if the weights are random?

A map that stays the same when a network forgets what it learnt shows the image, not the network
(Adebayo et al. 2018, "Sanity Checks for Saliency Maps"). Weights are randomised layer by layer,
from the class capsules down to the first convolution; what is random stays so. A layer's
weights are shuffled, so that their distribution stays.

Compared with the trained network, on the same images and for the same class:

- occlusion: the rank correlation of the maps of `/occlusion`;
- routing: the rank correlation of the support of the input capsules, in `/routing`;
- neighbours: the share of the ten nearest images in `/neighbours` that stay.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from model.bundle import MANIFEST, Bundle
from model.capsnet import Network
from model.capsnet.weights import load as load_network
from model.preprocess import Floats, scale
from model.views.agreement import support
from model.views.neighbours import find_nearest, fit_whitening
from model.views.occlusion import find_background, plan_occlusion
from research.compare import lines
from training.data.datasets import DATASETS, load, split_last
from training.recipes import recipe_of

MEASURED = "sanity.json"
VIEWS = ("occlusion", "routing", "neighbours")
IMAGES, GALLERY, NEAREST = 10, 300, 10
CHANGES = 0.5
"""A view changes with the weights where similarity falls below this, and above its negative: a map
with the opposite sign has the same shape."""
_SEED, _BATCH = 17, 50


def read(docs_dir: Path) -> dict[str, Any]:
    """What was measured, by bundle; nothing where there is no file."""
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
    """Check the views of bundles for single images of a published data set; write the file."""
    measured = read(docs_dir)
    for name in names or sorted(path.parent.name for path in bundles.glob(f"*/{MANIFEST}")):
        bundle = Bundle.open(bundles / name)
        recipe = recipe_of(bundle)
        if recipe.task != "single" or recipe.dataset not in DATASETS:
            continue
        if not {"decode", "trace"} <= set(bundle.manifest.offers):
            continue
        say(f"{name}: weights are randomised")
        dataset = DATASETS[recipe.dataset]
        _, examples = split_last(load(dataset, "train", data_dir), dataset.held_out_count)
        measured[name] = {
            "version": bundle.manifest.version,
            "steps": measure(bundle, scale(examples.images[:GALLERY])),
        }
        ordered = {key: measured[key] for key in sorted(measured)}
        (docs_dir / MEASURED).write_text(f"{json.dumps(ordered, indent=1)}\n")


def measure(bundle: Bundle, images: Floats) -> list[dict[str, Any]]:
    """The similarity of each view after each step of randomisation, the class capsules first.

    Args:
        images: (N, C, H, W), of which the first IMAGES are looked at; all are the gallery.
    """
    network, manifest = load_network(bundle), bundle.manifest
    activated, strokes = manifest.presence == "activation", manifest.preprocess != "crop"
    labels = _encode(network, images[:IMAGES])[0].argmax(axis=1)

    def look(one: Network) -> dict[str, list[NDArray[Any]]]:
        return {
            "occlusion": [
                occlusion_map(one, image, int(label), strokes=strokes)
                for image, label in zip(images, labels, strict=False)
            ],
            "routing": list(support_of(one, images[:IMAGES], labels, activated=activated)),
            "neighbours": nearest(one, images, labels),
        }

    before = look(network)
    steps = []
    for layer, changed in randomise(network):
        after = look(changed)
        similar = {
            view: round(float(np.mean(list(map(_similarity(view), before[view], after[view])))), 3)
            for view in VIEWS
        }
        steps.append({"layer": layer, **similar})
    return steps


def randomise(network: Network) -> Iterator[tuple[str, Network]]:
    """Yield a copy whose layers lose their weights, from the last before the decoder to the first.

    A layer is a module that has parameters of its own. Each copy is that of the step before.
    """
    changed = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(_SEED)
    layers = [
        (name, module)
        for name, module in changed.named_modules()
        if not name.startswith("decoder")
        and any(weight.numel() > 1 for weight in module.parameters(recurse=False))
    ]
    with torch.no_grad():
        for name, module in reversed(layers):
            for weight in module.parameters(recurse=False):
                order = torch.randperm(weight.numel(), generator=generator)
                weight.copy_(weight.flatten()[order].view_as(weight))
            yield name or "coupling bias", changed


def occlusion_map(network: Network, image: Floats, label: int, *, strokes: bool) -> Floats:
    """The fall of a class's presence where a patch hides an image (C, H, W): (H, W)."""
    plan = plan_occlusion(*image.shape[1:])
    hidden = plan.images(image, find_background(image, strokes=strokes))
    presence, _ = _encode(network, np.concatenate((image[None], hidden)))
    return plan.on_pixels(presence[0, label] - presence[1:, label])


def support_of(
    network: Network, images: Floats, labels: NDArray[np.int64], *, activated: bool
) -> Floats:
    """The support (N, I) of the input capsules for classes (N,) in images."""
    with torch.inference_mode():
        trace = network.trace(torch.from_numpy(images)).classes
    found = []
    for row, label in enumerate(labels.tolist()):
        couplings, votes, poses, present = (
            part[row].numpy()
            for part in (trace.couplings, trace.votes, trace.poses, trace.input_presence)
        )
        weights = np.asarray(couplings * (present if activated else 1))
        found.append(support(weights, votes, poses)[-1, label])
    return np.stack(found)


def nearest(network: Network, images: Floats, labels: NDArray[np.int64]) -> list[NDArray[Any]]:
    """The rows of the images whose poses of a class are nearest, for the first images."""
    _, poses = _encode(network, images)
    found = []
    for row, label in enumerate(labels.tolist()):
        own = poses[:, label]
        within = np.cov(own.astype(np.float64), rowvar=False, bias=True)
        whitening = fit_whitening(own, within).astype(np.float32)
        rows = find_nearest(own[row], own, whitening, NEAREST + 1).rows
        found.append(rows[rows != row][:NEAREST])
    return found


def _similarity(view: str) -> Callable[[NDArray[Any], NDArray[Any]], float]:
    return _overlap if view == "neighbours" else _correlation


def _overlap(first: NDArray[Any], second: NDArray[Any]) -> float:
    return len(np.intersect1d(first, second)) / len(first)


def _correlation(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Spearman's rank correlation; zero where one is constant."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(stats.spearmanr(first.ravel(), second.ravel()).statistic)


def _encode(network: Network, images: Floats) -> tuple[Floats, Floats]:
    with torch.inference_mode():
        parts = [network(batch) for batch in torch.split(torch.from_numpy(images), _BATCH)]
    return (
        torch.cat([one.presence for one in parts]).numpy(),
        torch.cat([one.poses for one in parts]).numpy(),
    )


def table(measured: dict[str, Any]) -> str:
    """A row for each network and view: similarity after the first layer, after half, after all."""
    rows = []
    for name, one in measured.items():
        steps = one["steps"]
        shown = (steps[0], steps[len(steps) // 2], steps[-1])
        for view in VIEWS:
            values = [step[view] for step in shown]
            stays = "**stays**" if values[-1] > 0 else "**stays, inverted**"
            verdict = stays if abs(values[-1]) >= CHANGES else "changes"
            cells = (f"{value:.2f}" for value in values)
            rows.append((f"`{name}`" if view == VIEWS[0] else "", view, *cells, verdict))
    if not rows:
        return "Not measured yet: `python -m research sanity`."
    head = ("network", "view", "class capsules random", "half of the layers", "all", "verdict")
    return lines(head, rows)
