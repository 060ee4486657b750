"""A question to each view, as it is asked over HTTP, by the client, with Ray and in a process."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from service.pictures import SAMPLES

SEVEN = (SAMPLES / "7.png").read_bytes()
FOUR = (SAMPLES / "4.png").read_bytes()


class Question(NamedTuple):
    """Of one view."""

    pictures: tuple[bytes, ...] = (SEVEN,)
    parameters: Mapping[str, Any] = MappingProxyType({})
    body: Mapping[str, Any] = MappingProxyType({})
    """Parameters that HTTP has in the body."""
    model: str = "mnist-attention"


QUESTIONS: dict[str, Question] = {
    "classify": Question(parameters={"poses": True, "novelty": True}),
    "describe": Question(model="multimnist-attention"),
    "reconstruct": Question(parameters={"target": 1}),
    "perturb": Question(parameters={"dim": 4, "delta": 0.1}),
    "decode": Question((), body={"pose": [0.1] * 16, "label": 3}),
    "sweep": Question(parameters={"dims": [3, 1], "start": -0.1, "stop": 0.1}),
    "routing": Question(parameters={"target": 1}),
    "routing_off": Question(),
    "equivariance": Question(parameters={"transform": "shift-x", "steps": 4}),
    "occlusion": Question(parameters={"patch": 10}),
    "segment": Question((SEVEN,), {"count": 2}, model="multimnist-attention"),
    "rivals": Question(parameters={"count": 4}),
    "morph": Question((SEVEN, FOUR), {"steps": 3, "target": 7}),
    "neighbours": Question(parameters={"count": 3}),
}
"""By the module of each view."""
