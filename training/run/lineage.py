"""The runs that made a network, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class Leg:
    """One run's part."""

    preset: str
    dataset: str
    task: str
    seed: int
    steps: int
    images: int
    """Seen, or pairs of them; repetitions count."""
    held_out: int
    """Training examples that it did not see."""
    seconds: float
    devices: tuple[str, ...]
    """CPU, or names of GPUs."""
    taken: tuple[str, ...] = ()
    """Names of the weights that the next run took from it; empty if it took all."""

    def __str__(self) -> str:
        return f"{self.preset}, seed {self.seed}, {self.steps:,} steps"

    def to_dict(self) -> dict[str, Any]:
        """The leg as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        names = {name: tuple(values[name]) for name in ("devices", "taken")}
        return cls(**{**values, **names})

    def took(self, names: Sequence[str]) -> Self:
        """The same leg, when the next run took these weights alone."""
        return replace(self, taken=tuple(names))


def devices_of(legs: Sequence[Leg]) -> tuple[str, ...]:
    """All that the legs ran on, in order, each once."""
    return tuple(dict.fromkeys(device for leg in legs for device in leg.devices))


def seconds_of(legs: Sequence[Leg]) -> float:
    """What they took together."""
    return sum(leg.seconds for leg in legs)


def unseen_by(legs: Sequence[Leg]) -> int:
    """How many training examples of the last leg's data set none of them saw."""
    return min(leg.held_out for leg in legs if leg.dataset == legs[-1].dataset)


def images_of(legs: Sequence[Leg]) -> tuple[int, int]:
    """Images that legs of the last one's task saw: in all, and different ones.

    A seed draws the same shifts and the same pairs again, from the first on.
    """
    own = [leg for leg in legs if (leg.dataset, leg.task) == (legs[-1].dataset, legs[-1].task)]
    longest = {leg.seed: leg.images for leg in sorted(own, key=lambda leg: leg.images)}
    return sum(leg.images for leg in own), sum(longest.values())
