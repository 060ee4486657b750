from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from model.runtime import DeviceError
from training.device import AGAIN_S, ThreadChooser, choose_device

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


class Machine:
    """A clock, and steps that take so many seconds with each number of threads."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds, self.now, self.count = seconds, 0.0, max(seconds)
        self.used: list[int] = []
        self.chooser = ThreadChooser(
            list(seconds), set_count=self.set_count, clock=lambda: self.now
        )

    def set_count(self, count: int) -> None:
        """Use so many threads from now on."""
        self.count = count

    def run(self, steps: int) -> list[int]:
        """The threads of each step."""
        used = []
        for _ in range(steps):
            used.append(self.count)
            self.now += self.seconds[self.count]
            self.chooser.end_step()
        return used


def test_the_faster_number_is_kept() -> None:
    """One thread where another program takes a core, all where none does."""
    assert {1} == set(Machine({1: 0.2, 2: 2.0}).run(40)[10:])
    assert {2} == set(Machine({1: 0.2, 2: 0.1}).run(40)[10:])


def test_the_choice_is_made_again() -> None:
    """A machine that becomes free gets all threads back, after the next trial."""
    machine = Machine({1: 0.2, 2: 2.0})
    machine.run(20)
    machine.seconds[2] = 0.1
    machine.run(round(AGAIN_S / 0.2) + 20)
    assert {2} == set(machine.run(10))
