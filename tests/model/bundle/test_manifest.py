from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import model
from model.bundle import Bundle, Manifest
from model.bundle.directions import Direction
from model.bundle.novelty import NoveltyRule
from tests.directions import make_direction


@pytest.fixture
def manifest(bundle_path: Path) -> Manifest:
    return Bundle.open(bundle_path).manifest


def test_a_manifest_survives_its_dictionary(manifest: Manifest) -> None:
    """Every entry comes back as it was, tuples included."""
    full = replace(
        manifest,
        metrics={"test_errors": 25},
        training={"seed": 1},
        directions=(make_direction(7), make_direction(7, "width", got=0.5)),
        novelty=NoveltyRule((0.0, 1.0), (0.1, 0.9), (0.0, 0.8), (0.1, 2.0), 0.01, "digits"),
    )
    assert full == Manifest.from_dict(json.loads(json.dumps(full.to_dict())))


def test_a_manifest_offers_the_good_directions_of_a_class(manifest: Manifest) -> None:
    """Each class has its own directions. A direction that gives half of the change is refused."""
    good, bad = make_direction(7), make_direction(7, "width", got=0.5)
    fitted = replace(manifest, directions=(make_direction(6), bad, good))
    assert [good] == fitted.offered_directions(7)
    found = [fitted.find_direction(*key) for key in ((7, "slant"), (7, "width"), (8, "slant"))]
    assert [good, None, None] == found


def test_names_of_dimensions_in_older_bundles_are_ignored(manifest: Manifest) -> None:
    """They were measured in another way; the bundle loads as before."""
    older = {**manifest.to_dict(), "pose_dimensions": [{"label": 7, "dim": 4, "name": "slant"}]}
    assert manifest == Manifest.from_dict(older)


@pytest.mark.parametrize("wrong", [make_direction(10), make_direction(7, dims=15)])
def test_a_direction_of_another_network_is_refused(wrong: Direction, manifest: Manifest) -> None:
    """Its class and its vector have to be there."""
    with pytest.raises(ValueError, match="of another network"):
        replace(manifest, directions=(wrong,))


@pytest.mark.parametrize("entry", ["quantiles", "images", "others", "threshold"])
def test_a_novelty_rule_of_another_kind_is_refused(entry: str, manifest: Manifest) -> None:
    """Whatever is wrong with it, in words."""
    rule = NoveltyRule((0.0, 1.0), (0.1, 0.9), (0.0, 0.8), (0.1, 2.0), 0.01, "digits").to_dict()
    with pytest.raises(ValueError, match=rf"^novelty\.{entry}.*: Input should be"):
        Manifest.from_dict({**manifest.to_dict(), "novelty": {**rule, entry: {"x": None}}})


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


def test_a_network_without_poses_has_a_manifest(manifest: Manifest) -> None:
    """It has an encoder alone, no routed layers and poses of no numbers."""
    baseline = replace(
        manifest,
        offers=(),
        graphs={"encoder": "encoder.onnx"},
        layers=(),
        class_dim=0,
        neighbours=None,
    )
    assert baseline == Manifest.from_dict(json.loads(json.dumps(baseline.to_dict())))


def test_colour_is_for_photographs(manifest: Manifest) -> None:
    """Cropped images may have three channels, and any shape."""
    colour = replace(manifest, preprocess="crop", channels=3, height=24, width=32)
    assert (3, 24, 32) == colour.image_shape


def test_a_manifest_tells_its_sizes(manifest: Manifest) -> None:
    """K and the shape of an image follow from the entries."""
    assert 10 == manifest.num_classes
    assert (1, 28, 28) == manifest.image_shape


def test_an_unknown_entry_is_refused(manifest: Manifest) -> None:
    """A manifest of a later schema, or with a typo, is not half understood."""
    with pytest.raises(ValueError, match="unknown entries: colour, sise"):
        Manifest.from_dict({**manifest.to_dict(), "sise": 28, "colour": True})


def test_a_missing_entry_is_refused(manifest: Manifest) -> None:
    """The message names what is missing."""
    values = manifest.to_dict()
    del values["class_dim"]
    with pytest.raises(ValueError, match="class_dim"):
        Manifest.from_dict(values)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("schema_version", 1, "schema version 1, expected 2"),
        ("name", "MNIST", "'MNIST' is not a bundle name"),
        ("name", "../mnist", "is not a bundle name"),
        ("name", "", "is not a bundle name"),
        ("name", 7, "name: Input should be a valid string"),
        ("preprocess", "letter", "preprocess: Input should be 'digit', 'pair', 'stretch' or"),
        ("presence", "norm", "presence: Input should be 'length', 'activation' or"),
        ("offers", ["dream"], "offers.0: Input should be 'decode', 'trace' or"),
        ("graphs", {"dreamer": "dreamer.onnx"}, "graphs.dreamer"),
        ("graphs", {"decoder": "decoder.onnx", "routing": "routing.onnx"}, "no encoder graph"),
        ("graphs", {"encoder": "encoder.onnx"}, "there is no decoder, routing graph"),
        ("graphs", ["encoder.onnx"], "graphs: Input should be an object"),
        ("layers", [], "routed layers"),
        ("class_names", [], "sizes must be positive"),
        ("class_names", 10, "class_names: Input should be a valid array"),
        ("channels", 2, "1 channel, or up to 16 where cropped"),
        ("channels", 3, "1 channel, or up to 16 where cropped"),
        ("height", 0, "sizes must be positive"),
        ("width", -1, "sizes must be positive"),
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


@pytest.mark.parametrize(("rule", "threshold"), [("pair", None), ("digit", 0.5)])
def test_masks_are_for_pairs_alone(manifest: Manifest, rule: Any, threshold: float | None) -> None:
    """A bundle for pairs has a threshold of masks, and no other does."""
    with pytest.raises(ValueError, match="mask threshold"):
        replace(manifest, preprocess=rule, mask_threshold=threshold)
