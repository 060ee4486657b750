from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from service.processes.folder import Revisions
from service.processes.snapshots import SPARE_BYTES, Snapshots
from service.settings import Settings


@pytest.fixture
def settings(bundle_path: Path, tmp_path: Path) -> Settings:
    """Of a folder with one bundle that the test may change."""
    shutil.copytree(bundle_path, tmp_path / "bundles" / "mnist")
    return Settings(bundles=tmp_path / "bundles")


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    (folder := tmp_path / "service").mkdir()
    return Snapshots(folder, Revisions(folder, workers=1))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_is_the_bundles_as_they_were(snapshots: Snapshots, settings: Settings) -> None:
    """What is written into a file afterwards does not reach it, as it would a link."""
    before = files(settings.bundles)
    copy = snapshots.take(settings)
    with (settings.bundles / "mnist" / "encoder.onnx").open("r+b") as file:
        file.write(b"broken")
    assert before == files(Path(copy))


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("secret.bin", "../../secret.bin", "is a link to a file outside the bundle"),
        ("samples/secret.png", "../../../secret.bin", "is a link to a file outside the bundle"),
        ("zeros.bin", "/dev/zero", "is a link to a file outside the bundle"),
        ("itself.bin", "itself.bin", "Too many levels"),
    ],
)
def test_a_bundle_that_links_elsewhere_is_refused(
    snapshots: Snapshots, settings: Settings, name: str, target: str, reason: str
) -> None:
    """A copy of the link would be read by a graph; at the start the others are served."""
    (settings.bundles.parent / "secret.bin").write_bytes(b"secret")
    shutil.copytree(settings.bundles / "mnist", settings.bundles / "hostile")
    (settings.bundles / "hostile" / "samples").mkdir(exist_ok=True)
    (settings.bundles / "hostile" / name).symlink_to(target)
    with pytest.raises(OSError, match=reason):
        snapshots.take(settings)
    copy = snapshots.take(settings, strict=False)
    assert ["mnist"] == [path.name for path in Path(copy).iterdir()]


def test_links_within_a_bundle_and_to_its_folder_are_followed(
    snapshots: Snapshots, settings: Settings, tmp_path: Path
) -> None:
    """As Kubernetes mounts files, and releases are switched."""
    before, bundle = files(settings.bundles), settings.bundles / "mnist"
    (bundle / "..data").mkdir()
    for path in [path for path in bundle.iterdir() if path.is_file()]:
        path.rename(bundle / "..data" / path.name)
        path.symlink_to(Path("..data", path.name))
    bundle.rename(tmp_path / "release")
    bundle.symlink_to(tmp_path / "release")
    assert before == files(Path(snapshots.take(settings)))


def test_what_is_copied_of_a_bundle_is_bounded(
    snapshots: Snapshots, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a terabyte may take a block on its disk; the copy would not."""
    with (settings.bundles / "mnist" / "sparse.bin").open("wb") as file:
        file.truncate(10**12)
    monkeypatch.setattr("service.processes.snapshots.MAX_BUNDLES_BYTES", 100_000_000)
    with pytest.raises(OSError, match="the bundles have more than 100,000,000 bytes"):
        snapshots.take(settings)
    monkeypatch.setattr("service.processes.snapshots.MAX_BUNDLE_FILES", 3)
    with pytest.raises(OSError, match="has more than 3 files"):
        snapshots.take(settings)


def test_a_copy_that_the_disk_has_no_room_for_is_not_made(
    snapshots: Snapshots, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk would keep killed workers from being replaced."""
    full = shutil.disk_usage(tmp_path)._replace(free=SPARE_BYTES + 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    with pytest.raises(OSError, match="has room for 1,000 bytes") as raised:
        snapshots.take(settings)
    assert errno.ENOSPC == raised.value.errno
