"""The views: what one may ask about an image or a pose, one module each.

A view is a function of a network: `compute(net, query, *pictures)`. A service, `model.load()`, Ray
and the command call the same functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.views.view import View

NAMES = (
    "classify",
    "describe",
    "reconstruct",
    "perturb",
    "decode",
    "sweep",
    "routing",
    "routing_off",
    "equivariance",
    "occlusion",
    "segment",
    "rivals",
    "morph",
    "neighbours",
)
"""The modules of all views, in the order in which a service lists and matches them.

The most requested view is the first.
"""
MODULES = tuple(f"{__name__}.{name}" for name in NAMES)


def find_view(name: str) -> View[Any, Any]:
    """Import the view of a module of this package."""
    view: View[Any, Any] = import_module(f"{__name__}.{name}").VIEW
    return view


def all_views() -> list[View[Any, Any]]:
    """Import all views, in the order of `NAMES`."""
    return list(map(find_view, NAMES))
