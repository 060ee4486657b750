"""One bundle, loaded into onnxruntime: numpy in, numpy out."""

from __future__ import annotations

import math
import os
import re
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.bundle import DECODER, ENCODER, ROUTING, Bundle, BundleError

Device = Literal["auto", "cuda", "cpu"]
Floats = NDArray[np.float32]

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
_CUDA_FAILURE = re.compile(r"CUDA failure (\d+)")
_FATAL_CUDA_ERRORS = frozenset({46, 214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999})
"""cudaError_t values that poison the process's context: illegal addresses, lost devices, ECC."""


class DeviceError(Exception):
    """The device that was asked for cannot be used."""


class DeviceLostError(Exception):
    """The device failed in a way from which only a new process recovers."""


class Encoding(NamedTuple):
    """What the encoder says of N images."""

    lengths: Floats
    """(N, K): how present each class is, in [0, 1)."""
    poses: Floats
    """(N, K, D)."""


class Routing(NamedTuple):
    """How the capsules of N images came to agree, over R iterations."""

    couplings: Floats
    """(N, R, K, I), summing to one over K."""
    logits: Floats
    """(N, R, K, I), zero in the first iteration."""
    poses: Floats
    """(N, R, K, D)."""
    primary_lengths: Floats
    """(N, I)."""
    votes: Floats
    """(N, K, I, D)."""


class Runtime:
    """The sessions of one bundle. Not for use from several threads at once.

    Args:
        bundle: what to load.
        device: `cuda` fails rather than falling back; `auto` takes CUDA where it works.
        threads: of one inference on the CPU; by default the CPU quota of this process.

    Raises:
        DeviceError: CUDA was asked for and does not work.
    """

    def __init__(self, bundle: Bundle, *, device: Device = "auto", threads: int = 0) -> None:
        self.bundle = bundle
        self._device = device
        self._threads = threads or cpu_quota()
        self._encoder = self._open(ENCODER)
        self._decoder = self._open(DECODER)

    def __repr__(self) -> str:
        return f"Runtime({self.bundle.manifest.name!r}, provider={self.provider!r})"

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return str(self._encoder.get_providers()[0])

    def encode(self, images: Floats) -> Encoding:
        """Class capsules of images (N, 1, H, W), float32 in [0, 1], light strokes on dark."""
        return Encoding(*_run(self._encoder, images=images))

    def decode(self, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Draw poses (M, D) of classes (M,) as images (M, 1, H, W) in [0, 1]."""
        (images,) = _run(self._decoder, poses=poses, classes=classes)
        return np.asarray(images)

    def route(self, images: Floats) -> Routing:
        """What routing did with images (N, 1, H, W). Its session opens at the first call."""
        return Routing(*_run(self._routing, images=images))

    @cached_property
    def _routing(self) -> onnxruntime.InferenceSession:
        return self._open(ROUTING)

    def _open(self, graph: str) -> onnxruntime.InferenceSession:
        return open_session(self.bundle.path / graph, device=self._device, threads=self._threads)


def _run(session: onnxruntime.InferenceSession, **inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """All outputs of a session.

    Raises:
        DeviceLostError: CUDA's context is gone; every further call would fail too.
    """
    try:
        outputs: list[NDArray[Any]] = session.run(None, inputs)
    except Exception as error:
        code = _CUDA_FAILURE.search(str(error))
        if code and int(code[1]) in _FATAL_CUDA_ERRORS:
            raise DeviceLostError(str(error)) from error
        raise
    return outputs


def open_session(graph: Path, *, device: Device, threads: int) -> onnxruntime.InferenceSession:
    """Load one graph on a device.

    Raises:
        BundleError: onnxruntime cannot load it there.
        DeviceError: CUDA was asked for and does not work.
    """
    _refuse_two_onnxruntimes()
    available = _CUDA in onnxruntime.get_available_providers()
    if device == "cuda" and not available:
        raise DeviceError(
            "CUDA was asked for, but this onnxruntime has no CUDA provider; install the gpu extra"
        )
    use_cuda = available and device != "cpu"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1 if use_cuda else threads
    if not use_cuda:
        return _load(graph, options, [_CPU])
    onnxruntime.preload_dlls(directory="")
    if device == "cuda":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = _load(graph, options, _cuda_providers(device))
        if session.get_providers()[0] == _CUDA:
            return session
        reason = "onnxruntime fell back to the CPU"
    except BundleError as error:
        reason = str(error)
    if device == "cuda":
        raise DeviceError(f"CUDA was asked for and does not work: {reason}")
    return open_session(graph, device="cpu", threads=threads)


def _load(
    graph: Path, options: onnxruntime.SessionOptions, providers: list[Any]
) -> onnxruntime.InferenceSession:
    try:
        return onnxruntime.InferenceSession(graph, options, providers=providers)
    except Exception as error:  # onnxruntime's own exceptions share no narrower class
        raise BundleError(f"{graph.parent}: {graph.name} cannot be loaded: {error}") from error


def cpu_quota(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """How many CPUs this process may use at once: its container's quota, rounded up."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = cgroup.read_text().split()
    except (OSError, ValueError):
        return usable or 1
    if quota == "max":
        return usable or 1
    return max(1, min(usable or 1, math.ceil(int(quota) / int(period))))


def _cuda_providers(device: Device) -> list[Any]:
    settings = {
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kSameAsRequested",
    }
    return [(_CUDA, settings)] if device == "cuda" else [(_CUDA, settings), _CPU]


def _refuse_two_onnxruntimes() -> None:
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _is_installed(name)]
    if len(installed) > 1:
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other; "
            "make a fresh environment with one of the extras cpu and gpu"
        )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
