from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from training.device import DeviceError, choose_device

FREES_MEMORY = """
import resource
from training.device import keep_freed_memory
assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(b"1") * 50_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int | None]]:
    """Numbers of the GPUs that were made current, of which there seem to be some."""
    numbers: list[int | None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: numbers.append(device.index))
    monkeypatch.setattr(torch, "zeros", lambda *_size, **_options: None)
    cudnn = torch.backends.cudnn  # choosing a GPU changes its settings
    monkeypatch.setattr(cudnn, "benchmark", cudnn.benchmark)
    before = cudnn.conv.fp32_precision
    yield numbers
    cudnn.conv.fp32_precision = before


@pytest.mark.parametrize("name", ["auto", "cuda"])
@pytest.mark.parametrize(("rank", "expected"), [(None, 0), ("1", 1)])
def test_each_process_takes_a_gpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    current: list[int | None],
    name: str,
    rank: str | None,
    expected: int,
) -> None:
    """A name without a number means the one of the process's rank, the first where it is alone."""
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert torch.device("cuda", expected) == choose_device(name)
    assert [expected] == current


def test_a_gpu_with_a_number_is_taken(current: list[int | None]) -> None:
    """Whatever the process's rank."""
    assert torch.device("cuda", 3) == choose_device("cuda:3")
    assert [3] == current


@pytest.mark.usefixtures("current")
def test_a_gpu_does_not_round_convolutions() -> None:
    """Those in float32 are not done in TF32, which the setting of today says without a warning."""
    choose_device("cuda")
    assert "ieee" == torch.backends.cudnn.conv.fp32_precision


@pytest.mark.parametrize("name", ["abacus", "cuda:99"])
def test_a_device_that_does_not_work(name: str) -> None:
    """The error names it."""
    with pytest.raises(DeviceError, match=name):
        choose_device(name)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_freed_memory_is_used_again() -> None:
    """Twenty blocks of 50 MB, one after the other, touch new pages for one of them alone."""
    page_faults = int(
        subprocess.run(
            [sys.executable, "-c", FREES_MEMORY], capture_output=True, text=True, check=True
        ).stdout
    )
    assert 5 * 50_000_000 / os.sysconf("SC_PAGESIZE") > page_faults
