from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from PIL import Image

from model import SHIPPED
from model.bundle import MANIFEST, Bundle
from model.bundle.novelty import NoveltyRule
from model.capsnet import build
from training.data.datasets import Examples
from training.experiments import EXPERIMENTS, ROWS
from training.experiments.declare import Column
from training.experiments.report import describe, draw_pairs, draw_pictures, draw_sweeps, write_page
from training.experiments.run import Result, read_results
from training.recipes import Recipe

DOCS = Path(__file__).parents[3] / "docs"
ALL = tuple(EXPERIMENTS.values())


def line_of(page: str, section: str, start: str) -> str:
    own = page.partition(f"## {EXPERIMENTS[section].title}\n")[2].partition("\n## ")[0]
    (line,) = {line for line in own.splitlines() if line.startswith(f"| {start} |")}
    return line


def test_errors_are_means_with_deviation_and_interval(results: list[Result]) -> None:
    """Of 20,000 answers 300 are wrong, and 1 % and 2 % of each seed's; one has no deviation."""
    pair = [one for one in results if one.row == "digits-r1-none"]
    column = Column("plain", "error, %")
    assert "1.50 ± 0.71 [1.34, 1.68]" == describe(column, pair)
    assert "1.00 [0.82, 1.21]" == describe(column, pair[:1])
    assert "98.50 ± 0.71 [98.32, 98.66]" == describe(column._replace(right=True), pair)


def test_a_line_tells_all_of_a_row(results: list[Result]) -> None:
    """Budget, the paper's figure, both seeds' errors with their intervals."""
    line = line_of(write_page(ALL, results), "digits", "CapsNet, 3 iterations, reconstruction")
    expected = (
        "| CapsNet, 3 iterations, reconstruction | 1,200,000 | 0.25 ± 0.005 "
        "| 1.50 ± 0.71 [1.34, 1.68] | 1, 2 |"
    )
    assert expected == line


def test_what_was_never_run_is_no_section(results: list[Result]) -> None:
    """And a row without results is in no table."""
    some = [one for one in results if one.row != "digits-r1-none" and "em-" not in one.row]
    page = write_page(ALL, some)
    assert EXPERIMENTS["em-iterations"].title not in page
    assert ROWS["digits-r1-none"].title not in page
    assert ROWS["digits-r1-text"].title in page


def test_differences_are_told_with_their_intervals(results: list[Result]) -> None:
    """Of rows whose results kept which images were wrong; of right answers the other way round."""
    names = {"two-3": range(100), "two-1": range(160), "two-pooling": range(400)}
    some = [
        replace(one, which={key: list(names[one.row]) for key in one.wrong})
        for one in results
        if one.row in names
    ]
    page = write_page(ALL, some)
    single = "| **3 iterations** less **1 iteration** | single digits wrong, % | -0.60 ["
    assert single in page
    assert "| **3 iterations** less **CNN with pooling** | both of two right, % | +3.00 [" in page
    assert "| difference |" not in write_page(ALL, results)


def test_budgets_are_kept_apart(results: list[Result]) -> None:
    """A row of another budget has a line of its own."""
    first = next(one for one in results if one.row == "digits-baseline")
    page = write_page(ALL, [*results, replace(first, images=999_999)])
    assert 2 == sum(page.count(f"| baseline CNN | 999,999 | {paper} ") for paper in ("0.39", "34"))


def test_reads_of_test_splits_are_counted(results: list[Result]) -> None:
    """By data set, of rows that are no longer declared too; held-out images do not count."""
    rows = [row for row in ROWS.values() if row.split == "test"]
    digits, clothes = (
        2 * sum(row.recipe.dataset == name for row in rows) for name in ("mnist", "fashion-mnist")
    )
    gone = replace(next(one for one in results if one.row == "digits-baseline"), row="gone")
    page = write_page(ALL, [*results, gone])
    expected = f"`fashion-mnist` {clothes} times and `mnist` {digits + 1} times"
    assert expected in " ".join(page.split())


def test_the_page_gives_digests_and_pictures(results: list[Result]) -> None:
    """Of the transformed test digits; pictures only where all rows have results."""
    page, empty = write_page(ALL, results), write_page(ALL, [])
    assert "| turned | `turned digest` |" in page
    for picture in ("fewer-images", "frozen", "side-by-side", "em-iterations"):
        assert f"](pictures/{picture}.png)" in page
        assert picture not in empty
    some = [one for one in results if one.row != "em-mean-2"]
    assert "](pictures/em-iterations.png)" not in write_page(ALL, some)


