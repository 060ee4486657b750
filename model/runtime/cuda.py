"""onnxruntime on CUDA: options, sessions and the signs of a lost device."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime import InferenceSession, OrtValue, RunOptions, SessionOptions

from model.bundle import BundleError
from model.runtime import cpu
from model.runtime.cpu import DTYPES, Array, Session, create_session

PROVIDER = "CUDAExecutionProvider"
_ERRORS = 3
"""The severity from which onnxruntime logs. Version 1.31 warns at each session that no plugin
provides CUDA, although the CUDA provider that it has built in works."""
_WARM_UP_RUNS = 4
"""Warm-up runs of each bucket: two plain ones, which allocate; one that captures the graph; a
replay.
"""
capture_lock = threading.Lock()
"""The lock of calls to CUDA: while one thread captures a graph, calls of others would fail."""


class DeviceError(Exception):
    """The device that was asked for cannot be used."""


class DeviceLostError(Exception):
    """The device failed in a way from which only a new process recovers."""


@dataclass(frozen=True)
class CudaOptions:
    """Options of CUDA, which are settings of the service."""

    tf32: bool = False
    """Round factors of float32 convolutions and products to 10 bits of mantissa."""

    def for_provider(self, *, graphs: bool) -> dict[str, str]:
        """The options in onnxruntime's words."""
        return {
            "device_id": "0",
            "use_tf32": str(int(self.tf32)),
            "enable_cuda_graph": str(int(graphs)),
            "cudnn_conv_algo_search": "HEURISTIC",
            "arena_extend_strategy": "kSameAsRequested",
        }


class CudaDevice:
    """A CUDA device. Every node of its sessions runs there; none falls back to the CPU.

    Raises:
        DeviceError: CUDA does not work.
    """

    def __init__(self, options: CudaOptions) -> None:
        if PROVIDER not in onnxruntime.get_available_providers():
            raise DeviceError("this onnxruntime has no CUDA provider; install the gpu extra")
        find_driver()
        onnxruntime.set_default_logger_severity(_ERRORS)
        onnxruntime.preload_dlls(directory="")
        self.options = options
        self.location = ("cuda", 0)
        self.bucketed: list[BucketedSession] = []
        with _calling_cuda():
            self._touchstone = OrtValue.ortvalue_from_numpy(np.ones(1), *self.location)

    def open(self, graph: Path, *, max_rows: int | None = None) -> Session:
        """Load a graph. With `max_rows`, batches are padded to buckets, each a CUDA graph.

        Raises:
            DeviceError: it does not load on CUDA.
            BundleError: it does not load on the CPU either.
        """
        if max_rows is None:
            return Session(self.open_session(graph, graphs=False))
        session = self.open_session(graph, graphs=True)
        with _calling_cuda():
            bucketed = BucketedSession(session, max_rows, device=self.location)
        self.bucketed.append(bucketed)
        return bucketed

    def warm_up(self) -> None:
        """Run every bucket of every graph, on the thread that will use them.

        Raises:
            DeviceError: that does not work.
        """
        for session in self.bucketed:
            with _calling_cuda():
                session.warm_up()

    def run(self, session: Session, **inputs: Array) -> list[Array]:
        """Return all outputs of a session of this device.

        Raises:
            DeviceLostError: the device is gone; every further call would fail too.
        """
        with capture_lock:
            try:
                return session.run(**inputs)
            except Exception as error:
                if self.is_lost():
                    raise DeviceLostError(str(error)) from error
                raise

    def open_session(self, graph: Path, *, graphs: bool) -> InferenceSession:
        """Open a session, perhaps to be captured as CUDA graphs. The errors are those of `open`."""
        options = SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        try:
            with capture_lock:
                provider = (PROVIDER, self.options.for_provider(graphs=graphs))
                session = create_session(graph, options, [provider])
        except BundleError as error:
            cpu.open_session(graph)  # is the graph at fault, or CUDA?
            raise DeviceError(str(error)) from error
        if session.get_providers()[0] != PROVIDER:
            raise DeviceError("onnxruntime could not start its CUDA provider; its log says why")
        return session

    def is_lost(self) -> bool:
        """Return whether the device is lost, as after an illegal address or when it was removed.

        CUDA then refuses every further call of the process, so a copy to the device and back says
        more than the many messages of onnxruntime, cuBLAS and cuDNN.
        """
        try:
            self._touchstone.update_inplace(np.ones(1))
            self._touchstone.numpy()
        except Exception:  # noqa: BLE001  whatever is raised, the copy failed
            return True
        return False


