"""docs/tutorial/add-family.md, executed: a family that trains, exports, serves and is tested."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from httpx import Response
from PIL import Image
from typer.testing import CliRunner

from model.bundle import Bundle
from model.capsnet import FAMILIES, load
from model.capsnet.families import Family
from service.settings import Settings
from tests.model.capsnet.networks import SIZES, SMALL, TINY
from tests.serving import serve
from training.__main__ import app
from training.recipes import PRESETS, Recipe

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = DOCS / "tutorial" / "add-family.md"


def blocks(language: str) -> list[str]:
    """The page's blocks of code in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def draw_shapes(folder: Path) -> Path:
    """24 small pictures of each of two classes: bars that lie and bars that stand."""
    random = np.random.default_rng(0)
    for name in ("lying", "standing"):
        (folder / name).mkdir(parents=True)
        for number in range(24):
            pixels = np.zeros((28, 28), np.uint8)
            pixels[random.integers(4, 20) :][:4, 3:25] = random.integers(150, 256)
            picture = Image.fromarray(pixels if name == "lying" else pixels.T)
            picture.save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def page() -> Iterator[dict[str, Any]]:
    """What the page's Python defines; afterwards its family and its preset are gone."""
    registries: tuple[dict[str, Any], ...] = (FAMILIES, PRESETS, SMALL, TINY)
    before = [dict(registry) for registry in registries]
    module = ModuleType("families_of_the_page")
    sys.modules[module.__name__] = module
    of_the_files = {"FAMILIES": FAMILIES, "Family": Family, "PRESETS": PRESETS, "Recipe": Recipe}
    module.__dict__.update(of_the_files, SIZES=SIZES, SMALL=SMALL, TINY=TINY)
    try:
        for source in blocks("python"):
            exec(compile(source, str(PAGE), "exec"), module.__dict__)  # noqa: S102  our own page
        yield module.__dict__
    finally:
        del sys.modules[module.__name__]
        for registry, entries in zip(registries, before, strict=True):
            registry.clear()
            registry.update(entries)


@pytest.fixture(scope="module")
def workplace(page: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's commands of training were run, one after the other."""
    del page
    folder = tmp_path_factory.mktemp("workplace")
    draw_shapes(folder / "shapes")
    program = "python -m training "
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    trainings = [line.removeprefix(program) for line in commands if line.startswith(program)]
    assert ["train", "export"] == [line.split()[0] for line in trainings]
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.chdir(folder)
        for command in trainings:
            CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    return folder


@pytest.fixture(scope="module")
def client(workplace: Path) -> Iterator[TestClient]:
    """The service, with the settings of the page's last command."""
    (command,) = (block for block in blocks("bash") if "-m service" in block)
    named = re.findall(r"CAPSNET_(\w+)=(\S+)", command)
    values: dict[str, Any] = {name.lower(): value for name, value in named}
    values["bundles"] = workplace / values["bundles"]
    settings = Settings(**values, device="cpu", threads=1)
    with serve(settings) as client:
        yield client


def ask(client: TestClient, route: str, picture: Path) -> Response:
    return client.post(route, files={"file": picture.read_bytes()})


def test_the_family_is_trained_and_exported(workplace: Path, page: dict[str, Any]) -> None:
    """The bundle says whose it is and what it offers; its weights are the page's network again."""
    bundle = Bundle.open(workplace / "bundles" / "linear")
    manifest = bundle.manifest
    assert ("linear", ("decode", "trace", "neighbours")) == (manifest.family, manifest.offers)
    assert "a linear layer to capsules" == manifest.family_title
    assert (("lying", "standing"), (1, 28, 28)) == (manifest.class_names, manifest.image_shape)
    assert isinstance(load(bundle), page["LinearCapsNet"])


def test_the_family_answers(client: TestClient, workplace: Path) -> None:
    """`/classify` tells lying from standing bars, with the bundle's name."""
    for number, name in enumerate(("lying", "standing")):
        answer = ask(client, "/classify", workplace / "shapes" / name / "3.png").json()
        (prediction,) = answer["predictions"]
        assert ("linear", number) == (answer["model"], prediction["label"])


def test_the_family_draws(client: TestClient, workplace: Path) -> None:
    """`/reconstruct` gives an image that is more like its own picture than like another."""
    pictures = [workplace / "shapes" / name / "3.png" for name in ("lying", "standing")]
    shown = [np.asarray(Image.open(picture), np.float32) / 255 for picture in pictures]
    answer = client.post(
        "/reconstruct",
        files={"file": pictures[0].read_bytes()},
        headers={"Accept": "image/png"},
    )
    drawn = np.asarray(Image.open(io.BytesIO(answer.content)).convert("L"), np.float32) / 255
    drawn = drawn[:: drawn.shape[0] // 28, :: drawn.shape[1] // 28]
    errors = [float(np.square(drawn - image).mean()) for image in shown]
    assert errors[0] < errors[1]
