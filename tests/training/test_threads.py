"""The number of threads follows the time of steps, whatever the machine does."""

from __future__ import annotations

from training.threads import AGAIN_S, ThreadChooser


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
