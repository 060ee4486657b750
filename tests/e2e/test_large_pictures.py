"""Networks of large pictures and of arrays, which are untrained, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image, ImageDraw

from model.views import all_views
from model.views.view import View
from tests.processes import SOURCE, running
from training.growth import MAX_PX

PATIENCE_S = 110
"""The time for an answer while other tests keep the cores busy."""
AnyView = View[Any, Any]


def draw_pictures(folder: Path) -> None:
    """Rings and squares, eight each, of 224x224 pixels in colour."""
    rng = np.random.default_rng(1)
    for kind in ("ring", "square"):
        (folder / kind).mkdir(parents=True)
        for number in range(8):
            picture = Image.new("RGB", (MAX_PX, MAX_PX), (20, 30, 60))
            half = int(rng.integers(40, 91))
            x, y = rng.integers(half, MAX_PX - half, 2).tolist()
            box = (x - half, y - half, x + half, y + half)
            draw = ImageDraw.Draw(picture)
            (draw.ellipse if kind == "ring" else draw.rectangle)(
                box, outline=(230, 180, int(rng.integers(256))), width=14
            )
            picture.save(folder / kind / f"{number}.png")


def save_arrays(folder: Path) -> None:
    """Two classes of eight arrays, 20 high, 24 wide, of 5 channels and 16 bits."""
    rng = np.random.default_rng(1)
    for label, kind in enumerate(("dark", "light")):
        (folder / kind).mkdir(parents=True)
        for number in range(8):
            values = rng.integers(0, 30_000, (20, 24, 5)) + 30_000 * label
            np.save(folder / kind / f"{number}.npy", values.astype(np.uint16))


def ask(service: httpx.Client, view: AnyView, files: list[Path], accept: str) -> httpx.Response:
    """Ask a view about as many files as it takes, or to decode a pose of zeros."""
    if view.body:
        body = {"pose": [0.0] * 16, "label": 1}
        return service.post(f"/{view.name}", json=body, headers={"Accept": accept})
    count = max(1, view.pictures[0])
    parts = [("file", (file.name, file.read_bytes())) for file in files[:count]]
    needed = {"perturb": {"dim": 3, "delta": 0.1}, "morph": {"target": 1}}
    query = needed.get(view.name, {})
    return service.post(f"/{view.name}", files=parts, params=query, headers={"Accept": accept})


@pytest.mark.parametrize(
    ("name", "make", "shape"),
    [
        pytest.param("large", draw_pictures, (3, 224, 224), id="224 pixels"),
        pytest.param("bands", save_arrays, (5, 20, 24), id="5 channels"),
    ],
)
def test_every_view_answers(
    name: str,
    make: Callable[[Path], None],
    shape: tuple[int, int, int],
    sized_bundles: Path,
    tmp_path: Path,
) -> None:
    """As JSON and as a picture; tensors too, and the page is there."""
    make(tmp_path)
    with serving(sized_bundles / name, timeout_s=PATIENCE_S) as service:
        check_views(service, sorted(tmp_path.glob("*/*")), shape)


@contextmanager
def serving(bundle: Path, *, timeout_s: float | None = None) -> Iterator[httpx.Client]:
    """A service of one bundle, which answers within this or the usual time, or not at all."""
    limit = {"CAPSNET_REQUEST_TIMEOUT_S": str(timeout_s)} if timeout_s else {}
    settings = limit | {
        "CAPSNET_BUNDLES": str(bundle.parent),
        "CAPSNET_DEFAULT_MODEL": bundle.name,
        "CAPSNET_MODELS": json.dumps([bundle.name]),
    }
    with running(lambda _: SOURCE, settings) as (_, service):
        yield service


def check_views(service: httpx.Client, files: list[Path], shape: tuple[int, int, int]) -> None:
    """Every view, in both forms, the tensors of images, and the page."""
    (model,) = service.get("/models").json()["models"]
    assert shape == (model["channels"], model["height"], model["width"])
    for view in all_views():
        if view.name == "describe":  # nothing was analysed, so nothing is read
            assert 409 == ask(service, view, files, "application/json").status_code
            continue
        for accept in ["application/json", "image/png"] if view.draw else ["application/json"]:
            response = ask(service, view, files, accept)
            suited = not view.suited  # one view is for pairs of digits, and says so
            expected = 200 if suited else 404
            assert expected == response.status_code, f"{view.name}: {response.text}"
            if suited:
                assert response.headers["content-type"].startswith(accept)
    tensor = {"name": "images", "shape": [1, *shape], "datatype": "FP32"}
    body = {"inputs": [{**tensor, "data": [0.5] * int(np.prod(shape))}]}
    outputs = service.post(f"/v2/models/{model['name']}/infer", json=body)
    assert 200 == outputs.status_code, outputs.text
    assert "text/html" in service.get("/", headers={"Accept": "text/html"}).headers["content-type"]
