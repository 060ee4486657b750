"""Score many pictures with Ray Data: `python -m deploy.ray.score IN OUT --model mnist`.

Run it again to go on where it was stopped, or to add the pictures that are new.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, Datasource, ReadTask
from ray.data.block import BlockMetadata
from ray.data.checkpoint import CheckpointConfig

import model
from deploy.ray.scorer import BYTES, PATH, SECOND, SECOND_BYTES, Scorer, Wanted
from model.bundle import BundleError
from model.runtime import Device
from model.runtime.cpu import cpu_quota
from model.views import NAMES, find_view

JOB = "_job.json"
DONE = "_done"
"""A folder of the output: the paths of the rows that have been written."""
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
_ROWS = 1000
"""Of an output file; what is lost at most for each actor if the job is killed."""
_BATCH_ROWS = 32
"""The largest batch that bundles are prepared for."""
_BLOCK_BYTES = 4_000_000
"""That Ray moves at once, of pictures in Parquet."""
_OTHERS = 2
"""CPUs in Ray's count, not of the machine, for what reads, skips and writes."""
_STORE_BYTES = 200_000_000
"""Ray's shared memory on this machine; more waits on the disk."""


class InputError(Exception):
    """There is nothing to score."""


class Paths(Datasource):
    """Paths of pictures, as rows."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._paths = paths

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all of them."""
        return sum(map(len, self._paths))

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """One for each output file."""
        del parallelism, data_context
        return [
            ReadTask(
                partial(_block, chunk),
                BlockMetadata(len(chunk), sum(map(len, chunk)), None, None),
                per_task_row_limit=per_task_row_limit,
            )
            for start in range(0, len(self._paths), _ROWS)
            if (chunk := self._paths[start : start + _ROWS])
        ]


def _block(paths: list[str]) -> list[pa.Table]:
    return [pa.table({PATH: paths})]


class Pictures(NamedTuple):
    """What is scored."""

    paths: list[str]
    """Of pictures or, `in_tables`, of Parquet files."""
    in_tables: bool = False

    @classmethod
    def find(cls, source: Path) -> Self:
        """A folder of pictures or of Parquet files, a Parquet file, or a text file of paths.

        Parquet has columns of paths, or other names that are all different, and of bytes.

        Raises:
            InputError: there is nothing to score.
        """
        if not source.exists():
            raise InputError(f"there is no {source}")
        tables = [source] if source.suffix == ".parquet" else sorted(source.rglob("*.parquet"))
        if tables:
            if missing := {PATH, BYTES} - set(pq.read_schema(tables[0]).names):
                names = " and no column ".join(sorted(missing))
                raise InputError(f"{tables[0]} has no column {names}")
            return cls(list(map(str, tables)), in_tables=True)
        if source.is_dir():
            files = (Path(folder, name) for folder, _, names in os.walk(source) for name in names)
            paths = sorted(str(path) for path in files if path.suffix.lower() in SUFFIXES)
        else:
            paths = [line for line in source.read_text().splitlines() if line.strip()]
        if not paths:
            raise InputError(f"there is no picture in {source}")
        return cls(paths)

    def read(self, wanted: Wanted) -> Dataset:
        """As rows, which Ray reads when they are needed."""
        rows: Dataset
        if self.in_tables:
            names = {PATH, BYTES}
            if wanted.view:
                names |= {SECOND, SECOND_BYTES, *find_view(wanted.view).query.model_fields}
            columns = [name for name in pq.read_schema(self.paths[0]).names if name in names]
            rows = ray.data.read_parquet(self.paths, num_cpus=0.5).select_columns(columns)
        else:
            rows = ray.data.read_datasource(Paths(self.paths), num_cpus=0.5)
        return rows


