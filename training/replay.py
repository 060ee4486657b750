"""Training steps that a GPU repeats by itself.

A step of a small network is several hundred kernels of some microseconds each, and Python starts
them more slowly than a GPU runs them. So the first steps run as usual, the next one is recorded as
a CUDA graph, and from then on each step is one launch of that graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from training.losses import Losses

Work = Callable[[Tensor, Tensor], Losses]
"""A function that does one step, of rows at the number of a step, and returns its losses."""
WARM_UP_STEPS = 3
"""Steps before the recording: libraries choose their algorithms, optimisers make their state."""


class Replay:
    """Does the same work for each step: first as usual, then as a recorded CUDA graph.

    The work reads and writes the same tensors every time; what differs from step to step is in the
    two arguments, or in tensors that are filled before. If the work cannot be recorded, because it
    waits for the GPU, a warning says so and all steps run as usual.

    Args:
        device: a GPU.
    """

    def __init__(self, work: Work, *, device: torch.device) -> None:
        self._work = work
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._rows: Tensor | None = None
        self._step = torch.zeros((), device=device)
        self._losses: Losses = {}
        self._graph: torch.cuda.CUDAGraph | None = None
        self._usual_steps = 0
        self._can_record = True

    @property
    def recorded(self) -> bool:
        """Whether steps are launches of the graph by now."""
        return self._graph is not None

    def __call__(self, rows: Tensor, step: Tensor) -> Losses:
        """Do a step. Its losses are overwritten by the next step.

        Args:
            rows: of the same shape each time.
            step: scalar.
        """
        if self._rows is None:
            self._rows = torch.empty_like(rows)
        self._rows.copy_(rows)
        self._step.copy_(step)
        if self._graph is None and self._can_record and self._usual_steps >= WARM_UP_STEPS:
            self._record()
        if self._graph is not None:
            self._graph.replay()
            return self._losses
        self._usual_steps += 1
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            losses = self._work(self._rows, self._step)
        current.wait_stream(self._stream)
        return losses

    def _record(self) -> None:
        """Record the work. This runs none of it on the GPU."""
        assert self._rows is not None
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._losses = self._work(self._rows, self._step)
        except RuntimeError as error:
            self._can_record = False
            torch.cuda.synchronize()
            reason = str(error).splitlines()[0]
            warnings.warn(
                f"steps are not recorded as a CUDA graph, and are slower: {reason}", stacklevel=2
            )
            return
        self._graph = graph
