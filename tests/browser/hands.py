"""Digits as different people draw them: strokes in a unit square, x to the right and y down."""

from __future__ import annotations

import math
from typing import NamedTuple

Point = tuple[float, float]
Stroke = list[Point]
Shape = list[Stroke]


class Hand(NamedTuple):
    """How large, where and how slanted somebody draws."""

    width: float
    height: float
    centre: Point
    slant: float
    """How far the top lies right of the bottom, in heights."""

    def draw(self, shape: Shape) -> Shape:
        """The strokes in a pad of one by one."""
        return [[self._place(x, y) for x, y in stroke] for stroke in shape]

    def _place(self, x: float, y: float) -> Point:
        left, top = self.centre[0] - self.width / 2, self.centre[1] - self.height / 2
        return (
            left + x * self.width + (0.5 - y) * self.slant * self.height,
            top + y * self.height,
        )


HANDS = {
    "upright": Hand(0.46, 0.7, (0.5, 0.5), 0.0),
    "slanted": Hand(0.42, 0.66, (0.55, 0.48), 0.28),
    "small": Hand(0.26, 0.4, (0.3, 0.34), 0.1),
    "wide": Hand(0.58, 0.68, (0.48, 0.54), -0.1),
}


def line(*points: Point) -> Stroke:
    """Straight from point to point."""
    return list(points)


def arc(
    centre: Point, radii: Point, start_deg: float, stop_deg: float, *, step_deg: float = 40
) -> Stroke:
    """Part of an ellipse; 0 degrees is to the right, 90 is down."""
    count = max(4, round(abs(stop_deg - start_deg) / step_deg))
    angles = [
        math.radians(start_deg + (stop_deg - start_deg) * i / count) for i in range(count + 1)
    ]
    (x, y), (across, down) = centre, radii
    return [(x + across * math.cos(a), y + down * math.sin(a)) for a in angles]


def _figure_of_eight() -> Stroke:
    turns = [2 * math.pi * step / 16 for step in range(17)]
    return [(0.5 + 0.3 * math.sin(2 * turn), 0.5 - 0.48 * math.cos(turn)) for turn in turns]


_BELLY = arc((0.45, 0.69), (0.34, 0.28), -105, 150)
_LOOP = arc((0.5, 0.73), (0.29, 0.25), 180, -180)

DIGITS: dict[int, dict[str, Shape]] = {
    0: {
        "round": [arc((0.5, 0.5), (0.42, 0.48), -90, -450)],
        "narrow": [arc((0.5, 0.5), (0.27, 0.48), -80, 290)],
    },
    1: {
        "bar": [line((0.5, 0.02), (0.5, 0.98))],
        "serif": [line((0.25, 0.25), (0.52, 0.02), (0.52, 0.98))],
        "foot": [line((0.28, 0.22), (0.5, 0.02), (0.5, 0.97)), line((0.25, 0.97), (0.75, 0.97))],
    },
    2: {
        "plain": [arc((0.5, 0.28), (0.34, 0.26), -170, 30) + line((0.15, 0.97), (0.88, 0.97))],
        "looped": [
            arc((0.5, 0.28), (0.33, 0.26), -170, 40)
            + line((0.35, 0.88))
            + arc((0.27, 0.86), (0.13, 0.1), 30, 330)
            + line((0.6, 0.95), (0.9, 0.9))
        ],
    },
    3: {
        "round": [
            arc((0.45, 0.27), (0.33, 0.25), -150, 80) + arc((0.45, 0.74), (0.37, 0.24), -80, 150)
        ],
        "flat": [line((0.15, 0.04), (0.8, 0.04), (0.42, 0.4)) + _BELLY],
    },
    4: {
        "open": [
            line((0.2, 0.03), (0.14, 0.55), (0.9, 0.55)),
            line((0.7, 0.05), (0.66, 0.98)),
        ],
        "closed": [line((0.66, 0.98), (0.66, 0.02), (0.1, 0.66), (0.92, 0.66))],
    },
    5: {
        "two strokes": [
            line((0.24, 0.05), (0.2, 0.45)) + arc((0.45, 0.68), (0.36, 0.28), -130, 150),
            line((0.24, 0.05), (0.82, 0.05)),
        ],
        "one stroke": [line((0.8, 0.04), (0.26, 0.05), (0.22, 0.44)) + _BELLY],
    },
    6: {
        "curled": [line((0.7, 0.04), (0.48, 0.18), (0.3, 0.42)) + _LOOP],
        "straight": [line((0.38, 0.02), (0.22, 0.5)) + _LOOP],
    },
    7: {
        "plain": [line((0.12, 0.05), (0.86, 0.05), (0.38, 0.98))],
        "barred": [
            line((0.12, 0.05), (0.86, 0.05), (0.4, 0.98)),
            line((0.35, 0.52), (0.82, 0.5)),
        ],
        "serif": [line((0.12, 0.2), (0.14, 0.05), (0.86, 0.05), (0.45, 0.98))],
    },
    8: {
        "one stroke": [_figure_of_eight()],
        "two loops": [
            arc((0.5, 0.26), (0.27, 0.24), 90, 450),
            arc((0.5, 0.74), (0.34, 0.24), -90, 270),
        ],
    },
    9: {
        "curved": [arc((0.46, 0.28), (0.3, 0.26), 0, -360) + line((0.74, 0.6), (0.62, 0.98))],
        "straight": [arc((0.46, 0.28), (0.3, 0.26), -20, -370) + line((0.76, 0.98))],
        "hooked": [arc((0.46, 0.28), (0.3, 0.26), 0, -360) + arc((0.46, 0.66), (0.3, 0.3), 0, 130)],
    },
}
