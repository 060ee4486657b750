from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from model.preprocess import prepare
from tests.model.preprocess.drawings import DIGIT, draw_seven

PICTURES = {
    "dark on light": draw_seven(),
    "light on dark": draw_seven(ink=255, ground=0),
    "faint": draw_seven(ink=150, ground=190),
    "colour": draw_seven(mode="RGB", ink=(30, 40, 160), ground=(250, 245, 230)),
    "transparent, dark ink": draw_seven(mode="RGBA", ink=(0, 0, 0, 255), ground=(0, 0, 0, 0)),
    "transparent, light ink": draw_seven(
        mode="RGBA", ink=(255, 255, 255, 255), ground=(0, 0, 0, 0)
    ),
    "opaque alpha": draw_seven(mode="RGBA", ink=(0, 0, 0, 255), ground=(255, 255, 255, 255)),
    "grey and alpha": draw_seven(mode="LA", ink=(255, 255), ground=(0, 0)),
    "palette": draw_seven(mode="RGB", ink=(0, 0, 90), ground=(255, 255, 255)).quantize(8),
    "one bit": draw_seven().convert("1"),
    "16 bit": Image.fromarray(np.asarray(draw_seven(), np.uint16) * 257),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_every_mode_gives_the_same_digit(picture: Image.Image) -> None:
    """Mode, polarity and contrast do not change what the network sees."""
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03


def test_palette_transparency_counts() -> None:
    """A GIF's transparent colour is ground, whatever its red, green and blue."""
    picture = draw_seven(mode="P", ink=1, ground=0)
    picture.putpalette([10, 10, 10, 0, 0, 0])
    picture.info["transparency"] = 0
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03


@pytest.mark.parametrize(("ink", "ground"), [(0, 255), (255, 0)], ids=["dark ink", "light ink"])
def test_paper_with_a_clear_margin_is_paper(ink: int, ground: int) -> None:
    """A window's picture or a cut-out scan is not taken for one large stroke."""
    paper = draw_seven(mode="LA", ink=(ink, 255), ground=(ground, 255))
    picture = Image.new("LA", (260, 240), (0, 0))
    picture.paste(paper, (30, 20))
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03
