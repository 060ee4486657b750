"""What is compared: a table is a list of runs, each a recipe with a budget of images.

The recipes are written out, so that a change of a preset does not change what a result is of; only
`shipped` takes a preset, which is what ships. What is said of the tables is in `results.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from model.capsnet import NetworkConfig
from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv
from research.controls import AgreementConfig, HeadConfig, PoseConfig
from research.transforms import TRANSFORMS
from training.recipes import PAPER_MSE_WEIGHT, PRESETS, Recipe

SIDE_BY_SIDE = "side by side"
THREE = (1, 2, 3)


@dataclass(frozen=True)
class Row:
    """One network that is trained with a fixed number of images and tested once for each seed."""

    name: str
    title: str
    recipe: Recipe
    """`make_plan` replaces its name and epochs."""
    images: int
    """The budget: images or pairs seen in training."""
    seeds: tuple[int, ...] = (1,)
    """The seeds that docs/results.md shows."""
    tests: tuple[str, ...] = ("plain",)
    """Names of test sets: see `research.run.make_test_sets`."""
    training_images: int | None = None
    """Distinct images to learn from, as many of each class; None for all."""
    split: Literal["test", "validation"] = "test"
    """What is tested on; `validation` is the last training images, which are then held out."""
    hold_out: bool = False
    """Whether those are held out in any case."""


class Table(NamedTuple):
    """Rows, and what is told of them."""

    rows: tuple[Row, ...]
    columns: dict[str, str] = {"plain": "error, %"}  # noqa: RUF012  read only
    """Headings by test set."""
    paper: dict[str, str] = {}  # noqa: RUF012  read only
    """Errors that the paper reports, in percent, by row."""
    compared: tuple[tuple[str, str], ...] = ()
    """Names of rows whose difference is told."""


_SMALL: dict[str, Any] = {"batch_size": 64, "warmup_steps": 300}
_AVERAGED: dict[str, Any] = {**_SMALL, "average_decay": 0.999}
STRIDED = DynamicConfig(stem=(Conv(64, 9, 2),), primary_types=8, primary_kernel=5, primary_stride=1)
DIGITS = Recipe("", network=STRIDED, **_SMALL)
ATTENTION = Recipe(
    "", network=AttentionConfig(), learning_rate=2e-3, convolutions="bfloat16", **_AVERAGED
)
_PAIR_STEM = (Conv(32, 5), Conv(64, 3, 2), Conv(64, 3), Conv(128, 3, 2))
PAIRS = replace(
    ATTENTION,
    task="pairs",
    network=AttentionConfig(height=36, width=36, stem=_PAIR_STEM, primary="spatial"),
    shift_px=4,
    mse_weight=0.0005 * 36 * 36,
)
SHARED = Recipe("", network=SharedConfig(), absent_weight=0.25, **_AVERAGED)
_SMALL_EM = MatrixConfig(
    stem=(Conv(32, 5), Conv(64, 3, 2)),
    primary_types=4,
    conv_caps=(8, 8),
    decoder_hidden=(256, 512),
)
MATRIX = Recipe(
    "",
    network=_SMALL_EM,
    loss="spread",
    spread_steps=400,
    detach_poses=True,
    learning_rate=3e-3,
    shift_px=1,
    **_AVERAGED,
)


def _plain(recipe: Recipe, network: NetworkConfig) -> Recipe:
    return replace(recipe, network=network, loss="cross-entropy", mse_weight=0)


def _sizes(recipe: Recipe, config: type[NetworkConfig], **changes: Any) -> Any:
    """Another network with the sizes that a recipe's network has."""
    kept = {one.name for one in fields(config)} & {one.name for one in fields(recipe.network)}
    return config(**{name: getattr(recipe.network, name) for name in kept} | changes)


def _iterations(recipe: Recipe, count: int, **changes: Any) -> Recipe:
    network: Any = recipe.network
    return replace(recipe, network=replace(network, routing_iterations=count), **changes)


def count_of(number: int, noun: str) -> str:
    """1 seed, 2 seeds."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_CNN = _plain(DIGITS, BaselineConfig(convs=(8, 8, 8)))
"""As many multiplications as STRIDED."""


def _digits() -> Iterator[Row]:
    """The paper's comparison: a CNN, and CapsNets with and without routing and reconstruction."""
    tests = ("plain", *TRANSFORMS)
    yield Row("digits-baseline", "baseline CNN", _CNN, 1_200_000, THREE, tests)
    for count in (1, 3):
        for name, weight in (("none", 0.0), ("text", PAPER_MSE_WEIGHT)):
            title = f"CapsNet, {count_of(count, 'iteration')}, {'no ' * (not weight)}reconstruction"
            recipe = _iterations(DIGITS, count, mse_weight=weight)
            yield Row(f"digits-r{count}-{name}", title, recipe, 1_200_000, THREE, tests)


def _fewer() -> Iterator[Row]:
    """Fewer images to learn from, each of which is seen more often."""
    stem: dict[str, Any] = {"stem": (*STRIDED.stem, Conv(64, 5)), "batch_norm": False}
    linear = _plain(DIGITS, _sizes(DIGITS, HeadConfig, **stem))
    poses = replace(DIGITS, network=_sizes(DIGITS, PoseConfig, **stem))
    for name, title, recipe in (
        ("digits-baseline", "baseline CNN", _CNN),
        ("digits-r3-text", "CapsNet, 3 iterations, reconstruction", DIGITS),
        ("few-linear", "linear layer on its convolutions", linear),
        ("few-poses", "linear layer to poses", poses),
    ):
        for count in (100, 1000, 10_000, None):
            of = f"{title}, {f'{count:,}' if count else 'all'} images"
            full = f"{name}-{count or 'all'}"
            yield Row(full, of, recipe, 120_000, THREE, training_images=count)


