"""The diagrams of the docs, SVG files: `python -m tools.diagrams docs/pictures`.

Sizes of networks come from the families' configurations. A test draws all anew and compares.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from model.canvas import ACCENT, INK, PAPER
from model.capsnet import FAMILIES, NetworkConfig
from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.squash import length, squash, squash_exponential, squash_half
from model.capsnet.stem import Conv, geometry
from tools.votes_diagram import draw_votes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "capsnet", "font.size": 9}
_ROW = 6
"""Boxes beside each other."""
_TONES = {"plain": PAPER, "data": "#eaf2fb", "capsule": "#fdeee3", "process": "#eef6ee"}


class Box(NamedTuple):
    """A rectangle with lines of text, its corner at the lower left, in tenths of an inch."""

    x: float
    y: float
    width: float
    height: float
    text: str
    tone: str = "plain"

    def side(self, where: str) -> tuple[float, float]:
        """The middle of one side: `left`, `right`, `top` or `bottom`."""
        across = {"left": 0.0, "right": 1.0}.get(where, 0.5)
        up = {"bottom": 0.0, "top": 1.0}.get(where, 0.5)
        return self.x + across * self.width, self.y + up * self.height


class Arrow(NamedTuple):
    """From one box's side to another's."""

    start: Box
    leaves: str
    end: Box
    arrives: str
    text: str = ""


def draw(boxes: Sequence[Box], arrows: Sequence[Arrow] = ()) -> Figure:
    """Boxes and the arrows between them."""
    right = max(box.x + box.width for box in boxes) + 1
    top = max(box.y + box.height for box in boxes) + 1
    figure = Figure(figsize=(right / 10, top / 10), facecolor=PAPER)
    axes: Axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, right), ylim=(0, top))
    axes.axis("off")
    for box in boxes:
        _draw_box(axes, box)
    for arrow in arrows:
        start, end = arrow.start.side(arrow.leaves), arrow.end.side(arrow.arrives)
        style = {"arrowstyle": "->", "color": INK, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, start, arrowprops=style)
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.4)
        axes.text(*middle, arrow.text, ha="center", va="bottom", color=ACCENT, size=8)
    return figure


def _draw_box(axes: Axes, box: Box) -> None:
    title, *rest = box.text.split("\n")
    frame = mpl.patches.Rectangle(
        (box.x, box.y), box.width, box.height, facecolor=_TONES[box.tone], edgecolor=INK, lw=0.8
    )
    axes.add_patch(frame)
    middle = box.y + box.height / 2
    for line, text in enumerate((title, *rest)):
        axes.text(
            box.x + box.width / 2,
            middle + 1.6 * (len(rest) / 2 - line),
            text,
            ha="center",
            va="center",
            color=INK,
            size=9 if line == 0 else 8,
            weight="bold" if line == 0 else "normal",
        )


def draw_request() -> Figure:
    """The way of `POST /perturb` through the layers of a worker."""
    steps = (
        ("Http1", "parse the head", "plain"),
        ("Middleware", "id, key, body limits", "plain"),
        ("Route", "Job, read the query", "plain"),
        ("perturb", "find the bundle", "plain"),
        ("Admission", "3 rows: admit or 429", "plain"),
        ("DecodePools", "picture to (C, H, W)", "data"),
        ("Batcher", "queue by arrival", "process"),
        ("Runtime", "encode, then decode", "capsule"),
        ("JsonOrPng", "drawn if asked for", "data"),
    )
    return draw_snake([(f"{name}\n{does}", tone) for name, does, tone in steps], (14, 5))


def draw_processes() -> Figure:
    """The port, the workers that accept from it, their copy of the bundles, the supervisor."""
    clients = Box(1, 8, 12, 5, "clients", "data")
    port = Box(19, 8, 13, 5, "port\none for all", "data")
    workers = [
        Box(40, 15 - 7 * at, 18, 5, f"worker {name}\nHTTP, gRPC, networks", "process")
        for at, name in enumerate(("1", "2", "N"))
    ]
    copy = Box(67, 14, 20, 7, "current copy\nof the bundles;\na reload makes another", "capsule")
    supervisor = Box(67, 2, 20, 7, "supervisor\nstarts, watches,\nreplaces", "process")
    arrows = [Arrow(clients, "right", port, "left")]
    arrows += [Arrow(port, "right", worker, "left") for worker in workers]
    arrows += [Arrow(copy, "left", worker, "right") for worker in workers]
    arrows += [Arrow(supervisor, "left", worker, "right") for worker in workers]
    return draw([clients, port, *workers, copy, supervisor], arrows)


def draw_bundle() -> Figure:
    """What lies in a bundle's folder, and what points to what."""
    manifest = Box(
        1, 11, 17, 7, "manifest.json\nsizes, scores, provenance,\ndigest of each file", "data"
    )
    others = Box(1, 1, 17, 7, "CARD.md, novelty.npz\nfor people;\nthe novelty rule", "data")
    graphs = [
        Box(28, 16 - 3.75 * at, 24, 3, text, "plain")
        for at, text in enumerate(
            (
                "encoder.onnx",
                "encoder.batch, .fp16, .int8.onnx",
                "decoder.onnx",
                "routing.onnx",
            )
        )
    ]
    weights = Box(
        62, 7, 20, 7, "weights.safetensors\nevery parameter once,\nlarge ones in 16 bits", "capsule"
    )
    arrows = [Arrow(manifest, "right", graph, "left") for graph in graphs]
    arrows += [Arrow(graph, "right", weights, "left") for graph in graphs]
    arrows.append(Arrow(manifest, "bottom", others, "top"))
    return draw([manifest, others, *graphs, weights], arrows)


