"""A step's work recorded once as a CUDA graph, and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Compute = Callable[[Sequence[Tensor]], Tensor]
_WARM_UPS = 3


class Recording:
    """Computes what `compute` does, from the second call on with one launch for all its kernels.

    Forward and backward pass are hundreds of short kernels, which a CPU launches more slowly than
    a large GPU computes them.

    Args:
        compute: from tensors of fixed sizes on a CUDA device to one tensor. It may leave others
            behind, gradients say, if it makes them anew each time; they keep their place in memory.
            It runs a few times before it is recorded and may change nothing else.
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._output: Tensor | None = None

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """What `compute` gives; overwritten by the next call."""
        if self._graph is None or self._output is None:
            self._graph, self._output = self._record(inputs)
        for place, given in zip(self._inputs, inputs, strict=True):
            place.copy_(given)
        self._graph.replay()
        return self._output

    def _record(self, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        self._inputs = [given.clone() for given in inputs]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # cuDNN chooses algorithms, cuBLAS takes its workspace
            for _ in range(_WARM_UPS):
                self._compute(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self._compute(self._inputs)
        return graph, output
