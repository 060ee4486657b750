"""What is found out about a finished bundle, and written into its manifest and card."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from model.bundle import WEIGHTS, Bundle, BundleError, Manifest, write_manifest
from model.canvas import PAPER, save_small
from model.familiarity import Ranks
from model.plot import Chart, Line, Point, save_charts
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.sweep import plan_sweep
from model.sweep_grid import draw_sweep
from training.data.datasets import DATASETS, HELD_OUT, Examples, hold_out, load
from training.inside.dimensions import name_dimensions
from training.inside.familiarity import examine, fit_familiarity, judge, roc
from training.inside.routing_changes import ITERATIONS, routing_changes
from training.inside.strangers import draw_strangers
from training.publication.card import lineage, write_card
from training.publication.findings import ROC, ROUTING_CURVE, SWEEP
from training.run.lineage import unseen_by

_SWEPT = 2
"""Classes whose sweeps are drawn."""
_ROUTED = 256
"""Digits whose routing is watched."""


def load_digits(bundle: Bundle, data_dir: Path) -> Examples:
    """The last training images of a bundle's data set, those that `train` holds out.

    A network trained with --final has seen them; its manifest and card say so.
    """
    dataset = DATASETS[bundle.manifest.training["recipe"]["dataset"]]
    return hold_out(load(dataset, "train", data_dir), HELD_OUT)[1]


def study(bundle: Bundle, digits: Examples) -> Bundle:
    """Name the pose dimensions, draw how routing changes, fit which pictures look known.

    Networks of pairs have no rule for what is known: they see more than single digits.
    """
    bundle = study_dimensions(bundle, digits)
    study_routing(bundle, digits)
    return study_familiarity(bundle, digits) if bundle.manifest.dataset in DATASETS else bundle


def study_dimensions(bundle: Bundle, digits: Examples) -> Bundle:
    """Name the pose dimensions, and draw what some of them do, into `sweep.png`."""
    laid_out = Examples(_lay_out(digits, bundle.manifest), digits.labels)
    bundle = _record(bundle, pose_dimensions=name_dimensions(Runtime(bundle), laid_out))
    save_small(_draw_sweeps(bundle, laid_out), bundle.path / SWEEP)
    write_card(bundle)
    return bundle


def study_routing(bundle: Bundle, digits: Examples) -> None:
    """Draw how much each of nine iterations changes, into `routing.png`."""
    images = scale(_lay_out(digits, bundle.manifest)[:_ROUTED])
    changes = routing_changes(Runtime(bundle), images)
    charts = [
        _curve("mean change of a logit", changes.logits),
        _curve("mean change of a coupling", changes.couplings),
    ]
    title = f"{bundle.manifest.name}: {ITERATIONS} routing iterations"
    save_charts(charts, bundle.path / ROUTING_CURVE, title=title)
    write_card(bundle)


def study_familiarity(bundle: Bundle, digits: Examples) -> Bundle:
    """Fit, on digits alone, the rule that says how familiar a picture looks."""
    seen = "was not trained on" if unseen_by(lineage(bundle.manifest)) else "was trained on"
    rule = fit_familiarity(
        Runtime(bundle),
        scale(digits.images),
        pictures=f"the last {len(digits.images):,} training images, which the network {seen}",
    )
    return _record(bundle, known=rule)


def meet_strangers(bundle: Bundle, digits: Examples, *, data_dir: Path) -> Bundle:
    """See how the rule, as it stands, fares on pictures of other kinds.

    Raises:
        BundleError: the bundle has no rule.
    """
    manifest, runtime = bundle.manifest, Runtime(bundle)
    rule = manifest.known
    if rule is None or manifest.studied_weights != manifest.sha256[WEIGHTS]:
        raise BundleError(f"{bundle.path}: no rule was fitted to these weights; see fit-known")
    known = rule.rank(examine(runtime, scale(digits.images[len(digits.images) // 2 :])))
    strangers = {
        kind: rule.rank(examine(runtime, pictures))
        for kind, pictures in draw_strangers(
            manifest.image_size, data_dir, known=manifest.dataset
        ).items()
    }
    _draw_roc(bundle.path / ROC, known, strangers)
    verdicts = [judge(rule, known, kind, ranks) for kind, ranks in strangers.items()]
    met = replace(rule, strangers=tuple(verdict._asdict() for verdict in verdicts))
    return _record(bundle, known=met)


def _draw_sweeps(bundle: Bundle, laid_out: Examples) -> Image.Image:
    """The paper's figure 4 for the first image of each of some classes, side by side."""
    manifest, runtime = bundle.manifest, Runtime(bundle)
    sweep = plan_sweep(range(manifest.class_dim), start=-0.25, stop=0.25, step=0.05)
    grids = []
    for label in _most_named(manifest, laid_out.labels):
        image = scale(laid_out.images[laid_out.labels == label][:1])
        poses = sweep.poses(runtime.encode(image).poses[0, label])
        drawn = runtime.decode(poses, np.full(len(poses), label, np.int64))[:, 0]
        grids.append(
            draw_sweep(sweep.on_grid(drawn), sweep, manifest=manifest, label=label, scale=1)
        )
    picture = Image.new("RGB", (sum(grid.width for grid in grids), grids[0].height), PAPER)
    for place, grid in enumerate(grids):
        picture.paste(grid, (sum(other.width for other in grids[:place]), 0))
    return picture


def _most_named(manifest: Manifest, labels: NDArray[np.uint8]) -> list[int]:
    """The two classes, of those that occur, whose dimensions have the most names."""
    named = Counter(one.label for one in manifest.pose_dimensions if one.sign)
    return sorted(sorted(np.unique(labels).tolist(), key=lambda label: -named[label])[:_SWEPT])


def _lay_out(digits: Examples, manifest: Manifest) -> np.ndarray:
    """Digits (N, H, W) in the middle of the network's own, perhaps larger, black images."""
    room = manifest.image_size - digits.images.shape[-1]
    margins = (room // 2, room - room // 2)
    return np.pad(digits.images, ((0, 0), margins, margins))


def _curve(title: str, values: Floats) -> Chart:
    points = [Point(place + 1, float(value)) for place, value in enumerate(values)]
    return Chart(title, [Line(points)], x_title="iteration", y_range=(0, float(values.max())))


def _draw_roc(target: Path, known: Ranks, strangers: dict[str, Ranks]) -> None:
    chart = Chart(
        "share of known pictures (y) and of strangers (x) that reach each score",
        [
            Line([Point(*point) for point in roc(known.score, ranks.score)], kind)
            for kind, ranks in strangers.items()
        ],
        x_title="strangers",
        y_range=(0, 1),
    )
    save_charts([chart], target)


def _record(bundle: Bundle, **findings: Any) -> Bundle:
    """Write findings into manifest and card; those in other weights are forgotten."""
    manifest, weights = bundle.manifest, bundle.manifest.sha256[WEIGHTS]
    if manifest.studied_weights != weights:
        manifest = replace(manifest, pose_dimensions=(), known=None, studied_weights=weights)
    recorded = Bundle(bundle.path, replace(manifest, **findings))
    write_manifest(bundle.path, recorded.manifest)
    write_card(recorded)
    return recorded
