from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from model.runtime import DeviceError
from training.device import choose_device, choose_threads

FREES_MEMORY = """
import resource
from training.device import keep_freed_memory
assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    bytearray(b"1") * 50_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


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


@pytest.mark.parametrize(
    ("seconds", "faster"),
    [
        pytest.param({1: 0.2, 2: 2.0}, 1, id="another program takes a core"),
        pytest.param({1: 0.2, 2: 0.1}, 2, id="no other program runs"),
    ],
)
def test_the_faster_number_of_threads_is_used(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], faster: int
) -> None:
    """One, or all of this machine."""
    monkeypatch.setattr("training.device._all_threads", lambda: 2)
    monkeypatch.setattr(
        "training.device._time_convolution", lambda: seconds[torch.get_num_threads()]
    )
    before = torch.get_num_threads()
    try:
        assert faster == choose_threads() == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
