from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.bundle import (
    MANIFEST,
    NEIGHBOURS,
    NOVELTY,
    WEIGHTS,
    Bundle,
    BundleError,
    digest,
)
from model.bundle.poses import NoveltyRule, PoseGaussians

ALL = [
    *(f"{role}.onnx" for role in ("encoder", "encoder.batch", "decoder", "routing")),
    WEIGHTS,
]
"""The files of a bundle of the family `dynamic`, but for the manifest."""


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    """A sound bundle to be damaged."""
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


def rewrite(folder: Path, **entries: Any) -> None:
    """Change entries of a bundle's manifest."""
    values = {**json.loads((folder / MANIFEST).read_text()), **entries}
    (folder / MANIFEST).write_text(json.dumps(values))


@pytest.mark.parametrize("name", ALL)
def test_an_altered_file_is_refused(name: str, copy: Path) -> None:
    """One bit is enough; the message names the bundle and the file."""
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(BundleError, match=rf"copy: {name} is not the file"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", [*ALL, MANIFEST])
def test_a_missing_file_is_refused(name: str, copy: Path) -> None:
    """A bundle without one of its files is none."""
    (copy / name).unlink()
    with pytest.raises(BundleError, match=rf"copy: {name} cannot be read: No such file"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["encoder.onnx", WEIGHTS])
def test_a_file_that_is_not_listed_is_refused(name: str, copy: Path) -> None:
    """A graph without a digest could be anything."""
    digests = json.loads((copy / MANIFEST).read_text())["sha256"]
    del digests[name]
    rewrite(copy, sha256=digests)
    with pytest.raises(BundleError, match=f"does not list {name}"):
        Bundle.open(copy)


RULE = NoveltyRule(*((0.0, 1.0),) * 4, threshold=0.01, images="digits", distance=(0.0, 1.0))


def write_rule(folder: Path, size: int, *, content: bytes = b"") -> None:
    """Give a bundle a rule and the poses of known images, (10, size), or another content."""
    with (folder / NOVELTY).open("wb") as file:
        gaussians = PoseGaussians(np.zeros((10, size), np.float32), np.eye(size, dtype=np.float16))
        gaussians.save(file)
    if content:
        (folder / NOVELTY).write_bytes(content)
    digests = json.loads((folder / MANIFEST).read_text())["sha256"]
    rewrite(
        folder,
        novelty=asdict(RULE),
        sha256={**digests, NOVELTY: digest(folder / NOVELTY)},
    )


def test_a_rule_without_its_poses_is_refused(copy: Path) -> None:
    """Not listed, missing, unreadable, or of another network: each is said."""
    rewrite(copy, novelty=asdict(RULE))
    with pytest.raises(BundleError, match=f"the manifest does not list {NOVELTY}"):
        Bundle.open(copy)
    write_rule(copy, 160, content=b"nothing")
    with pytest.raises(BundleError, match=f"copy: {NOVELTY}: it is no .npz file"):
        Bundle.open(copy)
    write_rule(copy, 80)
    with pytest.raises(BundleError, match=f"copy: {NOVELTY} is of a network with other poses"):
        Bundle.open(copy)
    (copy / NOVELTY).unlink()
    with pytest.raises(BundleError, match=f"copy: {NOVELTY} cannot be read: No such file"):
        Bundle.open(copy)


@pytest.mark.parametrize(
    "name", ["../outside.bin", "/outside.bin", "sub/outside.bin", "", ".", ".."]
)
def test_a_name_outside_the_bundle_is_refused(name: str, copy: Path) -> None:
    """A manifest cannot make the service read other files, or the folder itself."""
    digests = json.loads((copy / MANIFEST).read_text())["sha256"]
    rewrite(copy, sha256={**digests, name: "0" * 64})
    with pytest.raises(BundleError, match=r"lies outside|cannot be read"):
        Bundle.open(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "manifest.json is not JSON"),
        (b"\xff\xfe", "manifest.json is not JSON"),
        (100_000 * b"[", "manifest.json is not JSON"),
        (b"[]", "manifest.json is not a JSON object"),
        (b"{}", "manifest.json: schema version None"),
        (b'{"schema_version": 99}', "manifest.json: schema version 99, expected 2"),
        (b'{"schema_version": 2}', "manifest.json: name: Field required"),
    ],
)
def test_a_manifest_that_is_none_is_refused(content: bytes, message: str, copy: Path) -> None:
    """Whatever lies in the manifest's place, the error names the bundle."""
    (copy / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match=f"copy: {message}"):
        Bundle.open(copy)


@pytest.mark.parametrize(
    "name", [MANIFEST, "encoder.onnx", WEIGHTS, NEIGHBOURS, "samples/samples.json"]
)
def test_a_pipe_in_place_of_a_file_is_refused(name: str, copy: Path) -> None:
    """Opening it would wait for a writer."""
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).unlink(missing_ok=True)
    os.mkfifo(copy / name)
    with pytest.raises(BundleError, match="Not a regular file"):
        Bundle.open(copy)
