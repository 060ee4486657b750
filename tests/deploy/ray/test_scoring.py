"""Jobs of Ray Data, each on a real cluster with two actors."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploy.ray.scorer import Wanted
from model import SHIPPED
from model.bundle import Bundle
from service.pictures import SAMPLES
from tests.deploy.ray.clusters import Cluster, cluster
from tests.e2e.conftest import data_dir
from tests.pictures import as_png
from tests.processes import descendants
from training.data.datasets import DATASETS, Examples, load

__all__ = ["data_dir"]
pytestmark = [pytest.mark.ray, pytest.mark.data, pytest.mark.timeout(600)]
MODEL = "mnist-attention"
PATIENCE_S = 300
SAMPLE = SAMPLES / "7.png"


@pytest.fixture(scope="module")
def digits(data_dir: Path) -> Examples:
    """The published test split."""
    return load(DATASETS["mnist"], "test", data_dir, fetch=False)


@pytest.fixture(scope="module")
def folder(digits: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of its pictures, as files."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, image in enumerate(digits.images):
        (folder / f"{number:05d}.png").write_bytes(as_png(image))
    return folder


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With room for two actors."""
    with cluster(tmp_path_factory.mktemp("cluster"), cpus=4) as started:
        yield started


@pytest.fixture(scope="module")
def there(started: Cluster) -> tuple[str, str]:
    """Has a job run on a cluster that is there already."""
    return "--address", started.address


def job(source: Path, output: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "deploy.ray.score", str(source), str(output)]
    return [*command, "--model", MODEL, "--actors", "2", *more]


def score(source: Path, output: Path, *more: str) -> pa.Table:
    """Run a job to its end; its rows."""
    subprocess.run(job(source, output, *more), check=True, timeout=PATIENCE_S)
    return pq.read_table(output)


def errors(rows: pa.Table, digits: Examples) -> int:
    """How many labels are not those of the data set."""
    numbers = [int(Path(path).stem) for path in rows["path"].to_pylist()]
    return int((digits.labels[numbers] != np.array(rows["label"].to_pylist())).sum())


def test_a_folder_gets_the_recorded_error(folder: Path, digits: Examples, tmp_path: Path) -> None:
    """Ten thousand pictures, with poses and novelty; a second run has nothing to do."""
    rows = score(folder, tmp_path / "out", "--poses", "--novelty")
    manifest = Bundle.open(SHIPPED / MODEL).manifest
    assert manifest.metrics["test_errors"] == errors(rows, digits)
    assert Wanted(MODEL, poses=True, novelty=True).schema == rows.schema
    assert manifest.novelty
    alarms = 100 * np.mean(rows["novel"].to_pylist())
    assert manifest.novelty.test_novel_percent == pytest.approx(alarms, abs=0.02)
    before = sorted((tmp_path / "out").glob("*.parquet"))
    assert 10_000 == score(folder, tmp_path / "out", "--poses", "--novelty").num_rows
    assert before == sorted((tmp_path / "out").glob("*.parquet"))


def test_a_killed_job_goes_on(
    folder: Path, digits: Examples, there: tuple[str, str], tmp_path: Path
) -> None:
    """Each picture has one row in the end; rows of the first run are kept."""
    output = tmp_path / "out"
    process = subprocess.Popen(job(folder, output, *there))
    deadline = time.monotonic() + PATIENCE_S
    while len(list((output / "_done").glob("*[0-9].parquet"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = {path for file in (output / "_done").glob("*[0-9].parquet") for path in _paths(file)}
    assert 0 < len(kept) < 10_000
    rows = score(folder, output, *there)
    paths = rows["path"].to_pylist()
    assert 10_000 == len(paths) == len(set(paths))
    manifest = Bundle.open(SHIPPED / MODEL).manifest
    assert manifest.metrics["test_errors"] == errors(rows, digits)


def _paths(file: Path) -> Iterator[str]:
    yield from pq.read_table(file)["path"].to_pylist()


def test_one_broken_file_in_a_hundred_is_an_error_in_its_row(
    folder: Path, there: tuple[str, str], tmp_path: Path
) -> None:
    """From a list of files, one of which is missing."""
    paths = sorted(folder.iterdir())[:2000]
    for number in range(0, 2000, 100):
        broken = tmp_path / f"{number:05d}.png"
        broken.write_bytes(paths[number].read_bytes()[: 50 + number % 90])
        paths[number] = broken
    paths[0].unlink()
    (tmp_path / "list.txt").write_text("\n".join(map(str, paths)))
    rows = score(tmp_path / "list.txt", tmp_path / "out", *there).to_pylist()
    failed = {row["path"] for row in rows if row["error"]}
    assert 2000 == len(rows)
    assert {str(path) for path in paths if path.parent == tmp_path} == failed
    assert all((row["label"] is None) == (row["path"] in failed) for row in rows)


def test_bytes_in_parquet_are_scored(
    folder: Path, digits: Examples, there: tuple[str, str], tmp_path: Path
) -> None:
    """From several files, in groups of rows."""
    files, source = sorted(folder.iterdir())[:3000], tmp_path / "in"
    source.mkdir()
    for start in range(0, 3000, 1500):
        part = files[start : start + 1500]
        table = {"path": [one.name for one in part], "bytes": [one.read_bytes() for one in part]}
        pq.write_table(pa.table(table), source / f"{start}.parquet", row_group_size=500)
    rows = score(source, tmp_path / "out", *there)
    assert 3000 == rows.num_rows
    assert errors(rows, digits) < 30


def test_memory_does_not_grow_with_the_input(started: Cluster, tmp_path: Path) -> None:
    """Twice as many files of 100 KB, 800 MB more, take no more than 200 MB more.

    Ray's readers fill their read-ahead, 900 MB each, with less than that.
    """
    picture, rng = SAMPLE.read_bytes(), np.random.default_rng(0)
    schema, peaks = pa.schema({"path": pa.string(), "bytes": pa.binary()}), []
    for name, groups in (("few", 160), ("many", 320)):
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", schema) as writer:
            for group in range(groups):
                files = [picture + rng.bytes(100_000) for _ in range(50)]
                paths = [f"{group}-{number}" for number in range(50)]
                writer.write_table(pa.table({"path": paths, "bytes": files}, schema=schema))
        run = job(tmp_path / f"{name}.parquet", tmp_path / name, "--address", started.address)
        peaks.append(_peak_mib(run, started.pid))
        rows = pq.read_table(tmp_path / name)
        assert (50 * groups, {7}) == (rows.num_rows, set(rows["label"].to_pylist()))
    print(f"peaks: {peaks} MiB")
    assert peaks[1] < peaks[0] + 200


def _peak_mib(command: list[str], cluster: int) -> float:
    """The most memory that a job and the cluster have at once, shared memory once."""
    peak, process = 0.0, subprocess.Popen(command)
    while process.poll() is None:
        pids = (process.pid, cluster, *descendants(process.pid), *descendants(cluster))
        peak = max(peak, sum(map(_pss_mib, pids)))
        time.sleep(0.2)
    assert 0 == process.returncode
    return peak


def _pss_mib(pid: int) -> float:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0
