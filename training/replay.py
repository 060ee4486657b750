"""Training steps as a CUDA graph.

A step of a small network is several hundred kernels of some microseconds each, and Python starts
them more slowly than a GPU runs them. So the first steps run one kernel at a time. The next one is
captured as a CUDA graph, and from then on each step is one launch of that graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from training.losses import Losses

Work = Callable[[Tensor, Tensor], Losses]
"""Does one training step and returns its losses.

Its arguments are rows (B, R), each of which fixes one image of the batch, and the step's number, a
scalar.
"""
WARM_UP_STEPS = 3
"""Steps before the capture: libraries choose their algorithms, optimisers make their state."""


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
