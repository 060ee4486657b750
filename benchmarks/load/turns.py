"""The servers in turn: first their settings are tried, then the best of each is measured.

Only one server runs at a time. It is started, warmed, measured and stopped, then comes the next, so
that slow changes of the machine fall on all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from subprocess import SubprocessError

from rich.console import Console

from benchmarks.load.alone import rate_alone
from benchmarks.load.catalogue import OURS, UNLOGGED, baselines, ours
from benchmarks.load.client import generate
from benchmarks.load.results import Results
from benchmarks.load.servers import DidNotStart, Setting, running

CONNECTIONS = (1, 32)
ALONE = ((1, 1), (32, 1), (32, 2))
"""What onnxruntime runs alone: images of one inference, and inferences at once."""
WARM_UP_S = 1.5
TRIAL_S = 2.0
TRIAL_SHARE = 0.45
"""Of the time left, at most, goes into trying settings."""

Best = dict[str, dict[int, str]]
"""For each server the label of its best setting at each number of connections."""


class Turns:
    """Measures bundles behind servers.

    Args:
        bundles: folders.
        others: the other servers of a bundle, each with the settings to try.
        variables: of this service, by a bundle's name.
        alone: whether onnxruntime alone and the service without its access log take turns too.
        seconds: of one measurement.
        until: when to end, on `time.monotonic`'s clock; the round under way is finished.
    """

    def __init__(
        self,
        bundles: list[Path],
        results: Results,
        console: Console,
        *,
        others: Callable[[Path], dict[str, list[Setting]]] = baselines,
        variables: Callable[[str], dict[str, str]] = lambda _: {},
        alone: bool = True,
        seconds: float,
        until: float,
    ) -> None:
        self._others, self._variables, self._alone = others, variables, alone
        self._bundles = bundles
        self._results = results
        self._console = console
        self._seconds = seconds
        self._until = until

    def run(self, *, rounds: int, known: dict[str, Best] | None = None) -> None:
        """Try settings, unless the best are known, and measure as many rounds as time allows."""
        best = known or self._try_settings()
        for bundle in self._bundles:
            self._results.add("best", bundle=bundle.name, settings=best[bundle.name])
        longest = 0.0
        for number in range(rounds):
            began = time.monotonic()
            if number and began + longest > self._until:
                self._console.print(f"no time for more than {number} rounds")
                return
            for bundle in self._bundles:
                if self._alone:
                    self._measure_alone(bundle, number)
                self._measure_round(bundle, best[bundle.name], number)
            longest = max(longest, time.monotonic() - began)

    def _try_settings(self) -> dict[str, Best]:
        """Each setting once, for as long as its share of the time lasts."""
        now = time.monotonic()
        limit = now + TRIAL_SHARE * (self._until - now)
        best: dict[str, Best] = {}
        for index, bundle in enumerate(self._bundles):
            until = now + (index + 1) / len(self._bundles) * (limit - now)
            best[bundle.name] = {
                server: self._try_server(bundle, settings, until)
                for server, settings in self._others(bundle).items()
            }
        return best

    def _try_server(self, bundle: Path, settings: list[Setting], until: float) -> dict[int, str]:
        if len(settings) == 1:
            return dict.fromkeys(CONNECTIONS, settings[0].label)
        rates: dict[int, dict[str, float]] = {connections: {} for connections in CONNECTIONS}
        for setting in settings:
            if time.monotonic() > until and rates[CONNECTIONS[0]]:
                self._note_fault(setting, "no time was left to try it")
                continue
            for connections, rate in self._measure(
                "trials", bundle, setting, CONNECTIONS, seconds=TRIAL_S
            ):
                rates[connections][setting.label] = rate
        return {
            connections: max(found, key=lambda label: found[label])
            for connections, found in rates.items()
            if found
        }

    def _measure_round(self, bundle: Path, best: Best, number: int) -> None:
        """Every server once; who begins changes with the round."""
        variables = self._variables(bundle.name)
        turns: list[tuple[Setting, tuple[int, ...]]] = [(ours(bundle, variables), CONNECTIONS)]
        if self._alone:
            unlogged = ours(bundle, {"CAPSNET_ACCESS_LOG": "false"}, server=UNLOGGED)
            turns.append((unlogged, CONNECTIONS))
        for server, settings in self._others(bundle).items():
            chosen = best[server]
            for setting in settings:
                wanted = tuple(n for n in CONNECTIONS if chosen.get(n) == setting.label)
                if wanted:
                    turns.append((setting, wanted))
        first = number * len(turns) // 3 % len(turns)
        for setting, connections in turns[first:] + turns[:first]:
            list(self._measure("points", bundle, setting, connections, seconds=self._seconds))

    def _measure(
        self,
        kind: str,
        bundle: Path,
        setting: Setting,
        wanted: tuple[int, ...],
        *,
        seconds: float,
    ) -> Iterator[tuple[int, float]]:
        """Start a server, load it, stop it; give the rates."""
        try:
            with running(setting) as server:
                for connections in wanted:
                    load = server.load(connections, seconds=seconds, warm_up_s=WARM_UP_S)
                    outcome = generate(load)
                    self._results.add(
                        kind,
                        bundle=bundle.name,
                        server=setting.server,
                        setting=setting.label,
                        connections=connections,
                        **asdict(outcome),
                    )
                    self._say(bundle, setting, connections, outcome.rate)
                    if outcome.statuses.keys() != {"200"} or outcome.wrong or outcome.failures:
                        self._note_fault(setting, f"answers {outcome}")
                    yield connections, outcome.rate
        except (DidNotStart, SubprocessError) as error:
            self._note_fault(setting, str(error))

    def _note_fault(self, setting: Setting, why: str) -> None:
        self._console.print(f"{setting.server}, {setting.label}: {why}", style="red")
        self._results.add("faults", server=setting.server, setting=setting.label, why=why)

    def _measure_alone(self, bundle: Path, number: int) -> None:
        for batch, at_once in ALONE if number % 2 else ALONE[::-1]:
            rate = rate_alone(bundle, batch=batch, seconds=self._seconds, at_once=at_once)
            self._results.add("alone", bundle=bundle.name, batch=batch, at_once=at_once, rate=rate)
            what = f"batch {batch}, {at_once} at once"
            self._console.print(f"{bundle.name} onnxruntime alone, {what}: {rate:.1f} /s")

    def _say(self, bundle: Path, setting: Setting, connections: int, rate: float) -> None:
        who = setting.server if setting.server == OURS else f"{setting.server} ({setting.label})"
        self._console.print(f"{bundle.name} {who}, {connections} connections: {rate:.1f} /s")
