"""The device that trains a network: its choice, the threads of a CPU, the steps of a GPU.

A step of a small network is several hundred kernels of some microseconds each, and Python starts
them more slowly than a GPU runs them. So the first steps run one kernel at a time. The next one is
captured as a CUDA graph, and from then on each step is one launch of that graph (`Replay`).
"""

from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from statistics import median

import torch
from torch import Tensor

from model.bundle import Bundle
from model.runtime import DeviceError, Runtime
from training.losses import Losses

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
Work = Callable[[Tensor, Tensor], Losses]
"""Does one training step and returns its losses.

Its arguments are rows (B, R), each of which fixes one image of the batch, and the step's number, a
scalar.
"""
WARM_UP_STEPS = 3
"""Steps before the capture: libraries choose their algorithms, optimisers make their state."""
_TIMED = 3
"""The convolutions that are timed with each number of threads."""


def choose_device(name: str, *, threads: int = 0) -> torch.device:
    """Choose the device of a name: auto, cpu, cuda or cuda:1.

    Convolutions in float32, those of validation, are then not rounded to TF32.

    Args:
        threads: of a CPU; 0 leaves as many as there are.

    Raises:
        DeviceError: it does not work here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = "cuda:0"  # PyTorch makes no device current that has no number
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"device {name} does not work: {str(error).splitlines()[0]}") from error
    if threads:
        torch.set_num_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    return device


def device_name(device: torch.device) -> str:
    """Return CPU, or the GPU's model."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16: GPUs, and some CPUs."""
    # torch.cpu reports it since 2.12.
    known: Mapping[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    names = ("amx_bf16", "avx512_bf16", "sve_bf16")
    return device.type == "cuda" or any(known.get(name, False) for name in names)


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed memory from the kernel. Return whether that worked.

    A step on a CPU makes and frees the same large tensors, and by default each comes as new pages
    that the kernel must clear at first touch: two fifths of a step's time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl and macOS have none, Windows no such name
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def convolution_precision(asked: str, device: torch.device) -> str:
    """The type that convolutions are computed in, bfloat16 or float32.

    bfloat16 on a GPU, and on a CPU with instructions for it if it is asked for.
    """
    uses_bfloat16 = has_bfloat16(device) and (device.type == "cuda" or asked == "bfloat16")
    return "bfloat16" if uses_bfloat16 else "float32"


class Replay:
    """Does the work of each step: at first kernel by kernel, then by replaying a CUDA graph.

    The work must use the same tensors in each step. Values that change come in its arguments, or
    are written into these tensors before the call. If the capture fails, for example because the
    work waits for the GPU, a warning says so, and all steps run kernel by kernel.

    Args:
        work: of one step.
        device: a GPU.
    """

    def __init__(self, work: Work, *, device: torch.device) -> None:
        self._work = work
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._rows: Tensor | None = None
        self._step = torch.zeros((), device=device)
        self._losses: Losses = {}
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm_up_steps = 0
        self._can_capture = True

    @property
    def captured(self) -> bool:
        """Whether steps are launches of the graph by now."""
        return self._graph is not None

    def __call__(self, rows: Tensor, step: Tensor) -> Losses:
        """Do a step. The next step overwrites its losses.

        Args:
            rows: (B, R), of the same shape each time.
            step: the number of the step, a scalar.
        """
        if self._rows is None:
            self._rows = torch.empty_like(rows)
        self._rows.copy_(rows)
        self._step.copy_(step)
        if self._graph is None and self._can_capture and self._warm_up_steps >= WARM_UP_STEPS:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
            return self._losses
        self._warm_up_steps += 1
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            losses = self._work(self._rows, self._step)
        current.wait_stream(self._stream)
        return losses

    def _capture(self) -> None:
        """Capture the work. The GPU does none of it now."""
        assert self._rows is not None
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._losses = self._work(self._rows, self._step)
        except RuntimeError as error:
            self._can_capture = False
            torch.cuda.synchronize()
            reason = str(error).splitlines()[0]
            warnings.warn(
                f"steps are not captured as a CUDA graph, and are slower: {reason}", stacklevel=2
            )
            return
        self._graph = graph


def choose_threads() -> int:
    """Let this process use one CPU thread or all, whichever convolve faster now; their number.

    Threads that share a core with another program wait for each other in every operation: on two
    cores of which one was busy, all threads were 7 to 22 times slower than one.
    """
    seconds = {}
    for count in (1, _all_threads()):
        torch.set_num_threads(count)
        seconds[count] = _time_convolution()
    best = min(seconds, key=seconds.__getitem__)
    torch.set_num_threads(best)
    return best


def _time_convolution() -> float:
    """The seconds of a convolution, the median of some."""
    convolve, images, seconds = torch.nn.Conv2d(16, 32, 5), torch.rand(32, 16, 32, 32), []
    for _ in range(_TIMED + 1):
        start = time.perf_counter()
        with torch.inference_mode():
            convolve(images)
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:])  # the first one warms up


@cache
def _all_threads() -> int:
    """The number of threads that torch has chosen for this machine."""
    return torch.get_num_threads()


def open_runtime(bundle: Bundle) -> Runtime:
    """The runtime of a bundle, with as many threads as are fast now."""
    return Runtime(bundle, threads=choose_threads())
