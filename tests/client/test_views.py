"""The views that follow from the OpenAPI document, asked once each of the real service."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from capsnet import AsyncCapsNet, CapsNet, CapsNetError
from service.pictures import SAMPLES

FOUR = SAMPLES / "4.png"
Ask = Callable[[Any], Any]
CALLS: dict[str, Ask] = {
    "routing_off": lambda capsnet: capsnet.routing_off(FOUR),
    "occlusion": lambda capsnet: capsnet.occlusion(FOUR, patch=14, stride=14),
    "equivariance": lambda capsnet: capsnet.equivariance(FOUR, transform="shift-y", steps=3),
    "rivals": lambda capsnet: capsnet.rivals(FOUR, count=3),
    "morph": lambda capsnet: capsnet.morph(FOUR, Image.open(FOUR).rotate(20), steps=3),
    "neighbours": lambda capsnet: capsnet.neighbours(FOUR, count=2),
}


@pytest.mark.parametrize("view", CALLS)
def test_answers_are_about_the_class(view: str, capsnet: CapsNet) -> None:
    """Plain and asynchronous clients get the same one; the drawing is a picture."""

    async def ask(url: str) -> Any:
        async with AsyncCapsNet(url) as other:
            return await CALLS[view](other)

    answer = CALLS[view](capsnet)
    assert (4, "4", "mnist-compact") == (answer.label, answer.class_name, answer.model)
    other = asyncio.run(ask(capsnet.url))
    assert json.dumps(answer.to_dict()) == json.dumps(other.to_dict())
    assert isinstance(CALLS[view](capsnet.draw()), Image.Image)


def test_answers_hold_what_is_documented(capsnet: CapsNet) -> None:
    """Names and sizes, read as the reference has them."""
    assert ["routed", "uniform", "one-iteration"] == [
        one.name for one in CALLS["routing_off"](capsnet).variants
    ]
    assert (28, 28) == (len((found := CALLS["occlusion"](capsnet)).map), len(found.map[0]))
    assert 3 == len(CALLS["equivariance"](capsnet).points)
    assert 4 == CALLS["rivals"](capsnet).best_drawn
    assert 2 == len(CALLS["neighbours"](capsnet).neighbours)
    animation = CALLS["morph"](capsnet).animation
    content = base64.b64decode(animation.partition(",")[2])
    assert 4 == Image.open(io.BytesIO(content)).n_frames


def test_pairs_have_two_answers(capsnet: CapsNet) -> None:
    """Of a network for two digits; it brings no training images, and says so."""
    pair = capsnet.overlay(SAMPLES / "3.png", SAMPLES / "5.png")
    off = capsnet.routing_off(pair, model="multimnist-attention")
    assert {2} == {len(one.labels) for one in off.variants}
    if "neighbours" not in capsnet.model("multimnist-attention")["offers"]:
        with pytest.raises(CapsNetError, match="does not offer neighbours"):
            capsnet.neighbours(pair, model="multimnist-attention")
