"""Code that training and serving share: the networks, bundles, and how images are prepared.

In a notebook, views take and return numpy arrays. Import the package under a name that leaves
the variable `model` free:

    import model as capsnet_model
    mnist = capsnet_model.load("mnist")
    mnist.classify("digit.png").class_name             # "7"
    mnist.perturb("digit.png", dim=4, delta=0.1)       # every view; notebooks show its drawing
    image = mnist.prepare("digit.png")                 # (1, 1, 28, 28)
    presence, poses = mnist.encode(image)              # (1, 10), (1, 10, 16)
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from model.bundle import Bundle
    from model.loaded import LoadedBundle

# onnxruntime's wheels report to their maker (Privacy.md in them) unless this is set before import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

SHIPPED = Path(__file__).parent / "bundles"
"""The bundles that ship."""
Device = Literal["auto", "cuda", "cpu"]


def load(
    name: str | Path,
    *,
    device: Device = "auto",
    threads: int = 0,
) -> LoadedBundle:
    """Load a shipped bundle by its name, or any other bundle by its folder.

    Args:
        name: a shipped bundle, such as `mnist`, or a folder that `export` or `import` wrote.
        device: `cuda` fails rather than falling back; `auto` takes CUDA where it works.
        threads: the threads of one inference on the CPU; by default the CPU quota of this process.

    Raises:
        model.bundle.BundleError: there is no such bundle, or it is incomplete or altered.
        model.runtime.DeviceError: CUDA was asked for and does not work.
    """
    from model.loaded import LoadedBundle  # noqa: PLC0415  `model` alone loads no onnxruntime

    return LoadedBundle(open_bundle(name), device=device, threads=threads)


def open_bundle(name: str | Path) -> Bundle:
    """Open a bundle by its shipped name or its folder, without loading its graphs.

    Raises:
        model.bundle.BundleError: there is no such bundle, or it is incomplete or altered.
    """
    from model.bundle import MANIFEST, Bundle, BundleError  # noqa: PLC0415  imports nothing large

    if not (find(name) / MANIFEST).is_file():
        ships = sorted(path.parent.name for path in SHIPPED.glob(f"*/{MANIFEST}"))
        near = "".join(f". Did you mean {one!r}?" for one in get_close_matches(str(name), ships, 1))
        raise BundleError(
            f"{str(name)!r} is neither a folder with a bundle nor one that ships: "
            f"{', '.join(ships)}{near}"
        )
    return Bundle.open(find(name))


def find(name: str | Path) -> Path:
    """Return the folder of a bundle: the shipped one of that name, or the path itself."""
    ships = any(str(name) == shipped.name for shipped in SHIPPED.iterdir())
    return SHIPPED / name if ships else Path(name)
