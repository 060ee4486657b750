"""Digits as people draw them: strokes in a unit square, x to the right and y down."""

from __future__ import annotations

import math

Point = tuple[float, float]
Stroke = list[Point]
Shape = list[Stroke]


def line(*points: Point) -> Stroke:
    """Straight from point to point."""
    return list(points)


def arc(centre: Point, radii: Point, start_deg: float, stop_deg: float) -> Stroke:
    """Part of an ellipse; 0 degrees is to the right, 90 is down."""
    count = max(4, round(abs(stop_deg - start_deg) / 40))
    angles = [
        math.radians(start_deg + (stop_deg - start_deg) * i / count) for i in range(count + 1)
    ]
    (x, y), (across, down) = centre, radii
    return [(x + across * math.cos(a), y + down * math.sin(a)) for a in angles]


def _place(shape: Shape) -> Shape:
    """A shape in the middle of the pad."""
    return [[(0.27 + 0.46 * x, 0.15 + 0.7 * y) for x, y in stroke] for stroke in shape]


DIGITS: dict[int, Shape] = {
    digit: _place(shape)
    for digit, shape in {
        0: [arc((0.5, 0.5), (0.42, 0.48), -90, -450)],
        1: [line((0.5, 0.02), (0.5, 0.98))],
        2: [arc((0.5, 0.28), (0.34, 0.26), -170, 30) + line((0.15, 0.97), (0.88, 0.97))],
        3: [arc((0.45, 0.27), (0.33, 0.25), -150, 80) + arc((0.45, 0.74), (0.37, 0.24), -80, 150)],
        4: [line((0.2, 0.03), (0.14, 0.55), (0.9, 0.55)), line((0.7, 0.05), (0.66, 0.98))],
        5: [
            line((0.24, 0.05), (0.2, 0.45)) + arc((0.45, 0.68), (0.36, 0.28), -130, 150),
            line((0.24, 0.05), (0.82, 0.05)),
        ],
        6: [
            line((0.7, 0.04), (0.48, 0.18), (0.3, 0.42)) + arc((0.5, 0.73), (0.29, 0.25), 180, -180)
        ],
        7: [line((0.12, 0.05), (0.86, 0.05), (0.38, 0.98))],
        8: [arc((0.5, 0.26), (0.27, 0.24), 90, 450), arc((0.5, 0.74), (0.34, 0.24), -90, 270)],
        9: [arc((0.46, 0.28), (0.3, 0.26), 0, -360) + line((0.74, 0.6), (0.62, 0.98))],
    }.items()
}
