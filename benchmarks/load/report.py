"""Results as Markdown: medians over the rounds, their range, and the aims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.load.catalogue import ALONE, OURS, UNLOGGED

FULL, COMPACT, ATTENTION = "mnist", "mnist-compact", "mnist-attention"
AIMS_TENSORS = {"mnist-attention": 0.85, FULL: 0.85, COMPACT: 0.6}
"""Images a second over the Open Inference Protocol, over onnxruntime alone."""
AIM_TRITON = 1.2
"""The same over PyTriton."""
AIMS_ALONE = {(FULL, 32): 0.85}
"""The service over onnxruntime alone, by bundle and connections."""
AIMS_BEST = {
    (FULL, 1): 0.95,
    (FULL, 32): 1.5,
    (ATTENTION, 1): 0.95,
    (ATTENTION, 32): 1.5,
    (COMPACT, 1): 0.9,
    (COMPACT, 32): 1.5,
}
"""The service over the best other server."""


class Summary(NamedTuple):
    """One server at one number of connections."""

    setting: str
    rates: list[float]
    p50_ms: float
    p99_ms: float


def report(values: dict[str, Any]) -> str:
    """The whole report."""
    parts = [_machine(values)]
    measured = values.get("alone", []) + values.get("points", [])
    for bundle in dict.fromkeys(one["bundle"] for one in measured):
        parts += [f"### {bundle}", *_compare(values, bundle)]
    if "tensors" in values:
        parts += ["### Tensors", *_tensors(values["tensors"])]
    if "idle" in values:
        parts += ["### Idle", _idle(values["idle"])]
    if "memory" in values:
        parts += ["### Memory", _memory(values["memory"])]
    for kind, title in (
        ("overload", "### Overload"),
        ("hurry", "### Overload by clients in a hurry"),
        ("leavers", "### Clients that leave"),
    ):
        parts += [title, *map(_aims, values[kind])] if kind in values else []
    if "trials" in values:
        parts += ["### Settings that were tried", _trials(values["trials"])]
    for fault in values.get("faults", []):
        parts.append(f"Fault: {fault['server']}, {fault['setting']}: {fault['why']}")
    return "\n\n".join(parts) + "\n"


def _machine(values: dict[str, Any]) -> str:
    machine = values["machine"]
    tensors = [one for one in values.get("tensors", []) if "client_cpu" in one]
    measured = values.get("points", []) + values.get("trials", []) + tensors
    shares = [one["client_cpu"] for one in measured] or [0.0]
    wrong = sum(one["wrong"] + one["failures"] for one in measured)
    return (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}, commit "
        f"{machine['commit']}, {machine['started']}; cores kept busy: "
        f"{machine.get('busy_cores', 0)}; load average before: "
        f"{machine['load_before']}. The load generator took at most {max(shares):.2f} of a core. "
        f"Wrong or failed answers: {wrong}."
    )


def _compare(values: dict[str, Any], bundle: str) -> Iterable[str]:
    """Tables of rates and of ratios for one bundle."""
    alone: dict[tuple[int, int], list[float]] = {}
    for one in values.get("alone", []):
        if one["bundle"] == bundle:
            alone.setdefault((one["batch"], one.get("at_once", 1)), []).append(one["rate"])
    points = {
        connections: _summaries(values.get("points", []), bundle, connections)
        for connections in (1, 32)
    }
    rows = [
        ("onnxruntime alone", f"batch {batch}", f"{at_once} at once", _range(rates), "")
        for (batch, at_once), rates in sorted(alone.items())
    ]
    for connections, found in points.items():
        for server, one in sorted(found.items(), key=lambda item: -median(item[1].rates)):
            latency = f"{one.p50_ms:.1f} / {one.p99_ms:.1f}"
            rows.append((server, str(connections), one.setting, _range(one.rates), latency))
    heads = ("server", "connections", "best setting", "answers/s (range)", "p50 / p99, ms")
    yield _table(heads, rows)
    ratios = []
    for connections, found in points.items():
        if OURS not in found:
            continue
        ours = median(found[OURS].rates)
        rates = [median(rates) for (batch, _), rates in alone.items() if batch == connections]
        if rates:
            aim = AIMS_ALONE.get((bundle, connections))
            ratios.append(_ratio(f"{connections} / onnxruntime alone", ours / max(rates), aim))
        by_name = {name: median(one.rates) for name, one in found.items()}
        others = {name: rate for name, rate in by_name.items() if name not in (OURS, UNLOGGED)}
        if others:
            best = max(others, key=lambda name: others[name])
            name = f"{connections} / the best other, {best}"
            aim = AIMS_BEST.get((bundle, connections))
            ratios.append(_ratio(name, ours / others[best], aim))
            if UNLOGGED in by_name:
                name = f"{connections} without access log / the same"
                ratios.append(_ratio(name, by_name[UNLOGGED] / others[best], None))
    yield _table(("the service at connections", "ratio", "aim", ""), ratios)


def _tensors(measured: list[dict[str, Any]]) -> Iterable[str]:
    """Images a second by bundle and server, each in its best setting, and their ratios."""
    rates: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in measured:
        found = rates.setdefault((one["bundle"], one["server"]), {})
        found.setdefault(one["setting"], []).append(one["images_per_s"])
    best = {
        key: max(found.items(), key=lambda item: median(item[1])) for key, found in rates.items()
    }
    rows = [(*key, label, _range(found)) for key, (label, found) in best.items()]
    yield _table(("bundle", "server", "best setting", "images/s (range)"), rows)
    ratios = []
    for (bundle, server), (_, found) in best.items():
        if server != OURS and (bundle, OURS) in best:
            aim = AIMS_TENSORS.get(bundle) if server == ALONE else AIM_TRITON
            ratio = median(best[bundle, OURS][1]) / median(found)
            ratios.append(_ratio(f"{bundle}: the service / {server}", ratio, aim))
    yield _table(("images/s", "ratio", "aim", ""), ratios)


def _summaries(points: list[dict[str, Any]], bundle: str, connections: int) -> dict[str, Summary]:
    wanted = [
        one for one in points if one["bundle"] == bundle and one["connections"] == connections
    ]
    found = {}
    for server in dict.fromkeys(one["server"] for one in wanted):
        rounds = [one for one in wanted if one["server"] == server]
        found[server] = Summary(
            rounds[0]["setting"],
            [one["rate"] for one in rounds],
            median(one["p50_ms"] for one in rounds),
            median(one["p99_ms"] for one in rounds),
        )
    return found


def _idle(measured: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["bundle"],
            f"{one['pause_ms']:.0f}",
            f"{one['service_p50_ms']:.2f} / {one['service_p99_ms']:.2f}",
            f"{one['preprocess_p50_ms']:.2f}",
            f"{one['queue_p50_ms']:.2f}",
            f"{one['client_p50_ms']:.2f}",
            "1",
            _verdict(one["service_p50_ms"] <= 1),
        )
        for one in measured
    ]
    heads = ("ms outside inference", "pause", "p50 / p99", "preprocess", "queue", "client sees")
    return _table((*heads, "aim, p50", ""), rows)


def _memory(measured: list[dict[str, Any]]) -> str:
    """Of the supervisor, and of a worker more."""
    few, many = measured[0], measured[-1]
    worker = (many["all_mib"] - few["all_mib"]) / (many["workers"] - few["workers"])
    rows = [("supervisor", f"{many['supervisor_mib']:.0f}"), ("one more worker", f"{worker:.0f}")]
    return _table(("proportional memory of the", "MiB"), rows)


def _aims(measured: dict[str, Any]) -> str:
    aims = measured["aims"]
    figures = ", ".join(
        f"{name} {_figure(value)}" for name, value in measured.items() if name != "aims"
    )
    verdicts = "\n".join(f"- {aim}: {_verdict(met)}" for aim, met in aims.items())
    return f"{figures}\n\n{verdicts}"


def _trials(trials: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["bundle"],
            one["server"],
            one["setting"],
            str(one["connections"]),
            f"{one['rate']:,.0f}",
        )
        for one in trials
    ]
    return _table(("bundle", "server", "setting", "connections", "answers/s"), rows)


def _ratio(name: str, ratio: float, aim: float | None) -> tuple[str, str, str, str]:
    if aim is None:
        return name, f"{ratio:.2f}", "", ""
    return name, f"{ratio:.2f}", f"{aim:.2f}", _verdict(ratio >= aim)


def _range(rates: Sequence[float]) -> str:
    return f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list):
        return " to ".join(map(_figure, value))
    if isinstance(value, dict):
        return ", ".join(f"{count:,} x {status}" for status, count in value.items())
    return str(value)


def _verdict(met: bool) -> str:  # noqa: FBT001  the question's answer
    return "met" if met else "missed"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
