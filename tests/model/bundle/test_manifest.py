from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import model
from model.bundle import Bundle, Manifest
from tests.extras import make_direction


@pytest.fixture
def manifest(bundle_path: Path) -> Manifest:
    return Bundle.open(bundle_path).manifest


@pytest.mark.parametrize(
    "entries",
    [
        {"directions": [{"label": 0, "name": "slant"}]},
        {"directions": [3]},
        {"directions": [{**asdict(make_direction(7)), "quantiles": [0.0]}]},
        {"directions": [{**asdict(make_direction(7)), "vector": [1.0]}]},
        {"layers": [3]},
        {"layers": [{"name": "classes", "iterations": 3}]},
        {"novelty": {"threshold": 0.5}},
        {"novelty": [0.5]},
        {"class_names": [1, 2, 3]},
        {"class_names": "0123456789"},
        {"height": "28"},
        {"family": ["dynamic"]},
        {"graphs": {"encoder": ["encoder.onnx"]}},
        {"sha256": {"encoder.onnx": 7}},
        {"layers": [{"name": "classes", "iterations": "3", "types": 1, "rows": 1, "columns": 1}]},
    ],
)
def test_findings_of_another_form_are_refused(entries: dict[str, Any], manifest: Manifest) -> None:
    """What the service would stumble over later is refused when it is read."""
    with pytest.raises(ValueError, match=r"."):
        Manifest.from_dict({**manifest.to_dict(), **entries})


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    """The manifest of a bundle that ships, with every entry."""
    return model.open_bundle("mnist").manifest.to_dict()


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in model.SHIPPED.glob("*/*.json"))
)
def test_each_manifest_that_ships_is_read_as_it_is_written(name: str) -> None:
    """Nothing is lost, added or in another order."""
    text = (model.SHIPPED / name / "manifest.json").read_text()
    assert (
        text
        == json.dumps(model.open_bundle(name).manifest.to_dict(), indent=2, ensure_ascii=False)
        + "\n"
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("explained", "pca"), {"1": 0.5}, "pca has no share of 16 numbers"),
        (("explained", "pca"), {}, "pca has no share of 16 numbers"),
        (("explained", "pose"), -1e308, "explained.pose"),
        (("training", "recipe"), "x", "recipe: Input should be a valid dictionary"),
        (("training", "recipe"), [1], "recipe: Input should be a valid dictionary"),
        (("confidence", "thresholds"), [[0.9] * 52] * 3, "thresholds of all classes, or of each"),
        (("confidence", "thresholds"), [[0.9] * 51], "a threshold for each coverage"),
        (("confidence", "temperature"), 0, "confidence.temperature"),
        (("health", "capsules"), [], "health.capsules"),
        (("health", "couplings", 0, "entropy"), [], "health.couplings.0.entropy"),
        (("health", "couplings", 0, "entropy"), [0.1] * 500, "health.couplings.0.entropy"),
        (("health", "couplings", 0, "entropy"), [0.1] * 2, "a number for each iteration"),
        (("health", "couplings", 0, "entropy"), [1.1] * 3, "less than or equal to 1"),
        (("novelty", "length"), [0.1, 0.2], "differ in size"),
        (("directions", 0, "vector"), [0.1] * 3, "directions.0"),
        (("layers", 0, "types"), 0, "layers.0.types"),
    ],
)
def test_entries_that_do_not_go_together_are_refused(
    path: tuple[str | int, ...], value: object, message: str, shipped: dict[str, Any]
) -> None:
    """`GET /models` and the pages that show a bundle would stumble over them."""
    values = deepcopy(shipped)
    entry: Any = values
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        Manifest.from_dict(values)


def test_poses_of_another_network_are_refused() -> None:
    """Distances to training images would be measured between poses of two sizes."""
    manifest = model.open_bundle("mnist").manifest
    shown = manifest.neighbours
    assert shown
    assert shown.gallery
    poses, whitening = shown.gallery.poses[:, :8], shown.gallery.whitening[:, :8, :8]
    gallery = replace(shown.gallery, poses=poses, whitening=whitening)
    with pytest.raises(ValueError, match=r"neighbours\.npz is of a network with other poses"):
        replace(manifest, neighbours=replace(shown, gallery=gallery))


def test_a_bundle_with_an_encoder_in_float16_is_read(manifest: Manifest) -> None:
    """Older ones of the family `dynamic` have one, and what it did to answers."""
    graphs = {**manifest.graphs, "encoder.fp16": "encoder.fp16.onnx"}
    entries = {**manifest.to_dict(), "graphs": graphs, "half_precision": {"answers_changed": 0}}
    assert replace(manifest, graphs=graphs) == Manifest.from_dict(entries)


def test_an_unknown_entry_is_refused(manifest: Manifest) -> None:
    """A manifest of a later schema, or with a typo, is not half understood."""
    with pytest.raises(ValueError, match="Unexpected keyword argument"):
        Manifest.from_dict({**manifest.to_dict(), "sise": 28, "colour": True})


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("schema_version", 1, "schema version 1, expected 2"),
        ("name", "MNIST", "name: String should match"),
        ("name", "../mnist", "name: String should match"),
        ("name", "", "name: String should match"),
        ("name", 7, "name: Input should be a valid string"),
        ("preprocess", "letter", "preprocess: Input should be 'digit', 'pair', 'stretch' or"),
        ("presence", "norm", "presence: Input should be 'length', 'activation' or"),
        ("offers", ["dream"], "offers.0: Input should be 'decode', 'trace' or"),
        ("graphs", {"dreamer": "dreamer.onnx"}, "graphs.dreamer"),
        ("graphs", {"decoder": "decoder.onnx", "routing": "routing.onnx"}, "no encoder graph"),
        ("graphs", {"encoder": "encoder.onnx"}, "there is no decoder, routing graph"),
        ("graphs", ["encoder.onnx"], "graphs: Input should be an object"),
        ("layers", [], "routed layers"),
        ("class_names", [], "class_names: "),
        ("class_names", 10, "class_names: Input should be a valid array"),
        ("channels", 2, "1 channel, or up to 16 where cropped"),
        ("channels", 3, "1 channel, or up to 16 where cropped"),
        ("height", 0, "height: Input should be greater"),
        ("width", -1, "width: Input should be greater"),
        ("width", "28", "width: Input should be a valid integer"),
        ("width", 56, "square"),
        ("class_dim", 0, "have poses"),
        ("sha256", ["weights.safetensors"], "sha256: Input should be an object"),
    ],
)
def test_a_wrong_value_is_refused(
    entry: str, value: object, message: str, manifest: Manifest
) -> None:
    """Values out of range or of the wrong kind are a ValueError that says what is wrong."""
    with pytest.raises(ValueError, match=message):
        Manifest.from_dict({**manifest.to_dict(), entry: value})
