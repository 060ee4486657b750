"""The short form of `make fire`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.service import ROOT, started
from tests.fire import fuzz, load
from tests.fire.faults import FAULTS, Fault, run
from tests.fire.table import Table
from tools.reliability import PAGE, write

FEW = {"CAPSNET_MODELS": '["mnist-compact"]', "CAPSNET_DEFAULT_MODEL": "mnist-compact"}
PAIRS = {**FEW, "CAPSNET_MODELS": '["mnist-compact", "multimnist-attention"]'}


@pytest.mark.parametrize("one", [one for one in FAULTS if one.short], ids=lambda one: one.name)
def test_callers_see_of_a_fault_what_is_promised(one: Fault) -> None:
    """No answer is wrong, and none is lost but what ran in a process that was killed."""
    seen = run(one, threads=2)
    assert [] == seen.faults


def test_broken_bodies_are_refused() -> None:
    """By a status that says what is so."""
    with started("open", **FEW) as service:
        statuses = fuzz.send(f"http://127.0.0.1:{service.target.port}", requests=300, seed=2)
        assert service.alive
        assert [] == service.tracebacks(0)
    assert 300 == statuses.total()
    assert statuses.keys() & {200, 400, 422}


def test_an_overloaded_service_answers_what_it_can() -> None:
    """It refuses the rest, and loses nothing."""
    table = load.overload(seconds=1.5, factors=(4,), min_goodput=0, memory=False, **PAIRS)
    assert [] == table.faults
    assert 2 == len(table.rows)


def test_the_page_takes_the_figures(tmp_path: Path) -> None:
    """Those of a part that was run; the others stay."""
    page = tmp_path / "page.md"
    text = "<!-- one -->\n\nold\n\n<!-- end -->\n\n<!-- two -->\n\nold\n\n<!-- end -->\n"
    page.write_text(text)
    write(page, [Table("two", ["a", "b"], [["1", "2"]])])
    new = "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
    assert text[: text.index("<!-- two")] + f"<!-- two -->\n{new}<!-- end -->\n" == page.read_text()


def test_the_page_has_figures_of_every_part() -> None:
    """And each promise names a test that there is."""
    text = PAGE.read_text()
    figures = re.findall(r"<!-- (?!end)(.+?) -->\n\n\|", text)
    assert 7 == len(figures)
    tests = re.findall(r"`(tests/[\w/]+\.py)`: `(test_\w+)`", text)
    assert tests
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}: {name}"


def test_an_unknown_part_is_named() -> None:
    """With those that there are."""
    command = [sys.executable, "-m", "tests.fire", "--part", "nothing"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert 2 == ended.returncode
    assert "latency" in ended.stderr
