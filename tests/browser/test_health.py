"""What a bundle knows of its network: the health of its capsules, and how sure an answer is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from model import SHIPPED
from model.bundle import Bundle, write_manifest
from tests.browser.playground import Playground, open_playground
from tests.health import CONFIDENCE
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ALL_LABELS = replace(CONFIDENCE, thresholds=((0.3, 0.0, 0.0),))
"""At a coverage of 0.95, a set holds all labels."""


@pytest.fixture(scope="module")
def studied_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose only network has a health and a calibration."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(SHIPPED / "mnist", folder / "mnist")
    bundle = Bundle.open(folder / "mnist")
    write_manifest(bundle.path, replace(bundle.manifest, confidence=ALL_LABELS))
    environment = {
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_BUNDLES": str(folder),
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


@pytest.fixture
def studied(browser: Browser, studied_url: str) -> Iterator[Playground]:
    """The page of that service."""
    with open_playground(browser, studied_url) as playground:
        yield playground
        assert [] == playground.complaints


def test_health_has_a_lens(studied: Playground) -> None:
    """The figure that the service draws, with a link to the definitions."""
    studied.take_sample(5)
    studied.open_tab("Health")
    lens = studied.page.locator("#health")
    lens.get_by_role("img", name="the health of mnist").wait_for()
    assert "health.html" in (lens.get_by_role("link").get_attribute("href") or "")


def test_an_answer_names_every_label_of_its_set(studied: Playground) -> None:
    """The most probable ones, the number of others, the first one's figures, and what a set is."""
    studied.take_sample(5)
    assert re.fullmatch(r"5, \d or 8 others", studied.label)
    figures, meaning = studied.page.locator("#verdict .quiet").all_inner_texts()
    assert re.fullmatch(r"5: length 0\.\d\d, probability 1\.00", figures)
    assert "For 95 %" in meaning
