"""Ray Serve compared with the service alone: `python -m benchmarks.replicas`.

All contenders have the same cores and one bundle, and are started, asked and stopped in turn.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Annotated

import typer

from benchmarks.load.catalogue import raw
from benchmarks.load.client import generate
from benchmarks.load.servers import ROOT, Setting, running

CONNECTIONS = (1, 32)
WARM_UP_S = 1.5
HAPROXY = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0"}


def contenders(bundle: str) -> list[Setting]:
    """The service with one and two workers, then Ray with one and two replicas."""
    alone = (sys.executable, "-m", "service")
    ray = (sys.executable, "-m", "deploy.ray", "--port", "{port}", "--model", bundle, "--replicas")
    common = {"CAPSNET_MODELS": f'["{bundle}"]', "CAPSNET_DEFAULT_MODEL": bundle}
    common |= {"CAPSNET_PORT": "{port}", "CAPSNET_DRAIN_GRACE_S": "0"}

    def setting(server: str, command: tuple[str, ...], **variables: str) -> Setting:
        form = partial(raw, "/classify")
        return Setting(server, "", command, ROOT, common | variables, form)

    return [
        setting("the service, 1 worker", alone, CAPSNET_WORKERS="1"),
        setting("the service, 2 workers", alone, CAPSNET_WORKERS="2"),
        setting("Ray Serve, 1 replica", (*ray, "1")),
        setting("Ray Serve, 2 replicas", (*ray, "2")),
        setting("Ray Serve, 2 replicas, HAProxy", (*ray, "2"), **HAPROXY),
    ]


def measure(
    bundle: Annotated[str, typer.Option()] = "mnist-attention",
    seconds: Annotated[float, typer.Option(help="Of one measurement.")] = 4,
    rounds: Annotated[int, typer.Option()] = 2,
) -> None:
    """Print a row for each contender and number of connections."""
    for number in range(rounds):
        for setting in contenders(bundle)[:: -1 if number % 2 else 1]:
            with running(setting) as server:
                for connections in CONNECTIONS:
                    load = server.load(connections, seconds=seconds, warm_up_s=WARM_UP_S)
                    outcome = generate(load)
                    wrong = outcome.wrong + outcome.failures
                    other = {key: n for key, n in outcome.statuses.items() if key != "200"}
                    print(
                        f"| {setting.server} | {connections} | {outcome.rate:.0f} | "
                        f"{outcome.p50_ms:.1f} | {outcome.p99_ms:.1f} | {wrong} {other or ''} | "
                        f"{os.getloadavg()[0]:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    typer.run(measure)
