"""What the poses of a bundle's classes explain of images, next to PCA.

`training.explained` measures it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

MARGIN = 0.02
"""Shares that differ by less are as good as equal: other images change a share by about as much."""


@dataclass(frozen=True)
class Explained:
    """Shares of the variance of images that reconstructions explain.

    The share is 1 - sum |x - y|^2 / sum |x - m|^2 over all pixels of all images. Here y is the
    reconstruction of image x, and m is the mean training image.
    """

    images: str
    """The images that are explained, in words."""
    count: int
    """The number of those images; for pairs, of their objects."""
    pose: float
    """By the decoded pose of the most present class; for pairs, of the labels."""
    class_mean: float
    """By the mean training image of that class."""
    pca: dict[str, float]
    """By `class_dim` principal components of training images."""
    class_dim: int
    """The numbers of a pose, D."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: a share exceeds 1, or a count is not positive.
        """
        if max(self.pose, self.class_mean, *self.pca.values()) > 1:
            raise ValueError("a share of the variance exceeds 1")
        if self.count < 1 or self.class_dim < 1:
            raise ValueError("images are explained by the numbers of a pose")

    @property
    def pca_same(self) -> float:
        """The share that PCA explains with as many numbers as a pose has."""
        return self.pca[str(self.class_dim)]

    @property
    def is_low(self) -> bool:
        """Whether poses explain less than PCA does, by more than `MARGIN`.

        PCA is the best linear code. A pose that explains less wastes numbers that it has, and its
        reconstruction shows less of an image than a method without any learning of classes.
        """
        return self.pose < self.pca_same - MARGIN

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises:
            ValueError, TypeError: a key is unknown or missing, or a value out of range.
        """
        if not isinstance(values, dict):
            raise TypeError("what a pose explains is an object")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return asdict(self)
