from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from model import SHIPPED
from model.bundle import Bundle, write_manifest
from model.bundle.novelty import NoveltyRule
from research import page, routing
from research.compare import STALE, of_row
from research.controls import register
from research.records import recipe_digest
from research.run import Result, read_results
from research.tables import ROWS
from tests.training.published import RUN, say_training

DOCS = Path(__file__).parents[2] / "docs"


def write(results: list[Result], folder: Path) -> str:
    """The page where nothing else is known."""
    return page.write(results, folder, folder)


def test_a_line_tells_all_of_a_row(results: list[Result], tmp_path: Path) -> None:
    """Budget, the paper's figure, both seeds' errors with their intervals."""
    expected = (
        "| `digits-r3-text` | CapsNet, 3 iterations, reconstruction | 1,200,000 | 0.25 ± 0.005 "
        "| 1.50 ± 0.71 [1.28, 1.76]† | 1, 2 |"
    )
    assert expected in write(results, tmp_path).splitlines()


def test_what_was_never_run_is_said(results: list[Result], tmp_path: Path) -> None:
    """A row without results, or with results at another budget, is named below its table."""
    some = [one for one in results if one.row != "digits-r1-none" and "em-" not in one.row]
    text = write([*some, replace(results[0], row="digits-r1-none", images=999)], tmp_path)
    assert "Not run yet: `em-mean-1`, `em-mean-2`, `em-mean-3`, `em-sum-3` (seed 1)." in text
    assert "`digits-r1-text`, `digits-r3-none`, `digits-r3-text` (seed 3)" in text
    assert "`digits-r1-none` (seeds 1, 2, 3)" in text
    assert f"| {ROWS['digits-r1-none'].title} |" not in text
    assert f"| {ROWS['digits-r1-text'].title} |" in text


def test_rows_of_another_recipe_are_stale(results: list[Result], tmp_path: Path) -> None:
    """Editing a recipe marks its rows, which are compared with nothing and have to run again."""
    name, title = "two-1", ROWS["two-1"].title
    changed = [replace(one, recipe="0123456789ab") if one.row == name else one for one in results]
    text = write(changed, tmp_path)
    assert f"| {title} (**{STALE}**) |" in text
    assert f"| {title} | " not in text.partition("\n## How rows are measured")[0]
    assert f"| {title} |" not in text
    assert "To be run again: `two-1` (seeds 1, 2, 3)." in text
    own = recipe_digest(ROWS[name])
    current = [replace(one, recipe=own) if one.row == name else one for one in results]
    assert write(results, tmp_path) == write(current, tmp_path)


def test_results_of_today_s_recipe_replace_stale_ones(results: list[Result]) -> None:
    """Seed by seed: those of another recipe are left out as soon as one has run again."""
    row = ROWS["two-1"]
    own = [one for one in results if one.row == row.name]
    stale, fresh = replace(own[0], recipe="old"), replace(own[1], recipe=recipe_digest(row))
    assert [fresh] == of_row(row, [stale, fresh])
    assert [stale] == of_row(row, [stale])


def test_differences_are_told_with_their_intervals(results: list[Result], tmp_path: Path) -> None:
    """Of rows whose results kept which images were wrong."""
    names = {"two-3": range(100), "two-1": range(160), "two-pooling": range(400)}
    some = [
        replace(
            one,
            wrong=dict.fromkeys(one.wrong, len(names[one.row])),
            which={key: list(names[one.row]) for key in one.wrong},
        )
        for one in results
        if one.row in names
    ]
    text = write(some, tmp_path)
    three, one, cnn = (ROWS[f"two-{name}"].title for name in ("3", "1", "pooling"))
    assert f"| {three}, single digits wrong | {one} | 1.00, 1.60 | -0.60 [" in text
    assert f"| {three}, pairs wrong | {cnn} | 1.00, 4.00 | -3.00 [" in text


