from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.bundle import (
    DECODER,
    ENCODER,
    GRAPHS,
    MANIFEST,
    ROUTING,
    WEIGHTS,
    Bundle,
    BundleError,
    Manifest,
    write_manifest,
)
from model.dimensions import PoseDimension
from model.familiarity import Familiarity


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    """A sound bundle to be damaged."""
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


@pytest.fixture
def manifest(bundle_path: Path) -> Manifest:
    return Bundle.open(bundle_path).manifest


def rewrite(folder: Path, **entries: Any) -> None:
    """Change entries of a bundle's manifest; None removes one."""
    values = {**json.loads((folder / MANIFEST).read_text()), **entries}
    kept = {key: value for key, value in values.items() if value is not None}
    (folder / MANIFEST).write_text(json.dumps(kept))


def test_a_manifest_survives_its_dictionary(manifest: Manifest) -> None:
    """Every entry comes back as it was, tuples included."""
    full = replace(
        manifest,
        metrics={"test_errors": 25},
        training={"seed": 1},
        pose_dimensions=(PoseDimension(7, 0, "slant", -1, 0.5), PoseDimension(7, 1, "none")),
        known=Familiarity((0.0, 1.0), (0.1, 0.9), (0.0, 0.8), (0.1, 2.0), 0.01, "digits"),
    )
    assert full == Manifest.from_dict(json.loads(json.dumps(full.to_dict())))


def test_a_manifest_survives_its_file(manifest: Manifest, copy: Path) -> None:
    """What is written is what is read, and nothing is left beside it."""
    renamed = replace(manifest, name="another", dataset="Zählwerk")
    files = sorted(copy.iterdir())
    write_manifest(copy, renamed)
    assert renamed == Bundle.open(copy).manifest
    assert files == sorted(copy.iterdir())


def test_a_manifest_tells_what_a_dimension_means(manifest: Manifest) -> None:
    """Of each class its own; None where it was not measured."""
    name = PoseDimension(7, 4, "width", 1, 0.5)
    named = replace(manifest, pose_dimensions=(PoseDimension(6, 4, "none"), name))
    assert [name, None, None] == [named.meaning(7, 4), named.meaning(7, 5), named.meaning(8, 4)]


@pytest.mark.parametrize(
    "entries",
    [
        {"pose_dimensions": [{"dim": 0, "effect": "slant"}]},
        {"pose_dimensions": [3]},
        {"known": {"threshold": 0.5}},
        {"known": [0.5]},
    ],
)
def test_findings_of_another_form_are_refused(entries: dict[str, Any], manifest: Manifest) -> None:
    """What the service would stumble over later is refused when it is read."""
    with pytest.raises(ValueError, match=r"."):
        Manifest.from_dict({**manifest.to_dict(), **entries})


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
        ("schema_version", 2, "schema version 2, expected 1"),
        ("name", "MNIST", "'MNIST' is not a bundle name"),
        ("name", "../mnist", "is not a bundle name"),
        ("name", "", "is not a bundle name"),
        ("name", 7, "expected string"),
        ("preprocess", "letter", "unknown preprocessing rule 'letter'"),
        ("class_names", [], "sizes must be positive"),
        ("class_names", 10, "not iterable"),
        ("image_size", 0, "sizes must be positive"),
        ("class_dim", -1, "sizes must be positive"),
        ("primary_grid", "6", "not supported"),
        ("sha256", ["weights.bin"], "sha256 maps file names"),
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
    """A bundle for pairs says where it cuts its masks, and no other does."""
    with pytest.raises(ValueError, match="mask threshold"):
        replace(manifest, preprocess=rule, mask_threshold=threshold)


def test_a_sound_bundle_opens(bundle_path: Path) -> None:
    """The bundle knows where it lies and lists its graphs and weights."""
    bundle = Bundle.open(bundle_path)
    assert bundle_path == bundle.path
    assert {*GRAPHS, WEIGHTS} == bundle.manifest.sha256.keys()


@pytest.mark.parametrize("name", [ENCODER, DECODER, ROUTING, WEIGHTS])
def test_an_altered_file_is_refused(name: str, copy: Path) -> None:
    """One bit is enough; the message names the bundle and the file."""
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(BundleError, match=rf"copy: {name} is not the file"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", [ENCODER, DECODER, ROUTING, WEIGHTS, MANIFEST])
def test_a_missing_file_is_refused(name: str, copy: Path) -> None:
    """A bundle without one of its files is none."""
    (copy / name).unlink()
    with pytest.raises(BundleError, match=rf"copy: {name} cannot be read: No such file"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", [ENCODER, WEIGHTS])
def test_a_file_that_is_not_listed_is_refused(name: str, copy: Path) -> None:
    """A graph without a digest could be anything."""
    digests = json.loads((copy / MANIFEST).read_text())["sha256"]
    del digests[name]
    rewrite(copy, sha256=digests)
    with pytest.raises(BundleError, match=f"does not list {name}"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["../outside.bin", "/outside.bin", "sub/outside.bin"])
def test_a_name_outside_the_bundle_is_refused(name: str, copy: Path) -> None:
    """A manifest cannot make the service read other files."""
    digests = json.loads((copy / MANIFEST).read_text())["sha256"]
    rewrite(copy, sha256={**digests, name: "0" * 64})
    with pytest.raises(BundleError, match="lies outside the bundle"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_folder_is_no_file_of_the_bundle(name: str, copy: Path) -> None:
    """Names of the folder itself or the one around it are refused too."""
    digests = json.loads((copy / MANIFEST).read_text())["sha256"]
    rewrite(copy, sha256={**digests, name: "0" * 64})
    with pytest.raises(BundleError):
        Bundle.open(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "manifest.json is not JSON"),
        (b"\xff\xfe", "manifest.json is not JSON"),
        (b"[]", "manifest.json is not a JSON object"),
        (b"{}", "manifest.json: .*missing"),
    ],
)
def test_a_manifest_that_is_none_is_refused(content: bytes, message: str, copy: Path) -> None:
    """Whatever lies in the manifest's place, the error names the bundle."""
    (copy / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match=f"copy: {message}"):
        Bundle.open(copy)


def test_a_manifest_of_another_schema_is_refused(copy: Path) -> None:
    """The error says which schema was found and which is read."""
    rewrite(copy, schema_version=99)
    with pytest.raises(BundleError, match="schema version 99, expected 1"):
        Bundle.open(copy)
