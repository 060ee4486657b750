from __future__ import annotations

from dataclasses import replace

import pytest

from training.run.lineage import Leg, devices_of, images_of, seconds_of, unseen_by

PAIRS = Leg("pairs", "mnist", "pairs", 1, 100, 6400, 5000, 60, ("CPU",))
DIGITS = replace(PAIRS, preset="digits", task="digits", seconds=30, devices=("H200",))


def test_a_leg_comes_back_from_a_dictionary() -> None:
    """Tuples too, which JSON does not have."""
    values = {**DIGITS.took(["a", "b"]).to_dict(), "devices": ["H200"], "taken": ["a", "b"]}
    assert DIGITS.took(["a", "b"]) == Leg.from_dict(values)


def test_time_and_devices_are_those_of_all() -> None:
    """Each device is named once."""
    legs = [DIGITS, PAIRS, replace(PAIRS, seed=2, devices=("CPU", "H200"))]
    assert (150, ("H200", "CPU")) == (seconds_of(legs), devices_of(legs))


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        pytest.param([], 5000, id="alone"),
        pytest.param([replace(DIGITS, held_out=0)], 0, id="after a final run"),
        pytest.param([replace(DIGITS, held_out=0, dataset="letters")], 5000, id="of others"),
        pytest.param([DIGITS], 5000, id="after one that held out as many"),
    ],
)
def test_what_an_earlier_run_saw_is_not_unseen(earlier: list[Leg], expected: int) -> None:
    """Single digits are the same as those of pairs; letters are not."""
    assert expected == unseen_by([*earlier, PAIRS])


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        pytest.param([DIGITS], (6400, 6400), id="another task"),
        pytest.param([replace(PAIRS, seed=2)], (12_800, 12_800), id="another seed"),
        pytest.param([replace(PAIRS, images=9000)], (15_400, 9000), id="the same seed"),
    ],
)
def test_images_of_one_seed_come_again(earlier: list[Leg], expected: tuple[int, int]) -> None:
    """They are counted twice in all, and once among the different ones."""
    assert expected == images_of([*earlier, PAIRS])
