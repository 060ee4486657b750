"""docs/results.md, its pictures and the mean over seeds on cards, from results and manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from model.bundle import Bundle, Manifest, write_manifest
from model.bundle.novelty import NoveltyRule
from model.canvas import ACCENT, INK
from model.capsnet import Network, build, family_of
from model.interpret.sweep import Sweep, plan_sweep
from model.preprocess import Floats, scale
from training.answers import answer, evaluating, interval, is_wrong, measure_presence
from training.card import write_card
from training.data.datasets import DATASETS, Examples, hold_out, load
from training.experiments.declare import FAMILIES, Column, Experiment, Row, count_of
from training.experiments.paired import compare
from training.experiments.run import Result
from training.experiments.seeds import side_by_side
from training.figures import make_axes, save, scale_by_logarithm, show
from training.provenance import runs_of
from training.state import CHECKPOINT, Checkpoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NOVELTY = """## Novelty

How well the [novelty score](explanation/views.md#novelty) separates training images from 1,000
others: area under the ROC curve, and the share that is not novel. False alarms are the test images
that are novel. Hyperparameters were chosen on noise and clothes.
"""
_SPEEDS = (
    "The papers' errors are on MNIST. Size and speed are those of the encoders on one CPU thread. "
    "Multiplications are for one image. Images per second are medians of {rounds} rounds; brackets "
    "hold the ratio to the paper's CapsNet (median, lowest - highest)."
)
_SHOWN, _SWEPT = 6, 4
"""Pairs in the picture of what networks name, and pose dimensions in that of sweeps."""
_HEAD = """# Results

1. **Capsules help where digits overlap, with either routing.** On the same convolutions,
   self-attention capsules answer 9.1 % of overlapping pairs wrongly, capsules with routing by
   agreement 9.5 %, a linear layer 12.8 % (one seed). On single digits self-attention makes 0.48 %
   errors, the linear layer 0.77 %; on clothes 9.7 and 10.1 %, where the difference may be zero. The
   linear layer has another loss and no reconstruction: which of these matters was not tried.
2. **Capsules help where images are few.** With 100 training images, capsules with routing by
   agreement make 7.8 % errors on MNIST, a CNN with as many multiplications 16.1 %; with all images
   both make 0.50 %, and on clothes the CNN is better, 13.1 against 15.2 %.
3. **What iterations of routing gain depends on the family.** With routing by agreement, each of six
   runs with three iterations makes 48 to 52 errors on MNIST, each of six with one 55 to 62. With EM
   routing, after 30,000 images, three iterations make 3.8 % errors, one 20.6 % (one seed). With
   shared-weight capsules the difference may be zero.

This page, written by `python -m training experiment write`, compares networks. Choices were made on
the last 5,000 training images. The test split was read once per row and seed: {reads}.

Errors are means over seeds, ± the standard deviation. Brackets hold the 95 % Wilson interval of all
seeds pooled: how far another 10,000 images may differ, not whether two rows do. That is what
differences are for: paired over images, with the variance between seeds (with one seed each: of
images alone). Where the interval holds zero, the rows may be equal. Older rows did not keep which
images were wrong and have none.
"""


def write_page(
    experiments: Sequence[Experiment],
    results: Sequence[Result],
    manifests: Sequence[Manifest] = (),
    speeds: Mapping[str, Any] | None = None,
) -> str:
    """The page's Markdown: a section for each experiment with results.

    Args:
        experiments: in the order of the page.
        results: of their rows.
        manifests: of bundles, whose novelty scores are told.
        speeds: what `benchmarks.families --write` wrote.
    """
    reads = Counter(one.dataset for one in results if one.split == "test")
    counts = " and ".join(f"`{name}` {count} times" for name, count in sorted(reads.items()))
    rows = {row.name for one in experiments for row in one.rows}
    unlisted = sum(one.split == "test" and one.row not in rows for one in results)
    counts += f" ({unlisted} by unlisted rows)" if unlisted else ""
    parts = [_HEAD.format(reads=counts or "never yet")]
    if FAMILIES in experiments:
        parts.append(_families(results, speeds or {"networks": {}}))
    others = [one for one in experiments if one is not FAMILIES]
    parts += [_section(one, results) for one in others if _of(one.rows, results)]
    if rules := {one.name: one.novelty for one in manifests if one.novelty}:
        parts.append(_novelty(dict(sorted(rules.items()))))
    digests = {name: sha for one in results if one.row in rows for name, sha in one.digests.items()}
    if digests:
        lines = [_line(("set", "SHA-256")), "|---|---|"]
        lines += [_line((name, f"`{sha}`")) for name, sha in digests.items()]
        parts.append("\n".join(("## Derived test sets\n", *lines, "")))
    return "\n".join(parts)


def describe(column: Column, results: Sequence[Result]) -> str:
    """A cell: mean, deviation and the interval of the pooled answers."""
    wrong, count = _pool(column.test, results)
    values = [one.percent(column.test) for one in results]
    if column.right:
        values, wrong = [100 - value for value in values], count - wrong
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    low, high = interval(wrong, count)
    return f"{mean(values):.2f}{spread} [{low:.2f}, {high:.2f}]"


def tell_seeds(bundle: Bundle, results: Sequence[Result]) -> None:
    """Add the mean test error of the row with a bundle's name and images to manifest and card."""
    manifest, runs = bundle.manifest, runs_of(bundle.manifest.training)
    errors = [
        one.percent(next(iter(one.wrong)))  # of pairs, at the paper's shift
        for one in results
        if runs and (manifest.name, runs[-1].images, "test") == (one.row, one.images, one.split)
    ]
    if len(errors) < 2:
        return
    seeds = {
        "count": len(errors),
        "mean_percent": round(mean(errors), 4),
        "deviation_percent": round(stdev(errors), 4),
    }
    told = Bundle(bundle.path, replace(manifest, metrics={**manifest.metrics, "seeds": seeds}))
    write_manifest(bundle.path, told.manifest)
    write_card(told)


def _section(one: Experiment, results: Sequence[Result]) -> str:
    reported = any(row.name in one.paper for row in one.rows)
    head = ["network", "images seen", *(["paper"] if reported else [])]
    head += [column.heading for column in one.columns]
    head.append("seeds")
    lines = [f"## {one.title}\n\n{one.text}\n", _line(head), "|---" * len(head) + "|"]
    for row in one.rows:
        of_row = _of([row], results)
        for images in sorted({result.images for result in of_row}):
            same = [result for result in of_row if result.images == images]
            cells = [row.title, f"{images:,}"]
            cells += [one.paper.get(row.name, "")] if reported else []
            cells += [describe(column, same) for column in one.columns]
            lines.append(_line([*cells, ", ".join(str(result.seed) for result in same)]))
    if differences := list(_differences(one, results)):
        lines += ["", _line(("difference", "of", "points")), "|---|---|---|", *differences]
    if one.name in PICTURES and _complete(one, results):
        lines.append(f"\n![{one.title}](pictures/{one.name}.png)")
    return "\n".join((*lines, f"\n`python -m training experiment run {one.name}`\n"))


def _differences(one: Experiment, results: Sequence[Result]) -> Iterator[str]:
    """Lines of the rows that the experiment compares, with the difference of their errors."""
    rows = {row.name: row for row in one.rows}
    for first, second in one.compared:
        for column in one.columns:
            both = [_at_budget(rows[name], results) for name in (first, second)]
            if found := compare(both[0], both[1], column.test):
                sign = -1 if column.right else 1
                heading = column.heading
                if one is FAMILIES:  # whose titles are the same for each data set
                    heading = f"{rows[first].recipe.dataset} {heading}"
                low, high = sorted((sign * found.low, sign * found.high))
                cells = f"**{rows[first].title}** less **{rows[second].title}**", heading
                yield _line((*cells, f"{sign * found.points:+.2f} [{low:+.2f}, {high:+.2f}]"))


def _novelty(rules: Mapping[str, NoveltyRule]) -> str:
    """A row for each bundle, a column for each kind of images."""
    kinds = dict.fromkeys(str(one["kind"]) for rule in rules.values() for one in rule.others)
    lines = [_NOVELTY, _line(("bundle", "false alarms", *kinds)), "|---" * (len(kinds) + 2) + "|"]
    for name, rule in rules.items():
        found = {str(one["kind"]): one for one in rule.others}
        cells = [
            f"{found[kind]['auc']:.4f}, {found[kind]['known_percent']:.1f} %"
            if kind in found
            else ""
            for kind in kinds
        ]
        alarms = rule.test_novel_percent
        lines.append(_line((f"`{name}`", "" if alarms is None else f"{alarms:.1f} %", *cells)))
    return "\n".join((*lines, "\n`python -m training analyse BUNDLE`\n"))


def _families(results: Sequence[Result], speeds: Mapping[str, Any]) -> str:
    """Errors of the families on each data set, size and speed; those of other networks, too."""
    networks: dict[str, dict[str, Any]] = speeds["networks"]
    measures = list(dict.fromkeys(key for cells in networks.values() for key in cells))
    rows = {(row.recipe.dataset, row.title): row for row in FAMILIES.rows}
    datasets = dict.fromkeys(dataset for dataset, _ in rows)
    head = ["network", *(f"{name} error, %" for name in datasets), "paper", *measures]
    lines = [_line(head), "|---" * len(head) + "|"]
    for name in dict.fromkeys((*networks, *(title for _, title in rows))):
        own = {dataset: rows[dataset, name] for dataset in datasets if (dataset, name) in rows}
        found = {dataset: _at_budget(row, results) for dataset, row in own.items()}
        cells = [name]
        for dataset in datasets:
            some = found.get(dataset, [])
            seeds = count_of(len(some), "seed")
            cells.append(f"{describe(FAMILIES.columns[0], some)}, {seeds}" if some else "")
        cells.append("".join(FAMILIES.paper.get(row.name, "") for row in own.values()))
        measured = [networks.get(name, {}).get(key, "") for key in measures]
        figures = (f"{one:,}" if isinstance(one, int) else str(one) for one in measured)
        lines.append(_line((*cells, *figures)))
    if differences := list(_differences(FAMILIES, results)):
        lines += ["", _line(("difference", "of", "points")), "|---|---|---|", *differences]
    text, commands = FAMILIES.text, f"`python -m training experiment run {FAMILIES.name}`"
    if networks:
        text += f"\n\n{_SPEEDS.format(rounds=speeds['rounds'])}"
        commands += ", `python -m benchmarks.families --write docs/speeds.json`"
    return "\n".join((f"## {FAMILIES.title}\n", f"{text}\n", *lines, f"\n{commands}\n"))


def _of(rows: Sequence[Row], results: Sequence[Result]) -> list[Result]:
    names = {row.name for row in rows}
    return sorted((one for one in results if one.row in names), key=lambda one: one.seed)


def _at_budget(row: Row, results: Sequence[Result]) -> list[Result]:
    return [one for one in _of([row], results) if one.images == row.images]


def _pool(test: str, results: Sequence[Result]) -> tuple[int, int]:
    """Wrong answers and all answers of some seeds."""
    return sum(one.wrong[test] for one in results), sum(one.tested[test] for one in results)


def _complete(one: Experiment, results: Sequence[Result]) -> bool:
    return all(_at_budget(row, results) for row in one.rows)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw_pictures(
    experiments: Sequence[Experiment],
    results: Sequence[Result],
    directory: Path,
    *,
    runs: Path,
    data_dir: Path,
) -> None:
    """Draw those pictures for which all rows have results.

    One of what networks draw or say stays as it is where their weights are not in `runs`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for one in experiments:
        kind = PICTURES.get(one.name)
        if kind is None or not _complete(one, results):
            continue
        figure: Figure | None
        if kind in ("sweeps", "pairs"):
            figure = _draw_answers(kind, one, results, runs=runs, data_dir=data_dir)
        else:
            figure = _draw_errors(kind, one, results)
        if figure is not None:
            save(figure, directory / f"{one.name}.png", 256)


PICTURES = {
    "frozen": "sweeps",
    "side-by-side": "pairs",
    "em-iterations": "curves",
    "fewer-images": "fewer",
    "transformed-digits": "transformed",
}
"""What is drawn of an experiment."""


def _draw_answers(
    kind: str, one: Experiment, results: Sequence[Result], *, runs: Path, data_dir: Path
) -> Figure | None:
    """What the first seed's networks make of held-out training images."""
    networks: dict[str, Network] = {}
    for row in one.rows:
        path = runs / _at_budget(row, results)[0].key / CHECKPOINT
        if not path.exists():
            return None
        networks[row.title] = build(row.recipe.network)
        networks[row.title].load_state_dict(Checkpoint.load(path).network)
    dataset = DATASETS[one.rows[0].recipe.dataset]
    held_out = hold_out(load(dataset, "train", data_dir), dataset.held_out)[1]
    return (draw_sweeps if kind == "sweeps" else draw_pairs)(networks, held_out)


def _draw_errors(kind: str, one: Experiment, results: Sequence[Result]) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415  training can do without

    figure = Figure((7, 3.6), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    if kind == "curves":
        for row in one.rows:
            curves = [dict(result.curve) for result in _at_budget(row, results)]
            x = sorted(set(curves[0]).intersection(*curves))
            axes.plot(x, [mean(curve[seen] for curve in curves) for seen in x], label=row.title)
        axes.set(xlabel="training images seen", ylabel="error on held-out images, %")
        scale_by_logarithm(axes)
    elif kind == "fewer":
        for family in dict.fromkeys(family_of(row.recipe.network) for row in one.rows):
            rows = [row for row in one.rows if family_of(row.recipe.network) == family]
            counts = [(row.training_images or 60_000, "plain", row) for row in rows]
            _plot_errors(axes, rows[-1].title.removesuffix(", all images"), counts, results)
        axes.set(xlabel="training images", ylabel="test error, %", xscale="log", ylim=(0, None))
    else:
        for row in one.rows:
            shares = [(int(test.split()[1]), test, row) for test in row.tests if "affine" in test]
            _plot_errors(axes, row.title, shares, results)
        axes.set(xlabel="share of affNIST's ranges, %", ylabel="test error, %", ylim=(0, None))
    if axes.get_legend_handles_labels()[0]:
        beside: dict[str, Any] = (
            {"loc": "upper left", "bbox_to_anchor": (1, 1)} if kind == "curves" else {}
        )
        axes.legend(fontsize=8, frameon=False, **beside)
    return figure


def _plot_errors(
    axes: Axes, title: str, points: Sequence[tuple[float, str, Row]], results: Sequence[Result]
) -> None:
    """Errors of test sets of rows at abscissas, with their intervals."""
    errors, below, above = [], [], []
    for _, test, row in points:
        wrong, count = _pool(test, _at_budget(row, results))
        low, high = interval(wrong, count)
        errors.append(100 * wrong / count)
        below.append(errors[-1] - low)
        above.append(high - errors[-1])
    x = [point[0] for point in points]
    axes.errorbar(x, errors, (below, above), label=title, marker="o", markersize=4, capsize=3)


def draw_pairs(networks: Mapping[str, Network], digits: Examples) -> Figure:
    """Draw pairs side by side, and below each what a network, by row, names: coloured if wrong."""
    both = side_by_side(digits)
    images, labels = both.images[:_SHOWN], both.labels[:_SHOWN]
    figure, axes = make_axes(len(networks), _SHOWN, image=True)
    for row, (title, network) in zip(axes, networks.items(), strict=True):
        row[0].set_ylabel(title, fontsize="small")
        presence = measure_presence(network, images, torch.device("cpu"))
        named, wrong = answer(presence, labels), is_wrong(presence, labels)
        for axis, image, said, bad in zip(row, scale(images), named, wrong, strict=True):
            show(axis, image)
            axis.set_xlabel(" and ".join(map(str, said)), color=ACCENT if bad else INK)
    return figure


def draw_sweeps(networks: Mapping[str, Network], clothes: Examples, label: int = 2) -> Figure:
    """Draw what each network makes of the first image of a class as its pose is moved."""
    from matplotlib.figure import Figure  # noqa: PLC0415  training can do without

    image = scale(clothes.images[clothes.labels == label][:1])
    sweep = plan_sweep(range(_SWEPT), start=-0.25, stop=0.25, step=0.125)
    figure = Figure((9, 2.9), dpi=100, layout="constrained")
    axes = figure.subplots(1, 1 + len(networks), width_ratios=(1, *(5 for _ in networks)))
    show(axes[0], image[0])
    axes[0].set_title("image", fontsize="small")
    for axis, (title, network) in zip(axes[1:], networks.items(), strict=True):
        drawn = _decode(network, image, label, sweep)
        rows, columns, height, width = drawn.shape
        show(axis, drawn.transpose(0, 2, 1, 3).reshape(1, rows * height, columns * width))
        axis.set_title(title, fontsize="small")
        middles = (np.arange(columns) + 0.5) * width, (np.arange(rows) + 0.5) * height
        axis.set_xticks(middles[0], [f"{delta:+.3g}" for delta in sweep.deltas])
        axis.set_yticks(middles[1], [f"dim {dim}" for dim in sweep.dims])
    for axis in axes:
        axis.set(frame_on=False)
        axis.tick_params(length=0, labelsize="small")
    axes[0].set(xticks=[], yticks=[])
    return figure


def _decode(network: Network, image: Floats, label: int, sweep: Sweep) -> Floats:
    """A class capsule's pose, moved and decoded: (dims, deltas, H, W)."""
    with evaluating(network), torch.inference_mode():
        pose = network(torch.from_numpy(image)).poses[0, label].numpy()
        poses = torch.from_numpy(sweep.poses(pose))
        drawn = network.decode(poses, torch.full((len(poses),), label)).numpy()
    return sweep.on_grid(drawn)[:, :, 0]
