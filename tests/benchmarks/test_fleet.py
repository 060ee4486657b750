"""The simulation of many replicas, against what queueing theory knows."""

from __future__ import annotations

import pytest

from benchmarks.fleet.simulation import (
    BALANCERS,
    Clock,
    Figures,
    Network,
    Replica,
    simulate,
)

ONE_BY_ONE = Network(0, 0.01, max_rows=1)
IN_BATCHES = Network(0.001, 0.003)


def run(
    network: Network, load: float, *, replicas: int = 1, balancer: str = "random", slow: int = 0
) -> Figures:
    """A hundred simulated seconds with deadlines of half a second."""
    clock = Clock()
    fleet = [Replica(network, clock, 1024, 0.5 if n < slow else 1) for n in range(replicas)]
    choose = BALANCERS[balancer]()
    return simulate(fleet, choose, load=load, deadline_s=0.5, seconds=400 / replicas)


def test_the_median_of_an_idle_replica_is_one_inference() -> None:
    """A request without others before it does not wait."""
    figures = run(ONE_BY_ONE, 0.01)
    assert (0, 0) == (figures.rejected, figures.late)
    assert figures.p50_s == pytest.approx(0.01)


def test_waits_are_those_of_a_queue_with_one_server() -> None:
    """Of M/D/1 at 80 %, P(wait > t services) is near 0.868 exp(-0.4305 t): 1 % wait 10.4."""
    assert run(ONE_BY_ONE, 0.8).p99_s == pytest.approx(0.01 * (1 + 10.4), rel=0.1)


@pytest.mark.parametrize("network", [ONE_BY_ONE, IN_BATCHES], ids=["one by one", "in batches"])
def test_what_exceeds_the_rate_is_refused(network: Network) -> None:
    """Of 120 % a sixth: hardly anything is computed that comes too late."""
    figures = run(network, 1.2)
    assert figures.rejected + figures.late == pytest.approx(1 - 1 / 1.2, abs=0.02)
    assert figures.p99_s <= 0.5


def test_batches_shorten_the_wait() -> None:
    """What waits together is computed together, at less than its time alone."""
    expensive = Network(0.009, 0.001)
    assert run(expensive, 0.9).p99_s < 3 * expensive.seconds(expensive.max_rows)


def test_least_connections_spares_a_slow_replica() -> None:
    """Turns give it as much as the others, and half of that is refused."""
    turns, least = (
        run(IN_BATCHES, 0.9, replicas=4, slow=1, balancer=name)
        for name in ("round-robin", "least connections")
    )
    assert least.rejected + least.late < 0.01 < turns.rejected + turns.late
    assert least.p99_s < turns.p99_s
