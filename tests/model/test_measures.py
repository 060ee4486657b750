from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from model.measures import measure_drawings, measure_images, measures_of
from model.preprocess import Floats
from tests.extras import make_direction
from tests.views.numpy_net import MANIFEST

DIGITS = replace(MANIFEST, height=40, width=40)
PHOTOGRAPHS = replace(MANIFEST, preprocess="crop", channels=3)


def bar(*, wide: int = 4, tall: int = 20, lean: float = 0, right: int = 0, down: int = 0) -> Floats:
    """An upright bar, of so many pixels, moved and leant from the middle."""
    large = Image.new("L", (400, 400))
    x, y, half, reach = 200 + 10 * right, 200 + 10 * down, 5 * wide, 5 * tall
    shift = reach * np.tan(np.radians(lean))
    corners = [(-half + shift, -reach), (half + shift, -reach), (half - shift, reach)]
    corners += [(-half - shift, reach)]
    ImageDraw.Draw(large).polygon([(x + across, y + along) for across, along in corners], fill=255)
    small = large.resize((40, 40), Image.Resampling.BOX)
    return np.asarray(small, np.float32)[None, None] / np.float32(255)


def value(name: str, image: Floats) -> float:
    names = [one.name for one in measures_of(DIGITS)]
    return float(measure_images(DIGITS, image)[0, names.index(name)])


@pytest.mark.parametrize(
    ("name", "expected", "image"),
    [
        ("width", 4, bar(wide=4)),
        ("width", 8, bar(wide=8)),
        ("height", 20, bar(tall=20)),
        ("height", 30, bar(tall=30)),
        ("slant", 20, bar(lean=20)),
        ("slant", -10, bar(lean=-10)),
        ("width", 4, bar(wide=4, lean=20)),
        ("right", 3, bar(right=3)),
        ("down", -4, bar(down=-4)),
        ("thickness", 3.6, bar(wide=4, tall=36)),
    ],
)
def test_a_measure_is_what_a_ruler_says(name: str, expected: float, image: Floats) -> None:
    """Within a tenth of a pixel or a degree; the outline of a bar has its short ends too."""
    assert expected == pytest.approx(value(name, image), abs=0.6 if name == "slant" else 0.35)


def test_a_photograph_is_measured_by_its_parts() -> None:
    """Brighter parts minus the rest; red minus blue."""
    image = np.zeros((1, 3, 8, 8), np.float32)
    image[0, 0, :4] = 0.9
    names = [one.name for one in measures_of(PHOTOGRAPHS)]
    assert ["brightness", "warmth", "middle", "top", "left"] == names
    expected = [0.15, 0.45, 0, 0.3, 0]
    assert expected == pytest.approx(measure_images(PHOTOGRAPHS, image)[0].tolist(), abs=1e-6)


def test_drawings_are_measured_as_their_images_would_be() -> None:
    """The mean excess of drawings is subtracted; nothing is measured for other names."""
    drawn = measure_drawings(
        DIGITS, [make_direction(0), make_direction(0, "age")], np.concatenate([bar(lean=10)] * 2)
    )
    assert ["slant"] == list(drawn)
    assert [9.5, 9.5] == pytest.approx(drawn["slant"].tolist(), abs=0.6)