class BucketedSession(Session):
    """A session that pads batches to a bucket's size. Each bucket has buffers that never move.

    That is what a CUDA graph needs: captured once, it is replayed on the same addresses. Each
    bucket's graph has the bucket's size as its id. onnxruntime keeps captured graphs by thread, so
    one thread must warm up and run. A session without CUDA graphs ignores the ids.

    Args:
        session: of a graph whose inputs and outputs have the batch as their first axis, the only
            one of unknown size.
        max_rows: larger batches are split. Buckets are the powers of two below, and this one.
        device: (type, id) of the buffers, in onnxruntime's words.
    """

    def __init__(
        self,
        session: InferenceSession,
        max_rows: int,
        *,
        device: tuple[str, int] = ("cpu", 0),
    ) -> None:
        super().__init__(session)
        self._max_rows = max_rows
        sizes = {*(1 << power for power in range(max_rows.bit_length())), max_rows}
        self._slots = {rows: _Slot(session, rows, device) for rows in sorted(sizes)}

    def warm_up(self) -> None:
        """Capture every bucket, the largest first, so that the memory arena grows once."""
        for _, slot in sorted(self._slots.items(), reverse=True):
            for _ in range(_WARM_UP_RUNS):
                slot.run()

    def run(self, **inputs: Array) -> list[Array]:
        """All outputs of at least one row.

        Raises:
            ValueError: an array has not the shape that the graph takes.
        """
        rows, largest = len(next(iter(inputs.values()))), self._max_rows
        parts = [
            self._run({name: array[start : start + largest] for name, array in inputs.items()})
            for start in range(0, rows, largest)
        ]
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]

    def _run(self, inputs: dict[str, Array]) -> list[Array]:
        rows = len(next(iter(inputs.values())))
        slot = self._slots[min(1 << (rows - 1).bit_length(), self._max_rows)]
        slot.stage(inputs)
        # On the CPU an output is the buffer itself, which the next run overwrites: copy.
        return [np.array(output[:rows]) for output in slot.run()]


class _Slot:
    """One bucket: `rows` rows of every input and output, bound to a session for good."""

    def __init__(self, session: InferenceSession, rows: int, device: tuple[str, int]) -> None:
        self._session = session
        self._options = RunOptions()
        self._options.add_run_config_entry("gpu_graph_id", str(rows))
        self._binding = session.io_binding()
        self._inputs: dict[str, tuple[Array, OrtValue]] = {}
        """The memory of each input, on the host and on the device."""
        self._outputs: list[OrtValue] = []
        for entry in session.get_inputs():
            staged = np.zeros((rows, *entry.shape[1:]), DTYPES[entry.type])
            bound = OrtValue.ortvalue_from_shape_and_type(staged.shape, staged.dtype.type, *device)
            bound.update_inplace(staged)
            self._binding.bind_ortvalue_input(entry.name, bound)
            self._inputs[entry.name] = (staged, bound)
        for entry in session.get_outputs():
            shape, dtype = (rows, *entry.shape[1:]), DTYPES[entry.type]
            bound = OrtValue.ortvalue_from_shape_and_type(shape, dtype, *device)
            self._binding.bind_ortvalue_output(entry.name, bound)
            self._outputs.append(bound)

    def stage(self, inputs: dict[str, Array]) -> None:
        """Copy rows to the device, and zeros after them."""
        for name, (staged, bound) in self._inputs.items():
            rows = inputs[name]
            if rows.shape[1:] != staged.shape[1:]:
                raise ValueError(f"{name} has rows of {rows.shape[1:]}, not {staged.shape[1:]}")
            staged[: len(rows)] = rows
            staged[len(rows) :] = 0
            bound.update_inplace(staged)

    def run(self) -> list[Array]:
        """All rows of all outputs, padding included."""
        self._session.run_with_iobinding(self._binding, self._options)
        return [output.numpy() for output in self._outputs]


def find_driver() -> None:
    """Load NVIDIA's driver. Without it onnxruntime's message has pages.

    Raises:
        DeviceError: there is none.
    """
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"there is no NVIDIA driver here ({error})") from error


@contextmanager
def _calling_cuda() -> Iterator[None]:
    """Call CUDA; whatever onnxruntime raises here, the device cannot be used."""
    try:
        with capture_lock:
            yield
    except Exception as error:
        raise DeviceError(" ".join(str(error).split())) from error  # onnxruntime's has lines
