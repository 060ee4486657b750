"""Couplings replaced: what stays, what changes, and what the page says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from model.bundle import Bundle, write_manifest
from model.capsnet import build
from model.capsnet.matrix import MatrixConfig
from model.runtime import Runtime
from research import routing
from tests.training.published import TEST, say_training, write_toys
from training.data.datasets import DATASETS, Examples
from training.provenance import TEST_READS


def measured(uniform: float) -> dict[str, Any]:
    """Two networks, of which the first needs its couplings by so many points."""

    def score(errors: int, points: float) -> dict[str, Any]:
        return {
            "errors": errors,
            "interval_percent": [errors / 100 - 0.1, errors / 100 + 0.1],
            "changed": errors,
            "difference": [points, points - 0.2, points + 0.2],
        }

    return {
        name: {
            "version": "1",
            "family": "dynamic",
            "tests": {
                test: {
                    "images": 10_000,
                    "couplings": {
                        "routed": score(100, 0),
                        "uniform": score(100 + round(100 * points), points),
                    },
                }
            },
        }
        for name, test, points in (("pairs", "shift 4", uniform), ("single", routing.SPLIT, 0.1))
    }


@pytest.fixture
def bundles(bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a bundle of the toys, a published data set for once."""
    monkeypatch.setitem(DATASETS, "toys", write_toys(tmp_path))
    return say_training(bundle_path, tmp_path / "bundles" / "mnist").path.parent


def test_a_bundle_answers_its_test_split_with_other_couplings(
    bundles: Path, tmp_path: Path
) -> None:
    """Its own answers are those of its encoder; the read is on record; nothing is read twice."""
    options: dict[str, Any] = {"names": None, "again": False, "tell": lambda _: None}
    routing.measure_all(bundles, tmp_path, tmp_path, **options)
    routing.measure_all(bundles, tmp_path, tmp_path, **options)
    (scores,) = routing.read(tmp_path)["mnist"]["tests"].values()
    assert TEST == scores["images"]
    assert {"routed", "uniform", "other-image"} <= scores["couplings"].keys()
    assert 0 == scores["couplings"]["routed"]["changed"]
    (line,) = (bundles / TEST_READS).read_text().splitlines()
    read = json.loads(line)
    assert (TEST, scores["couplings"]["routed"]["errors"]) == (read["images"], read["errors"])


def test_other_weights_are_measured_again(bundles: Path, tmp_path: Path) -> None:
    """Those of bundles that are gone are forgotten."""
    (tmp_path / routing.MEASURED).write_text(
        json.dumps({"mnist": {"version": "older", "tests": {}}, "gone": {"version": "1"}})
    )
    tell: list[str] = []
    routing.measure_all(bundles, tmp_path, tmp_path, names=None, again=False, tell=tell.append)
    assert ["mnist: couplings are replaced"] == tell
    assert ["mnist"] == list(routing.read(tmp_path))


def test_answers_keep_the_order_of_the_images(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are of one class; each image's answer is where the image is."""
    monkeypatch.setattr("research.routing.BATCH", 4)
    runtime = Runtime(Bundle.open(bundles / "mnist"), device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 28, 28), np.uint8)
    examples = Examples(images, np.arange(30) % 3)
    found = routing.answer_all(runtime, examples, None)
    presence = runtime.encode(images.astype(np.float32) / 255).presence
    assert presence.argmax(axis=1).tolist() == found["routed"][:, 0].tolist()


def test_own_couplings_give_the_own_answer() -> None:
    """Exchanged with itself, an image is answered as before, by length and by EM."""
    torch.manual_seed(0)
    config = MatrixConfig(primary_types=4, conv_caps=(4, 4))
    network = build(config).eval()
    with torch.inference_mode():
        trace = network.trace(torch.rand(3, 1, 28, 28)).classes
    arrays = SimpleNamespace(**{name: part.numpy() for name, part in trace._asdict().items()})
    own = routing.exchange_assignments(arrays, arrays.couplings[:, -1], network)
    np.testing.assert_allclose(arrays.presence[:, -1], own, atol=1e-5)
    others = routing.exchange_assignments(arrays, np.roll(arrays.couplings[:, -1], 1, 0), network)
    assert np.abs(others - own).max() > 1e-6


def test_one_iteration_in_all_layers_is_the_network_that_routes_once() -> None:
    """Its weights are those of the other; iterations have none."""
    torch.manual_seed(0)
    config = MatrixConfig(primary_types=4, conv_caps=(4, 4))
    network = build(config).eval()
    images = np.random.default_rng(0).random((2, 1, 28, 28), np.float32)
    once = build(replace(config, routing_iterations=1)).eval()
    once.load_state_dict(network.state_dict())
    with torch.inference_mode():
        expected = once(torch.from_numpy(images)).presence.numpy()
    np.testing.assert_allclose(expected, routing.route_once(network, images), atol=1e-6)


def test_the_table_and_the_picture_have_all_couplings(tmp_path: Path) -> None:
    """A line each; the routed one names the network."""
    lines = routing.table(measured(5.0)).splitlines()
    assert "| `pairs`, shift 4 | as routed | 1.00 |  |  |" == lines[2]
    assert "|  | uniform couplings | 6.00 | +5.00 [+4.80, +5.20] | 600 |" == lines[3]
    routing.draw(measured(5.0), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_bundle_is_named(bundles: Path, tmp_path: Path) -> None:
    """With those that there are."""
    with pytest.raises(routing.TrainingError, match="other is no bundle; there are mnist"):
        routing.measure_all(bundles, tmp_path, tmp_path, names=["other"], again=False, tell=print)


def test_networks_without_routing_are_left_out(bundles: Path, tmp_path: Path) -> None:
    """They have no couplings."""
    bundle = Bundle.open(bundles / "mnist")
    write_manifest(
        bundle.path, replace(bundle.manifest, offers=("decode",), layers=(), neighbours=None)
    )
    routing.measure_all(bundles, tmp_path, tmp_path, names=None, again=False, tell=lambda _: None)
    assert {} == routing.read(tmp_path)


def test_networks_without_a_published_test_split_are_left_out(
    bundles: Path, tmp_path: Path, bundle_path: Path
) -> None:
    """As those of one's own pictures."""
    pets = say_training(bundle_path, bundles / "pets", dataset="pets")
    write_manifest(pets.path, replace(pets.manifest, name="pets"))
    routing.measure_all(bundles, tmp_path, tmp_path, names=None, again=False, tell=lambda _: None)
    assert ["mnist"] == list(routing.read(tmp_path))
