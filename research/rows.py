"""What a row and a table are, and how networks are changed into their controls."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from model.capsnet import NetworkConfig
from training.recipes import Recipe

FAMILIAR, NEW_AZIMUTHS = "familiar azimuths", "new azimuths"
THREE, FIVE = (1, 2, 3), (1, 2, 3, 4, 5)


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
    """The seeds that are run unless others are named."""
    tests: tuple[str, ...] = ("plain",)
    """Names of test sets: see `research.protocols.make_test_sets`."""
    training_images: int | None = None
    """Distinct images to learn from, as many of each class; None for all."""
    split: Literal["test", "validation"] = "test"
    """What is tested on; `validation` is the last training images, which are then held out."""
    hold_out: bool = False
    """Whether those are held out in any case."""
    protocol: Literal["plain", "azimuths"] = "plain"
    """Which images are learnt: see `research.protocols`."""
    stop_percent: float | None = None
    """The error on held-out images at which training is stopped; None for the whole budget."""


def share_images(first: Row, second: Row) -> bool:
    """Whether a seed chooses the same training images for both rows."""
    return first.training_images is not None and first.training_images == second.training_images


class Compared(NamedTuple):
    """Two rows whose difference is stated; the first has capsules, or more of their routing."""

    first: str
    second: str


class Table(NamedTuple):
    """Rows, and what is stated of them."""

    rows: tuple[Row, ...]
    columns: dict[str, str] = {"plain": "error, %"}  # noqa: RUF012  read only
    """Headings by test set."""
    compared: tuple[Compared, ...] = ()


def plain(recipe: Recipe, network: NetworkConfig) -> Recipe:
    """A recipe for a network without poses: cross-entropy, and no reconstruction."""
    return replace(recipe, network=network, loss="cross-entropy", mse_weight=0)


def sizes(recipe: Recipe, config: type[NetworkConfig], **changes: Any) -> Any:
    """Another network with the sizes that a recipe's network has."""
    kept = {one.name for one in fields(config)} & {one.name for one in fields(recipe.network)}
    return config(**{name: getattr(recipe.network, name) for name in kept} | changes)


def iterations(recipe: Recipe, count: int, **changes: Any) -> Recipe:
    """A recipe whose network routes so many times; with one, all couplings are uniform."""
    network: Any = recipe.network
    return replace(recipe, network=replace(network, routing_iterations=count), **changes)
