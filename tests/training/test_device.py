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
for _ in range(8):
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


@pytest.mark.parametrize(("name", "number"), [("auto", 0), ("cuda", 0), ("cuda:3", 3)])
def test_a_gpu_is_taken(current: list[int | None], name: str, number: int) -> None:
    """The first one unless a number is given; it does not round convolutions to TF32."""
    assert torch.device("cuda", number) == choose_device(name)
    assert [number] == current
    assert "ieee" == torch.backends.cudnn.conv.fp32_precision


@pytest.mark.parametrize("name", ["abacus", "cuda:99"])
def test_a_device_that_does_not_work(name: str) -> None:
    """The error names it."""
    with pytest.raises(DeviceError, match=name):
        choose_device(name)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_freed_memory_is_used_again() -> None:
    """Eight blocks of 50 MB, one after the other, touch new pages for one of them alone."""
    page_faults = int(
        subprocess.run(
            [sys.executable, "-c", FREES_MEMORY], capture_output=True, text=True, check=True
        ).stdout
    )
    assert 3 * 50_000_000 / os.sysconf("SC_PAGESIZE") > page_faults
