"""The figure of all bundles that ship: test error against encoder speed."""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import model

SPEEDS = Path(__file__).parents[1] / "docs" / "speeds.json"
NETWORKS = {
    "mnist": "paper's CapsNet",
    "mnist-attention": "attention",
    "mnist-compact": "dynamic",
    "mnist-shared": "shared",
    "mnist-matrix": "matrix",
    "fashion-mnist-attention": "fashion-mnist-attention",
    "multimnist-attention": "multimnist-attention",
    "cifar10": "cifar10",
    "assemblies": "assemblies",
}
"""The network of each bundle, as `benchmarks.families` calls it."""
DATA_SETS = {
    "mnist": "o",
    "multimnist": "s",
    "fashion-mnist": "D",
    "cifar-10": "^",
    "assemblies": "P",
}
"""Markers."""


def draw_error_speed(path: Path) -> None:
    """Draw each bundle's error, with its interval, at the images a second of a lone image."""
    speeds = json.loads(SPEEDS.read_text())["networks"]
    figure = Figure((8, 4), dpi=100, layout="constrained")
    axes = figure.subplots()
    for name, network in NETWORKS.items():
        manifest = model.open_bundle(name).manifest
        error, (low, high) = (
            manifest.metrics[key] for key in ("test_error_percent", "interval_percent")
        )
        speed = int(speeds[network]["images/s at 1"].split()[0].replace(",", ""))
        axes.errorbar(
            speed,
            error,
            [[error - low], [high - error]],
            marker=DATA_SETS[manifest.dataset],
            color="#1b1f24" if manifest.dataset == "mnist" else "#bc4c00",
            capsize=3,
        )
        x, y = (
            (-8, 4)
            if network == "shared"
            else (8, -12 if network in ("attention", "multimnist-attention") else 4)
        )
        side = "left" if x > 0 else "right"  # so that no label overlaps another network
        axes.annotate(name, (speed, error), (x, y), ha=side, textcoords="offset points", fontsize=9)
    axes.set(xscale="log", yscale="log")
    axes.margins(0.15)  # for the labels
    for axis, ticks in (
        (axes.xaxis, (100, 200, 500, 1000, 2000, 5000, 10_000)),
        (axes.yaxis, (0.1, 0.3, 1, 3, 10)),
    ):
        limits = axis.get_view_interval()
        shown = [tick for tick in ticks if limits[0] <= tick <= limits[1]]
        axis.set_ticks(shown, [f"{tick:,}" for tick in shown])
    axes.minorticks_off()
    axes.set_xlabel("images a second, one at a time, one CPU thread")
    axes.set_ylabel("test error, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    FigureCanvasAgg(figure).print_png(str(path))  # type: ignore[no-untyped-call]
