"""The effects of pose dimensions on the decoded image, with the names that a manifest gives them.

They are measured by training (`training.analysis.dimensions`) and shown by the service.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.entry import ENTRY, Share

Deformation = Literal[
    "thickness",
    "area",
    "slant",
    "width",
    "height",
    "horizontal shift",
    "vertical shift",
]
"""The properties of an image that a deformation changes."""
Factor = Literal["azimuth", "elevation", "size", "lamp"]
"""The known factors of rendered objects."""
DimensionName = Literal[Deformation, Factor, "localised", "none"]
_EFFECTS: dict[DimensionName, tuple[str, ...]] = {
    "thickness": ("thicker", "thinner"),
    "area": ("more ink", "less ink"),
    "slant": ("leans right", "leans left"),
    "width": ("wider", "narrower"),
    "height": ("taller", "shorter"),
    "horizontal shift": ("moves right", "moves left"),
    "vertical shift": ("moves down", "moves up"),
    "azimuth": ("turns the object",),
    "elevation": ("seen from higher", "seen from lower"),
    "size": ("larger", "smaller"),
    "lamp": ("moves the light",),
    "localised": ("a localised change",),
    "none": ("",),
}
"""Words for an increase and a decrease of what the name says; the same words for both where it has
no direction."""
DIRECTED = frozenset(name for name, words in _EFFECTS.items() if len(words) > 1)
"""The names with a direction."""


@dataclass(frozen=True, config=ENTRY)
class PoseDimension:
    """The name of one dimension of one class's pose.

    `localised` dimensions change one part of the image; `none` stands where nothing that has a
    name was found and confirmed.
    """

    label: Annotated[int, Field(ge=0)]
    """The label of the class whose pose this is."""
    dim: Annotated[int, Field(ge=0)]
    name: DimensionName
    sign: int = 0
    """1 where a larger value gives more of what the name says, -1 where it gives less; 0 for names
    without a direction: azimuth, lamp, `localised` and `none`."""
    strength: Share = 0.0
    """Share of the image's change that the named deformation, or a change of the named factor,
    explains, in [0, 1]; for `localised` the share of it that lies in that part; 0 for `none`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sign not in ((-1, 1) if self.name in DIRECTED else (0,)):
            raise ValueError(f"a pose dimension {self.name!r} has no sign {self.sign}")
        return self

    @property
    def is_named(self) -> bool:
        """Whether the image changes as a name says, and not just in some part or in any way."""
        return self.name not in ("localised", "none")

    @property
    def effect(self) -> str:
        """The effect of increasing the dimension on the image, in words; may be empty."""
        return _EFFECTS[self.name][self.sign < 0]
