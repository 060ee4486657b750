"""Whether two networks differ, beyond images and seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research.compare import Difference, compare, score
from research.run import Result

N = 10_000
ONE = Result("row", "mnist", 1, 1, "test", 1.0, "CPU", N, ())


def excludes_zero(found: Difference | None) -> bool:
    """Whether two rows differ by more than chance."""
    assert found is not None
    return found.low > 0 or found.high < 0


def wrong(*images: range) -> list[Result]:
    """A result for each seed, with the images that were answered wrongly."""
    return [replace(ONE, seed=seed, which=tuple(one)) for seed, one in enumerate(images)]


def test_one_seed_each_is_mcnemar_s_variance() -> None:
    """30 images that only the first got wrong, 10 that only the second: 0.2 points."""
    found = compare(wrong(range(30, 80)), wrong(range(50, 80)))
    assert found is not None
    assert found.points == pytest.approx(0.2)
    reach = 1.96 * 100 * np.sqrt(20 / N - 0.002**2) / np.sqrt(N)
    assert found.high - found.points == pytest.approx(reach, rel=1e-3)
    assert excludes_zero(found)


def test_few_seeds_are_as_by_hand() -> None:
    """Three seeds against two: Welch and Satterthwaite leave 10.4 degrees of freedom."""
    few = replace(ONE, tested=10)
    first, second = (
        [replace(few, which=tuple(one)) for one in seeds]
        for seeds in ([[0, 1, 2], [0, 1], [0]], [[0], [0, 5]])
    )
    found = compare(first, second)
    assert found is not None
    assert (5, 5 - 26.6847467, 5 + 26.6847467) == pytest.approx(found[:3])


def test_seeds_that_mean_the_same_in_both_are_paired() -> None:
    """Both rows scatter over the choices of training images, but one is better with each."""
    many = wrong(range(100), range(300), range(200), range(500))
    fewer = wrong(range(80), range(280), range(180))[::-1]
    apart, paired = (compare(many, fewer, pair_seeds=one) for one in (False, True))
    assert not excludes_zero(apart)
    assert excludes_zero(paired)
    assert paired is not None
    assert paired.points == pytest.approx(0.2)  # the fourth seed has no partner
    assert compare(many[:1], fewer[:1], pair_seeds=True) is None


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
                seeds.append(np.flatnonzero(hard & (generator.random(N) < share)).tolist())
            both.append([replace(ONE, which=tuple(one)) for one in seeds])
        found = compare(both[0], both[1])
        assert found is not None
        hits += excludes_zero(found)
    assert hits <= 20


def test_rows_without_results_are_not_compared() -> None:
    """There is nothing to say."""
    assert compare([], wrong(range(3))) is None


def test_seeds_that_err_on_other_images_narrow_it() -> None:
    """Three seeds wrong on 300 images, each on 100 of its own."""
    images = range(100), range(100, 200), range(200, 300)
    seeds = wrong(*images)
    reach = 1.96 * 100 * (0.03 / 9 - 0.0001) ** 0.5 / 100
    assert reach == pytest.approx(score(seeds).high - 1, rel=1e-3)
