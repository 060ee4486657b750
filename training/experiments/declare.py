"""What is compared: experiments are tables of rows, rows are recipes with a budget of images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal, NamedTuple

from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.network import NetworkConfig
from model.capsnet.stem import Conv
from training.data.transforms import TRANSFORMS
from training.experiments.controls import AgreementConfig, LinearConfig
from training.recipes import PRESETS, RECONSTRUCTION_TEXT, Recipe

Split = Literal["test", "validation"]
"""What is tested on; `validation` is the last training images, which are then held out."""


@dataclass(frozen=True)
class Row:
    """One network that is trained with a fixed number of images and tested once for each seed."""

    name: str
    title: str
    recipe: Recipe
    """Its name and epochs do not count."""
    images: int
    """The budget: images or pairs seen in training."""
    tests: tuple[str, ...] = ("plain",)
    """Names of test sets: see `training.experiments.run.make_test_sets`."""
    training_images: int | None = None
    """Distinct images to learn from, as many of each class; None for all."""
    split: Split = "test"
    curve_every: int = 0
    """Images between two errors on held-out training images; 0 measures none."""


class Column(NamedTuple):
    """A column of a table."""

    test: str
    heading: str
    right: bool = False
    """Whether it gives right answers, not wrong ones."""


@dataclass(frozen=True)
class Experiment:
    """A section of the page, with its table."""

    name: str
    title: str
    text: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...] = (Column("plain", "error, %"),)
    paper: Mapping[str, str] = field(default_factory=dict)
    """Errors that the paper reports, in percent, by row."""
    compared: tuple[tuple[str, str], ...] = ()
    """Names of rows whose difference is tested."""


STRIDED = DynamicConfig(stem=(Conv(64, 9, 2),), primary_types=8, primary_kernel=5, primary_stride=1)
DIGITS = Recipe("", network=STRIDED, batch_size=64, warmup_steps=300)
CLOTHES = replace(DIGITS, dataset="fashion-mnist", flip=True, average_decay=0.999)
_SMALL_CNN = BaselineConfig(convs=(8, 8, 8))
"""As many multiplications as STRIDED."""
_PAPER = {
    "digits-baseline": "0.39",
    "digits-r1-none": "0.34 ± 0.032",
    "digits-r1-text": "0.29 ± 0.011",
    "digits-r3-none": "0.35 ± 0.036",
    "digits-r3-text": "0.25 ± 0.005",
}
"""Sabour 2017, table 1, with standard deviations over three trainings."""
_PAPER_AFFNIST = {"digits-baseline": "34", "digits-r3-text": "21"}
"""Section 5.2: networks that were trained on 40x40 images, moved and not otherwise transformed."""
_PAIR_TESTS = ("shift 4", "shift 6")
_PAIR_COLUMNS = (Column("shift 4", "pairs wrong, %"), Column("shift 6", "shifted by up to 6 px"))


def _compare(recipe: Recipe, baseline: NetworkConfig, images: int) -> tuple[Row, ...]:
    """The paper's comparison: a CNN, and CapsNets with and without routing and reconstruction."""
    cnn = replace(recipe, network=baseline, loss="cross-entropy", reconstruction_weight=0)
    rows = {"digits-baseline": ("baseline CNN", cnn)}
    weights = {"none": 0.0, "text": RECONSTRUCTION_TEXT}
    for iterations, name in product((1, 3), weights):
        title = f"CapsNet, {count_of(iterations, 'iteration')}"
        network: Any = recipe.network
        rows[f"digits-r{iterations}-{name}"] = (
            f"{title}, {'no ' if name == 'none' else ''}reconstruction",
            replace(
                recipe,
                network=replace(network, routing_iterations=iterations),
                reconstruction_weight=weights[name],
            ),
        )
    return tuple(
        Row(name, title, changed, images, ("plain", *TRANSFORMS))
        for name, (title, changed) in rows.items()
    )


def _by_head(recipe: Recipe, images: int, *tests: str) -> tuple[Row, ...]:
    """Self-attention capsules on pairs, and other ends on the same convolutions."""
    network = AgreementConfig(**_sizes(recipe.network))
    rows = {
        "attention": ("self-attention capsules", recipe),
        "agreement": ("the same, routing by agreement", replace(recipe, network=network)),
        "linear": ("linear layer", _with_linear_layer(recipe)),
    }
    return tuple(
        Row(f"multimnist-{name}", title, changed, images, tests)
        for name, (title, changed) in rows.items()
    )


def _with_linear_layer(recipe: Recipe) -> Recipe:
    """The recipe of self-attention capsules for a linear layer on the same convolutions."""
    network = LinearConfig(**_sizes(recipe.network), several=recipe.task == "pairs")
    return replace(recipe, network=network, loss="cross-entropy", reconstruction_weight=0)


