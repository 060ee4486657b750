"""docs/tutorial/add-view.md, performed: a view in one module, and everything that follows."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

from service.pictures import SAMPLES
from tests.processes import SOURCE, running

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial" / "add-view.md"
COPIED = (
    "benchmarks",
    "client",
    "deploy",
    "docs",
    "model",
    "research",
    "service",
    "tests",
    "tools",
    "training",
)
FOUR = SAMPLES / "4.png"


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources in which the page was followed up to what is generated."""
    copy = tmp_path_factory.mktemp("edited")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    parts = re.findall(
        r"((?:.+\n)+)\n```(python|markdown)\n([\s\S]*?)^```$", PAGE.read_text(), re.MULTILINE
    )
    for text, language, block in parts:
        file = copy / re.findall(r"`([\w/-]+\.(?:py|md))`", text)[0]
        if not file.exists():
            file.write_text(block)
        elif language == "markdown":
            file.write_text(f"{file.read_text()}\n{block}")
        else:
            last, *_, closing = block.splitlines()
            ending = f"{last}\n{closing}\n"
            assert ending in file.read_text()
            file.write_text(file.read_text().replace(ending, block))
    return copy


def run(folder: Path, *arguments: str) -> str:
    """What a module prints that is run in a folder; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'client'}"}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def generated(edited: Path) -> Path:
    """The copy, after what of `make generate` writes code."""
    run(edited, "tools.client")
    return edited


@pytest.fixture(scope="module")
def service(edited: Path) -> Iterator[httpx.Client]:
    """The copy, served with a bundle that ships."""
    environment = {
        "CAPSNET_BUNDLES": str(ROOT / "model" / "bundles"),
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_MODELS": '["mnist-compact"]',
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
    }
    with running(lambda _: SOURCE, environment, cwd=edited) as (_, client):
        yield client


def test_the_view_s_test_is_green(edited: Path) -> None:
    """As the page has it."""
    run(edited, "pytest", "-q", "-p", "no:xdist", "tests/views/test_contrast.py")


def test_the_view_answers(service: httpx.Client) -> None:
    """With numbers or a picture; its largest request is admitted, a larger one is refused."""
    files = {"file": FOUR.read_bytes()}
    answer = service.post("/contrast?steps=32", files=files).json()
    assert (4, 32) == (answer["label"], len(answer["lengths"]))
    drawn = service.post("/contrast", files=files, headers={"Accept": "image/png"})
    assert (600, 300) == Image.open(io.BytesIO(drawn.content)).size
    assert 422 == service.post("/contrast?steps=33", files=files).status_code


def test_the_command_has_it(generated: Path, service: httpx.Client) -> None:
    """In its help, and as a subcommand that shows the numbers as a table."""
    assert re.search(r"contrast +Fade an image step by step", run(generated, "capsnet", "--help"))
    url = str(service.base_url)
    asked = ("capsnet", "contrast", str(FOUR), "--steps", "3", "--url", url)
    assert 3 == sum(line.startswith("│") for line in run(generated, *asked).splitlines())
    assert 3 == len(json.loads(run(generated, *asked, "--json"))["factors"])
