from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from service.processes.snapshots import LockHeld, Revision, Snapshots
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
    monkeypatch.setattr("service.processes.snapshots.MAX_BUNDLE_BYTES", 100_000_000)
    with pytest.raises(OSError, match="has more than 100,000,000 bytes"):
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


def test_the_copy_before_is_kept(snapshots: Snapshots, settings: Settings) -> None:
    """A worker may be loading it, also after other keys; older ones go."""
    assert snapshots.current is None
    digests = []
    for content, keys in [("1", "keys"), ("2", "keys"), ("3", "keys"), ("3", "others")]:
        digests.append(snapshots.take(changed(settings, content)))
        snapshots.make_current(Revision(digests[-1], keys))
        assert Revision(digests[-1], keys) == snapshots.current
    assert [False, True, True] == [snapshots.bundles(digest).exists() for digest in digests[:3]]


def test_a_refused_copy_is_removed(snapshots: Snapshots, settings: Settings) -> None:
    """But not the current one, if it is that."""
    current, other = (snapshots.take(changed(settings, content)) for content in ("1", "2"))
    snapshots.make_current(Revision(current, "keys"))
    for digest in (current, other, ""):
        snapshots.discard(digest)
    assert [True, False] == [snapshots.bundles(one).exists() for one in (current, other)]


def test_what_a_killed_worker_left_is_removed(
    snapshots: Snapshots, settings: Settings, tmp_path: Path
) -> None:
    """Half a copy takes room."""
    (tmp_path / "service" / "copy-half").mkdir()
    snapshots.take(settings)
    assert [] == list((tmp_path / "service").glob("copy-*"))


def test_one_worker_copies_at_a_time(snapshots: Snapshots) -> None:
    """Others are told, and may afterwards."""
    with snapshots.lock(wait=False), pytest.raises(LockHeld), snapshots.lock(wait=False):
        pass
    with snapshots.lock(wait=True):
        pass
