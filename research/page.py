"""docs/results.md, and the mean over seeds on cards, from results and manifests."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from model.bundle import MANIFEST, Bundle, Manifest
from research import adversarial, factors, routing, sanity
from research.compare import STALE, compare, describe, is_stale, lines, of_row, score
from research.findings import write_findings
from research.inside import confidence_table, health_table
from research.matched import FAMILIES, SETS, VARIANTS, name_row
from research.rows import Row, Table, share_images
from research.run import Result
from research.tables import ROWS, TABLES
from training.card import write_card
from training.manifest import update_manifest
from training.provenance import reads_of, runs_of

NAME, SPEEDS = "results.md", "speeds.json"
ROUNDED = 5
"""Answers that 16-bit weights may change, so a bundle's errors may differ from its seed's."""
_TEXT = Path(__file__).with_name(NAME)


def write(results: Sequence[Result], docs_dir: Path, bundles: Path) -> str:
    """The page's Markdown: what is said of the tables is in `research/results.md`."""
    measured = routing.read(docs_dir)
    reads = Counter(one.dataset for one in results if one.split == "test")
    times = [f"`{name}` {count} times" for name, count in sorted(reads.items())]
    counts = " and ".join([", ".join(times[:-1]), times[-1]] if times[1:] else times)
    unlisted = sum(one.split == "test" and one.row not in ROWS for one in results)
    speeds = docs_dir / SPEEDS
    tables = {
        name.replace("-", "_"): "\n\n".join(write_table(table, results, with_findings=False))
        for name, table in TABLES.items()
    }
    return _TEXT.read_text().format(
        **tables,
        matched=_summary(results),
        findings=write_findings(TABLES, results, measured),
        routing=routing.table(measured),
        factors=factors.table(factors.read(docs_dir)),
        speeds=_speeds(json.loads(speeds.read_text())) if speeds.exists() else "",
        novelty=_novelty(bundles),
        adversarial=adversarial.table(adversarial.read(docs_dir)),
        sanity=sanity.table(sanity.read(docs_dir)),
        confidence=confidence_table(open_all(bundles)),
        health=health_table(open_all(bundles)),
        reads=f"{counts or 'never yet'} ({unlisted} by rows that no table lists)",
    )


def describe_bundles(bundles: Path, results: Sequence[Result]) -> None:
    """Add a bundle's test reads, and the mean over seeds of its row, to manifest and card.

    One of the seeds is the bundle's own. Where that made other errors, the results are of an older
    recipe, and the card has no mean.
    """
    for bundle in open_all(bundles):
        tell = partial(_add_seeds_and_reads, bundles=bundles, results=results)
        if tell(bundle.manifest) != bundle.manifest:
            write_card(update_manifest(bundle, tell))


def _add_seeds_and_reads(
    manifest: Manifest, *, bundles: Path, results: Sequence[Result]
) -> Manifest:
    runs = runs_of(manifest.training)
    own = [
        one
        for one in results
        if runs and (manifest.name, runs[-1].images, "test") == (one.row, one.images, one.split)
    ]
    metrics = {key: value for key, value in manifest.metrics.items() if key != "seeds"}
    if len(own) > 1 and any(
        one.seed == runs[-1].seed
        and abs(next(iter(one.wrong.values())) - metrics.get("test_errors", math.inf)) <= ROUNDED
        for one in own
    ):
        mean = score(own, next(iter(own[0].wrong)))  # of pairs, at the paper's shift
        metrics["seeds"] = {
            "count": len(own),
            "mean_percent": round(mean.percent, 4),
            "deviation_percent": round(mean.deviation or 0.0, 4),
            "interval_percent": [round(mean.low, 4), round(mean.high, 4)],
        }
    reads = [asdict(read) for read in reads_of(bundles, runs)]
    training = {**manifest.training, "test_reads": reads} if runs else manifest.training
    return replace(manifest, metrics=metrics, training=training)


def write_table(
    table: Table, results: Sequence[Result], *, with_findings: bool = True
) -> Iterator[str]:
    """Write the errors of rows, the differences of those compared, and the rows that have not run.

    The first column has the name of the row, with which `python -m research run` trains it.

    Args:
        with_findings: also the differences that are findings. The page has those at its top.
    """
    rows = []
    for row in table.rows:
        if own := of_row(row, results):
            cells = [describe(own, test) for test in table.columns]
            paper = [table.paper.get(row.name, "")] * bool(table.paper)
            seeds = ", ".join(str(one.seed) for one in own)
            rows.append((f"`{row.name}`", _title(row, own), _seen(own), *paper, *cells, seeds))
    if rows:
        paper = ["paper"] * bool(table.paper)
        headings = ("row", "network", "images seen", *paper, *table.columns.values(), "seeds")
        yield lines(headings, rows)
    if differences := list(_differences(table, results, with_findings=with_findings)):
        yield lines(("difference", "of", "points"), differences)
    if missing := list(_missing(table, results, stale=False)):
        yield f"Not run yet: {'; '.join(missing)}."
    if missing := list(_missing(table, results, stale=True)):
        yield f"To be run again: {'; '.join(missing)}."


