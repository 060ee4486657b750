"""A candidate bundle is opened first in a disposable process, with limits and without secrets.

The process does what a worker will do with the bundle, on the CPU: it reads every file, loads every
graph and runs each on a black, a white and a noisy image, alone and together. Only a bundle that
survives this is opened in a worker.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import signal
from collections.abc import Sequence
from contextvars import Context
from pathlib import Path

import numpy as np

from model.bundle import Bundle
from model.preprocess import Floats
from model.runtime import Runtime
from model.runtime.cpu import open_session
from service.errors import Unavailable
from service.pool import Crashed, Pool

MEMORY_BYTES = 2_000_000_000
"""The address space that opening one bundle may take beyond that of an idle process, on Linux."""
TIMEOUT_S = 60.0
"""The CPU time that it may take."""
_MAX_S = 300
"""The whole seconds that it may take: a busy machine gives it a fifth of a core."""
_MAX_REASON_CHARS = 2_000
_AT_ONCE = 2
"""So many candidates are opened at once."""


def refuse_candidates(folders: Sequence[Path]) -> dict[Path, str]:
    """Open bundles in disposable processes. Return the reasons by folder of those that fail.

    It blocks until all are opened, on a thread without an event loop.

    Raises:
        OSError: a process cannot be started.
    """
    # Nobody is charged for the time: a request that reloads has its own context.
    return Context().run(asyncio.run, _refuse_all(folders)) if folders else {}


async def _refuse_all(folders: Sequence[Path]) -> dict[Path, str]:
    limits = {"processes": _AT_ONCE, "limit": len(folders), "memory_bytes": MEMORY_BYTES}
    pool = Pool(__name__, **limits)

    async def refuse(folder: Path) -> str:
        """Open a bundle. Return why it cannot be served; an empty text if it can."""
        try:
            reason, _ = await pool.run(TIMEOUT_S, open_candidate, folder)
        except (Crashed, RuntimeError, Unavailable):
            reason = f"{folder}: loading it takes more than {TIMEOUT_S:g} s of CPU time, or crashes"
        except MemoryError:
            reason = f"{folder}: loading it takes more than {MEMORY_BYTES:,} bytes"
        finally:
            pool.end_idle()  # no bundle gets the memory or the process of another
        return str(reason)[:_MAX_REASON_CHARS].encode(errors="replace").decode()

    try:
        await pool.run(TIMEOUT_S, os.getpid)  # else every bundle would seem to crash
        reasons = await asyncio.gather(*map(refuse, folders))
    except Unavailable as error:
        raise OSError(str(error)) from error
    finally:
        pool.close()
    return {folder: reason for folder, reason in zip(folders, reasons, strict=True) if reason}


def open_candidate(folder: Path) -> str:
    """Open a bundle in this process. Return why it cannot be served; an empty text if it can.

    SIGALRM ends a process that waits for something.
    """
    signal.alarm(_MAX_S)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        _open(folder)
    except Exception as error:  # noqa: BLE001  whatever it is, the bundle is refused
        return str(error) if str(folder) in str(error) else f"{folder}: {error!r}"
    return ""


def _open(folder: Path) -> None:
    """Do what a worker does with a bundle, on the CPU: run every graph, on images of each kind.

    Raises:
        BundleError, ValueError: it cannot be served.
    """
    bundle = Bundle.open(folder)
    manifest = bundle.manifest
    if manifest.neighbours and manifest.neighbours.gallery:
        manifest.neighbours.gallery.check_sheet(manifest.image_shape)
    runtime = Runtime(bundle, device="cpu", threads=1)
    black, white = (np.full(manifest.image_shape, value, np.float32) for value in (0, 1))
    noise = np.random.default_rng(0).random(manifest.image_shape, np.float32)
    images = np.stack([black, white, noise])
    for batch in (*np.split(images, len(images)), np.tile(images, (4, 1, 1, 1))):
        _try(runtime, batch)
    for role in manifest.graphs.keys() - {"decoder", "routing"}:  # also of other devices
        _try_encoder(bundle.graph(role), images)


def _try(runtime: Runtime, images: Floats) -> None:
    """Encode, decode and trace images, and check what is answered.

    Raises:
        ValueError: an array has another shape, or a number that is not finite.
    """
    manifest, rows = runtime.bundle.manifest, len(images)
    classes, size = manifest.num_classes, manifest.class_dim
    presence, poses = runtime.encode(images)
    _check("presence", presence, (rows, classes))
    _check("poses", poses, (rows, classes, size))
    if "decode" in manifest.offers:
        labels = presence.argmax(axis=1)
        decoded = runtime.decode(poses[np.arange(rows), labels], labels)
        _check("images", decoded, (rows, *manifest.image_shape))
    if "trace" in manifest.offers:
        trace, layer = runtime.trace(images).classes, manifest.layers[-1]
        by_class = (rows, layer.iterations, classes)
        _check("couplings", trace.couplings, (*by_class, layer.capsules))
        _check("logits", trace.logits, (*by_class, layer.capsules))
        _check("presence by iteration", trace.presence, by_class)
        _check("poses by iteration", trace.poses, (*by_class, size))
        _check("votes", trace.votes, (rows, classes, layer.capsules, size))


def _try_encoder(graph: Path, images: Floats) -> None:
    """Run a graph that encodes, whichever device it is for."""
    for array in open_session(graph, threads=1).run(None, {"images": images}):
        _check(graph.name, array, (len(images), *array.shape[1:]))


def _check(name: str, array: Floats, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"the graphs answer with {name} of {array.shape}, not of {shape}")
    if not (abs(array) < math.inf).all():
        raise ValueError(f"the graphs answer with {name} that are not finite")
