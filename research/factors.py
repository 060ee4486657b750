"""Poses of assemblies, compared with the factors that their images were rendered from.

For each class apart: how much of a factor a linear function of the pose gives, on new instances;
which single dimensions follow a factor; whether a turn of the turntable moves poses by a linear
map; and whether a pose moves with the size of an image, as `/equivariance` scales it, as it does
with the size of the object. The first 16 principal components of the images are measured in the
same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.bundle import MANIFEST, Bundle
from model.capsnet import Network, build
from model.capsnet.weights import load as load_weights
from model.preprocess import Floats, scale
from model.views.equivariance import transform_image
from research.compare import lines
from research.rows import Row
from training.analysis.factors import NAMES, Views, follow
from training.answers import BATCH, evaluating, is_wrong, measure_presence
from training.data.assemblies import (
    AZIMUTHS,
    ELEVATIONS,
    LAMPS,
    SIZES,
    Factors,
    is_familiar,
    render_factors,
)
from training.data.datasets import DATASETS, Dataset, factors_of, load, split_last
from training.data.source import DataSplit
from training.provenance import TestRead, record_read, runs_of
from training.state import CHECKPOINT, Checkpoint, TrainingError

Doubles = NDArray[np.float64]
Encode = Callable[[Floats], Doubles]
"""A function from images (N, C, H, W) to the poses (N, D) of a class."""
MEASURED, TABLE, KIND = "factors.json", "matched-assemblies", "assemblies"
RIDGE = 1e-3
"""The share of the poses' mean variance that is added to each variance in linear fits."""
PCA = "PCA"
_FITTED = 2000
"""The images of a class that principal components are fitted to."""
_SCALED = 120
"""The test images of a class that are rendered at two sizes."""


def measure(network: Network | None, data_dir: Path, dataset: str) -> dict[str, Any]:
    """Compare a network's poses, or principal components, with the factors.

    Args:
        network: None measures principal components of the training images.
        dataset: one of the assemblies.

    Returns:
        `explained`: by factor, the shares of its variance at familiar and at new azimuths;
        `turn`: the same of a step of the turntable; `named`: dimensions by the factor that they
        follow; of a network also `scaled`: see `compare_scaled`.
    """
    chosen = DATASETS[dataset]
    kept, _ = split_last(load(chosen, "train", data_dir), chosen.held_out_count)
    tested = load(chosen, "test", data_dir)
    found = []
    for label in range(len(chosen.class_names)):
        learnt_images, new_images = (one.images[one.labels == label] for one in (kept, tested))
        learnt_factors = _factors_of(chosen, "train", label).at(np.arange(len(learnt_images)))
        new_factors = _factors_of(chosen, "test", label)
        encode = _capsule(network, label) if network else _principal(learnt_images)
        learnt = Views(encode(scale(learnt_images)), learnt_factors)
        found.append(_compare(learnt, Views(encode(scale(new_images)), new_factors)))
        if network:
            some = new_factors.at(np.linspace(0, len(new_images) - 1, _SCALED).astype(int))
            shares = compare_scaled(encode, some, size_px=chosen.image_shape[1])
            found[-1]["scaled"] = {"scaled": shares}
    mean: dict[str, Any] = {
        key: {
            name: [
                round(float(np.mean([one[key][name][index] for one in found])), 4)
                for index in (0, 1)
            ]
            for name in found[0][key]
        }
        for key in ("explained", "turn", "scaled")
        if key in found[0]
    }
    named = Counter(name for one in found for name in one["named"])
    dims = sum(one["dimensions"] for one in found)
    return {**mean, "named": {name: named[name] for name in NAMES}, "dimensions": dims}


def compare_scaled(encode: Encode, factors: Factors, *, size_px: int) -> tuple[float, float]:
    """The shares of a pose's change with the size of an object that `/equivariance` gives.

    Each object is rendered at the smallest and at the largest size, all other factors equal. The
    view scales the smaller image instead, or the larger one. The share is
    1 - sum |true - view|^2 / sum |true|^2 of both changes of the pose. It is below zero where no
    change at all would be nearer to the truth.

    Args:
        factors: of the objects; their sizes are replaced.
        size_px: height and width of the images.

    Returns:
        the shares where the view enlarges and where it shrinks.
    """
    images = [
        scale(
            render_factors(factors._replace(size=np.full(len(factors.size), size)), size_px=size_px)
        )
        for size in SIZES
    ]
    poses, ratio = [encode(one) for one in images], SIZES[1] / SIZES[0]

    def share(before: int, after: int, ratio: float) -> float:
        true = poses[after] - poses[before]
        view = encode(transform_image(images[before], "scale", ratio)) - poses[before]
        return 1 - float(np.square(true - view).sum() / np.square(true).sum())

    return share(0, 1, ratio), share(1, 0, 1 / ratio)