def draw_training_to_service() -> Figure:
    """From a training to an answer."""
    folder = Box(1, 10, 13, 6, "images\na data set\nor your folder", "data")
    training = Box(19, 10, 14, 6, "training\ntorch, offline\nruns/mnist-1", "process")
    bundle = Box(42, 10, 15, 6, "bundle\nONNX graphs, weights,\nscores, card", "capsule")
    service = Box(66, 10, 15, 6, "service\nonnxruntime\nCPU or GPU", "process")
    people = Box(66, 1, 15, 5, "callers\npage, command,\nPython, /v2", "data")
    code = Box(42, 1, 15, 5, "model.load\nno service at all", "data")
    arrows = [
        Arrow(folder, "right", training, "left"),
        Arrow(training, "right", bundle, "left", "export"),
        Arrow(bundle, "right", service, "left", "start, reload"),
        Arrow(service, "bottom", people, "top"),
        Arrow(bundle, "bottom", code, "top"),
    ]
    return draw([folder, training, bundle, service, people, code], arrows)


def draw_family(config: NetworkConfig, layers: Sequence[tuple[str, str]]) -> Figure:
    """A network from left to right: its image, its layers, its classes, its decoder."""
    channels, height, width = config.image_shape
    texts = [
        (f"image\n{channels} x {height} x {width}", "data"),
        *((text, tone) for text, tone in layers),
    ]
    if not isinstance(config, BaselineConfig):
        hidden = " - ".join(map(str, config.decoder_hidden))
        if config.decoder_channels:
            hidden += f"\nup {' - '.join(map(str, config.decoder_channels))}"
        texts.append((f"{config.num_classes} classes\npose of {config.class_dim}", "capsule"))
        texts.append((f"decoder\n{hidden}\n- {channels * height * width}", "plain"))
    return draw_snake([(text, tone) for text, tone in texts], (13, 6.5))


def draw_snake(texts: Sequence[tuple[str, str]], size: tuple[float, float]) -> Figure:
    """Boxes from left to right and, where they are more than six, back again below."""
    width, height = size
    split = len(texts) if len(texts) <= _ROW else (len(texts) + 1) // 2
    step, above = width + 2.5, 1 + (height + 2.5) * (len(texts) > split)
    top = [Box(1 + step * at, above, *size, *one) for at, one in enumerate(texts[:split])]
    low = [Box(1 + step * (split - 1 - at), 1, *size, *one) for at, one in enumerate(texts[split:])]
    arrows = [Arrow(a, "right", b, "left") for a, b in itertools.pairwise(top)]
    if low:
        arrows.append(Arrow(top[-1], "bottom", low[0], "top"))
    arrows += [Arrow(a, "left", b, "right") for a, b in itertools.pairwise(low)]
    return draw([*top, *low], arrows)


def dynamic_layers(config: DynamicConfig) -> Iterator[tuple[str, str]]:
    """Routing by agreement."""
    yield _stem(config, config.stem)
    rows, columns, *_ = config.grid
    window = f"{config.primary_kernel} x {config.primary_kernel}, stride {config.primary_stride}"
    grid = f"{config.primary_types} x {rows} x {columns} of {config.primary_dim}"
    yield f"primary capsules\n{window}\n{grid}", "capsule"
    yield f"routing\nby agreement\n{config.routing_iterations} iterations", "process"


