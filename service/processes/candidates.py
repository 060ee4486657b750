"""A candidate bundle is opened first in a process that may die: it has limits and no secrets.

The process has `MEMORY_BYTES` and `TIMEOUT_S`, none of the service's settings and other
variables, and no open file of the service. It does what a worker will do with the
bundle, on the CPU: it reads every file, loads every graph and runs each on a black, a white and a
noisy image, alone and together. Only a bundle that survives this is opened in a worker.

    python -m service.processes.candidates PARENT MEMORY_BYTES CPU_S FOLDER
"""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from service.pool import die_with_parent, limit_memory

if TYPE_CHECKING:
    from model.preprocess import Floats
    from model.runtime import Runtime

SOUND = "sound"
"""The answer of a process whose bundle can be served."""
_MAX_REASON_BYTES = 2_000
_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TZ")
"""The environment variables that the process gets: without them, Python may not start."""
MEMORY_BYTES = 2_000_000_000
"""The address space that opening one bundle may take beyond that of an idle process, on Linux."""
TIMEOUT_S = 60.0
"""The CPU time that it may take. A busy machine may take `_WALL` times as many seconds."""
_WALL = 5
_AT_ONCE = 2
"""So many candidates are opened at once."""


def refuse_candidates(folders: Sequence[Path]) -> dict[Path, str]:
    """Open bundles, each in a process of its own. Return the reasons by folder of those that fail.

    Raises:
        OSError: a process cannot be started.
    """
    with ThreadPoolExecutor(_AT_ONCE, "candidates") as threads:
        reasons = threads.map(_refuse, folders)
        return {folder: reason for folder, reason in zip(folders, reasons, strict=True) if reason}


def _refuse(folder: Path) -> str:
    """Open a bundle in a process. Return why it cannot be served; an empty text if it can."""
    seconds = str(math.ceil(TIMEOUT_S))
    arguments = [str(os.getpid()), str(MEMORY_BYTES), seconds, str(folder)]
    process = subprocess.Popen(  # noqa: S603  this module
        [sys.executable, "-m", __name__, *arguments],
        env=_without_secrets(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout
    overdue = threading.Timer(_WALL * TIMEOUT_S, _kill, [process])
    overdue.daemon = True
    overdue.start()
    try:
        answer = process.stdout.read(_MAX_REASON_BYTES).decode(errors="replace")
        process.wait()
    finally:
        is_overdue = not overdue.is_alive()
        overdue.cancel()
        _kill(process)
        process.stdout.close()
    if process.returncode == 0 and answer == SOUND:
        return ""
    if answer and answer != SOUND:
        return answer
    return _describe_end(folder, process.returncode, is_overdue=is_overdue)


def _describe_end(folder: Path, code: int, *, is_overdue: bool) -> str:
    """Describe how a process ended that gave no reason."""
    if is_overdue or code == -signal.SIGXCPU:
        return f"{folder}: loading it takes more than {TIMEOUT_S:g} s of CPU time"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
    return f"{folder}: loading it ends a process with {how}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process, and those that it started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environment[name] for name in _VARIABLES if name in environment}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main() -> None:
    """Open the bundle that the command line names, and write `SOUND` or why it cannot be served."""
    parent, memory_bytes, cpu_s = map(int, sys.argv[1:4])
    folder = Path(sys.argv[4])
    die_with_parent()
    if os.getppid() != parent:  # it has ended already
        os._exit(1)
    import model.runtime  # noqa: F401, PLC0415  before the limits, which are on top of it

    _limit(memory_bytes, cpu_s)
    try:
        open_candidate(folder)
    except BaseException as error:  # noqa: BLE001  whatever it is, the bundle is refused
        answer = str(error) if str(folder) in str(error) else f"{folder}: {error!r}"
    else:
        answer = SOUND
    sys.stdout.buffer.write(answer.encode(errors="replace")[:_MAX_REASON_BYTES])
    sys.stdout.flush()
    os._exit(0 if answer == SOUND else 1)


def open_candidate(folder: Path) -> None:
    """Do what a worker does with a bundle, on the CPU: run every graph, on images of each kind.

    Raises:
        BundleError, ValueError: it cannot be served.
    """
    import numpy as np  # noqa: PLC0415  the process is bound to its parent before

    from model.bundle import Bundle  # noqa: PLC0415
    from model.runtime import Runtime  # noqa: PLC0415

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
    import numpy as np  # noqa: PLC0415

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
    """Run a graph that encodes, whichever device and precision it is for."""
    from model.runtime.cpu import open_session  # noqa: PLC0415

    for array in open_session(graph, threads=1).run(None, {"images": images}):
        _check(graph.name, array, (len(images), *array.shape[1:]))


def _check(name: str, array: Floats, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"the graphs answer with {name} of {array.shape}, not of {shape}")
    if not (abs(array) < math.inf).all():
        raise ValueError(f"the graphs answer with {name} that are not finite")


def _limit(memory_bytes: int, cpu_s: int) -> None:
    """Limit this process; only Linux limits its memory."""
    limit_memory(memory_bytes)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
