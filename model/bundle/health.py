"""The health of a network's capsules, as their critics measure it.

`training.analysis.health` measures it; the definitions are in docs/explanation/health.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from pydantic import ConfigDict


@dataclass(frozen=True)
class CapsuleHealth:
    """The capsules of one layer."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    layer: str
    capsules: int
    starved_percent: float
    """The percentage of capsules that are present in none of the images."""
    mean_presence: float
    """The mean presence of all capsules."""


@dataclass(frozen=True)
class CouplingHealth:
    """The couplings of one routed layer; entropy and polarisation by iteration."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    layer: str
    entropy: tuple[float, ...]
    """0: each capsule serves one parent. 1: it serves all alike."""
    polarisation: tuple[float, ...]
    """0: couplings are uniform. 1: each capsule serves one parent."""
    within_class: float
    """The standard deviation over images of one class, as a share of the mean coupling."""
    between_classes: float
    """The standard deviation of the classes' mean couplings, as a share of the mean coupling."""


@dataclass(frozen=True)
class Health:
    """The health of one network.

    Raises:
        ValueError: a number is out of range.
    """

    images: str
    """The images that it was measured on, in words."""
    count: int
    capsules: tuple[CapsuleHealth, ...]
    couplings: tuple[CouplingHealth, ...]
    parse_trees: float
    """The mean number of different parse trees of a class."""
    images_per_class: float
    """The mean number of images of a class, which is the most that `parse_trees` can be."""
    negated_changed_percent: float | None
    """The percentage of answers that change if all input capsules change their sign; None of a
    family whose votes are no module."""
    negated_presence_change: float | None
    """The mean change of presence by that."""
    effective_dims: float
    """The mean effective dimensions of a class's poses."""
    class_dim: int
    """The numbers of a pose, D."""

    def __post_init__(self) -> None:
        shares = [share for one in self.couplings for share in (*one.entropy, *one.polarisation)]
        shares += [one.mean_presence for one in self.capsules]
        shares += [one.starved_percent / 100 for one in self.capsules]
        shares += [self.negated_presence_change or 0, (self.negated_changed_percent or 0) / 100]
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError("a share of the health is out of range")
        if not 0 <= self.effective_dims <= self.class_dim + 1e-3:
            raise ValueError("a pose has more effective dimensions than numbers")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises:
            ValueError, TypeError: a key is unknown or missing, or a value out of range.
        """
        if not isinstance(values, dict):
            raise TypeError("the health is an object")
        capsules = tuple(CapsuleHealth(**one) for one in values["capsules"])
        couplings = tuple(
            CouplingHealth(**{key: _tuple(one) for key, one in row.items()})
            for row in values["couplings"]
        )
        return cls(**{**values, "capsules": capsules, "couplings": couplings})

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return asdict(self)


def _tuple(value: Any) -> Any:
    """A JSON list as a tuple."""
    return tuple(value) if isinstance(value, list) else value
