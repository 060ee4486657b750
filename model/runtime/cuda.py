"""onnxruntime on CUDA: options, sessions and the signs of a lost device."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
from onnxruntime import InferenceSession, OrtValue, SessionOptions

from model.bundle import BundleError
from model.runtime import cpu
from model.runtime.sessions import (
    Array,
    BucketedSession,
    Session,
    create_session,
)

Precision = Literal["float32", "half"]

PROVIDER = "CUDAExecutionProvider"
_ERRORS = 3
"""The severity from which onnxruntime logs. Version 1.31 warns at each session that no plugin
provides CUDA, although the CUDA provider that it has built in works."""
capture_lock = threading.Lock()
"""The lock of calls to CUDA: while one thread captures a graph, calls of others would fail."""


class DeviceError(Exception):
    """The device that was asked for cannot be used."""


class DeviceLostError(Exception):
    """The device failed in a way from which only a new process recovers."""


@dataclass(frozen=True)
class CudaOptions:
    """Options of CUDA. `precision` and `tf32` are settings of the service."""

    precision: Precision = "float32"
    """`half` runs the encoder's convolutions and votes in float16."""
    tf32: bool = False
    """Round factors of float32 convolutions and products to 10 bits of mantissa."""

    def for_provider(self, *, graphs: bool) -> dict[str, str]:
        """The options in onnxruntime's words."""
        # By heuristic, cuDNN 9.19 finds nothing for 9x9 kernels in float16.
        search = "EXHAUSTIVE" if self.precision == "half" else "HEURISTIC"
        return {
            "device_id": "0",
            "use_tf32": str(int(self.tf32)),
            "enable_cuda_graph": str(int(graphs)),
            "cudnn_conv_algo_search": search,
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
            DeviceError: that does not work, or not on CUDA.
        """
        for session in self.bucketed:
            with _calling_cuda():
                session.warm_up()
            if session.provider != PROVIDER:
                raise DeviceError(f"onnxruntime runs on {session.provider} instead")

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
