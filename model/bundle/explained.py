"""What the poses of a bundle's classes explain of images, next to PCA of the same class.

`training.explained` measures it.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.entry import ENTRY, Count, Entry

MARGIN = 0.02
"""Shares that differ by less are as good as equal: other images change a share by about as much."""
HALF = 0.5
"""Poses that explain less draw pictures that say little."""
Explains = Annotated[float, Field(ge=-1e6, le=1)]
"""A share is negative where the mean image is closer to the images than their reconstructions."""


@dataclass(frozen=True, config=ENTRY)
class Explained(Entry):
    """Shares of the variance of images that reconstructions explain.

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
    """By so many principal components of the training images of that class."""
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
