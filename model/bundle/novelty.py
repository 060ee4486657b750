"""The novelty rule of a bundle, stored in its manifest and its file of Gaussians.

`model.views.novelty` judges images by it.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.disk import Arrays
from model.bundle.entry import ENTRY, Rising, Share, check_rising

Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True, eq=False)
class PoseGaussians(Arrays):
    """The Gaussians of training images' poses: one for each class, all with the same covariance.

    Raises:
        ValueError: the sizes of the arrays do not go together, or a number is not finite.
    """

    kinds = "ff"

    means: Floats
    """The mean poses of all classes, for each most present class, (K, K * D)."""
    whitening: NDArray[np.float16]
    """The whitening matrix W (K * D, K * D): W W^T is the inverse of the covariance, up to a
    factor.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.means.ndim != 2 or self.whitening.shape != (self.means.shape[1],) * 2:
            raise ValueError("means (K, K * D) and whitening (K * D, K * D) do not go together")


@dataclass(frozen=True, config=ENTRY)
class NoveltyRule:
    """The rule of one bundle: each feature's quantiles, and the threshold of the lowest rank."""

    quantiles: Annotated[tuple[Share, ...], Field(min_length=2)]
    """The quantiles' shares, rising from 0 to 1."""
    length: Rising
    """The length at each quantile."""
    margin: Rising
    """The margin at each quantile."""
    error: Rising
    """The error at each quantile."""
    threshold: Share
    """An image is novel if its lowest rank is below."""
    images: str
    """The images that the rule was fitted on, in words."""
    others: tuple[dict[str, float | int | str], ...] = ()
    """The scores of images of other kinds: kind, images and known_percent; and auc, compared with
    `typical` images that the network has not learnt."""
    test_novel_percent: float | None = None
    """The percentage of the data set's own test images that are novel: false alarms."""
    threshold_images: str = ""
    """The images that set the threshold, in words; empty where they are half of `images`."""
    distance: Rising = ()
    """The distance at each quantile. It is empty where the bundle has no Gaussians."""
    gaussians: Annotated[InstanceOf[PoseGaussians] | None, Field(exclude=True)] = dataclasses.field(
        default=None, compare=False, repr=False
    )
    """The Gaussians that distances are measured from. They have a file of their own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        tables = [self.quantiles, self.length, self.margin, self.error]
        tables += [self.distance] if self.distance else []
        if len({len(table) for table in tables}) > 1:
            raise ValueError("the tables of the novelty rule differ in size")
        check_rising(*tables)
        if self.gaussians and not self.distance:
            raise ValueError("the novelty rule has no table of distances")
        return self