def _families(dataset: str, kind: str, **changes: Any) -> Iterator[Row]:
    """A network of each family at one budget, each by the recipe that its preset had."""
    shared = replace(SHARED, network=SharedConfig(decoder_hidden=(256, 512)))
    for title, recipe in (
        ("baseline CNN", _CNN),
        ("dynamic", DIGITS),
        ("attention", ATTENTION),
        ("linear layer on attention's convolutions", _plain(ATTENTION, HeadConfig())),
        ("shared", replace(shared, convolutions="bfloat16")),
        ("matrix", MATRIX),
    ):
        own = replace(recipe, dataset=dataset, shift_px=2, average_decay=0.999, **changes)
        name, seeds = f"family-{dataset}-{title.split()[0]}", THREE
        yield Row(name, f"{title}, {kind}", own, 180_000, (1,) if recipe is MATRIX else seeds)


def _pairs(name: str, images: int, *ends: str) -> Iterator[Row]:
    """Self-attention capsules on pairs, and other ends on the same convolutions."""
    ours = {
        "attention": ("self-attention capsules", PAIRS),
        "agreement": (
            "the same, routing by agreement",
            replace(PAIRS, network=_sizes(PAIRS, AgreementConfig)),
        ),
        "linear": ("linear layer", _plain(PAIRS, _sizes(PAIRS, HeadConfig, end="labels"))),
        "poses": (
            "linear layer to poses",
            replace(PAIRS, network=_sizes(PAIRS, PoseConfig)),
        ),
    }
    for end in ends:
        title, recipe = ours[end]
        tests = ("shift 4", "shift 6")
        yield Row(f"{name}-{end}", f"{title}, {images:,} pairs", recipe, images, tests=tests)


def _by_iterations(name: str, recipe: Recipe, **row: Any) -> Iterator[Row]:
    """One network with 1, 2 and 3 iterations of routing."""
    for count in THREE:
        title = count_of(count, "iteration")
        yield Row(f"{name}-{count}", title, _iterations(recipe, count), hold_out=True, **row)


_BRIEF: dict[str, Any] = {"images": 30_000}
_EM = replace(MATRIX, spread_steps=100, warmup_steps=100)
_SUM = replace(_EM, network=replace(_SMALL_EM, log_p_divisor=1.0))
_TWO: dict[str, Any] = {"images": 120_000, "seeds": THREE, "tests": ("plain", SIDE_BY_SIDE)}
_SINGLES = replace(SHARED, mse_weight=0)
_POOLED = replace(_SINGLES, network=_sizes(SHARED, HeadConfig, batch_norm=False, end="pooled"))

TABLES = {
    "families": Table(
        (
            *_families("mnist", "digits"),
            *_families("fashion-mnist", "clothes", flip=True),
        ),
        paper={
            "family-mnist-baseline": "0.39",
            "family-mnist-dynamic": "0.25 ± 0.005",
            "family-mnist-attention": "0.26",
            "family-mnist-matrix": "0.44",
        },
        compared=tuple(
            (f"family-{dataset}-attention", f"family-{dataset}-{other}")
            for dataset in ("mnist", "fashion-mnist")
            for other in ("linear", "shared")
        ),
    ),
    "side-by-side": Table(
        (
            *_by_iterations("two", _SINGLES, **_TWO),
            Row("two-pooling", "CNN with pooling", _POOLED, hold_out=True, **_TWO),
        ),
        {"plain": "single digits wrong, %", SIDE_BY_SIDE: "pairs wrong, %"},
        compared=(("two-3", "two-1"), ("two-3", "two-pooling")),
    ),
    "em-iterations": Table(
        (
            *_by_iterations("em-mean", _EM, **_BRIEF),
            Row("em-sum-3", "3 iterations, ln p summed", _SUM, hold_out=True, **_BRIEF),
        ),
        compared=(("em-mean-3", "em-mean-1"), ("em-mean-3", "em-sum-3")),
    ),
    "shipped": Table(
        (Row("mnist-attention", "mnist-attention", PRESETS["mnist-attention"], 1_440_000, THREE),),
        paper={"mnist-attention": "0.26"},
    ),
    "digits": Table(
        tuple(_digits()),
        paper={
            "digits-baseline": "0.39",
            "digits-r1-none": "0.34 ± 0.032",
            "digits-r1-text": "0.29 ± 0.011",
            "digits-r3-none": "0.35 ± 0.036",
            "digits-r3-text": "0.25 ± 0.005",
        },
    ),
    "multimnist": Table(
        (
            *_pairs("multimnist", 1_500_000, "attention", "agreement", "linear"),
            *_pairs("pairs", 150_000, "attention", "linear", "poses"),
        ),
        {"shift 4": "pairs wrong, %", "shift 6": "shifted by up to 6 px"},
        compared=(
            ("multimnist-attention", "multimnist-agreement"),
            ("multimnist-attention", "multimnist-linear"),
            ("pairs-attention", "pairs-linear"),
            ("pairs-attention", "pairs-poses"),
        ),
    ),
    "fewer-images": Table(
        tuple(_fewer()),
        compared=tuple(
            (f"digits-r3-text-{count}", f"few-{end}-{count}")
            for count in (100, 1000)
            for end in ("linear", "poses")
        ),
    ),
    "transformed-digits": Table(
        tuple(_digits()), {"plain": "as they are", **{name: name for name in TRANSFORMS}}
    ),
}
ROWS = {row.name: row for table in TABLES.values() for row in table.rows}
