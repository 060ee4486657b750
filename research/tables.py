"""What is compared: a table is a list of runs, each a recipe with a budget of images.

The recipes are written out, so that a change of a preset does not change what a result is of; only
`shipped` takes a preset, which is what ships. What is said of the tables is in `results.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv
from research.controls import HeadConfig, PoseConfig, ReroutedConfig
from research.faithful import FAITHFUL
from research.matched import MATCHED
from research.recipes import (
    ATTENTION,
    CNN,
    DIGITS,
    MATRIX,
    PAIRS,
    SHARED,
    SMALL_EM,
    STRIDED,
)
from research.rows import (
    SIDE_BY_SIDE,
    THREE,
    Compared,
    Row,
    Table,
    count_of,
    iterations,
    plain,
    sizes,
)
from research.transforms import TRANSFORMS
from training.recipes import PAPER_MSE_WEIGHT, PRESETS, Recipe

_CNN_NOTE = (
    "the CNN has 8, 8 and 8 channels, no normalisation, most weights in one layer, another loss "
    "and no reconstruction"
)


def _digits() -> Iterator[Row]:
    """The paper's comparison: a CNN, and CapsNets with and without routing and reconstruction."""
    tests = ("plain", *TRANSFORMS)
    yield Row("digits-baseline", "baseline CNN", CNN, 1_200_000, THREE, tests)
    for count in (1, 3):
        for name, weight in (("none", 0.0), ("text", PAPER_MSE_WEIGHT)):
            title = f"CapsNet, {count_of(count, 'iteration')}, {'no ' * (not weight)}reconstruction"
            recipe = iterations(DIGITS, count, mse_weight=weight)
            yield Row(f"digits-r{count}-{name}", title, recipe, 1_200_000, THREE, tests)


def _fewer() -> Iterator[Row]:
    """Fewer images to learn from, each of which is seen more often."""
    stem: dict[str, Any] = {"stem": (*STRIDED.stem, Conv(64, 5)), "batch_norm": False}
    linear = plain(DIGITS, sizes(DIGITS, HeadConfig, **stem))
    poses = replace(DIGITS, network=sizes(DIGITS, PoseConfig, squash="sabour", **stem))
    for name, title, recipe in (
        ("digits-baseline", "baseline CNN", CNN),
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
        ("baseline CNN", CNN),
        ("dynamic", DIGITS),
        ("attention", ATTENTION),
        ("linear layer on attention's convolutions", plain(ATTENTION, HeadConfig())),
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
            "routing by agreement, without coupling bias",
            replace(PAIRS, network=sizes(PAIRS, ReroutedConfig)),
        ),
        "linear": ("linear layer", plain(PAIRS, sizes(PAIRS, HeadConfig, end="labels"))),
    }
    for end in ends:
        title, recipe = ours[end]
        tests = ("shift 4", "shift 6")
        yield Row(f"{name}-{end}", f"{title}, {images:,} pairs", recipe, images, tests=tests)


def _by_iterations(name: str, recipe: Recipe, **row: Any) -> Iterator[Row]:
    """One network with 1, 2 and 3 iterations of routing."""
    of = "EM" if recipe.loss == "spread" else "shared weights"
    for count in THREE:
        title = f"{of}, {count_of(count, 'iteration')}"
        yield Row(f"{name}-{count}", title, iterations(recipe, count), hold_out=True, **row)


_BRIEF: dict[str, Any] = {"images": 30_000}
_EM = replace(MATRIX, spread_steps=100, warmup_steps=100)
_SUM = replace(_EM, network=replace(SMALL_EM, log_p_divisor=1.0))
_TWO: dict[str, Any] = {"images": 120_000, "seeds": THREE, "tests": ("plain", SIDE_BY_SIDE)}
_SINGLES = replace(SHARED, mse_weight=0)
_HEAD: dict[str, Any] = {"batch_norm": False, "hidden": 128, "end": "labels"}
_POOLED = replace(_SINGLES, network=sizes(SHARED, HeadConfig, gather="mean", **_HEAD))
_SUMMED = replace(_SINGLES, network=sizes(SHARED, HeadConfig, gather="sum", **_HEAD))

_SHIPPED = PRESETS["mnist-attention"]


