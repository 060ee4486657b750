"""docs/results.md, and the mean over seeds on cards, from results and manifests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.bundle import MANIFEST, Bundle, write_manifest
from research import pictures, routing
from research.compare import BOUND, compare, describe, lines, of_row, score
from research.run import Result
from research.tables import FAMILIES, TABLES, Table, count_of
from training.card import write_card
from training.provenance import runs_of

NAME, SPEEDS = "results.md", "speeds.json"
ROUNDED = 5
"""Answers that 16-bit weights may change: a bundle's errors are those of its seed but for these."""
_FINDINGS = Path(__file__).with_name("findings.md")
_NOVELTY = """## Novelty

How well the [novelty score](explanation/views.md#novelty) separates training images from 1,000
others: area under the ROC curve, and the share that is not novel. False alarms are the test images
that are novel. Hyperparameters were chosen on noise and clothes.
"""
_SPEEDS = (
    "The papers' errors are on MNIST. Size and speed are those of the encoders on one CPU thread. "
    "Multiplications are for one image. Images per second are medians of {rounds} rounds; brackets "
    "hold the ratio to the paper's CapsNet (median, lowest - highest)."
)


def write(results: Sequence[Result], docs_dir: Path, bundles: Path) -> str:
    """The page's Markdown: findings, then a section for each table with results."""
    measured = routing.read(docs_dir)
    reads = Counter(one.dataset for one in results if one.split == "test")
    counts = " and ".join(f"`{name}` {count} times" for name, count in sorted(reads.items()))
    declared = {row.name for table in TABLES for row in table.rows}
    unlisted = sum(one.split == "test" and one.row not in declared for one in results)
    counts += f" ({unlisted} by unlisted rows)" if unlisted else ""
    head = _FINDINGS.read_text().format(
        routing=routing.finding(measured), reads=counts or "never yet", bound=BOUND
    )
    parts = [head, routing.section(measured), _families(results, docs_dir / SPEEDS)]
    others = [table for table in TABLES if table is not FAMILIES]
    parts += [_section(one, results) for one in others if _has_results(one, results)]
    parts.append(_novelty(bundles))
    digests = {n: sha for one in results if one.row in declared for n, sha in one.digests.items()}
    if digests:
        cells = [(name, f"`{sha}`") for name, sha in digests.items()]
        parts.append(f"## Derived test sets\n\n{lines(('set', 'SHA-256'), cells)}\n")
    return "\n".join(part for part in parts if part)


def tell_seeds(bundles: Path, results: Sequence[Result]) -> None:
    """Add the mean over seeds of the row with a bundle's name and images to manifest and card.

    One of the seeds is the bundle's own. Where that made other errors, the results are of an older
    recipe, and the card tells no mean.
    """
    for bundle in _open(bundles):
        manifest, runs = bundle.manifest, runs_of(bundle.manifest.training)
        own = [
            one
            for one in results
            if runs and (manifest.name, runs[-1].images, "test") == (one.row, one.images, one.split)
        ]
        metrics = {key: value for key, value in manifest.metrics.items() if key != "seeds"}
        if len(own) > 1 and any(
            one.seed == runs[-1].seed
            and abs(next(iter(one.wrong.values())) - metrics["test_errors"]) <= ROUNDED
            for one in own
        ):
            found = score(own, next(iter(own[0].wrong)))  # of pairs, at the paper's shift
            metrics["seeds"] = {
                "count": len(own),
                "mean_percent": round(found.percent, 4),
                "deviation_percent": round(found.deviation or 0.0, 4),
                "interval_percent": [round(found.low, 4), round(found.high, 4)],
            }
        if metrics != manifest.metrics:
            told = Bundle(bundle.path, replace(manifest, metrics=metrics))
            write_manifest(bundle.path, told.manifest)
            write_card(told)


def _open(bundles: Path) -> list[Bundle]:
    return [Bundle.open(path.parent) for path in sorted(bundles.glob(f"*/{MANIFEST}"))]


def _has_results(table: Table, results: Sequence[Result]) -> bool:
    return any(of_row(row, results) for row in table.rows)


