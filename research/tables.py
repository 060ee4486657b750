"""What is compared: capsules and their controls on the same 100 digits, by the same recipe.

The recipes are written out, so that a change of a preset does not change what a result is of.

Each family is trained three ways. `routed` is the family. `uniform` gives every class the same
share of each vote, in training too. `poses` has linear layers to poses in place of votes and
couplings, with the same squash, loss and reconstruction and as many parameters. `cnn` has residual
blocks, as many multiplications, the same optimiser and augmentation, the mean over positions and a
softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from model.capsnet.stem import Conv, Residual, StemLayer
from research.controls import HeadConfig, PoseConfig, UniformConfig
from research.rows import ATTENTION, DIGITS, STRIDED, Compared, Row, Table, plain, sizes
from training.recipes import Recipe

SMALL_CNN: tuple[StemLayer, ...] = (
    *(Conv(16, 5, 2), Conv(32, 3), Residual()),
    *(Conv(64, 3, 2), Residual(), Residual()),
)
LARGE_CNN: tuple[StemLayer, ...] = (
    *(Conv(32, 5, 2), Conv(64, 3), Residual(), Residual()),
    *(Conv(128, 3, 2), Residual(), Residual()),
)
_CNN_OF = {"attention": "cnn-large", "dynamic": "cnn-small"}
"""The CNN with as many multiplications as a family."""
_PREFIX = "matched-few-100"


def _cnn(stem: tuple[StemLayer, ...]) -> Recipe:
    """A convolutional network by the optimiser and augmentation of self-attention capsules."""
    head: dict[str, Any] = {"batch_norm": True, "norm_first": True, "gather": "mean"}
    return plain(ATTENTION, sizes(ATTENTION, HeadConfig, **head | {"stem": stem}))


def _recipes() -> Iterator[tuple[str, str, Recipe]]:
    """The name, title and recipe of each row."""
    primary = Conv(
        STRIDED.primary_types * STRIDED.primary_dim, STRIDED.primary_kernel, STRIDED.primary_stride
    )
    strided: dict[str, Any] = {"stem": (*STRIDED.stem, primary), "batch_norm": False}
    for family, title, recipe, uniform, poses in (
        (
            *("attention", "self-attention", ATTENTION),
            sizes(ATTENTION, UniformConfig),
            sizes(ATTENTION, PoseConfig, gather="depthwise"),
        ),
        (
            *("dynamic", "agreement", DIGITS),
            replace(STRIDED, routing_iterations=1),
            sizes(DIGITS, PoseConfig, squash="sabour", **strided),
        ),
    ):
        yield f"{family}-routed", f"{title}, routed", recipe
        yield f"{family}-uniform", f"{title}, uniform couplings", replace(recipe, network=uniform)
        yield f"{family}-poses", f"{title}, linear to poses", replace(recipe, network=poses)
    yield "cnn-large", "CNN, 30 M multiplications", _cnn(LARGE_CNN)
    yield "cnn-small", "CNN, 5 M multiplications", _cnn(SMALL_CNN)


def _compared() -> Iterator[Compared]:
    """Each family as routed against its controls and the CNN of its size, and these controls."""
    for family, cnn in _CNN_OF.items():
        routed, uniform, poses = (f"{family}-{name}" for name in ("routed", "uniform", "poses"))
        for first, second in (
            *((routed, uniform), (routed, poses), (routed, cnn)),
            *((uniform, cnn), (poses, cnn)),
        ):
            yield Compared(f"{_PREFIX}-{first}", f"{_PREFIX}-{second}")


_ROWS = tuple(
    Row(
        f"{_PREFIX}-{name}",
        f"{title}: MNIST, 100 training images",
        replace(recipe, shift_px=2, average_decay=0.999),
        images=40_000,
        seeds=(1, 2, 3, 4, 5),
        training_images=100,
    )
    for name, title, recipe in _recipes()
)
TABLES = {_PREFIX: Table(_ROWS, tuple(_compared()))}
ROWS = {row.name: row for row in _ROWS}


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
