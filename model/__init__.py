"""What training and serving share: the networks, the bundle, and how images are prepared.

In a notebook, numpy in and numpy out:

    import model
    mnist = model.load("mnist")
    image = mnist.prepare("digit.png")                 # (1, 1, 28, 28)
    presence, poses = mnist.encode(image)              # (1, 10), (1, 10, 16)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.runtime import Device, Runtime

# onnxruntime's wheels report to their maker (Privacy.md in them) unless this is set before import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

SHIPPED = Path(__file__).parent / "bundles"
"""The bundles that ship."""


def load(name: str | Path, *, device: Device = "auto") -> Runtime:
    """Load a bundle that ships, by name, or any other, by its folder.

    Args:
        name: `mnist`, or a folder that `training export` wrote.
        device: `cuda` fails rather than falling back; `auto` takes CUDA where it works.

    Raises:
        model.bundle.BundleError: there is no such bundle, or it is incomplete or altered.
        model.runtime.DeviceError: CUDA was asked for and does not work.
    """
    from model.bundle import Bundle  # noqa: PLC0415  importing `model` alone loads no onnxruntime
    from model.runtime import Runtime  # noqa: PLC0415  as above

    return Runtime(Bundle.open(find(name)), device=device)


def find(name: str | Path) -> Path:
    """The folder of a bundle: one that ships, if there is one of that name."""
    ships = any(str(name) == shipped.name for shipped in SHIPPED.iterdir())
    return SHIPPED / name if ships else Path(name)
