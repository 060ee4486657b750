from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from model.bundle import MANIFEST
from service.errors import BundleRefused
from service.inference.bundles import load_runtimes
from service.pictures import SAMPLES
from service.settings import Settings
from tests.serving import serve

ENCODER = "encoder.onnx"


@pytest.fixture
def add_bundle(bundle_path: Path, tmp_path: Path) -> Callable[[str], Path]:
    """`add_bundle(name)` puts a sound bundle of that name into `tmp_path`."""

    def add(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(bundle_path, folder)
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps({**manifest, "name": name}))
        return folder

    return add


def settings(bundles: Path, *models: str) -> Settings:
    return Settings(bundles=bundles, models=models, device="cpu", threads=1, default_model="mnist")


def replace_graph(folder: Path) -> None:
    (folder / ENCODER).write_bytes(b"no graph")
    values = json.loads((folder / MANIFEST).read_text())
    values["sha256"][ENCODER] = hashlib.sha256(b"no graph").hexdigest()
    (folder / MANIFEST).write_text(json.dumps(values))


def take_a_name(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**values, "name": "mnist"}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(replace_graph, "encoder.onnx cannot be loaded", id="no graph"),
        pytest.param(take_a_name, "its name is already taken by", id="a name twice"),
    ],
)
def test_a_broken_bundle_is_named_and_left_out(
    damage: Callable[[Path], None],
    reason: str,
    add_bundle: Callable[[str], Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says which bundle is wrong and why; the others are served."""
    add_bundle("mnist")
    broken = add_bundle("two")
    damage(broken)
    assert {"mnist"} == load_runtimes(settings(tmp_path)).keys()
    (message,) = [record.getMessage() for record in caplog.records]
    assert str(broken) in message
    assert reason in message


def test_only_named_bundles_are_loaded(add_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    """With a list of models, other folders are not loaded."""
    add_bundle("mnist")
    add_bundle("mnist-compact")
    assert {"mnist"} == load_runtimes(settings(tmp_path, "mnist")).keys()


def test_nothing_is_served_without_the_default_bundle(
    add_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    """The message names the default, what was found instead, and the variable to set."""
    add_bundle("mnist-compact")
    expected = (
        r"'mnist' is not among the loaded bundles \(mnist-compact\) of .*"
        r"set CAPSNET_DEFAULT_MODEL to one of mnist-compact"
    )
    with pytest.raises(BundleRefused, match=expected):
        load_runtimes(settings(tmp_path))


def test_the_first_bundle_by_name_is_the_default(
    add_bundle: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the settings name none and there is no `mnist`; the log says which it is."""
    caplog.set_level("INFO")
    add_bundle("shapes")
    add_bundle("letters")
    with serve(Settings(bundles=tmp_path, device="cpu", threads=1)) as client:
        models = client.get("/models").json()["models"]
        answer = client.post("/classify", files={"file": (SAMPLES / "7.png").read_bytes()})
    assert {"letters": True, "shapes": False} == {one["name"]: one["default"] for one in models}
    assert "letters" == answer.json()["model"]
    assert "the default model is 'letters'" in caplog.text


def test_nothing_is_served_if_the_default_bundle_is_broken(
    add_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    """No other bundle takes the place of an altered default bundle."""
    replace_graph(add_bundle("mnist"))
    add_bundle("mnist-compact")
    unnamed = Settings(bundles=tmp_path, device="cpu", threads=1)
    for own in (settings(tmp_path), unnamed):
        with pytest.raises(BundleRefused, match="set CAPSNET_DEFAULT_MODEL to one of"):
            load_runtimes(own)
