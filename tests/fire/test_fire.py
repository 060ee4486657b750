"""The short form of `make fire`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from service.pictures import SAMPLES
from tests.attack.service import ROOT, Service, started
from tests.fire import load
from tests.fire.faults import FAULTS, Fault, Site, place, run
from tests.fire.load import PAGE, Table, write

FEW = {"CAPSNET_MODELS": '["mnist-compact"]', "CAPSNET_DEFAULT_MODEL": "mnist-compact"}
SHORT = sorted(
    (one for one in FAULTS if one.short),
    key=lambda one: (str(one.settings), -len(one.command), one.ends),
)


@pytest.fixture(scope="module")
def harmed() -> Iterator[Callable[[Fault], Site]]:
    """Gives a service that a fault may harm: the one of the fault before, if it fits."""
    kept: dict[str, Site] = {}
    with ExitStack() as stack:

        def give(fault: Fault) -> Site:
            kind = f"{fault.command} {fault.settings}"
            if kind not in kept:
                stack.close()
                kept.clear()
                kept[kind] = stack.enter_context(place(fault))
            return kept[kind]

        yield give


@pytest.mark.parametrize("fault", SHORT, ids=lambda fault: fault.harm.__name__)
def test_callers_see_of_a_fault_what_is_promised(
    fault: Fault, harmed: Callable[[Fault], Site]
) -> None:
    """No answer is wrong, and none is lost but what ran in a process that was killed."""
    assert [] == run(fault, harmed(fault), calm=30, threads=2, pause_s=0.1).faults


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service of one worker, which is asked oddly."""
    with started("open", **FEW, CAPSNET_WORKERS="1") as service:
        yield service


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    """What asks oddly. Other test processes, which only collect, need no schemathesis."""
    return importlib.import_module("tests.fire.fuzz")


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    """Its address; it has to go on afterwards, and to log no traceback."""
    address, before = f"http://127.0.0.1:{service.target.port}", service.log.stat().st_size
    yield address
    seven = (SAMPLES / "7.png").read_bytes()
    answer = httpx.post(f"{address}/classify", files={"file": seven}).json()
    assert 7 == answer["predictions"][0]["label"]
    assert [] == service.tracebacks(before)


def test_broken_bodies_are_refused(url: str, fuzz: ModuleType) -> None:
    """By a status that says what is so."""
    statuses = fuzz.send(url, islice(fuzz.broken_bodies(2), 300))
    assert {200, 400, 422} <= statuses.keys()


def test_broken_files_are_read_or_refused(url: str, fuzz: ModuleType) -> None:
    """What is whole before it is broken is read."""
    whole = [httpx.post(f"{url}/classify", files={"file": one}) for one in fuzz.files()]
    assert {200} == {answer.status_code for answer in whole}
    statuses = fuzz.send(url, islice(fuzz.broken_files(48), 300))
    assert {200, 415, 422} <= statuses.keys() <= {200, 400, 413, 415, 422}


def test_the_document_says_what_is_accepted_and_answered(url: str, fuzz: ModuleType) -> None:
    """Allowed and forbidden requests of every route get answers that it names."""
    assert {200, 400, 404, 422} <= fuzz.ask(url, 150, seed=48).keys()


def test_an_overloaded_service_answers_what_it_can() -> None:
    """It refuses the rest, and loses nothing."""
    pairs = {**FEW, "CAPSNET_MODELS": '["mnist-compact", "multimnist-attention"]'}
    table = load.overload(seconds=1.5, factors=(4,), min_goodput=0, memory=False, **pairs)
    assert [] == table.faults
    assert 2 == len(table.rows)


def test_the_page_takes_the_figures_of_a_part(tmp_path: Path) -> None:
    """The others stay."""
    page = tmp_path / "page.md"
    text = "<!-- one -->\n\nold\n\n<!-- end -->\n\n<!-- two -->\n\nold\n\n<!-- end -->\n"
    page.write_text(text)
    write([Table("two", ["a", "b"], [["1", "2"]])], page)
    new = "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
    assert text[: text.index("<!-- two")] + f"<!-- two -->\n{new}<!-- end -->\n" == page.read_text()


def test_each_promise_names_a_test_that_there_is() -> None:
    """And the page has figures of every part."""
    text = PAGE.read_text()
    assert 5 == len(re.findall(r"<!-- (?!end)(.+?) -->\n\n\|", text))
    tests = re.findall(r"`(tests/[\w/]+\.py)`: `(\w+)`", text)
    assert tests
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}: {name}"
