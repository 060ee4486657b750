"""The processes that train one network together, as `torchrun` starts them.

Gradients are added up in one all-reduce of one flat tensor. DistributedDataParallel does the same
in buckets that overlap with the backward pass, but averages over processes, which is wrong where
their shares of a batch differ, and sees only what goes through `forward`, which the decoder does
not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """This process among those that train one network together; by default it is alone."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files, validates and tells how it goes."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of a tensor with a row for each image of a batch."""
        return rows.tensor_split(self.count)[self.rank]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, which is the same bits in all."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        totals = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, total in zip(tensors, totals, strict=True):
            tensor.copy_(total.view_as(tensor))

    def any(self, *flags: bool) -> list[bool]:
        """For each flag whether it is up in some process; through the CPU, not the GPU's queue."""
        if self.count == 1:
            return list(flags)
        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, dist.ReduceOp.MAX)
        return [bool(flag) for flag in raised.tolist()]

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The others enter when the leader has left."""
        if not self.leads:
            self.any(False)
        yield
        if self.leads:
            self.any(False)


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """Within it, the processes that `torchrun` started work together; without it there is one."""
    if "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def local_rank() -> int:
    """This process's number on its machine, which is that of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))
