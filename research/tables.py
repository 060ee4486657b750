"""What is compared: capsules and their controls on the same data, by the same recipe.

The recipes are written out, so that a change of a preset does not change what a result is of.

Each family is trained four ways. `routed` is the family. `uniform` gives every class the same share
of each vote, in training too. `poses` has linear layers to poses in place of votes and couplings,
with the same squash, loss and reconstruction and as many parameters; of matrix capsules it has
convolutions in place of capsules. `cnn` has residual blocks, as many multiplications, the same
optimiser and augmentation, the mean over positions and a softmax.

With shared weights a linear layer on the sum over positions *is* uniform couplings, so that `poses`
has no row of its own there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv, Residual, StemLayer
from research.controls import HeadConfig, PlainMatrixConfig, PoseConfig, ReroutedConfig
from research.recipes import ATTENTION, DIGITS, MATRIX, PAIRS, SHARED
from research.rows import (
    FAMILIAR,
    FIVE,
    NEW_AZIMUTHS,
    THREE,
    Compared,
    Row,
    Table,
    iterations,
    plain,
    sizes,
)
from training.recipes import Recipe

FAMILIES = {
    "attention": "self-attention",
    "dynamic": "agreement",
    "shared": "shared weights",
    "matrix": "EM",
    "cnn": "CNN",
}
VARIANTS = {
    "routed": "routed",
    "agreement": "by agreement",
    "uniform": "uniform couplings",
    "poses": "linear to poses",
    "linear": "linear to labels",
    "large": "30 M multiplications",
    "small": "5 M multiplications",
    "same": "as many multiplications",
}
SMALL_CNN: tuple[StemLayer, ...] = (
    *(Conv(16, 5, 2), Conv(32, 3), Residual()),
    *(Conv(64, 3, 2), Residual(), Residual()),
)
LARGE_CNN: tuple[StemLayer, ...] = (
    *(Conv(32, 5, 2), Conv(64, 3), Residual(), Residual()),
    *(Conv(128, 3, 2), Residual(), Residual()),
)
PAIR_CNN: tuple[StemLayer, ...] = (
    *(Conv(32, 5, 2), Residual(), Conv(64, 3, 2), Residual()),
    *(Conv(128, 3, 2), Residual(), Residual()),
)
ASSEMBLY_STEM = (
    *(Conv(32, 5), Conv(32, 3, 2), Conv(64, 3)),
    *(Conv(64, 3, 2), Conv(128, 3), Conv(64, 3)),
)
ASSEMBLY_CNN: tuple[StemLayer, ...] = (
    *(Conv(32, 5, 2), Conv(32, 3), Residual()),
    *(Conv(64, 3, 2), Residual(), Conv(128, 3, 2)),
)


class Set(NamedTuple):
    """A data set with its recipes by family and variant, and how rows learn it."""

    title: str
    recipes: dict[tuple[str, str], Recipe]
    images: int
    columns: dict[str, str]
    seeds: tuple[int, ...] = FIVE
    row: dict[str, Any] = {}  # noqa: RUF012  read only


def attention(recipe: Recipe) -> dict[tuple[str, str], Recipe]:
    """Self-attention capsules as they are, with uniform couplings, and linear layers to poses."""
    gather = "depthwise" if getattr(recipe.network, "primary", "") == "depthwise" else "flatten"
    return {
        ("attention", "routed"): recipe,
        ("attention", "uniform"): replace(
            recipe, network=sizes(recipe, ReroutedConfig, couplings="uniform")
        ),
        ("attention", "poses"): replace(
            recipe, network=sizes(recipe, PoseConfig, gather=gather), muon_votes=0.0
        ),
    }


def dynamic(recipe: Recipe) -> dict[tuple[str, str], Recipe]:
    """The same of routing by agreement, whose primary capsules are a convolution."""
    network: Any = recipe.network
    primary = Conv(
        network.primary_types * network.primary_dim, network.primary_kernel, network.primary_stride
    )
    stem = (*network.stem, primary)
    poses = sizes(recipe, PoseConfig, stem=stem, batch_norm=False, squash="sabour")
    return {
        ("dynamic", "routed"): recipe,
        ("dynamic", "uniform"): iterations(recipe, 1),
        ("dynamic", "poses"): replace(recipe, network=poses),
    }


def shared(recipe: Recipe) -> dict[tuple[str, str], Recipe]:
    """Shared-weight capsules, and the same with uniform couplings."""
    return {("shared", "routed"): recipe, ("shared", "uniform"): iterations(recipe, 1)}


def matrix(recipe: Recipe) -> dict[tuple[str, str], Recipe]:
    """The same of matrix capsules, uniform in all layers."""
    convolutions = replace(recipe, network=sizes(recipe, PlainMatrixConfig))
    return {
        ("matrix", "routed"): recipe,
        ("matrix", "uniform"): iterations(recipe, 1),
        ("matrix", "poses"): convolutions,
    }


def cnn(recipe: Recipe, stem: tuple[StemLayer, ...], **changes: Any) -> Recipe:
    """A convolutional network by the optimiser and augmentation of a recipe for capsules."""
    head: dict[str, Any] = {"batch_norm": True, "norm_first": True, "gather": "mean"} | changes
    return plain(
        replace(recipe, muon_votes=0.0),
        sizes(recipe, HeadConfig, **head | {"stem": stem}),
    )


def _digits() -> dict[tuple[str, str], Recipe]:
    """All families on images of 28x28 pixels."""
    shared_capsules = replace(SHARED, network=SharedConfig(decoder_hidden=(256, 512)))
    recipes = {
        **attention(ATTENTION),
        **dynamic(DIGITS),
        **shared(replace(shared_capsules, convolutions="bfloat16")),
        ("cnn", "large"): cnn(ATTENTION, LARGE_CNN),
        ("cnn", "small"): cnn(ATTENTION, SMALL_CNN),
    }
    return {
        key: replace(recipe, shift_px=2, average_decay=0.999) for key, recipe in recipes.items()
    }


def _only(recipes: dict[tuple[str, str], Recipe], *kept: str) -> dict[tuple[str, str], Recipe]:
    return {key: recipe for key, recipe in recipes.items() if key[0] in kept or key[1] in kept}


def _at(recipe: Recipe, side: int, **network: Any) -> Recipe:
    """A recipe for squares of so many pixels."""
    changed: Any = replace(recipe.network, height=side, width=side, **network)
    return replace(recipe, network=changed)


def _assemblies() -> dict[tuple[str, str], Recipe]:
    toys: dict[str, Any] = {"num_classes": 5, "decoder_hidden": (256, 512)}
    capsules = _at(ATTENTION, 48, stem=ASSEMBLY_STEM, primary="spatial", **toys)
    agreement = _at(DIGITS, 48, primary_stride=2, **toys)
    recipes = {
        **attention(capsules),
        **dynamic(agreement),
        **shared(_at(SHARED, 48, stem=ASSEMBLY_STEM, **toys)),
        **matrix(_at(replace(MATRIX, spread_steps=100), 48, stem=_FEWER_CELLS, **toys)),
        ("cnn", "same"): cnn(capsules, ASSEMBLY_CNN),
    }
    changes: dict[str, Any] = {"dataset": "assemblies", "shift_px": 2, "average_decay": 0.99}
    return {
        key: replace(recipe, schedule="exponential", warmup_steps=30, **changes)
        for key, recipe in recipes.items()
    }


_FEWER_CELLS = (Conv(32, 5, 2), Conv(64, 3, 2))

SETS = {
    "mnist": Set("MNIST", _digits(), 180_000, {"plain": "error, %"}),
    "matrix": Set(
        "MNIST, 60,000 images seen",
        {**matrix(MATRIX), ("cnn", "small"): cnn(MATRIX, SMALL_CNN)},
        60_000,
        {"plain": "error, %"},
        THREE,
    ),
    "few-100": Set(
        "MNIST, 100 training images",
        _only(_digits(), "attention", "dynamic", "cnn"),
        40_000,
        {"plain": "error, %"},
        row={"training_images": 100},
    ),
    "pairs": Set(
        "overlapping digits",
        {
            **attention(PAIRS),
            ("attention", "agreement"): replace(PAIRS, network=sizes(PAIRS, ReroutedConfig)),
            ("attention", "linear"): plain(PAIRS, sizes(PAIRS, HeadConfig, end="labels")),
            ("cnn", "same"): cnn(PAIRS, PAIR_CNN, end="labels"),
        },
        150_000,
        {"shift 4": "pairs wrong, %", "shift 6": "shifted by up to 6 px"},
    ),
    "assemblies": Set(
        "assemblies",
        _assemblies(),
        64_000,
        {NEW_AZIMUTHS: "new azimuths, %", FAMILIAR: "familiar azimuths, %"},
        FIVE,
        {"protocol": "azimuths", "stop_percent": 1.0},
    ),
}


def name_row(name: str, family: str, variant: str) -> str:
    """The name of a row."""
    return f"matched-{name}-{family}-{variant}"


def _rows(name: str, one: Set) -> Iterator[Row]:
    for (family, variant), recipe in one.recipes.items():
        title = f"{FAMILIES[family]}, {VARIANTS[variant]}"
        yield Row(
            name_row(name, family, variant),
            f"{title}: {one.title}",
            recipe,
            one.images,
            one.seeds,
            tuple(one.columns),
            **one.row,
        )


def _compared(name: str, one: Set) -> Iterator[Compared]:
    """Each family as routed against its controls and the CNN of its size, and these controls."""
    families = dict.fromkeys(family for family, _ in one.recipes if family != "cnn")
    cnns = [variant for family, variant in one.recipes if family == "cnn"]
    for family in families:
        routed = name_row(name, family, "routed")
        controls = [variant for kind, variant in one.recipes if kind == family][1:]
        suited = "small" if family in ("dynamic", "matrix") else "large"
        cnn_row = name_row(name, "cnn", suited if suited in cnns else cnns[0])
        for variant in controls:
            yield Compared(routed, name_row(name, family, variant))
        yield Compared(routed, cnn_row)
        for variant in controls:
            if variant in ("uniform", "poses"):
                yield Compared(name_row(name, family, variant), cnn_row)


TABLES = {
    f"matched-{name}": Table(tuple(_rows(name, one)), one.columns, tuple(_compared(name, one)))
    for name, one in SETS.items()
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
