"""Attacks on the service, and what others notice of them: `make attack`."""

from typing import get_args

from tests.attack import (
    bodies,
    calls,
    connections,
    doors,
    heads,
    kills,
    pictures,
    prices,
    reloads,
    tensors,
    work,
)
from tests.attack.cases import CASES
from tests.attack.service import Door

MODULES = (
    bodies,
    calls,
    connections,
    doors,
    heads,
    kills,
    pictures,
    prices,
    reloads,
    tensors,
    work,
)
ALL = sorted(CASES, key=lambda case: get_args(Door).index(case.door))
"""Every attack, those on one service together."""

__all__ = ["ALL", "MODULES"]
