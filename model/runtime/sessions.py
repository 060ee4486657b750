"""onnxruntime sessions that run batches as they are, or padded to fixed sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, OrtValue, RunOptions, SessionOptions

from model.bundle import BundleError

Array = NDArray[Any]
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
"""The numpy types of inputs and outputs, by onnxruntime's names."""
_WARM_UP_RUNS = 4
"""Warm-up runs of each bucket: two plain ones, which allocate; one that captures the graph; a
replay.
"""


class Session:
    """A graph that is ready to run, in batches as they are: from any thread on a CPU.

    Args:
        session: of onnxruntime.
        core_s: seconds of a core that one row alone takes; 0 on another device.
    """

    def __init__(self, session: InferenceSession, core_s: float = 0.0) -> None:
        self.session = session
        self.core_s = core_s

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return str(self.session.get_providers()[0])

    def run(self, **inputs: Array) -> list[Array]:
        """Return all outputs, in the graph's order. The first axis of every array is the batch."""
        outputs: list[Array] = self.session.run(None, inputs)
        return outputs


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


def create_session(graph: Path, options: SessionOptions, providers: list[Any]) -> InferenceSession:
    """Open a graph on these providers, or fail: onnxruntime may not choose others by itself.

    Raises:
        BundleError: it cannot be loaded there.
    """
    try:
        return InferenceSession(graph, options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime's own exceptions share no narrower class
        raise BundleError(f"{graph.parent}: {graph.name} cannot be loaded: {error}") from error
