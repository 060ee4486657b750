"""The table of `make attack`."""

from __future__ import annotations

from tests.attack.runner import Result

_WIDTHS = (40, 34, 9, 18, 20)


def _line(*cells: str) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], _WIDTHS, strict=True)]
    return "| " + " | ".join([*padded, cells[-1]]) + " |"


HEADER = "\n".join(
    [
        _line(
            "attack",
            "answers",
            "p99 ms",
            "others ok/ref/fail",
            "MiB before/peak/after",
            "verdict",
        ),
        "|" + "|".join("-" * (width + 2) for width in _WIDTHS) + "|---|",
    ]
)


def row(result: Result) -> str:
    """One line of it."""
    outcomes = sorted(result.outcomes.items(), key=lambda one: -one[1])
    answers = ", ".join(f"{outcome}: {count}" for outcome, count in outcomes)
    seen = result.client
    failed = sum(seen.failures.values())
    others = f"{seen.answered}/{seen.refused}/{failed}" if seen.answered + failed else "-"
    memory = f"{result.before_mib:.0f}/{result.peak_mib:.0f}/{result.after_mib:.0f}"
    verdict = "ok" if result.ok else "NOT: " + "; ".join(result.faults)
    p99 = f"{seen.p99_ms:,.0f}" if seen.answered else "-"
    door = "" if result.door == "open" else f" ({result.door})"
    return _line(result.title + door, answers, p99, others, memory, verdict)
