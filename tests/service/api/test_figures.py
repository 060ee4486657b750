from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from model.bundle import Bundle, write_manifest
from model.bundle.explained import Explained
from model.bundle.figures import EXPLAINED, FIGURES
from service.settings import Settings
from tests.figures import draw_explained
from tests.processes import SOURCE, running
from tests.serving import serve

PATH = f"/models/mnist/figures/{EXPLAINED}"
SHARES = Explained("images", 100, 0.4, 0.2, {"16": 0.7}, 16)
KEY = "a-key-of-tests-alone"


@pytest.fixture
def bundle(bundle_path: Path, tmp_path: Path) -> Path:
    """A bundle that says what its poses explain, and shows it. The test may change it."""
    bundle = Path(shutil.copytree(bundle_path, tmp_path / "mnist"))
    write_manifest(bundle, replace(Bundle.open(bundle).manifest, explained=SHARES))
    return bundle


def explained(client: Any) -> dict[str, Any]:
    """What `GET /models` says of the poses of the only model."""
    (model,) = client.get("/models").json()["models"]
    found: dict[str, Any] = model["explained"]
    return found


def test_figures_are_listed_and_served(settings: Settings, bundle: Path) -> None:
    """Those of the card, and nothing else of the bundle's folder."""
    shutil.copy(bundle / EXPLAINED, bundle / "health.png")
    shutil.copy(bundle / EXPLAINED, bundle / "wrong.png")
    png = draw_explained(bundle, "red")
    with serve(settings, bundles=bundle.parent) as client:
        answer = client.get("/models/mnist/figures").json()
        files = [EXPLAINED, "health.png"]
        figures = [{"file": file, "shows": FIGURES[file]} for file in files]
        assert {"model": "mnist", "figures": figures} == answer
        picture = client.get(PATH)
        assert ("image/png", png) == (picture.headers["content-type"], picture.content)
        for file in ("wrong.png", "CARD.md", "manifest.json", "..%2Fmnist%2Fexplained.png", ""):
            assert client.get(f"/models/mnist/figures/{file}").status_code in (404, 422), file


@pytest.mark.parametrize(
    ("path", "status", "parameter"),
    [
        ("/models/nobody/figures", 404, "model"),
        (f"/models/nobody/figures/{EXPLAINED}", 404, "model"),
        ("/models/mnist/figures/sweep.png", 422, "file"),
        ("/models/blocks/figures/explained.png", 422, "file"),
    ],
)
def test_figures_that_are_not_there(
    path: str, status: int, parameter: str, client: TestClient
) -> None:
    """The answer says whether the model or the file is unknown."""
    answer = client.get(path)
    assert (status, parameter) == (answer.status_code, answer.json()["parameter"])


def test_an_unknown_figure_is_told_the_known_ones(client: TestClient) -> None:
    """A bundle of an older release may have none."""
    details = [
        client.get(f"/models/{name}/figures/mine.png").json()["detail"]
        for name in ("mnist", "blocks")
    ]
    assert [f"no figure 'mine.png'; figures: {known}" for known in (EXPLAINED, "none")] == details
    assert [] == client.get("/models/blocks/figures").json()["figures"]


def test_the_list_of_models_says_where_the_figure_is(settings: Settings, bundle: Path) -> None:
    """Next to the numbers that it shows."""
    with serve(settings, bundles=bundle.parent) as client:
        assert {**SHARES.to_dict(), "figure": PATH} == explained(client)
        assert (bundle / EXPLAINED).read_bytes() == client.get(PATH).content


def test_a_reload_serves_the_new_figure(bundle: Path) -> None:
    """The old one is served until then, also if its file is gone."""
    environment = {
        "CAPSNET_BUNDLES": str(bundle.parent),
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_ADMIN_KEYS": f'["{KEY}"]',
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        before = client.get(PATH).content
        after = draw_explained(bundle, "blue")
        assert before == client.get(PATH).content != after
        reloaded = client.post("/models/reload", headers={"X-API-Key": KEY})
        assert (200, after) == (reloaded.status_code, client.get(PATH).content)
        (bundle / EXPLAINED).unlink()
        client.post("/models/reload", headers={"X-API-Key": KEY}).raise_for_status()
        assert (422, None) == (client.get(PATH).status_code, explained(client)["figure"])