def _title(row: Row, own: Sequence[Result]) -> str:
    """A row's title; it says if its results are of another recipe."""
    return f"{row.title} (**{STALE}**)" if any(is_stale(row, one) for one in own) else row.title


def _seen(own: Sequence[Result]) -> str:
    """The images that training saw, from the least to the most where it was stopped at an error."""
    seen = sorted({one.trained_images or one.images for one in own})
    return " to ".join(f"{count:,}" for count in dict.fromkeys((seen[0], seen[-1])))


def _differences(
    table: Table, results: Sequence[Result], *, with_findings: bool
) -> Iterator[tuple[str, str, str]]:
    """Those of the rows that are compared, unless a recipe has changed since."""
    known = {**ROWS, **{row.name: row for row in table.rows}}
    for names in table.compared:
        if names.is_finding and not with_findings:
            continue
        rows = [known[name] for name in names[:2]]
        first, second = own = [of_row(row, results) for row in rows]
        if any(is_stale(row, one) for row, few in zip(rows, own, strict=True) for one in few):
            continue
        for test, heading in table.columns.items():
            if found := compare(first, second, test, pair_seeds=share_images(*rows)):
                titles = " less ".join(f"**{row.title}**" for row in rows)
                yield titles, heading, str(found)


def _missing(table: Table, results: Sequence[Result], *, stale: bool) -> Iterator[str]:
    """The rows of a table that have seeds without a result of today's recipe, by seeds.

    Args:
        table: whose.
        results: all.
        stale: whether rows with results of an earlier recipe are meant, or all other rows.
    """
    rows: dict[str, list[str]] = {}
    for row in table.rows:
        own = of_row(row, results)
        if any(is_stale(row, one) for one in own) != stale:
            continue
        done = {one.seed for one in own if not is_stale(row, one)}
        if seeds := ", ".join(str(seed) for seed in row.seeds if seed not in done):
            rows.setdefault(seeds, []).append(f"`{row.name}`")
    for seeds, names in rows.items():
        yield f"{', '.join(names)} ({'seeds' if ', ' in seeds else 'seed'} {seeds})"


def _summary(results: Sequence[Result]) -> str:
    """The first test set of every row of the matched tables, in one table."""
    keys = dict.fromkeys(key for one in SETS.values() for key in one.recipes)
    rows = []
    for family, variant in sorted(keys, key=lambda key: list(FAMILIES).index(key[0])):
        cells = [f"{FAMILIES[family]}, {VARIANTS[variant]}"]
        for name, one in SETS.items():
            row = ROWS.get(name_row(name, family, variant))
            own = of_row(row, results) if row else []
            if not row or not own or any(is_stale(row, result) for result in own):
                cells.append("" if row is None else "not run")
                continue
            found = score(own, next(iter(one.columns)))
            spread = "" if found.deviation is None else f" ± {found.deviation:.2f}"
            cells.append(f"{found.percent:.2f}{spread}")
        rows.append(cells)
    return lines(("network", *(one.title for one in SETS.values())), rows)


def _speeds(speeds: dict[str, Any]) -> str:
    networks: dict[str, dict[str, Any]] = speeds["networks"]
    head = list(dict.fromkeys(key for cells in networks.values() for key in cells))
    rows = []
    for name, cells in networks.items():
        values = (cells.get(key, "") for key in head)
        rows.append((name, *(f"{one:,}" if isinstance(one, int) else str(one) for one in values)))
    return lines(("network", *head), rows)


def _novelty(bundles: Path) -> str:
    """A row for each bundle, a column for each kind of images."""
    manifests = (bundle.manifest for bundle in open_all(bundles))
    rules = {one.name: one.novelty for one in manifests if one.novelty}
    kinds = dict.fromkeys(str(one["kind"]) for rule in rules.values() for one in rule.others)
    rows = []
    for name, rule in rules.items():
        told = {
            one["kind"]: f"{one['auc']:.4f}, " * ("typical" in one)
            + f"{one['known_percent']:.1f} %"
            for one in rule.others
        }
        alarms = rule.test_novel_percent
        cells = [f"`{name}`", "" if alarms is None else f"{alarms:.1f} %"]
        rows.append((*cells, *(told.get(kind, "") for kind in kinds)))
    return lines(("bundle", "false alarms", *kinds), rows)


def open_all(bundles: Path) -> list[Bundle]:
    """All bundles in a folder, by name."""
    return [Bundle.open(path.parent) for path in sorted(bundles.glob(f"*/{MANIFEST}"))]