def test_novelty_is_told_by_bundle_and_kind(bundle_path: Path, results: list[Result]) -> None:
    """A kind that a bundle was not shown, its own, is left blank; no rule, no row."""
    manifest = Bundle.open(bundle_path).manifest
    kinds = [
        {"kind": kind, "images": 1000, "auc": 0.98765, "known_percent": 1.25}
        for kind in ("noise", "digits")
    ]
    rule = NoveltyRule(*((0.0, 1.0),) * 4, threshold=0.01, images="digits", others=(kinds[0],))
    two = replace(rule, others=tuple(kinds), test_novel_percent=1.5)
    named = [
        replace(manifest, name="two", novelty=two),
        replace(manifest, name="one", novelty=rule),
        replace(manifest, name="none"),
    ]
    page = write_page(ALL, results, named)
    table = [line for line in page.partition("## Novelty")[2].splitlines() if line[:1] == "|"][:4]
    assert [
        "| bundle | false alarms | noise | digits |",
        "|---|---|---|---|",
        "| `one` |  | 0.9877, 1.2 % |  |",
        "| `two` | 1.5 % | 0.9877, 1.2 % | 0.9877, 1.2 % |",
    ] == table
    assert "## Novelty" not in write_page(ALL, results)


def test_pictures_are_drawn_where_there_are_results(results: list[Result], tmp_path: Path) -> None:
    """As PNG files; those of what networks draw, only where their weights are."""
    pictures = tmp_path / "pictures"
    draw_pictures(ALL, [], pictures, runs=tmp_path, data_dir=tmp_path)
    assert [] == list(pictures.iterdir())
    draw_pictures(ALL, results, pictures, runs=tmp_path, data_dir=tmp_path)
    drawn = {path.stem for path in pictures.iterdir()}
    assert {"fewer-images", "transformed-digits", "em-iterations"} == drawn
    for path in pictures.iterdir():
        with Image.open(path) as picture:
            assert "PNG" == picture.format


def test_the_page_in_the_docs_is_what_its_results_give() -> None:
    """Nobody has edited it by hand, and its pictures are there."""
    results = read_results(DOCS / "results.json")
    speeds = json.loads((DOCS / "speeds.json").read_text())
    page = (DOCS / "results.md").read_text()
    manifests = [Bundle.open(path.parent).manifest for path in SHIPPED.glob(f"*/{MANIFEST}")]
    assert write_page(ALL, results, manifests, speeds) == page
    for one in ALL:
        assert (
            f"pictures/{one.name}.png" not in page or (DOCS / f"pictures/{one.name}.png").exists()
        )


def test_errors_sizes_and_speeds_of_families_are_one_table() -> None:
    """A row for each network, a column for each data set; what is not known is left out."""
    row = ROWS["family-fashion-mnist-matrix"]
    wrong, tested = {"plain": 1000}, {"plain": 10_000}
    results = [
        Result(row.name, "fashion-mnist", seed, row.images, "test", wrong, tested, {}, 1.0, "CPU")
        for seed in (1, 2)
    ]
    networks = {name: {"parameters": 1234, "images/s at 1": "5 (1)"} for name in ("one", "matrix")}
    page = write_page(ALL, results, speeds={"rounds": 9, "networks": networks})
    head = "| network | mnist error, % | fashion-mnist error, % | paper | parameters | images"
    assert head in page
    assert "\n| one |  |  |  | 1,234 | 5 (1) |\n" in page
    error = "10.00 ± 0.00 [9.59, 10.42], 2 seeds"
    assert f"\n| matrix |  | {error} | 0.44 | 1,234 | 5 (1) |\n" in page
    assert "\n| baseline CNN |  |  | 0.39 |  |  |\n" in page
    assert "medians of 9 rounds" in page
    assert (
        "rounds" not in write_page(ALL, results).partition("\n## Families")[2].partition("\n##")[0]
    )


def test_pairs_are_drawn_with_what_networks_say(bars: Examples) -> None:
    """A row for each network, a column for each pair."""
    network = build(ROWS["two-1"].recipe.network)
    axes = draw_pairs({"1 round": network, "again": network}, bars).axes
    assert 2 * 6 == len(axes)
    assert all(" and " in axis.get_xlabel() for axis in axes)
    assert ["1 round", "again"] == [axis.get_ylabel() for axis in axes[::6]]


def test_sweeps_are_drawn_side_by_side(bars: Examples, tiny: Recipe) -> None:
    """The image, then four dimensions (rows) of each network by five steps, with their names."""
    networks = {name: build(tiny.network) for name in ("one", "other")}
    image, *panels = draw_sweeps(networks, bars).axes
    assert "image" == image.get_title()
    assert ["one", "other"] == [panel.get_title() for panel in panels]
    assert {(4 * 28, 5 * 28, 3)} == {panel.images[0].get_array().shape for panel in panels}
    assert ["dim 0", "dim 1", "dim 2", "dim 3"] == [
        tick.get_text() for tick in panels[0].get_yticklabels()
    ]
    assert ["-0.25", "-0.125", "+0", "+0.125", "+0.25"] == [
        tick.get_text() for tick in panels[0].get_xticklabels()
    ]