def score(pictures: Dataset, output: Path, wanted: Wanted, *, actors: int = 0) -> None:
    """Write the rows of all pictures that the output does not have yet."""
    gpu, there = wanted.device == "cuda", ray.cluster_resources()
    count = int(there.get("GPU", 0) if gpu else there["CPU"] - _OTHERS)
    pictures.context.checkpoint_config = CheckpointConfig(
        PATH, str(output.resolve() / DONE), delete_checkpoint_on_success=False
    )
    pictures.context.target_max_block_size = _BLOCK_BYTES
    rows = pictures.map_batches(
        Scorer,
        fn_constructor_args=[wanted],
        batch_size=_BATCH_ROWS,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=actors or max(1, count)),
        udf_modifying_row_count=False,
        num_cpus=None if gpu else 1,
        num_gpus=1 if gpu else None,
    )
    rows.write_parquet(
        str(output.resolve()), min_rows_per_file=_ROWS, ray_remote_args={"num_cpus": 0.5}
    )


def claim(output: Path, wanted: Wanted) -> None:
    """Note in the output what its rows are made with.

    Raises:
        BundleError: there is no such bundle, or it has no novelty rule that is wanted.
        InputError: the output's rows were made with something else.
    """
    manifest = model.open_bundle(wanted.model).manifest
    if wanted.novelty and not manifest.novelty:
        raise BundleError(f"{manifest.name} has no novelty rule")
    if wanted.view and wanted.view not in NAMES:
        raise InputError(f"there is no view {wanted.view!r}; there are {', '.join(NAMES)}")
    view = {"view": wanted.view, "parameters": dict(wanted.parameters)} if wanted.view else {}
    job = {
        "model": manifest.name,
        "version": manifest.version,
        "poses": wanted.poses,
        "novelty": wanted.novelty,
        **view,
    }
    note = output / JOB
    output.mkdir(parents=True, exist_ok=True)
    if note.exists() and (other := json.loads(note.read_text())) != job:
        raise InputError(f"{output} has the rows of another job, {other}")
    note.write_text(json.dumps(job))


def summary(output: Path) -> str:
    """How many rows there are, and how many of them are errors."""
    rows = errors = 0
    for file in sorted(output.glob("*.parquet")):
        column = pq.read_table(file, columns=["error"])["error"]
        rows, errors = rows + len(column), errors + len(column) - column.null_count
    return f"{rows:,} rows in {output}, {errors:,} of them errors"


def start(address: str | None) -> None:
    """Connect to a Ray cluster, or start one on this machine."""
    if address:
        ray.init(address=address)
        return
    ray.init(
        "local",
        num_cpus=cpu_quota() + _OTHERS,
        include_dashboard=False,
        object_store_memory=_STORE_BYTES,
    )


def main() -> None:
    """Score, and say how many rows have errors."""
    parser = argparse.ArgumentParser("python -m deploy.ray.score", description=__doc__)
    parser.add_argument("input", type=Path, metavar="IN", help="folder, Parquet or list of paths")
    parser.add_argument("output", type=Path, metavar="OUT", help="folder of Parquet files")
    parser.add_argument("--model", default="mnist", help="bundle that ships, or a folder")
    parser.add_argument("--poses", action="store_true", help="write poses too")
    parser.add_argument("--novelty", action="store_true", help="write novelty scores too")
    parser.add_argument("--view", default="", help="write the answers of this view instead")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter of the view; Parquet may have a column of its name instead",
    )
    parser.add_argument("--actors", type=int, default=0, help="by default one for each CPU or GPU")
    parser.add_argument("--gpu", action="store_true", help="give each actor a GPU")
    parser.add_argument("--address", help="of a Ray cluster; by default one is started here")
    given = parser.parse_args()
    device: Device = "cuda" if given.gpu else "cpu"
    wanted = Wanted(
        given.model,
        poses=given.poses,
        novelty=given.novelty,
        device=device,
        view=given.view.replace("-", "_"),
        parameters=dict(parameter.split("=", 1) for parameter in given.set),
    )
    try:
        pictures = Pictures.find(given.input)
        claim(given.output, wanted)
    except (BundleError, InputError) as error:
        sys.exit(f"deploy.ray.score: {error}")
    start(given.address)
    try:
        score(pictures.read(wanted), given.output, wanted, actors=given.actors)
    finally:
        ray.shutdown()
    print(summary(given.output))


if __name__ == "__main__":
    main()
