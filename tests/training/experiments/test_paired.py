"""Whether two networks differ, beyond images and seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from training.experiments.paired import compare
from training.experiments.run import Result

N = 10_000
ONE = Result("row", "mnist", 1, 1, "test", {}, {"plain": N}, {}, 1.0, "CPU")


def wrong(*images: range) -> list[Result]:
    """A result for each seed, with the images that were answered wrongly."""
    return [replace(ONE, seed=seed, which={"plain": list(one)}) for seed, one in enumerate(images)]


def test_the_same_images_wrong_are_no_difference() -> None:
    found = compare(wrong(range(50)), wrong(range(50)), "plain")
    assert found == (0, 0, 0)
    assert not found.is_significant


def test_one_seed_each_is_mcnemar_s_variance() -> None:
    """30 images that only the first got wrong, 10 that only the second: 0.2 points."""
    found = compare(wrong(range(30, 80)), wrong(range(50, 80)), "plain")
    assert found is not None
    assert found.points == pytest.approx(0.2)
    reach = 1.96 * 100 * np.sqrt(20 / N - 0.002**2) / np.sqrt(N)
    assert found.high - found.points == pytest.approx(reach, rel=1e-3)
    assert found.is_significant


def test_few_seeds_are_as_by_hand() -> None:
    """Three seeds against two: Welch and Satterthwaite leave 10.4 degrees of freedom."""
    few = replace(ONE, tested={"plain": 10})
    first, second = (
        [replace(few, which={"plain": one}) for one in seeds]
        for seeds in ([[0, 1, 2], [0, 1], [0]], [[0], [0, 5]])
    )
    found = compare(first, second, "plain")
    assert found is not None
    assert (5, 5 - 26.6847467, 5 + 26.6847467) == pytest.approx(found)


def test_pairing_tells_apart_what_intervals_do_not() -> None:
    """55 and 50 errors overlap, but the 5 are always the same network's: seeds agree."""
    first, second = [range(15)] * 3, [range(5)] * 3
    assert compare(wrong(*first), wrong(*second), "plain").is_significant  # type: ignore[union-attr]


def test_seeds_that_scatter_widen_the_interval() -> None:
    """The same mean error with and without variance over seeds."""
    steady = compare(wrong(*[range(60)] * 3), wrong(*[range(40)] * 3), "plain")
    loose = compare(wrong(range(20), range(60), range(100)), wrong(*[range(40)] * 3), "plain")
    assert steady is not None
    assert loose is not None
    assert steady.points == pytest.approx(loose.points)
    assert loose.high - loose.low > 3 * (steady.high - steady.low)
    assert not loose.is_significant


def test_the_interval_holds_nothing_in_95_of_100_draws() -> None:
    """Networks with one error rate, three seeds each, whose seeds scatter and images are shared."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        hard = generator.random(N) < 0.02
        both = []
        for _ in range(2):
            seeds = []
            for _ in range(3):
                share = np.clip(0.3 + 0.05 * generator.standard_normal(), 0, 1)
                seeds.append(np.flatnonzero(hard & (generator.random(N) < share)))
            both.append([replace(ONE, which={"plain": one.tolist()}) for one in seeds])
        found = compare(both[0], both[1], "plain")
        assert found is not None
        hits += found.is_significant
    assert hits <= 20


def test_older_results_and_none_are_not_compared() -> None:
    """They did not keep which images were wrong."""
    assert compare([ONE], wrong(range(3)), "plain") is None
    assert compare(wrong(range(3)), [ONE], "plain") is None
    assert compare([], wrong(range(3)), "plain") is None
