"""What README and docs say is what the code does, and the site that they become is whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import model
from model.bundle import MANIFEST, Bundle, Manifest
from model.bundle.directions import Direction
from service.errors import Problem
from service.pictures import SAMPLES
from service.settings import Settings
from tools.docs_reference import GENERATED, write_page
from training.recipes import PRESETS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md"))
_ELSEWHERE = r'(?:src|href)="(?:https?:)?//'


def read(name: str) -> str:
    return (ROOT / name).read_text()


def rows(page: str) -> list[list[str]]:
    """The cells of every row of a page's tables."""
    lines = [line for line in read(page).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented(name: str) -> None:
    """A setting that nobody can find is no setting; nor is one with another default."""
    default = Settings.model_fields[name].default
    if isinstance(default, Path):
        default = default.relative_to(Path(model.__file__).parents[1]).as_posix()
    text = default if isinstance(default, str) else json.dumps(default)
    shown = "" if default is None else f"`{text}`"
    found = {row[0]: row[1] for row in rows("docs/reference/settings.md")}
    assert shown == found[f"`CAPSNET_{name.upper()}`"]


def test_no_setting_is_documented_that_does_not_exist() -> None:
    """The page names settings that are read, and no others."""
    documented = set(re.findall(r"`CAPSNET_([A-Z0-9_]+)`", read("docs/reference/settings.md")))
    others = {"CLIENT_KEY", "DATA_DIR", "URL"}
    assert {name.upper() for name in Settings.model_fields} | others == documented


def bounds() -> list[list[str]]:
    """The rows of the tables of what bounds a request, a gRPC call and a bundle."""
    return [row for row in rows("docs/how-to/secure.md") if len(row) == 5 and row[0] != "bound"]


@pytest.mark.parametrize("row", bounds(), ids=lambda row: row[0])
def test_bounds_of_requests_are_as_documented(row: list[str]) -> None:
    """Each is the default of its setting or the value of its constant; its test exists."""
    _bound, origin, value, _answer, test = row
    if name := re.fullmatch(r"`CAPSNET_(\w+)`", origin):
        assert f"`{json.dumps(Settings.model_fields[name[1].lower()].default)}`" == value
    elif constant := re.fullmatch(r"`((?:model|service)\.[\w.]+)\.([A-Z_]+)`", origin):
        assert f"`{getattr(import_module(constant[1]), constant[2])}`" == value
    else:
        assert not value
    assert re.fullmatch(r"`tests/[\w/]+\.py`: `test_\w+`", test)


@pytest.mark.parametrize("problem", Problem.__subclasses__(), ids=lambda problem: problem.slug)
def test_every_problem_is_documented(problem: type[Problem]) -> None:
    """The type that clients branch on is in the API page, with its status."""
    row = rf"\| {int(problem.status)} \| `urn:capsnet:problem:{problem.slug}`"
    assert re.search(row, read("docs/reference/api.md"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_documented(preset: str) -> None:
    """The page on presets says what each is for."""
    assert f"| `{preset}` |" in read("docs/reference/presets.md")


def test_every_member_of_a_manifest_is_documented() -> None:
    """The bundle's page lists them all, and no other."""
    manifest = read("docs/reference/bundle.md").partition("## Manifest")[2]
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", manifest, re.MULTILINE)
    assert {field.name for field in fields(Manifest)} == set(re.findall(r"\w+", " ".join(named)))


@pytest.mark.parametrize("page", PAGES)
def test_files_and_functions_named_in_docs_exist(page: str) -> None:
    """`module.py`: `name` pairs point at something."""
    for path, names in re.findall(r"`([a-z_/]+\.py)`:\s+((?:`[\w.]+`(?:,\s+)?)+)", read(page)):
        source = (ROOT / path).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"(class|def) {name.rpartition('.')[2]}\b", source), f"{path}: {name}"


def test_errors_in_the_readme_are_those_of_the_manifests() -> None:
    """Every bundle that ships is in the table, with its interval."""
    row = re.compile(r"^\| `([\w-]+)` \| .*? \| (\d.*?) %? \((.*?) to (.*?)\)", re.MULTILINE)
    said = {name: tuple(map(float, errors)) for name, *errors in row.findall(read("README.md"))}
    expected = {}
    for path in sorted((ROOT / "model" / "bundles").glob(f"*/{MANIFEST}")):
        manifest = json.loads(path.read_text())
        interval = [round(value, 2) for value in manifest["metrics"]["interval_percent"]]
        expected[manifest["name"]] = (
            round(manifest["metrics"]["test_error_percent"], 2),
            *interval,
        )
    assert expected == said


def test_the_answer_in_the_readme_is_that_of_the_bundle() -> None:
    """Its version and numbers change with the weights; the reference names the version, too."""
    network = model.load("mnist")
    version = network.bundle.manifest.version
    (shown,) = re.findall(r'"lengths": \[(0\.\d+), (0\.\d+), "\.\.\."\]', read("README.md"))
    (length,) = re.findall(r'"length": (0\.\d+)', read("README.md"))
    lengths = network.encode(network.prepare(SAMPLES / "7.png")).presence[0]
    assert f'"version": "{version}"' in read("README.md")
    assert f"`mnist; version={version}`" in read("docs/reference/api.md")
    assert pytest.approx([*lengths[:2], lengths[7]], abs=1e-5) == [*map(float, (*shown, length))]


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No page names a script, style, font or picture of another host."""
    loaded = re.compile(rf"<(?:script|link|img|iframe|source)\b[^>]*{_ELSEWHERE}[^>]*>")
    found: list[str] = []
    for page in site.rglob("*.html"):
        text = page.read_text()
        found += [f"{page.name}: {tag}" for tag in loaded.findall(text)]
        found += [f"{page.name}: mermaid"] if 'class="mermaid"' in text else []
    for style in site.rglob("*.css"):
        found += re.findall(r"url\([\"']?(?:https?:)?//[^)]*", style.read_text())
    assert [] == found


@pytest.mark.parametrize("name", GENERATED)
def test_the_reference_is_that_of_the_code(name: str) -> None:
    """`make generate` would change nothing."""
    page = read(f"docs/reference/{name}")
    assert page == write_page(page, GENERATED[name]())


DIRECTIONS = ROOT / "docs" / "explanation" / "directions.md"
MEASURED = ("mnist-attention", "cifar10")


def measured_rows(name: str) -> Iterator[str]:
    """The rows of a bundle: its measured directions, with the means over the classes they suit."""
    manifest = Bundle.open(ROOT / "model" / "bundles" / name).manifest
    shown = f"`{name}`"
    for measure in dict.fromkeys(one.name for one in manifest.directions if one.share is None):
        suited = [one for one in manifest.directions if one.name == measure and one.offered]
        if suited:
            yield f"| {shown} | {measure} | {describe(suited, len(manifest.class_names))} |"
            shown = ""


def describe(suited: list[Direction], classes: int) -> str:
    """The other columns of a row."""

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    got = mean([one.quality.got for one in suited])
    spread = mean([one.quality.spread for one in suited])
    other = max(one.quality.largest_other for one in suited)
    r2 = mean([one.reading.r2 for one in suited])
    error = mean([one.reading.mean_error for one in suited])
    return (
        f"{len(suited)} of {classes} | {got:.2f} ± {spread:.2f} | {other:.2f} | {r2:.2f} | "
        f"{error:.2g} {suited[0].unit}".rstrip()
    )


def test_the_table_is_that_of_the_bundles() -> None:
    """Every direction that ships, in the order of the bundles."""
    expected = [row for name in MEASURED for row in measured_rows(name)]
    table = [line for line in DIRECTIONS.read_text().splitlines() if " ± " in line]
    assert expected == table
