"""Describe an image in words and units, read from its pose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from model.bundle import Manifest
from model.errors import NotOffered
from model.measures import Measure, measures_of
from model.preprocess import Prepared
from model.views.answers import CapsuleAnswer, Number, Part, answer_fields, is_none
from model.views.net import Capsule, Net, encode_picture, most_present
from model.views.view import TargetQuery, View

_UNUSUAL = 20
"""The sentence tells what fewer than so many percent of the class have less of, or more."""
_SLANTED = 8
"""The sentence tells a slant from here on, in degrees."""
_PLACES = {"right": ("right of", "left of"), "down": ("below", "above")}
_MOVED_PX = 1
"""The sentence tells how far an object is from the middle from here on."""
_MOST_TOLD = 3
_DIGITS = (
    *("zeros", "ones", "twos", "threes", "fours"),
    *("fives", "sixes", "sevens", "eights", "nines"),
)


class DescribeQuery(TargetQuery):
    """The parameters of `describe`."""

    def check(self, manifest: Manifest) -> None:
        """Refuse a network whose poses nothing can be read from."""
        super().check(manifest)
        if not any(direction.readable for direction in manifest.directions):
            raise NotOffered(
                f"nothing is read from poses of {manifest.name!r}: run `python -m training analyse`"
            )


class ReadValue(Part):
    """A value that is read from a pose."""

    name: str
    value: Number
    unit: str = Field(description="`px`, `degrees`; empty for shares of the full brightness.")
    mean_error: Number = Field(description="Mean error, on images outside the fit, in the unit.")
    percentile: Number = Field(
        description="Percentage of images of the class with a lower value, from 5 to 95."
    )
    low: Number = Field(description="5 % of the class's images stay below.")
    high: Number = Field(description="95 % of the class's images stay below.")


class Described(Part):
    """One object in words."""

    label: int
    class_name: str
    length: Number
    readings: list[ReadValue]
    sentence: str


class DescribeAnswer(CapsuleAnswer):
    """An image in words and units."""

    readings: list[ReadValue] = Field(description="What is read from the pose of the class.")
    sentence: str = Field(description="The most unusual readings, in words; of both digits.")
    second: Described | None = Field(
        None, description="The second digit of a pair.", exclude_if=is_none
    )


async def describe(net: Net, query: DescribeQuery, picture: Prepared) -> DescribeAnswer:
    """Describe an image in words and units, read from its pose."""
    encoded, manifest = await encode_picture(net, picture), net.manifest
    labels = [query.target]
    if query.target is None and manifest.of_pairs:
        labels = most_present(encoded.presence[None], 2)[0].tolist()
    capsules = [encoded.capsule(label) for label in labels]
    first, *others = [_describe(manifest, capsule) for capsule in capsules]
    return DescribeAnswer(
        **answer_fields(manifest, capsules[0]),
        readings=first.readings,
        sentence=" and ".join(described.sentence for described in (first, *others)),
        second=others[0] if others else None,
    )


def _describe(manifest: Manifest, capsule: Capsule) -> Described:
    readings = [
        ReadValue(
            name=direction.name,
            value=(value := direction.read(capsule.pose)),
            unit=direction.unit,
            mean_error=direction.reading.mean_error,
            percentile=direction.percentile(value),
            low=direction.low,
            high=direction.high,
        )
        for direction in manifest.directions
        if direction.label == capsule.label and direction.readable
    ]
    name = manifest.class_names[capsule.label]
    return Described(
        label=capsule.label,
        class_name=name,
        length=capsule.presence,
        readings=readings,
        sentence=tell(name, readings, measures_of(manifest)),
    )


def tell(class_name: str, readings: Sequence[ReadValue], measures: Sequence[Measure]) -> str:
    """Say in one sentence what is unusual about an image of a class.

    A value without a measure, such as a column of a user's table, is printed as a number. If the
    readings have the sine and the cosine of an angle, the sentence names the angle in degrees.
    """
    words = {measure.name: measure for measure in measures}
    angles, readings = _join_angles(readings)
    unusual = [reading for reading in readings if _is_unusual(reading, words)]
    unusual = sorted(unusual, key=lambda reading: -abs(reading.percentile - 50))[:_MOST_TOLD]
    parts = [_phrase(reading, words, class_name) for reading in readings if reading in unusual]
    parts += angles
    article = "an" if class_name[0].lower() in "aeiou8" else "a"
    told = ", ".join(parts) or "ordinary for its class" if readings or angles else ""
    return f"{article} {class_name}" + f", {told}" * bool(told)


def _join_angles(readings: Sequence[ReadValue]) -> tuple[list[str], list[ReadValue]]:
    """Phrases of angles, and the readings that are no sine or cosine."""
    values = {reading.name: reading.value for reading in readings}
    phrases = []
    for name, sine in values.items():
        angle = name.removesuffix("-sine")
        cosine = values.get(f"{angle}-cosine")
        if angle != name and cosine is not None:
            degrees = round(math.degrees(math.atan2(sine, cosine))) % 360
            phrases.append(f"{angle} {degrees} degrees")
    return phrases, [
        reading for reading in readings if not reading.name.endswith(("-sine", "-cosine"))
    ]


def _is_unusual(reading: ReadValue, words: Mapping[str, Measure]) -> bool:
    if reading.name in _PLACES:
        return abs(reading.value) >= _MOVED_PX
    slanted = reading.unit == "degrees" and abs(reading.value) >= _SLANTED
    rare = abs(reading.percentile - 50) >= 50 - _UNUSUAL
    return rare or slanted or reading.name not in words


def _phrase(reading: ReadValue, words: Mapping[str, Measure], class_name: str) -> str:
    value, unit = reading.value, reading.unit
    amount = f"{_round(value)} {unit}".rstrip()
    if reading.name == "slant":
        side = "right" if value >= 0 else "left"
        degrees = round(abs(value))
        return f"slanted {degrees} degree{'s' * (degrees != 1)} to the {side}"
    if reading.name in _PLACES:
        side = _PLACES[reading.name][value < 0]
        return f"{abs(value):.1f} px {side} the middle"
    if reading.name not in words:
        return f"{reading.name} {amount}"
    more, measure = reading.percentile >= 50, words[reading.name]
    word, than = measure.high if more else measure.low
    share = reading.percentile if more else 100 - reading.percentile
    others = _DIGITS[int(class_name)] if class_name in tuple("0123456789") else "its class"
    return f"{word} ({amount}, {than} than {share:.0f} % of {others})"


def _round(value: float) -> str:
    """Two digits, or all before the point."""
    digits = max(0, 1 - math.floor(math.log10(max(abs(value), 1e-3))))
    return f"{value:.{min(digits, 2)}f}"


VIEW = View(
    describe,
    needs="decode",
)
