"""What callers of many replicas see, by load and by the balancer's choice.

python -m benchmarks.fleet --replicas 16 --slow 1
python -m benchmarks.fleet --check mnist --seconds 12
python -m benchmarks.fleet --rates --seconds 4
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.fleet.simulation import BALANCERS, Clock, Figures, Network, Replica, simulate
from benchmarks.fleet.worker import ALONE, SATURATING, measure_rates
from benchmarks.load.catalogue import ours
from benchmarks.load.client import generate
from benchmarks.load.servers import ROOT, Running, running
from service.settings import Settings

LOADS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)


def build(network: Network, replicas: int, slow: int = 0) -> list[Replica]:
    """Replicas with the service's default limit; the first ones have half the speed."""
    clock, limit = Clock(), Settings().max_waiting_rows
    return [Replica(network, clock, limit, 0.5 if n < slow else 1.0) for n in range(replicas)]


def describe(figures: Figures) -> list[str]:
    """The cells of a table."""
    return [
        f"{100 * figures.rejected:.1f}",
        f"{100 * figures.late:.1f}",
        f"{1000 * figures.p50_s:.0f}",
        f"{1000 * figures.p99_s:.0f}",
    ]


def measure_network(server: Running, seconds: float) -> Network:
    """A batch's seconds by its rows, from the latency of one client and the rate of many."""
    one = generate(server.load(1, seconds=seconds, warm_up_s=1))
    many = generate(server.load(SATURATING, seconds=seconds, warm_up_s=1))
    rows = Network(0, 0).max_rows
    row_s = (rows / many.rate - one.p50_ms / 1000) / (rows - 1)
    return Network(one.p50_ms / 1000 - row_s, row_s)


def measure(server: Running, rate: float, seconds: float) -> Figures:
    """What callers see who come by themselves; the first tenth of the time is not counted."""
    closed = server.load(0, seconds=seconds, warm_up_s=seconds / 10)
    found = generate(replace(closed, rate=rate, at_random=True))
    total = sum(found.statuses.values())
    shares = [found.statuses.get(status, 0) / total for status in ("429", "504")]
    return Figures(*shares, found.p50_ms / 1000, found.p99_ms / 1000)


def check(bundle: str, *, deadline_s: float, seconds: float) -> Table:
    """One simulated replica, compared with one worker of the service."""
    table = _table("load, %", *(f"{name} {kind}" for name in _FIGURES for kind in ("sim.", "real")))
    with running(ours(ROOT / "model" / "bundles" / bundle, ALONE)) as server:
        network = measure_network(server, seconds / 2)
        table.title = f"{bundle}: {describe_network(network)}"
        header = f"\r\nX-Request-Timeout: {deadline_s}\r\n".encode()
        hasty = replace(
            server, requests=[one.replace(b"\r\n", header, 1) for one in server.requests]
        )
        for load in LOADS:
            simulated = simulate(
                build(network, 1),
                BALANCERS["random"](),
                load=load,
                deadline_s=deadline_s,
                seconds=20 * seconds,
            )
            real = measure(hasty, load * network.rate, seconds)
            pairs = zip(describe(simulated), describe(real), strict=True)
            table.add_row(f"{100 * load:.0f}", *(cell for pair in pairs for cell in pair))
    return table


def compare(network: Network, replicas: int, slow: int, deadline_s: float, seconds: float) -> Table:
    """Every balancer at every load."""
    table = _table("load, %", "balancer", *_FIGURES)
    table.title = f"{replicas} replicas, {slow} of half the speed; {describe_network(network)}"
    for load in LOADS:
        for name, balancer in BALANCERS.items():
            figures = simulate(
                build(network, replicas, slow),
                balancer(),
                load=load,
                deadline_s=deadline_s,
                seconds=seconds,
            )
            table.add_row(f"{100 * load:.0f}", name, *describe(figures))
    return table


def list_rates(seconds: float) -> Table:
    """What one worker does with each bundle."""
    columns = ("images/s of a core", "pictures/s", "CPU ms", "tensor images/s", "CPU ms")
    table = _table("bundle", *columns)
    for bundle, *found in measure_rates(seconds):
        table.add_row(bundle, *(f"{one:,.0f}" if one > 20 else f"{one:.2f}" for one in found))
    return table


def describe_network(network: Network) -> str:
    """In words."""
    return (
        f"{1000 * network.start_s:.2f} ms a batch and {1000 * network.row_s:.2f} ms a row, "
        f"{network.rate:.0f} rows/s"
    )


_FIGURES = ("429, %", "504, %", "p50, ms", "p99, ms")


def _table(*columns: str) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, justify="right")
    return table


def main(
    *,
    replicas: Annotated[int, typer.Option(min=1)] = 16,
    slow: Annotated[int, typer.Option(min=0, help="Replicas of half the speed.")] = 0,
    start_ms: Annotated[float, typer.Option(min=0, help="Of each batch.")] = 1.0,
    row_ms: Annotated[float, typer.Option(min=0, help="Of each row of a batch.")] = 3.0,
    deadline: Annotated[float, typer.Option(min=0.01, help="Seconds.")] = 0.5,
    seconds: Annotated[float, typer.Option(min=1)] = 20.0,
    bundle: Annotated[
        str, typer.Option("--check", help="Measure one worker with this bundle, and compare.")
    ] = "",
    rates: Annotated[bool, typer.Option("--rates", help="Measure what one worker does.")] = False,
) -> None:
    """Print what is rejected and the 99th percentile at 50 to 120 % load."""
    if rates:
        table = list_rates(seconds)
    elif bundle:
        table = check(bundle, deadline_s=deadline, seconds=seconds)
    else:
        network = Network(start_ms / 1000, row_ms / 1000)
        table = compare(network, replicas, slow, deadline, seconds)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
