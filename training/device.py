"""Where a network is trained: a device, memory that is used again, and CUDA graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.processes import local_rank

Compute = Callable[[Sequence[Tensor]], dict[str, Tensor]]
_WARM_UPS = 3
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


class DeviceError(Exception):
    """A device does not work here."""


def choose_device(name: str) -> torch.device:
    """The device of a name: auto, cpu, cuda or cuda:1.

    Convolutions in float32, those of validation, are then not rounded to TF32.

    Raises:
        DeviceError: it does not work here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{local_rank()}"  # PyTorch makes no device current that has no number
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"device {name} does not work: {str(error).splitlines()[0]}") from error
    return device


def device_name(device: torch.device) -> str:
    """CPU, or what the GPU is sold as."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def keep_freed_memory() -> bool:
    """Ask the C library not to hand freed memory back to the kernel.

    A step on a CPU makes and frees the same large tensors, and by default each comes as new pages
    that the kernel must clear at first touch: two fifths of a step's time.

    Returns:
        whether the C library could be asked; glibc alone can.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl and macOS have none, Windows no such name
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


class CudaGraph:
    """Computes what `compute` does, from the second call on with one launch for all its kernels.

    Forward and backward pass are hundreds of short kernels, which a CPU launches more slowly than
    a large GPU computes them.

    Args:
        compute: from tensors of fixed sizes on a CUDA device to some others. It may leave more
            behind, gradients say, if it makes them anew each time; they keep their place in memory.
            It runs a few times before it is recorded and, of what is there already, may change
            `buffers` alone.
        buffers: what each call updates in place, statistics say. Runs before the recording do not
            count, and draw no random numbers from those after.
    """

    def __init__(self, compute: Compute, *, buffers: Sequence[Tensor] = ()) -> None:
        self._compute = compute
        self._buffers = buffers
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._outputs: dict[str, Tensor] = {}

    def __call__(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """What `compute` gives; overwritten by the next call."""
        if self._graph is None:
            self._graph = self._record(inputs)
        for place, given in zip(self._inputs, inputs, strict=True):
            place.copy_(given)
        self._graph.replay()
        return self._outputs

    def _record(self, inputs: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        self._inputs = [given.clone() for given in inputs]
        before = [buffer.clone() for buffer in self._buffers]
        random = torch.cuda.get_rng_state()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # cuDNN chooses algorithms, cuBLAS takes its workspace
            for _ in range(_WARM_UPS):
                self._compute(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        for buffer, value in zip(self._buffers, before, strict=True):
            buffer.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._outputs = self._compute(self._inputs)
        torch.cuda.set_rng_state(random)
        return graph
