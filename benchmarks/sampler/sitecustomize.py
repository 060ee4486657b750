"""Sample the stacks of this process by CPU time. Python imports this if its folder is on the path.

SIGUSR1 begins. SIGUSR2 ends, and writes a line for each stack, with the number of its samples, to
the file of `SAMPLES_OF` and the process id. `benchmarks.flame` uses it.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

PERIOD_S = 0.001
"""CPU seconds between two samples, without those in the kernel, whose ticks may be longer."""
_stacks: Counter[str] = Counter()


def _sample(_signal: int, frame: FrameType | None) -> None:
    """Count the stack of the main thread."""
    frames = []
    while frame:
        code = frame.f_code
        frames.append(f"{code.co_qualname} ({code.co_filename})")
        frame = frame.f_back
    _stacks[";".join(reversed(frames))] += 1


def _begin(_signal: int, _frame: FrameType | None) -> None:
    _stacks.clear()
    signal.setitimer(signal.ITIMER_VIRTUAL, PERIOD_S, PERIOD_S)


def _end(_signal: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    lines = "".join(f"{stack} {count}\n" for stack, count in _stacks.items())
    written = Path(f"{os.environ['SAMPLES_OF']}{os.getpid()}")
    partial = written.with_suffix(".part")
    partial.write_text(lines)
    partial.rename(written)


signal.signal(signal.SIGVTALRM, _sample)
signal.signal(signal.SIGUSR1, _begin)
signal.signal(signal.SIGUSR2, _end)
