from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from service.processes.snapshots import LockHeld, Snapshots
from service.settings import Settings


@pytest.fixture
def settings(bundle_path: Path, tmp_path: Path) -> Settings:
    """Of a folder with one bundle that the test may change."""
    shutil.copytree(bundle_path, tmp_path / "bundles" / "mnist")
    return Settings(bundles=tmp_path / "bundles")


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    (tmp_path / "service").mkdir()
    return Snapshots(tmp_path / "service")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_is_the_bundles_as_they_were(snapshots: Snapshots, settings: Settings) -> None:
    """What is written into a file afterwards does not reach it, as it would a link."""
    before = files(settings.bundles)
    digest = snapshots.take(settings, "keys")
    with (settings.bundles / "mnist" / "encoder.onnx").open("r+b") as file:
        file.write(b"broken")
    assert before == files(snapshots.bundles(digest))
    assert "keys" == snapshots.keys(digest)


def test_a_digest_names_what_is_copied(snapshots: Snapshots, settings: Settings) -> None:
    """The same for the same; another for other keys, and for a file that was renamed."""
    first = snapshots.take(settings, "keys")
    assert first == snapshots.take(settings, "keys")
    assert first != snapshots.take(settings, "others")
    (settings.bundles / "mnist" / "CARD.md").touch()
    with_card = snapshots.take(settings, "keys")
    (settings.bundles / "mnist" / "CARD.md").rename(settings.bundles / "mnist" / "OTHER.md")
    assert with_card != snapshots.take(settings, "keys")


@pytest.mark.parametrize("models", [("mnist",), ()])
def test_what_is_not_served_is_not_copied(
    snapshots: Snapshots, settings: Settings, models: tuple[str, ...]
) -> None:
    """Hidden folders and, where models are named, all others; folders without a manifest too."""
    shutil.copytree(settings.bundles / "mnist", settings.bundles / ".hidden")
    (settings.bundles / "no-bundle").mkdir()
    digest = snapshots.take(settings.model_copy(update={"models": models}), "")
    assert ["mnist"] == [path.name for path in snapshots.bundles(digest).iterdir()]


def test_a_folder_that_is_missing_is_left_to_loading(
    snapshots: Snapshots, settings: Settings
) -> None:
    """Its error is a better one."""
    missing = settings.model_copy(update={"bundles": settings.bundles / "nowhere"})
    assert not snapshots.bundles(snapshots.take(missing, "")).exists()


def test_the_copy_before_is_kept(snapshots: Snapshots, settings: Settings) -> None:
    """A worker may be loading it; older ones go."""
    assert snapshots.current is None
    digests = []
    for keys in ("1", "2", "3"):
        digests.append(snapshots.take(settings, keys))
        snapshots.use(digests[-1])
    assert digests[2] == snapshots.current
    assert [False, True, True] == [snapshots.bundles(digest).exists() for digest in digests]


def test_a_refused_copy_is_removed(snapshots: Snapshots, settings: Settings) -> None:
    """But not the current one, if it is that."""
    current, other = (snapshots.take(settings, keys) for keys in ("1", "2"))
    snapshots.use(current)
    for digest in (current, other, ""):
        snapshots.discard(digest)
    assert [True, False] == [snapshots.bundles(one).exists() for one in (current, other)]


def test_what_a_killed_worker_left_is_removed(
    snapshots: Snapshots, settings: Settings, tmp_path: Path
) -> None:
    """Half a copy takes room."""
    (tmp_path / "service" / "copy-half").mkdir()
    snapshots.take(settings, "")
    assert [] == list((tmp_path / "service").glob("copy-*"))


def test_one_worker_copies_at_a_time(snapshots: Snapshots) -> None:
    """Others are told, and may afterwards."""
    with snapshots.lock(wait=False), pytest.raises(LockHeld), snapshots.lock(wait=False):
        pass
    with snapshots.lock(wait=True):
        pass
