"""Whether two networks differ, beyond images and seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from research.compare import Difference, compare, describe, score
from research.rows import NEW_AZIMUTHS
from research.run import Result

N = 10_000
ONE = Result("row", "mnist", 1, 1, "test", 1.0, "CPU", tested={"plain": N})


def excludes_zero(found: Difference | None) -> bool:
    """Whether two rows differ by more than chance."""
    assert found is not None
    return found.low > 0 or found.high < 0


def wrong(*images: range) -> list[Result]:
    """A result for each seed, with the images that were answered wrongly."""
    return [
        replace(ONE, seed=seed, wrong={"plain": len(one)}, which={"plain": list(one)})
        for seed, one in enumerate(images)
    ]


def test_the_same_images_wrong_are_no_difference() -> None:
    found = compare(wrong(range(50)), wrong(range(50)), "plain")
    assert found == Difference(0, 0, 0)
    assert not excludes_zero(found)


def test_one_seed_each_is_mcnemar_s_variance() -> None:
    """30 images that only the first got wrong, 10 that only the second: 0.2 points."""
    found = compare(wrong(range(30, 80)), wrong(range(50, 80)), "plain")
    assert found is not None
    assert found.points == pytest.approx(0.2)
    reach = 1.96 * 100 * np.sqrt(20 / N - 0.002**2) / np.sqrt(N)
    assert found.high - found.points == pytest.approx(reach, rel=1e-3)
    assert excludes_zero(found)


def test_few_seeds_are_as_by_hand() -> None:
    """Three seeds against two: Welch and Satterthwaite leave 10.4 degrees of freedom."""
    few = replace(ONE, tested={"plain": 10})
    first, second = (
        [replace(few, wrong={"plain": len(one)}, which={"plain": one}) for one in seeds]
        for seeds in ([[0, 1, 2], [0, 1], [0]], [[0], [0, 5]])
    )
    found = compare(first, second, "plain")
    assert found is not None
    assert (5, 5 - 26.6847467, 5 + 26.6847467) == pytest.approx(found[:3])


def test_pairing_tells_apart_what_intervals_do_not() -> None:
    """55 and 50 errors overlap, but the 5 are always the same network's: seeds agree."""
    first, second = [range(15)] * 3, [range(5)] * 3
    assert excludes_zero(compare(wrong(*first), wrong(*second), "plain"))


def test_seeds_that_mean_the_same_in_both_are_paired() -> None:
    """Both rows scatter over the choices of training images, but one is better with each."""
    many = wrong(range(100), range(300), range(200), range(500))
    fewer = wrong(range(80), range(280), range(180))[::-1]
    apart, paired = (compare(many, fewer, "plain", pair_seeds=one) for one in (False, True))
    assert not excludes_zero(apart)
    assert excludes_zero(paired)
    assert paired is not None
    assert paired.points == pytest.approx(0.2)  # the fourth seed has no partner
    assert compare(many[:1], fewer[:1], "plain", pair_seeds=True) is None


def test_seeds_that_scatter_widen_the_interval() -> None:
    """The same mean error with and without variance over seeds."""
    steady = compare(wrong(*[range(60)] * 3), wrong(*[range(40)] * 3), "plain")
    loose = compare(wrong(range(20), range(60), range(100)), wrong(*[range(40)] * 3), "plain")
    assert steady is not None
    assert loose is not None
    assert steady.points == pytest.approx(loose.points)
    assert loose.high - loose.low > 3 * (steady.high - steady.low)
    assert not excludes_zero(loose)


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
            both.append(
                [replace(ONE, wrong={"plain": len(one)}, which={"plain": one}) for one in seeds]
            )
        found = compare(both[0], both[1], "plain")
        assert found is not None
        hits += excludes_zero(found)
    assert hits <= 20


def test_older_results_are_compared_without_pairs() -> None:
    """They did not keep which images were wrong: the interval is marked, and is wider."""
    first, second = (
        [replace(one, wrong={"plain": len(one.which["plain"])}) for one in few]
        for few in (wrong(*[range(90)] * 3), wrong(*[range(60)] * 3))
    )
    paired = compare(first, second, "plain")
    older = compare([replace(one, which={}) for one in first], second, "plain")
    assert paired is not None
    assert older is not None
    assert (False, True) == (paired.is_bound, older.is_bound)
    assert paired.points == pytest.approx(older.points)
    assert older.high - older.low > 1.5 * (paired.high - paired.low)
    reach = 1.96 * 100 * np.sqrt((0.009 * 0.991 + 0.006 * 0.994) / N)
    assert older.high - older.points == pytest.approx(reach, rel=1e-3)


