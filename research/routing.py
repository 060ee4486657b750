"""Does routing matter? Bundles answer test splits with other couplings, all else the same.

`model.views.routing_off` computes presence again with uniform couplings, with those of one
iteration and without the coupling bias. Here are added the couplings of another image of the same
class and, of networks that route in several layers, uniform couplings in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.bundle import MANIFEST, Bundle
from model.capsnet import Network, build
from model.capsnet.routing import em
from model.capsnet.weights import load as load_network
from model.outputs import ClassTrace
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.routing_off import TITLES as _TITLES
from model.views.routing_off import answers, switch_off
from research.compare import lines
from training.answers import Labelled, evaluating
from training.data.datasets import DATASETS, load
from training.data.pairs import (
    PUBLISHED_PAIRS,
    TEST_DIGESTS,
    TEST_SEED,
    PairDraw,
    published_pairs,
)
from training.figures import save
from training.provenance import TestRead, record_read, runs_of
from training.recipes import recipe_of
from training.state import TrainingError
from training.statistics import interval, mean_interval

MEASURED, SPLIT = "routing.json", "test split"
TITLES: dict[str, str] = {
    **{str(key): title for key, title in _TITLES.items()},
    "other-image": "of another image of the same class",
    "uniform-everywhere": "uniform in all layers",
}
BATCH = 50

Answers = dict[str, NDArray[np.int64]]
"""The classes (N, C) that are named, by couplings."""


def read(docs_dir: Path) -> dict[str, Any]:
    """What was measured, by bundle; nothing where there is no file."""
    path = docs_dir / MEASURED
    return json.loads(path.read_text()) if path.exists() else {}


def measure_all(
    bundles: Path,
    docs_dir: Path,
    data_dir: Path,
    *,
    names: Sequence[str] | None,
    again: bool,
    tell: Callable[[str], None],
) -> None:
    """Measure bundles whose weights are not yet in the file, and write it after each of them.

    Raises:
        TrainingError: there is no bundle of a name.
    """
    known = read(docs_dir)
    opened = [Bundle.open(path.parent) for path in sorted(bundles.glob(f"*/{MANIFEST}"))]
    manifests = {bundle.manifest.name: bundle for bundle in opened}
    measured = {name: known[name] for name in manifests if name in known}
    if unknown := set(names or ()) - manifests.keys():
        raise TrainingError(f"{unknown.pop()} is no bundle; there are {', '.join(manifests)}")
    for name in names or manifests:
        bundle = manifests[name]
        if not again and measured.get(name, {}).get("version") == bundle.manifest.version:
            continue
        if "trace" not in bundle.manifest.offers or recipe_of(bundle).dataset not in DATASETS:
            continue
        tell(f"{name}: couplings are replaced")
        measured[name] = measure(bundle, data_dir)
        ordered = {key: measured[key] for key in sorted(measured)}
        (docs_dir / MEASURED).write_text(f"{json.dumps(ordered, indent=1)}\n")


def measure(bundle: Bundle, data_dir: Path, *, record: Path | None = None) -> dict[str, Any]:
    """Errors of a bundle on its test split by couplings; the read goes on record.

    Args:
        bundle: a network whose couplings can be replaced.
        data_dir: the data sets.
        record: the folder of the record; by default that of the bundle.

    Raises:
        DatasetError: there is no test split, or its pairs are not the published ones.
    """
    manifest, recipe, runtime = bundle.manifest, recipe_of(bundle), Runtime(bundle)
    tested = load(DATASETS[recipe.dataset], "test", data_dir)
    sets: dict[str, tuple[Labelled, NDArray[np.int64] | None]] = {SPLIT: (tested, None)}
    if recipe.task == "pairs":
        sets = {}
        for shift_px in TEST_DIGESTS:
            draws = PairDraw(tested.labels, shift_px=shift_px).draw(PUBLISHED_PAIRS, TEST_SEED)
            pairs = published_pairs(tested, size=manifest.height, shift_px=shift_px)
            sets[f"shift {shift_px}"] = pairs, draws[:, :2]
    network = load_network(bundle) if manifest.presence == "activation" else None
    tests = {
        name: _score(answer_all(runtime, images, network), images, digits)
        for name, (images, digits) in sets.items()
    }
    first = next(iter(tests.values()))
    read = TestRead(
        run=runs_of(manifest.training)[-1].id,
        version=manifest.version,
        dataset=manifest.dataset,
        split="test",
        images=first["images"],
        errors=first["couplings"]["routed"]["errors"],
        protocol=f"couplings replaced: {', '.join(first['couplings'])}",
    )
    record_read(record or bundle.path.parent, read)
    return {"version": manifest.version, "family": manifest.family, "tests": tests}


def answer_all(runtime: Runtime, examples: Labelled, network: Network | None) -> Answers:
    """What a bundle names in images, by couplings, as many classes as each image shows.

    Batches are of one class (or pair of classes), so that each image can have another's couplings.

    Args:
        network: the bundle's, if it has EM routing, whose costs and other layers are needed.
    """
    labels = examples.labels.reshape(len(examples.labels), -1)
    activated = network is not None
    found: dict[str, NDArray[np.int64]] = {}
    for rows in _by_class(np.sort(labels)):
        images = scale(examples.images[rows])
        trace = runtime.trace(images).classes
        variants = switch_off(trace, activated=activated)
        presence = {str(name): values for name, values in variants.items()}
        others = np.roll(trace.couplings[:, -1], 1, axis=0)
        if network is None:
            presence["other-image"] = exchange(trace, others)
        else:
            presence["other-image"] = exchange_assignments(trace, others, network)
            if len(runtime.bundle.manifest.layers) > 1:
                presence["uniform-everywhere"] = route_once(network, images)
        for name, values in presence.items():
            said = found.setdefault(name, np.zeros(labels.shape, np.int64))
            said[rows] = answers(values, labels.shape[1])
    return found


def exchange(trace: ClassTrace[Floats], couplings: Floats) -> Floats:
    """Lengths |sum_i c_ki u_ki| (N, K) of class capsules with other couplings (N, K, I).

    Before the squash, which keeps their order.
    """
    sums = np.matmul(couplings[:, :, None], trace.votes)[:, :, 0]
    return np.asarray(np.linalg.norm(sums, axis=-1))


@torch.inference_mode()
def exchange_assignments(trace: ClassTrace[Floats], assignments: Floats, network: Any) -> Floats:
    """Activations (N, K) of matrix class capsules fitted with other assignments (N, K, I)."""
    classes, config = network.classes, network.config
    *_, fitted = em.iterate(
        torch.from_numpy(trace.votes),
        torch.from_numpy(trace.input_presence)[:, None],
        beta_u=classes.price,
        beta_a=classes.saving,
        inverse_temperature=config.inverse_temperature,
        share=lambda _: torch.from_numpy(assignments.copy()),
        iterations=1,
    )
    return np.asarray(fitted.activations)


@torch.inference_mode()
def route_once(network: Any, images: Floats) -> Floats:
    """Presence (N, K) in images (N, C, H, W) with one iteration, of equal shares, in all layers."""
    once = build(replace(network.config, routing_iterations=1))
    once.load_state_dict(network.state_dict())
    with evaluating(once):
        return np.asarray(once(torch.from_numpy(images)).presence)


def _by_class(labels: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Rows of images with the same labels (N, C), at most BATCH at a time and at least two."""
    _, kinds = np.unique(labels, axis=0, return_inverse=True)
    kinds = kinds.ravel()
    for kind in range(kinds.max() + 1):
        rows = np.flatnonzero(kinds == kind)
        yield from np.array_split(rows, max(1, -(-len(rows) // BATCH)))


def _score(found: Answers, examples: Labelled, digits: NDArray[np.int64] | None) -> dict[str, Any]:
    wanted = np.sort(examples.labels.reshape(len(examples.labels), -1))
    wrong = {name: (said != wanted).any(axis=1).astype(float) for name, said in found.items()}
    scores = {}
    for name, said in found.items():
        errors = int(wrong[name].sum())
        low, high = mean_interval(wrong[name] - wrong["routed"], digits)
        own = mean_interval(wrong[name], digits) if digits is not None else None
        scores[name] = {
            "errors": errors,
            "interval_percent": [round(one, 4) for one in own or interval(errors, len(wanted))],
            "changed": int((said != found["routed"]).any(axis=1).sum()),
            "difference": [round((low + high) / 2, 4), round(low, 4), round(high, 4)],
        }
    return {"images": len(wanted), "couplings": scores}


def table(measured: Mapping[str, Any]) -> str:
    """A line for each network and couplings."""
    rows = []
    for name, test, scores in tests_of(measured):
        for couplings, one in scores["couplings"].items():
            told = [f"{100 * one['errors'] / scores['images']:.2f}", "", ""]
            if couplings != "routed":
                points, low, high = one["difference"]
                told[1:] = f"{points:+.2f} [{low:+.2f}, {high:+.2f}]", f"{one['changed']:,}"
            which = f"`{name}`, {test}" if couplings == "routed" else ""
            rows.append((which, TITLES[couplings], *told))
    head = ("network", "couplings", "wrong, %", "difference, points", "answers changed")
    return lines(head, rows)


def draw(measured: Mapping[str, Any], target: Path) -> None:
    """Draw the error of each network by couplings, with its interval."""
    if not measured:
        return
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    tests = list(tests_of(measured))
    figure = Figure((8, 0.55 * len(tests) + 1.4), dpi=100, layout="constrained")
    axes = figure.subplots()
    used = [key for key in TITLES if any(key in one["couplings"] for *_, one in tests)]
    for place, couplings in enumerate(used):
        points = [
            (row, one["images"], one["couplings"][couplings])
            for row, (*_, one) in enumerate(tests)
            if couplings in one["couplings"]
        ]
        x = [100 * max(one["errors"], 0.5) / count for _, count, one in points]
        y = [row + 0.12 * (place - (len(used) - 1) / 2) for row, *_ in points]
        ends = np.array([one["interval_percent"] for *_, one in points]).T  # (2, points)
        size = 6 if couplings == "routed" else 4
        reach = np.abs(ends - x)
        label = TITLES[couplings]
        axes.errorbar(x, y, xerr=reach, fmt="o", label=label, markersize=size, capsize=2)
    names = [name if test == SPLIT else f"{name}, {test}" for name, test, _ in tests]
    axes.set_yticks(range(len(tests)), names)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="wrong, %")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, target, 256)


def tests_of(measured: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What was measured, by bundle and test set."""
    for name, one in measured.items():
        for test, scores in one["tests"].items():
            yield name, test, scores
