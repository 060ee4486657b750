"""What limits an answer is in the answer, whichever form it has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from model.bundle import Bundle, write_manifest
from model.bundle.explained import Explained
from model.views import all_views
from service.settings import Settings
from tests.serving import serve
from tests.views.questions import QUESTIONS

DRAWN = {view.name: view for view in all_views() if view.draw}
BY_NAME = {view.name: QUESTIONS[view.compute.__module__.rpartition(".")[2]] for view in all_views()}
NOTED = "X-Notes"


@pytest.fixture(scope="module")
def client(
    settings: Settings, strokes_bundle_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    """A service whose networks have poses that explain less than PCA does."""
    folder = tmp_path_factory.mktemp("low")
    for name in ("mnist", "strokes"):
        bundle = Path(shutil.copytree(strokes_bundle_path.with_name(name), folder / name))
        manifest = Bundle.open(bundle).manifest
        size = manifest.class_dim
        low = Explained("images", 100, 0.4, 0.2, {str(size): 0.7}, size)
        write_manifest(bundle, replace(manifest, explained=low))
    with serve(settings, bundles=folder) as client:
        yield client


def ask(client: TestClient, name: str, accept: str) -> Any:
    """Ask a view the question that the tests have for it."""
    question = BY_NAME[name]
    model = "strokes" if name == "segment" else "mnist"
    return client.post(
        f"/{name}",
        params={**question.parameters, "model": model},
        files=[("file", picture) for picture in question.pictures] or None,
        json=dict(question.body) or None,
        headers={"Accept": accept},
    ).raise_for_status()


@pytest.mark.parametrize("name", DRAWN)
def test_a_png_has_the_notes_of_the_json_in_a_header(name: str, client: TestClient) -> None:
    """Of every view: those that draw an image alone have them nowhere else."""
    notes = ask(client, name, "application/json").json().get("notes", [])
    header = ask(client, name, "image/png").headers.get(NOTED)
    assert notes == (json.loads(header) if header else [])
    assert bool(notes) == (DRAWN[name].needs in ("decode", "neighbours"))


@pytest.mark.parametrize("name", [name for name, view in DRAWN.items() if view.plain])
def test_an_image_alone_says_that_the_pose_explains_little(name: str, client: TestClient) -> None:
    """An image has no room for a note, so the header carries it."""
    (note,) = json.loads(ask(client, name, "image/png").headers[NOTED])
    assert "explains only 40 % of the variance" in note


def test_an_answer_without_notes_has_no_header(client: TestClient) -> None:
    """JSON has them itself; the health of a network has none."""
    json_answer = ask(client, "reconstruct", "application/json")
    assert json_answer.json()["notes"]
    assert NOTED not in json_answer.headers
    health = client.get("/models/mnist/health", headers={"Accept": "image/png"})
    assert (200, False) == (health.status_code, NOTED in health.headers)
