from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from model.bundle import MANIFEST
from service.app import create_app
from service.errors import Problem
from service.settings import Settings
from training.recipes import PRESETS

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented(name: str) -> None:
    """A setting that nobody can find is no setting."""
    assert f"`CAPSNET_{name.upper()}`" in read("docs/configuration.md")


def test_no_setting_is_documented_that_does_not_exist() -> None:
    """The page names settings that are read, and no others."""
    documented = set(re.findall(r"`CAPSNET_([A-Z0-9_]+)`", read("docs/configuration.md")))
    assert {name.upper() for name in Settings.model_fields} | {"DATA_DIR"} == documented


def test_every_route_is_documented() -> None:
    """The API page has a row for each route that the service has."""
    app = create_app(Settings(admin_keys=(SecretStr("a-key-of-tests-alone"),)))
    routes = {
        f"{method.upper()} {path}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert {"POST /classify", "GET /metrics", "POST /models/reload", "GET /livez"} <= routes
    documented = re.findall(r"^\| `([A-Z]+ /\S*)` \|", read("docs/api.md"), re.MULTILINE)
    assert routes | {"GET /"} == set(documented)


@pytest.mark.parametrize("problem", Problem.__subclasses__(), ids=lambda problem: problem.slug)
def test_every_problem_is_documented(problem: type[Problem]) -> None:
    """The type that clients branch on is in the API page, with its status."""
    assert re.search(
        rf"\| {int(problem.status)} \| `urn:capsnet:problem:{problem.slug}`", read("docs/api.md")
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_documented(preset: str) -> None:
    """The training page says what each preset is for."""
    assert f"| `{preset}` |" in read("docs/training.md")


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_files_and_functions_named_in_docs_exist(page: str) -> None:
    """`module.py`: `name` pairs point at something."""
    for path, names in re.findall(
        r"`([a-z_/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", read(f"docs/{page}")
    ):
        source = (ROOT / path).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"(class|def) {name.rpartition('.')[2]}\b", source), f"{path}: {name}"


def test_readme_names_the_two_commands() -> None:
    """A new user finds `make serve` and `make test` in the README."""
    assert {"make serve", "make test", "make check"} <= set(
        re.findall(r"make (?:serve|test|check)", read("README.md"))
    )


def test_the_effect_of_half_precision_is_that_of_the_manifests() -> None:
    """Bundles are replaced, and what is said of them must be true of the new ones."""
    row = re.compile(r"^\| `([\w-]+)` \| (\d+) \| (0\.\d+) \| (\d+) \|$", re.MULTILINE)
    said = row.findall(read("docs/operations.md"))
    assert said
    for name, pictures, change, labels in said:
        manifest = json.loads(read(f"model/bundles/{name}/{MANIFEST}"))
        assert manifest["half_precision"] == {
            "validation_images": int(pictures),
            "answers_changed": int(labels),
            "largest_presence_change": pytest.approx(float(change), abs=0.5e-4),
        }