def load_network(directory: Path) -> Network:
    """The network of a finished run.

    Raises:
        training.state.CheckpointError: there is none.
    """
    checkpoint = Checkpoint.load(directory / CHECKPOINT)
    network = build(checkpoint.recipe.network)
    network.load_state_dict(checkpoint.network)
    return network


def measure_rows(
    rows: Sequence[Row],
    seeds: Sequence[int],
    *,
    runs: Mapping[tuple[str, int], Path],
    data_dir: Path,
    bundles: Path,
) -> dict[str, Any]:
    """Measure the runs of rows, bundles of assemblies, and principal components.

    Networks without poses are left out. Reads go on record.

    Args:
        bundles: the folder of bundles, whose record of reads gets them.

    Raises:
        TrainingError: there is neither a run nor a bundle.
    """
    subjects = [*_of_rows(rows, seeds, runs), *_of_bundles(bundles)]
    if not subjects:
        raise TrainingError("there is no finished run of these rows: run them first")
    measured = {}
    for one in subjects:
        measured[one.title] = measure(one.network, data_dir, one.dataset)
        _record(one, data_dir, bundles)
    measured[PCA] = measure(None, data_dir, rows[0].recipe.dataset)
    return measured


class _Subject(NamedTuple):
    """A network with poses, and what the record of reads says of it."""

    title: str
    network: Network
    dataset: str
    run: str
    version: str
    name: str


def _of_rows(
    rows: Sequence[Row], seeds: Sequence[int], runs: Mapping[tuple[str, int], Path]
) -> Iterator[_Subject]:
    for row in rows:
        for seed in seeds:
            directory = runs.get((row.name, seed))
            if directory and (directory / CHECKPOINT).exists():
                network = load_network(directory)
                if hasattr(network, "decoder"):
                    title = f"{row.title.partition(':')[0]}, seed {seed}"
                    run = Checkpoint.load(directory / CHECKPOINT).run.id
                    yield _Subject(title, network, row.recipe.dataset, run, "", f"row {row.name}")


def _of_bundles(bundles: Path) -> Iterator[_Subject]:
    for path in sorted(bundles.glob(f"*/{MANIFEST}")):
        bundle = Bundle.open(path.parent)
        known, name = bundle.manifest, f"bundle {bundle.manifest.name}"
        if known.dataset in DATASETS and DATASETS[known.dataset].kind == KIND:
            run, network = runs_of(known.training)[-1].id, load_weights(bundle)
            title = f"the {name}, which learnt all azimuths"
            yield _Subject(title, network, known.dataset, run, known.version, name)


def _record(subject: _Subject, data_dir: Path, bundles: Path) -> None:
    tested = load(DATASETS[subject.dataset], "test", data_dir)
    presence = measure_presence(subject.network, tested.images, torch.device("cpu"))
    read = TestRead(
        run=subject.run,
        version=subject.version,
        dataset=subject.dataset,
        split="test",
        images=len(tested.labels),
        errors=int(is_wrong(presence, tested.labels).sum()),
        protocol=f"factors of {subject.name}: poses at familiar and new azimuths",
    )
    record_read(bundles, read)


def read(docs_dir: Path) -> dict[str, Any]:
    """What was measured; nothing where there is no file."""
    path = docs_dir / MEASURED
    return json.loads(path.read_text()) if path.exists() else {}


def table(measured: Mapping[str, Any]) -> str:
    """A line for each network."""
    if not measured:
        return "Not run yet: it needs the runs of the table above."
    rows = []
    for title, one in measured.items():
        shares = {**one["explained"], **one["turn"], **one.get("scaled", {})}
        cells = [f"{first:.2f}, {second:.2f}" for first, second in shares.values()]
        cells += [""] * ("scaled" not in one)
        named = ", ".join(f"{name} {count}" for name, count in one["named"].items() if count)
        followed = f"{named or 'none'} of {one['dimensions']}"
        rows.append((title, *cells, followed))
    head = ("a turn by 20 degrees", "scaled by `/equivariance`", "dimensions that follow a factor")
    return lines(("poses", *NAMES, *head), rows)


def _factors_of(dataset: Dataset, split: DataSplit, label: int) -> Factors:
    """The factors of a class's images in a split."""
    every = factors_of(dataset, split)
    assert every
    return every.at(np.flatnonzero(every.label == label))