def attention_layers(config: AttentionConfig) -> Iterator[tuple[str, str]]:
    """Self-attention routing."""
    yield _stem(config, config.stem)
    cells = geometry(config.height, config.width, config.stem)
    yield (
        (
            f"primary capsules\ndepthwise {cells.rows} x {cells.columns}\n"
            f"{config.primary_types} of {config.primary_dim}"
        ),
        "capsule",
    )
    yield "routing\nself-attention\nonce", "process"


def shared_layers(config: SharedConfig) -> Iterator[tuple[str, str]]:
    """Shared-weight capsules."""
    yield _stem(config, config.stem)
    rows, columns, *_ = config.grid
    size = config.stem[-1].channels
    yield f"primary capsules\n{rows} x {columns} of {size}\none W for all", "capsule"
    yield f"routing\nk-means\n{config.routing_iterations} iterations", "process"


def matrix_layers(config: MatrixConfig) -> Iterator[tuple[str, str]]:
    """Matrix capsules: each layer is routed."""
    grids = config.grids
    yield _stem(config, config.stem)
    types = (config.primary_types, *config.conv_caps)
    for place, (count, grid) in enumerate(zip(types, grids, strict=True)):
        name = f"ConvCaps {place}" if place else "primary capsules"
        routed = f"EM, {config.routing_iterations} iterations\n" if place else "4 x 4 poses\n"
        yield f"{name}\n{routed}{count} x {grid.rows} x {grid.columns}", "capsule"
    yield f"routing\nEM\n{config.routing_iterations} iterations", "process"


def baseline_layers(config: BaselineConfig) -> Iterator[tuple[str, str]]:
    """The CNN of the paper's comparison."""
    for channels, kernel in zip(config.convs, config.kernels, strict=True):
        yield f"convolution\n{kernel} x {kernel}\n{channels} channels", "plain"
    sizes = " - ".join(map(str, (*config.hidden, config.num_classes)))
    yield f"dense\n{sizes}\nsoftmax", "plain"


def _stem(config: NetworkConfig, convs: Sequence[Conv]) -> tuple[str, str]:
    kernels = ", ".join(str(conv.kernel) for conv in convs)
    rows, columns, *_ = geometry(config.height, config.width, convs)
    plural = "s" if len(convs) > 1 else ""
    return (
        f"convolution{plural}\nkernels {kernels}\n{convs[-1].channels} x {rows} x {columns}",
        "plain",
    )


_LAYERS: dict[str, Any] = {
    "dynamic": dynamic_layers,
    "attention": attention_layers,
    "shared": shared_layers,
    "matrix": matrix_layers,
    "baseline": baseline_layers,
}


def draw_squash() -> Figure:
    """Length after against length before, for the three families whose capsules are squashed."""
    figure = Figure(figsize=(5, 2.6), facecolor=PAPER)
    axes: Axes = figure.add_axes((0.11, 0.18, 0.86, 0.78))
    lengths = np.linspace(0, 4, 81)
    for function, name, style in (
        (squash, "routing by agreement", "-"),
        (squash_exponential, "self-attention", "--"),
        (squash_half, "shared weights", ":"),
    ):
        after = length(function(torch.tensor(lengths)[:, None]))
        axes.plot(lengths, after.numpy(), style, color=ACCENT, label=name)
    axes.set(xlabel="|s|, length before", ylabel="|v|, length after", xlim=(0, 4), ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def draw_all() -> dict[str, Figure]:
    """Every diagram by the name of its file."""
    figures = {
        "request.svg": draw_request(),
        "processes.svg": draw_processes(),
        "bundle.svg": draw_bundle(),
        "squash.svg": draw_squash(),
        "votes.svg": draw_votes(),
        "training-to-service.svg": draw_training_to_service(),
    }
    for name, layers in _LAYERS.items():
        config = FAMILIES[name].config()
        figures[f"family-{name}.svg"] = draw_family(config, list(layers(config)))
    return figures


def save_all(folder: Path) -> None:
    """Write every diagram."""
    with mpl.rc_context(_STYLE):
        for name, figure in draw_all().items():
            figure.savefig(folder / name, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    save_all(Path(sys.argv[1]))