def _section(table: Table, results: Sequence[Result]) -> str:
    reported = any(row.name in table.paper for row in table.rows)
    head = ["network", "images seen", *(["paper"] if reported else [])]
    head += [*(column.heading for column in table.columns), "seeds"]
    rows = []
    for row in table.rows:
        if own := of_row(row, results):
            cells = [row.title, f"{row.images:,}"]
            cells += [table.paper.get(row.name, "")] if reported else []
            cells += [describe(own, column.test, right=column.right) for column in table.columns]
            rows.append((*cells, ", ".join(str(one.seed) for one in own)))
    parts = [f"## {table.title}", table.text, lines(head, rows), *_differences(table, results)]
    if table.name in pictures.DRAWN:
        parts.append(f"![{table.title}](pictures/{table.name}.png)")
    return "\n\n".join((*parts, f"`python -m research run {table.name}`\n"))


def _differences(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """A table of the rows that are compared, with the difference of their errors."""
    rows = {row.name: row for row in table.rows}
    budgets, told = {row.images for row in table.rows}, []
    for names in table.compared:
        first, second = (rows[name] for name in names)
        for column in table.columns:
            found = compare(of_row(first, results), of_row(second, results), column.test)
            if found is None:
                continue
            heading = column.heading
            if table is FAMILIES:  # whose titles are the same for each data set
                heading = f"{first.recipe.dataset} {heading}"
            if len(budgets) > 1:
                heading += f", after {first.images:,}"
            sign = -1 if column.right else 1
            low, high = sorted((sign * found.low, sign * found.high))
            points = f"{sign * found.points:+.2f} [{low:+.2f}, {high:+.2f}]"
            told.append((f"**{first.title}** less **{second.title}**", heading, points))
    if told:
        yield lines(("difference", "of", "points"), told)


def _families(results: Sequence[Result], speeds: Path) -> str:
    """Errors of the families on each data set, size and speed; those of other networks, too."""
    measured = json.loads(speeds.read_text()) if speeds.exists() else {"networks": {}}
    networks: dict[str, dict[str, Any]] = measured["networks"]
    measures = list(dict.fromkeys(key for cells in networks.values() for key in cells))
    rows = {(row.recipe.dataset, row.title): row for row in FAMILIES.rows}
    datasets = dict.fromkeys(dataset for dataset, _ in rows)
    told = []
    for name in dict.fromkeys((*networks, *(title for _, title in rows))):
        cells, paper = [name], ""
        for dataset in datasets:
            row = rows.get((dataset, name))
            own = of_row(row, results) if row else []
            seeds = count_of(len(own), "seed")
            cells.append(f"{describe(own, 'plain')}, {seeds}" if own else "")
            paper += FAMILIES.paper.get(row.name, "") if row else ""
        figures = (networks.get(name, {}).get(key, "") for key in measures)
        cells += [paper, *(f"{one:,}" if isinstance(one, int) else str(one) for one in figures)]
        told.append(cells)
    head = ("network", *(f"{name} error, %" for name in datasets), "paper", *measures)
    text, commands = FAMILIES.text, f"`python -m research run {FAMILIES.name}`"
    if networks:
        text += f"\n\n{_SPEEDS.format(rounds=measured['rounds'])}"
        commands += ", `python -m benchmarks.families --write docs/speeds.json`"
    parts = (f"## {FAMILIES.title}", text, lines(head, told), *_differences(FAMILIES, results))
    return "\n\n".join((*parts, f"{commands}\n"))


def _novelty(bundles: Path) -> str:
    """A row for each bundle, a column for each kind of images."""
    manifests = (bundle.manifest for bundle in _open(bundles))
    rules = {one.name: one.novelty for one in manifests if one.novelty}
    if not rules:
        return ""
    kinds = dict.fromkeys(str(one["kind"]) for rule in rules.values() for one in rule.others)
    rows = []
    for name, rule in rules.items():
        found = {str(one["kind"]): one for one in rule.others}
        alarms = rule.test_novel_percent
        cells = [f"`{name}`", "" if alarms is None else f"{alarms:.1f} %"]
        for kind in kinds:
            told = found.get(kind)
            cells.append(f"{told['auc']:.4f}, {told['known_percent']:.1f} %" if told else "")
        rows.append(cells)
    table = lines(("bundle", "false alarms", *kinds), rows)
    return f"{_NOVELTY}\n{table}\n\n`python -m training analyse BUNDLE`\n"
