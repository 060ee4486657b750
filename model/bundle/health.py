"""The health of a network's capsules, as their critics measure it, and what its poses explain.

`training.analysis.health` and `training.explained` measure them; the definitions are in
docs/explanation/health.md.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.entry import ENTRY, Count, Percent, Share

MARGIN = 0.02
"""Shares that differ by less are as good as equal: other images change a share by about as much."""
HALF = 0.5
"""Poses that explain less draw pictures that say little."""
Explains = Annotated[float, Field(ge=-1e6, le=1)]
"""A share is negative where the mean image is closer to the images than their reconstructions."""
MAX_LAYERS, MAX_ITERATIONS = 100, 100
Shares = Annotated[tuple[Share, ...], Field(min_length=1, max_length=MAX_ITERATIONS)]


@dataclass(frozen=True, config=ENTRY)
class CapsuleHealth:
    """The capsules of one layer."""

    layer: str
    capsules: int
    starved_percent: Percent
    """The percentage of capsules that are present in none of the images."""
    mean_presence: Share
    """The mean presence of all capsules."""


@dataclass(frozen=True, config=ENTRY)
class CouplingHealth:
    """The couplings of one routed layer; entropy and polarisation by iteration."""

    layer: str
    entropy: Shares
    """0: each capsule serves one parent. 1: it serves all alike."""
    polarisation: Shares
    """0: couplings are uniform. 1: each capsule serves one parent."""
    within_class: float
    """The standard deviation over images of one class, as a share of the mean coupling."""
    between_classes: float
    """The standard deviation of the classes' mean couplings, as a share of the mean coupling."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.entropy) != len(self.polarisation):
            raise ValueError("entropy and polarisation have a number for each iteration")
        return self


@dataclass(frozen=True, config=ENTRY)
class Health:
    """The health of one network."""

    images: str
    """The images that it was measured on, in words."""
    count: Count
    capsules: Annotated[tuple[CapsuleHealth, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    couplings: Annotated[tuple[CouplingHealth, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    parse_trees: float
    """The mean number of different parse trees of a class."""
    images_per_class: float
    """The mean number of images of a class, which is the most that `parse_trees` can be."""
    negated_changed_percent: Percent | None
    """The percentage of answers that change if all input capsules change their sign; None of a
    family whose votes are no module."""
    negated_presence_change: Share | None
    """The mean change of presence by that."""
    effective_dims: Annotated[float, Field(ge=0)]
    """The mean effective dimensions of a class's poses."""
    class_dim: int
    """The numbers of a pose, D."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.effective_dims > self.class_dim + 1e-3:
            raise ValueError("a pose has more effective dimensions than numbers")
        return self


@dataclass(frozen=True, config=ENTRY)
class Explained:
    """Shares of the variance of images that reconstructions explain, and those of PCA.

    The share is 1 - sum |x - y|^2 / sum |x - m|^2 over all pixels of all images. Here y is the
    reconstruction of image x, and m is the mean training image.
    """

    images: str
    """The images that are explained, in words."""
    count: Count
    """The number of those images; for pairs, of their objects."""
    pose: Explains
    """By the decoded pose of the most present class; for pairs, of the labels."""
    class_mean: Explains
    """By the mean training image of that class."""
    pca: dict[str, Explains]
    """By principal components of the training images of the class; the key is their number."""
    class_dim: Count
    """The numbers of a pose, D."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if str(self.class_dim) not in self.pca:
            raise ValueError(f"pca has no share of {self.class_dim} numbers, as a pose has")
        return self

    @property
    def pca_same(self) -> float:
        """The share that PCA explains with as many numbers as a pose has."""
        return self.pca[str(self.class_dim)]

    @property
    def is_low(self) -> bool:
        """Whether poses explain less than PCA of the same class does, by more than `MARGIN`.

        PCA is the best linear code. A pose that explains less wastes numbers that it has.
        """
        return self.pose < self.pca_same - MARGIN

    @property
    def is_weak(self) -> bool:
        """Whether poses explain less than half, so that views of drawn poses say little."""
        return self.pose < HALF
