from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from service.inference.bundles import ReloadRefused
from service.processes.snapshots import SPARE_BYTES, LockHeld, Revision, Snapshots
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
    digest = snapshots.take(settings)
    with (settings.bundles / "mnist" / "encoder.onnx").open("r+b") as file:
        file.write(b"broken")
    assert before == files(snapshots.bundles(digest))


def test_a_digest_names_what_is_copied(snapshots: Snapshots, settings: Settings) -> None:
    """The same for the same, and another for a file that was renamed."""
    first = snapshots.take(settings)
    assert first == snapshots.take(settings)
    (settings.bundles / "mnist" / "CARD.md").touch()
    with_card = snapshots.take(settings)
    (settings.bundles / "mnist" / "CARD.md").rename(settings.bundles / "mnist" / "OTHER.md")
    assert with_card != snapshots.take(settings)


@pytest.mark.parametrize("models", [("mnist",), ()])
def test_what_is_not_served_is_not_copied(
    snapshots: Snapshots, settings: Settings, models: tuple[str, ...]
) -> None:
    """Hidden folders and, where models are named, all others; folders without a manifest too."""
    shutil.copytree(settings.bundles / "mnist", settings.bundles / ".hidden")
    (settings.bundles / "no-bundle").mkdir()
    digest = snapshots.take(settings.model_copy(update={"models": models}))
    assert ["mnist"] == [path.name for path in snapshots.bundles(digest).iterdir()]


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
    digest = snapshots.take(settings, strict=False)
    assert ["mnist"] == [path.name for path in snapshots.bundles(digest).iterdir()]


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
    assert before == files(snapshots.bundles(snapshots.take(settings)))


def test_folders_in_a_bundle_are_not_entered(snapshots: Snapshots, settings: Settings) -> None:
    """A folder that links to its parent has no end."""
    before = files(settings.bundles)
    (settings.bundles / "mnist" / "again").symlink_to(".")
    assert before == files(snapshots.bundles(snapshots.take(settings)))


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


def test_a_folder_that_is_missing_is_left_to_loading(
    snapshots: Snapshots, settings: Settings
) -> None:
    """Its error is a better one."""
    missing = settings.model_copy(update={"bundles": settings.bundles / "nowhere"})
    assert not snapshots.bundles(snapshots.take(missing)).exists()


def changed(settings: Settings, content: str) -> Settings:
    """The settings, after a file of the bundle has got another content."""
    (settings.bundles / "mnist" / "CARD.md").write_text(content)
    return settings


def test_only_the_current_copy_stays(
    snapshots: Snapshots, settings: Settings, tmp_path: Path
) -> None:
    """Copies that were replaced or refused take room, and so does half a copy of a kill."""
    assert snapshots.current is None
    digests = []
    for content, keys in [("1", "keys"), ("2", "keys"), ("2", "others"), ("3", "others")]:
        digests.append(snapshots.take(changed(settings, content)))
        if content != "3":
            assert Revision(digests[-1], keys) == snapshots.change(bundles=digests[-1], keys=keys)
    (tmp_path / "service" / "copy-half").mkdir()
    snapshots.remove_others()
    assert [False, True, False] == [
        snapshots.bundles(digest).exists() for digest in (digests[0], digests[1], digests[3])
    ]
    assert [] == list((tmp_path / "service").glob("copy-*"))


def test_bundles_and_keys_change_by_themselves(snapshots: Snapshots) -> None:
    """A reload of keys during one of bundles loses neither."""
    snapshots.change(bundles="1", keys="keys")
    snapshots.change(keys="others")
    assert Revision("2", "others") == snapshots.change(bundles="2") == snapshots.current


@pytest.mark.parametrize("strict", [True, False])
def test_a_bundle_that_cannot_be_copied_leaves_no_copy(
    snapshots: Snapshots, settings: Settings, tmp_path: Path, *, strict: bool
) -> None:
    """Every failed reload would otherwise take room."""
    (settings.bundles / "mnist" / "link.bin").symlink_to("/dev/zero")
    if strict:
        with pytest.raises(OSError, match="outside the bundle"):
            snapshots.take(settings)
    else:
        snapshots.take(settings, strict=False)
    assert [] == list((tmp_path / "service").glob("copy-*"))


def test_a_copy_that_the_disk_has_no_room_for_is_not_begun(
    snapshots: Snapshots, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk would keep killed workers from being replaced."""
    full = shutil.disk_usage(tmp_path)._replace(free=SPARE_BYTES + 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    with pytest.raises(OSError, match="has room for 1,000 bytes") as raised:
        snapshots.take(settings)
    assert errno.ENOSPC == raised.value.errno


def test_a_broken_bundle_refuses_a_copy_and_is_left_out_at_the_start(
    snapshots: Snapshots, settings: Settings
) -> None:
    """It was opened in a process of its own; the reason names the original."""
    shutil.copytree(settings.bundles / "mnist", settings.bundles / "two")
    (settings.bundles / "two" / "encoder.onnx").write_bytes(b"no graph")
    with pytest.raises(
        ReloadRefused, match=f"{settings.bundles}/two: encoder.onnx is not the file"
    ):
        snapshots.take(settings)
    digest = snapshots.take(settings, strict=False)
    assert ["mnist"] == [path.name for path in snapshots.bundles(digest).iterdir()]


def test_one_worker_copies_at_a_time(snapshots: Snapshots) -> None:
    """Others get an error, and may load afterwards."""
    with snapshots.lock(wait=False), pytest.raises(LockHeld), snapshots.lock(wait=False):
        pass
    with snapshots.lock(wait=True):
        pass