def test_rows_without_results_are_not_compared() -> None:
    """Nor are results that lack the test set."""
    assert compare([], wrong(range(3)), "plain") is None
    assert compare(wrong(range(3)), wrong(range(3)), "turned") is None


def test_the_mean_over_seeds_has_the_interval_of_one_test_set() -> None:
    """Three seeds wrong on the same 100 images: as wide as one network; pooling is narrower."""
    seeds = [replace(one, wrong={"plain": 100}) for one in wrong(*[range(100)] * 3)]
    found = score(seeds, "plain")
    assert (1.0, 0.0, False) == (found.percent, found.deviation, found.is_bound)
    assert 1.96 * 100 * (0.01 * 0.99 / N) ** 0.5 == pytest.approx(found.high - 1, rel=1e-3)


def test_seeds_that_err_on_other_images_narrow_it() -> None:
    """Three seeds wrong on 300 images, each on 100 of its own."""
    images = range(100), range(100, 200), range(200, 300)
    seeds = [replace(one, wrong={"plain": 100}) for one in wrong(*images)]
    reach = 1.96 * 100 * (0.03 / 9 - 0.0001) ** 0.5 / 100
    assert reach == pytest.approx(score(seeds, "plain").high - 1, rel=1e-3)


def test_shared_digits_widen_the_interval_of_pairs() -> None:
    """By the root of their design effect."""
    (plain,) = (replace(one, wrong={"plain": 500}) for one in wrong(range(500)))
    shared = replace(plain, design={"plain": 1.44})
    low, high = score([plain], "plain")[1:3]
    wider_low, wider_high = score([shared], "plain")[1:3]
    assert wider_high - wider_low == pytest.approx(1.2 * (high - low), rel=0.01)


def of_objects(*errors: int, seed: int = 1) -> Result:
    """A result on the 25 test objects at new azimuths: so many of the 648 images of each wrong."""
    which = [648 * place + image for place, count in enumerate(errors) for image in range(count)]
    tested = {NEW_AZIMUTHS: 25 * 648}
    wrong = {NEW_AZIMUTHS: len(which)}
    return replace(ONE, seed=seed, tested=tested, wrong=wrong, which={NEW_AZIMUTHS: which})


def test_images_of_one_object_are_one_trial() -> None:
    """An error and a difference are as uncertain as 25 objects leave them: Student's t."""
    errors = [100 * (place % 5) for place in range(25)]
    reach = stats.t.ppf(0.975, 24) * 100 * np.std(np.array(errors) / 648, ddof=1) / 5
    found = score([of_objects(*errors)], NEW_AZIMUTHS)
    assert (found.percent - reach, found.percent + reach) == pytest.approx(found[1:3])
    less = compare([of_objects(*errors)], [of_objects(*[0] * 25)], NEW_AZIMUTHS)
    assert less is not None
    assert (found.low, found.high) == pytest.approx(less[1:3])


def test_shared_digits_widen_a_difference() -> None:
    """By the root of the mean design effect of both rows."""
    first, second = wrong(range(30, 80)), wrong(range(50, 80))
    plain = compare(first, second, "plain")
    shared = compare(
        *([replace(one, design={"plain": 1.44}) for one in few] for few in (first, second)), "plain"
    )
    assert plain is not None
    assert shared is not None
    assert shared.high - shared.low == pytest.approx(1.2 * (plain.high - plain.low), rel=1e-3)


def test_older_results_have_the_interval_of_one_network() -> None:
    """Which images were wrong is not known: it is marked as a bound."""
    old = [replace(ONE, seed=seed, wrong={"plain": 100 * seed}) for seed in (1, 2)]
    assert "1.50 ± 0.71 [1.28, 1.76]†" == describe(old, "plain")
    assert "1.00 [0.82, 1.21]" == describe(old[:1], "plain")
