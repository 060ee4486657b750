"""Score many pictures with Ray Data: `python -m deploy.ray.score IN OUT --model mnist`.

Run it again to go on where it was stopped, or to add the pictures that are new.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.data import ActorPoolStrategy, Dataset
from ray.data.checkpoint import CheckpointConfig

import model
from model.bundle import BundleError
from model.errors import Problem
from model.runtime import Device
from model.runtime.cpu import cpu_quota
from model.views import NAMES, find_view

JOB = "_job.json"
DONE = "_done"
"""A folder of the output: the paths of the rows that have been written."""
PATH, BYTES = "path", "bytes"
"""Columns of the input."""
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
Row = dict[str, Any]


class InputError(Exception):
    """There is nothing to score."""


class Wanted(NamedTuple):
    """What is computed, with what."""

    model: str
    """A bundle that ships, or a folder."""
    poses: bool = False
    novelty: bool = False
    device: Device = "cpu"
    view: str = ""
    """A view of one picture, whose answer becomes a column of JSON; by default labels and presence
    are columns."""
    parameters: Mapping[str, Any] = {}
    """The view's parameters for all rows. A column of a parameter's name has those of each row."""

    @property
    def schema(self) -> pa.Schema:
        """Of the output. With an error, all columns except the path are null."""
        columns = {PATH: pa.string()}
        if self.view:
            columns["answer"] = pa.string()
        else:
            columns |= {
                "label": pa.int64(),
                "class_name": pa.string(),
                "presence": pa.list_(pa.float32()),  # (K,)
            }
        if self.poses:
            columns["poses"] = pa.list_(pa.list_(pa.float32()))  # (K, D)
        if self.novelty:
            columns |= {"novelty": pa.float64(), "novel": pa.bool_()}
        return pa.schema(columns | {"error": pa.string()})


class Scorer:
    """One bundle in an actor of Ray Data: a picture that cannot be read is an error in its row.

    Raises:
        model.bundle.BundleError, model.runtime.DeviceError: see `model.load`.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._bundle = model.load(wanted.model, device=wanted.device, threads=1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Score rows of paths, or of paths and bytes, as one batch of the encoder."""
        rows = batch.to_pylist()
        files = list(map(_read, rows))
        known = [(row, file) for row, file in zip(rows, files, strict=True) if file is not None]
        asked = [self._ask(*one) for one in known] if self._wanted.view else self._classify(known)
        answers = iter(asked)
        missing = {"error": "the file cannot be read"}
        results = [{PATH: row[PATH], **(missing if file is None else next(answers))}
                   for row, file in zip(rows, files, strict=True)]  # fmt: skip
        return pa.Table.from_pylist(results, self._wanted.schema)

    def _classify(self, pictures: list[tuple[Row, bytes]]) -> list[Row]:
        outcomes = self._bundle.classify(
            [content for _, content in pictures],
            poses=self._wanted.poses,
            novelty=self._wanted.novelty,
        )
        return [_columns(outcome.model_dump()) for outcome in outcomes]

    def _ask(self, row: Row, content: bytes) -> Row:
        names = find_view(self._wanted.view).query.model_fields
        own = {name: row[name] for name in names if name in row}
        try:
            view = getattr(self._bundle, self._wanted.view)
            return {"answer": view(content, **{**self._wanted.parameters, **own}).model_dump_json()}
        except Problem as problem:
            return {"error": problem.detail}


def _columns(outcome: Row) -> Row:
    """Those of a prediction, or of a problem."""
    if problem := outcome.get("problem"):
        return {"error": problem["detail"]}
    novelty = outcome.get("novelty") or {}
    return {
        "label": outcome["label"],
        "class_name": outcome["class_name"],
        "presence": outcome["lengths"],
        "poses": outcome.get("poses"),
        "novelty": novelty.get("score"),
        "novel": novelty.get("novel"),
    }


def _read(row: Row) -> bytes | None:
    """The bytes of a row's picture, or of the file at its path; None where there are none."""
    if BYTES in row:
        content: bytes | None = row[BYTES]
        return content
    try:
        return Path(row[PATH]).read_bytes()
    except OSError:
        return None


def find_pictures(source: Path) -> list[str]:
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
        return list(map(str, tables))
    if source.is_dir():
        files = (Path(folder, name) for folder, _, names in os.walk(source) for name in names)
        paths = sorted(str(path) for path in files if path.suffix.lower() in SUFFIXES)
    else:
        paths = [line for line in source.read_text().splitlines() if line.strip()]
    if not paths:
        raise InputError(f"there is no picture in {source}")
    return paths


def read(paths: list[str], wanted: Wanted) -> Dataset:
    """As rows, which Ray reads when they are needed."""
    if paths[0].endswith(".parquet"):
        names = {PATH, BYTES, *(find_view(wanted.view).query.model_fields if wanted.view else ())}
        columns = [name for name in pq.read_schema(paths[0]).names if name in names]
        return ray.data.read_parquet(paths, num_cpus=0.5).select_columns(columns)
    chunks = [paths[start : start + _ROWS] for start in range(0, len(paths), _ROWS)]
    return ray.data.from_arrow([pa.table({PATH: chunk}) for chunk in chunks])


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
    if wanted.view and find_view(wanted.view).pictures != (1, 1):
        raise InputError(f"{wanted.view} does not answer about one picture")
    job = wanted._asdict() | {"model": manifest.name, "version": manifest.version}
    del job["device"]
    note = output / JOB
    output.mkdir(parents=True, exist_ok=True)
    if note.exists() and (other := json.loads(note.read_text())) != job:
        raise InputError(f"{output} has the rows of another job, {other}")
    note.write_text(json.dumps(job))


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
    wanted = Wanted(
        given.model,
        poses=given.poses,
        novelty=given.novelty,
        device="cuda" if given.gpu else "cpu",
        view=given.view.replace("-", "_"),
        parameters=dict(parameter.split("=", 1) for parameter in given.set),
    )
    try:
        paths = find_pictures(given.input)
        claim(given.output, wanted)
    except (BundleError, InputError) as error:
        sys.exit(f"deploy.ray.score: {error}")
    if given.address:
        ray.init(address=given.address)
    else:
        os.umask(0o077)  # Ray's session and its token are this user's alone
        ray.init("local", num_cpus=cpu_quota() + _OTHERS, object_store_memory=_STORE_BYTES)
    score(read(paths, wanted), given.output, wanted, actors=given.actors)
    errors = [
        pq.read_table(one, columns=["error"])["error"] for one in given.output.glob("*.parquet")
    ]
    rows, failed = sum(map(len, errors)), sum(len(one) - one.null_count for one in errors)
    print(f"{rows:,} rows in {given.output}, {failed:,} of them errors")
    ray.shutdown()


if __name__ == "__main__":
    main()