def _budget(recipe: Recipe) -> int:
    """The images of MNIST that a preset trains on."""
    return round(60_000 * recipe.epochs)


TABLES = {
    **MATCHED,
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
            Compared(f"family-{dataset}-{capsules}", f"family-{dataset}-{other}", note, finds)
            for dataset in ("mnist", "fashion-mnist")
            for capsules, other, note, finds in (
                (
                    "attention",
                    "linear",
                    "the linear layer has more parameters, another loss and no poses",
                    True,
                ),
                ("dynamic", "baseline", _CNN_NOTE, True),
                ("attention", "baseline", f"{_CNN_NOTE}; a sixth of the multiplications", True),
                ("shared", "baseline", f"{_CNN_NOTE}; an eighth of the multiplications", True),
                ("matrix", "baseline", _CNN_NOTE, True),
                ("attention", "shared", "", False),
            )
        ),
    ),
    "side-by-side": Table(
        (
            *_by_iterations("two", _SINGLES, **_TWO),
            Row("two-pooling", "CNN, mean over positions", _POOLED, hold_out=True, **_TWO),
            Row("two-summing", "CNN, sum over positions", _SUMMED, hold_out=True, **_TWO),
        ),
        {"plain": "single digits wrong, %", SIDE_BY_SIDE: "pairs wrong, %"},
        compared=(
            Compared("two-3", "two-1"),
            Compared("two-3", "two-pooling", "the CNN averages positions, capsules sum votes"),
            Compared("two-3", "two-summing"),
            Compared("two-1", "two-summing", is_finding=False),
            Compared("two-pooling", "two-summing", is_finding=False),
        ),
    ),
    "em-iterations": Table(
        (
            *_by_iterations("em-mean", _EM, **_BRIEF),
            Row("em-sum-3", "EM, 3 iterations, ln p summed", _SUM, hold_out=True, **_BRIEF),
        ),
        compared=(
            Compared("em-mean-3", "em-mean-1", "after 30,000 images"),
            Compared("em-mean-3", "em-sum-3", "", is_finding=False),
        ),
    ),
    "shipped": Table(
        (Row("mnist-attention", "mnist-attention", _SHIPPED, _budget(_SHIPPED), THREE),),
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
        compared=(
            Compared("digits-r3-text", "digits-baseline", _CNN_NOTE),
            Compared("digits-r3-text", "digits-r1-text"),
            Compared("digits-r3-none", "digits-r1-none"),
        ),
    ),
    "multimnist": Table(
        (*_pairs("multimnist", 1_500_000, "attention", "agreement", "linear"),),
        {"shift 4": "pairs wrong, %", "shift 6": "shifted by up to 6 px"},
        compared=(
            Compared(
                "multimnist-attention",
                "multimnist-agreement",
                "agreement also has another squash and no coupling bias",
                is_finding=False,
            ),
            Compared(
                "multimnist-attention",
                "multimnist-linear",
                "the linear layer has a sixteenth of the parameters, another loss and no "
                "reconstruction",
            ),
        ),
    ),
    "fewer-images": Table(
        tuple(_fewer()),
        compared=tuple(
            Compared(f"digits-r3-text-{count}", f"{other}-{count}", note)
            for count in (100, 1000, 10_000, "all")
            for other, note in (
                ("digits-baseline", _CNN_NOTE),
                ("few-linear", "the linear layer has another loss and no reconstruction"),
                ("few-poses", ""),
            )
        ),
    ),
    "faithful": FAITHFUL,
    "transformed-digits": Table(
        tuple(_digits()),
        {"plain": "as they are", **{name: name for name in TRANSFORMS}},
        compared=(Compared("digits-r3-text", "digits-baseline", _CNN_NOTE),),
    ),
}
ROWS = {row.name: row for table in TABLES.values() for row in table.rows}


def add_table(name: str, table: Table) -> None:
    """Declare a table of your own, for as long as the program runs: see `--file`.

    Raises:
        ValueError: there is a table or a row of such a name.
    """
    rows = {row.name: row for row in table.rows}
    if taken := sorted({name} & TABLES.keys() | rows.keys() & ROWS.keys()):
        raise ValueError(f"there is {taken[0]} already: choose another name")
    TABLES[name] = table
    ROWS.update(rows)