def _sizes(network: NetworkConfig) -> dict[str, Any]:
    return {field.name: getattr(network, field.name) for field in fields(network)}


def _fewer(row: Row) -> Iterator[Row]:
    """The row with fewer images to learn from, each of which it sees more often."""
    row = replace(row, images=120_000, tests=("plain",))
    for count in (100, 1000, 10_000):
        name, title = f"{row.name}-{count}", f"{row.title}, {count:,} images"
        yield replace(row, name=name, title=title, training_images=count)
    yield replace(row, name=f"{row.name}-all", title=f"{row.title}, all images")


def _by_family(dataset: str, **changes: Any) -> tuple[Row, ...]:
    """A network of each family at one budget, each by the recipe that its preset has."""
    recipes = {
        "baseline CNN": replace(
            DIGITS, network=_SMALL_CNN, loss="cross-entropy", reconstruction_weight=0
        ),
        "dynamic": DIGITS,
        "attention": PRESETS["mnist-attention"],
        "linear layer on attention's convolutions": _with_linear_layer(PRESETS["mnist-attention"]),
        **{name: PRESETS[f"mnist-{name}"] for name in ("shared", "matrix")},
    }
    plain = {"affine": 0.0, "elastic_px": 0.0, "shift_px": 2, "average_decay": 0.999, **changes}
    return tuple(
        Row(
            f"family-{dataset}-{title.split()[0]}",
            title,
            replace(recipe, dataset=dataset, **plain),
            180_000,
        )
        for title, recipe in recipes.items()
    )


def count_of(number: int, noun: str) -> str:
    """1 seed, 2 seeds."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_DIGITS = _compare(DIGITS, _SMALL_CNN, 1_200_000)
FAMILIES = Experiment(
    "families",
    "Families",
    "A small network of each family, trained on every image three times (180,000), shifted by up "
    "to 2 pixels, clothes mirrored too. The capsule networks are those of `mnist-compact`, "
    "`mnist-attention`, `mnist-shared` and `mnist-matrix`, trained by their recipes; the CNN has "
    "as many multiplications as the first. The linear layer replaces all capsules of `attention`, "
    "on the same convolutions with batch normalisation. The papers train other sizes for far "
    "longer.",
    (*_by_family("mnist"), *_by_family("fashion-mnist", flip=True)),
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
)
"""A table of its own, with size and speed."""

COMPARISONS = (
    FAMILIES,
    Experiment(
        "shipped",
        "Other seeds of what ships",
        "`mnist-attention` by its preset; seed 1 is the bundle that ships. With B inside the "
        "softmax, the same three seeds made 0.34, 0.44 and 0.35 % errors.",
        (Row("mnist-attention", "mnist-attention", PRESETS["mnist-attention"], 1_440_000),),
        paper={"mnist-attention": "0.26"},
    ),
    Experiment(
        "digits",
        "The paper's comparison on MNIST, with small networks",
        "The paper's figures are means of three runs at full size; its code runs for about 640 "
        "epochs. Here the network of `mnist-compact` and a CNN with as many multiplications saw "
        "every digit 20 times.",
        _DIGITS,
        paper=_PAPER,
    ),
    Experiment(
        "multimnist",
        "Two overlapping digits: is it the routing, the capsules or the convolutions?",
        "The network of `multimnist-attention`; the same capsules with routing by agreement; and "
        "its convolutions with a linear layer and a sigmoid for each class. All are trained by one "
        "recipe on as many pairs, shifted by up to 4 pixels. A pair is right only if both labels "
        "are. Sabour's networks saw 60 million pairs.",
        _by_head(PRESETS["multimnist-attention"], 1_500_000, *_PAIR_TESTS),
        _PAIR_COLUMNS,
        compared=(
            ("multimnist-attention", "multimnist-agreement"),
            ("multimnist-attention", "multimnist-linear"),
        ),
    ),
    Experiment(
        "fewer-images",
        "Fewer training images",
        "The seed chooses the training images, the same number per class. All rows see the same "
        "number of images in total, so smaller sets repeat more often. The interval does not cover "
        "the choice of images; that takes several seeds.",
        tuple(each for row in (_DIGITS[0], _DIGITS[-1]) for each in _fewer(row)),
    ),
    Experiment(
        "transformed-digits",
        "Transformed digits",
        "Networks trained on digits shifted by up to 2 pixels, tested on "
        "[transformed digits](reference/presets.md#transformed-digits). The paper's figures are on "
        "affNIST, 40x40 pixels, and only roughly comparable with `affine 100 %`.",
        _DIGITS,
        (Column("plain", "as they are"), *(Column(name, name) for name in TRANSFORMS)),
        _PAPER_AFFNIST,
    ),
)
