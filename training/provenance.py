"""A bundle's record: the runs that made it, every read of a test split, changes of its manifest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock
from pydantic.dataclasses import dataclass

from model.bundle import MANIFEST, NAME, Bundle, BundleError, Manifest, digest, write_manifest
from model.bundle.disk import replacing

TEST_READS = "test-reads.jsonl"
"""The file in the folder of bundles with a line for each read, also of bundles that are gone."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run's part in a network."""

    id: str
    """A random id, which no other run has."""
    preset: str
    dataset: str
    task: str
    seed: int
    held_out: int
    """The number of training examples that the run did not see."""
    steps: int = 0
    images: int = 0
    """The number of images seen, or of pairs; repetitions count."""
    seconds: float = 0.0
    devices: tuple[str, ...] = ()
    """The devices: CPU, or names of GPUs."""
    convolutions: tuple[str, ...] = ()
    """The data types of convolutions, float32 or bfloat16; empty where that was not recorded."""
    kept_step: int = 0
    """The step whose weights had the fewest errors on held-out images; 0 if the last weights were
    kept.
    """
    taken: tuple[str, ...] = ()
    """The names of the weights that the next run took from it; empty if it took all."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """The recipe, as `Recipe.to_dict` gives it; empty where it was not recorded."""
    command: str = ""
    """The command that was typed to begin the run; empty where none was."""

    def __str__(self) -> str:
        return f"{self.preset}, seed {self.seed}, {self.steps:,} steps"


def runs_of(training: Mapping[str, Any]) -> list[Run]:
    """The runs that made a bundle's network, one after the other, of its manifest's `training`."""
    return [Run(**run) for run in training["runs"]]


def unseen_by(runs: Sequence[Run]) -> int:
    """Count the examples of the last run's data set that were held out in all runs."""
    return min(run.held_out for run in runs if run.dataset == runs[-1].dataset)


def refuse_other(target: Path, training: Mapping[str, Any], *, replace_other: bool) -> None:
    """Refuse to write a bundle over one of another run, or over another import.

    Args:
        target: the bundle's folder, where there may be one.
        training: of the new bundle's manifest.
        replace_other: whether a bundle that something else made may be replaced.

    Raises:
        BundleError: such a bundle is there, or the folder's name is not one for a bundle.
    """
    path = target / MANIFEST
    if not NAME.fullmatch(target.name):
        raise BundleError(f"{target.name!r} is not a bundle name: small letters, digits, hyphens")
    if replace_other or not path.is_file():
        return
    try:
        there = json.loads(path.read_text()).get("training", {})
    except ValueError:
        there = {}
    if _made_by(there) != _made_by(training):
        raise BundleError(
            f"{target} is the bundle of {_made_by(there) or 'something else'}: choose another "
            "--name, or replace it with --replace"
        )


def _made_by(training: Mapping[str, Any]) -> str:
    """The import or the last run that made a bundle, in words."""
    if "imported" in training:
        return f"an import of {training['imported']}"
    runs = training.get("runs", ())
    return f"run {runs[-1]['id']} ({runs[-1]['preset']}, seed {runs[-1]['seed']})" if runs else ""


@dataclass(frozen=True, kw_only=True)
class TestRead:
    """One read of a test split by a run's network: choices made later are no longer blind."""

    __test__ = False  # for pytest, which would collect it

    run: str
    version: str
    """The version of the weights: see `model.bundle.Manifest`."""
    dataset: str
    split: str
    images: int
    errors: int
    protocol: str
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())


def lock(bundles: Path) -> FileLock:
    """The lock of what is written about the bundles of a folder: test reads and manifests."""
    bundles.mkdir(parents=True, exist_ok=True)
    return FileLock(bundles / f"{TEST_READS}.lock")


def record_read(bundles: Path, read: TestRead) -> None:
    """Add a read to the record in the folder of the bundles, for good.

    Raises:
        OSError: it cannot be written; then the scores must not be shown.
    """
    path = bundles / TEST_READS
    with lock(bundles):
        before = path.read_bytes() if path.exists() else b""
        with replacing(path) as file:
            file.write(before + json.dumps(asdict(read)).encode() + b"\n")


def reads_of(bundles: Path, runs: Sequence[Run]) -> tuple[TestRead, ...]:
    """Return all reads by any of the runs, the earliest first, whatever bundles they became.

    Raises:
        BundleError: a line is not one that `record_read` wrote.
    """
    path, ids = bundles / TEST_READS, {run.id for run in runs}
    lines = path.read_text().splitlines() if path.exists() else []
    reads = []
    for number, line in enumerate(lines, start=1):
        try:
            reads.append(TestRead(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise BundleError(f"{path}, line {number}: {error}") from error
    return tuple(read for read in reads if read.run in ids)


def update_manifest(
    bundle: Bundle,
    change: Callable[[Manifest], Manifest],
    files: Mapping[str, Callable[[BinaryIO], object]] | None = None,
) -> Bundle:
    """Read a bundle's manifest again, change it and write it, while no other process does.

    Args:
        bundle: as it was opened; what is written starts from what is on disk now.
        change: gives the new manifest, all except the digests of `files`.
        files: what writes each file of the bundle, by file name.

    Raises:
        BundleError: the bundle's weights were replaced since it was opened, or it is damaged.
    """
    path = bundle.path
    with lock(path.parent):
        now = Bundle.open(path)
        if now.manifest.version != bundle.manifest.version:
            raise BundleError(f"{path}: the weights were replaced meanwhile")
        digests = dict(now.manifest.sha256)
        for name, write in (files or {}).items():
            with replacing(path / name) as file:
                write(file)
            digests[name] = digest(path / name)
        changed = replace(change(now.manifest), sha256=digests)
        write_manifest(path, changed)
    return replace(now, manifest=changed)