def test_reads_of_test_splits_are_counted(results: list[Result], tmp_path: Path) -> None:
    """By data set, of rows that are no longer declared too; held-out images do not count."""
    rows = [row for row in ROWS.values() if row.split == "test"]
    digits, clothes, others, toys = (
        2 * sum(row.recipe.dataset == name for row in rows)
        for name in ("mnist", "fashion-mnist", "cifar-10", "assemblies")
    )
    gone = replace(next(one for one in results if one.row == "digits-baseline"), row="gone")
    tried = replace(gone, split="validation")
    text = write([*results, gone, tried], tmp_path)
    expected = (
        f"`assemblies` {toys} times, `cifar-10` {others} times, "
        f"`fashion-mnist` {clothes} times and `mnist` {digits + 1} times"
    )
    assert expected in " ".join(text.split())


def test_novelty_is_told_by_bundle_and_kind(
    bundle_path: Path, results: list[Result], tmp_path: Path
) -> None:
    """No area under the curve is of images that were learnt; without a rule there is no row."""
    kinds = [
        {"kind": "noise", "images": 9, "auc": 0.98765, "known_percent": 1.25, "typical": "tests"},
        {"kind": "digits", "images": 9, "auc": 0.98765, "known_percent": 1.25},
    ]
    rule = NoveltyRule(*((0.0, 1.0),) * 4, threshold=0.01, images="digits", others=(kinds[0],))
    two = replace(rule, others=tuple(kinds), test_novel_percent=1.5)
    for name, novelty in (("two", two), ("one", rule), ("none", None)):
        bundle = say_training(bundle_path, tmp_path / name)
        write_manifest(bundle.path, replace(bundle.manifest, name=name, novelty=novelty))
    text = write(results, tmp_path)
    table = [line for line in text.partition("## Novelty")[2].splitlines() if line[:1] == "|"][:4]
    assert [
        "| bundle | false alarms | noise | digits |",
        "|---|---|---|---|",
        "| `one` |  | 0.9877, 1.2 % |  |",
        "| `two` | 1.5 % | 0.9877, 1.2 % | 1.2 % |",
    ] == table


def test_a_bundle_without_a_score_has_no_mean(
    bundle_path: Path, results: list[Result], tmp_path: Path
) -> None:
    """It was exported, but not evaluated."""
    bundle = say_training(bundle_path, tmp_path / "mnist")
    own = [
        replace(results[0], row="mnist", seed=RUN.seed + more, images=RUN.images) for more in (0, 1)
    ]
    page.describe_bundles(tmp_path, own)
    assert {} == Bundle.open(bundle.path).manifest.metrics


def test_sizes_and_speeds_are_a_table(tmp_path: Path) -> None:
    """A row for each network that was measured; what is not known is left out."""
    networks = {"one": {"parameters": 1234, "images/s at 1": "5 (1)"}, "other": {"parameters": 5}}
    (tmp_path / page.SPEEDS).write_text(json.dumps({"rounds": 9, "networks": networks}))
    text = write([], tmp_path)
    assert "| network | parameters | images/s at 1 |" in text
    assert {"| one | 1,234 | 5 (1) |", "| other | 5 |  |"} <= set(text.splitlines())


def test_the_page_in_the_docs_is_what_its_results_give() -> None:
    """Nobody has edited it by hand, and its pictures are there."""
    register()
    text = (DOCS / page.NAME).read_text()
    assert page.write(read_results(DOCS / "results.json"), DOCS, SHIPPED) == text
    for picture in re.findall(r"\]\((pictures/\S+)\)", text):
        assert (DOCS / picture).exists()


@pytest.mark.parametrize("name", [bundle.parent.name for bundle in SHIPPED.glob("*/manifest.json")])
def test_couplings_were_replaced_in_the_weights_that_ship(name: str) -> None:
    """The answer to whether routing matters is of these networks, not of their forerunners."""
    measured = routing.read(DOCS)
    manifest = Bundle.open(SHIPPED / name).manifest
    if "trace" in manifest.offers:
        assert manifest.version == measured[name]["version"]