def _capsule(network: Network, label: int) -> Encode:
    """The poses of a class."""

    def encode(images: Floats) -> Doubles:
        parts = []
        with evaluating(network), torch.inference_mode():
            for start in range(0, len(images), BATCH):
                batch = torch.from_numpy(images[start : start + BATCH])
                parts.append(network(batch).poses[:, label].double().numpy())
        return np.concatenate(parts)

    return encode


def _principal(images: NDArray[np.uint8], dims: int = 16) -> Encode:
    """The first principal components, fitted to some images."""
    some = images[:: max(1, len(images) // _FITTED)].reshape(-1, images[0].size) / 255
    middle = some.mean(axis=0)
    _, _, directions = np.linalg.svd(some - middle, full_matrices=False)

    def encode(images: Floats) -> Doubles:
        flat = images.reshape(len(images), -1).astype(np.float64)
        return np.asarray((flat - middle) @ directions[:dims].T)

    return encode


def _compare(learnt: Views, new: Views) -> dict[str, Any]:
    """Fit to learnt instances at familiar azimuths; measure on new instances."""
    fitted = learnt.at(is_familiar(len(learnt.poses)))
    familiar = is_familiar(len(new.poses))
    kinds = new.at(familiar), new.at(~familiar)
    explained = {
        name: [_explained(_targets(one.factors, name), _fit(fitted, one, name)) for one in kinds]
        for name in NAMES
    }
    return {
        "explained": explained,
        "turn": {"turn": [_turn(learnt, new, familiar=one) for one in (True, False)]},
        "named": [name for name in follow(fitted, kinds[0]) if name],
        "dimensions": new.poses.shape[1],
    }


def _targets(factors: Factors, name: str) -> Doubles:
    """A factor as numbers (N, T): angles as points on a circle, lamps as directions."""
    if name == "azimuth":
        turn = np.radians(factors.azimuth)
        return np.stack((np.sin(turn), np.cos(turn)), axis=1)
    if name == "lamp":
        across, up = np.radians(np.array(LAMPS)[:, :2]).T
        directions = np.stack(
            (np.cos(up) * np.sin(across), np.sin(up), np.cos(up) * np.cos(across)), axis=1
        )
        return np.asarray(directions[factors.lamp])
    values: NDArray[Any] = getattr(factors, name)
    return values.astype(np.float64)[:, None]


def _fit(fitted: Views, tested: Views, name: str) -> Doubles:
    """Predict a factor of tested views by a linear function that was fitted to others."""
    return _regress(fitted.poses, _targets(fitted.factors, name), tested.poses)


def _regress(inputs: Doubles, targets: Doubles, tested: Doubles) -> Doubles:
    middle, offset = inputs.mean(axis=0), targets.mean(axis=0)
    centred = inputs - middle
    gram = centred.T @ centred
    gram += RIDGE * gram.diagonal().mean() * np.eye(len(gram))
    weights = np.linalg.solve(gram, centred.T @ (targets - offset))
    return np.asarray((tested - middle) @ weights + offset)


def _explained(targets: Doubles, predicted: Doubles) -> float:
    """The share of the targets' variance that predictions explain, at least 0."""
    rest = np.square(targets - predicted).sum()
    return max(0.0, 1 - float(rest / np.square(targets - targets.mean(axis=0)).sum()))


def _turn(learnt: Views, new: Views, *, familiar: bool) -> float:
    """The share of a pose's change by one step of azimuth that a linear map of it predicts.

    The map is fitted to steps between familiar azimuths of learnt instances. It also takes the
    size after the step, which is drawn anew.
    """
    before, after = _steps(learnt, familiar=True)
    tested, expected = _steps(new, familiar=familiar)
    change = (expected - tested)[:, :-1]
    predicted = _regress(_given(before, after), (after - before)[:, :-1], _given(tested, expected))
    return max(0.0, 1 - float(np.square(change - predicted).sum() / np.square(change).sum()))


def _given(before: Doubles, after: Doubles) -> Doubles:
    """The pose and size before a step, and the size after it."""
    return np.concatenate((before, after[:, -1:]), axis=1)


def _steps(views: Views, *, familiar: bool) -> tuple[Doubles, Doubles]:
    """Poses and sizes (M, D + 1) before and after a step, both azimuths familiar or both new."""
    both = np.concatenate((views.poses, views.factors.size[:, None]), axis=1)
    shape = (-1, len(AZIMUTHS), len(ELEVATIONS) * len(LAMPS), both.shape[1])
    poses = both.reshape(shape)
    known = is_familiar(len(views.poses)).reshape(shape[:3])[0, :, 0]
    after = np.roll(poses, -1, axis=1)
    rows = (known == familiar) & (np.roll(known, -1) == familiar)
    return tuple(part[:, rows].reshape(-1, shape[-1]) for part in (poses, after))  # type: ignore[return-value]
