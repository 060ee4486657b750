from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from training.hardware.memory import keep_freed_memory
assert keep_freed_memory()
for _ in range(20):
    bytearray(b"1") * 50_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_freed_memory_is_used_again() -> None:
    """Twenty blocks of 50 MB, one after the other, touch new pages for one of them alone."""
    page_faults = int(
        subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
        ).stdout
    )

    assert 5 * 50_000_000 / os.sysconf("SC_PAGESIZE") > page_faults
