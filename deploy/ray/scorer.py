"""One bundle in an actor of Ray Data: pictures in, rows of a table out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import model
from model.preprocess import Prepared
from model.runtime import Device
from model.views import find_view
from model.views.classify import ClassifyQuery, Prediction, classify
from model.views.local import LocalNet, read_query
from model.views.net import run
from model.views.query import PictureQuery, ViewQuery
from service.errors import Problem, TooLarge, unwrap
from service.pictures import ImageSpec
from service.pictures.pools import DecodePools
from service.settings import Settings

PATH, BYTES, SECOND, SECOND_BYTES = "path", "bytes", "second", "second_bytes"
"""Columns of the input. The latter two are the second picture of views that take two."""
_DECODERS = 2
"""Processes of an actor that decode pictures which are not tiny."""
Row = dict[str, Any]


class Wanted(NamedTuple):
    """What is computed, with what."""

    model: str
    """A bundle that ships, or a folder."""
    poses: bool = False
    novelty: bool = False
    device: Device = "cpu"
    view: str = ""
    """The module of a view, whose answer becomes a column of JSON; by default labels and presence
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
    """Scores batches; a picture that cannot be read is an error in its row.

    Raises:
        model.bundle.BundleError, model.runtime.DeviceError: see `model.load`.
        NotOffered, InvalidParameter: the network cannot compute what is wanted.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._limits = Settings.from_environment()
        self._runtime = model.load(wanted.model, device=wanted.device, threads=1).runtime
        self._runtime.warm_up()
        self._manifest = self._runtime.bundle.manifest
        self._net = LocalNet(self._runtime)
        added = {"poses": wanted.poses, "novelty": wanted.novelty}
        self._query = ClassifyQuery.model_validate(added)
        self._query.check(self._manifest)
        self._decode_pools = DecodePools(max_pixels=self._limits.max_pixels, processes=_DECODERS)
        self._loop = asyncio.new_event_loop()
        self._decode_pools.start()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Score rows of paths, or of paths and bytes, as one batch of the encoder."""
        rows = batch.to_pylist()
        scored = self._ask_each(rows) if self._wanted.view else self._classify(rows)
        results = [
            {PATH: row[PATH], **({"error": one.detail} if isinstance(one, Problem) else one)}
            for row, one in zip(rows, scored, strict=True)
        ]
        return pa.Table.from_pylist(results, self._wanted.schema)

    def close(self) -> None:
        """End the processes that decode."""
        self._decode_pools.close()
        self._loop.close()

    def _classify(self, rows: Sequence[Row]) -> list[Row | Problem]:
        """Labels, presence and what else is wanted, all pictures in one batch."""
        pictures = self._decode([(_file(row, PATH, BYTES), self._query) for row in rows])
        answer = run(classify(self._net, self._query, *pictures))
        return [
            self._columns(prediction)
            if isinstance(prediction, Prediction)
            else Problem(prediction.problem.detail or "")
            for prediction in answer.predictions
        ]

    def _columns(self, prediction: Prediction) -> Row:
        columns: Row = {
            "label": prediction.label,
            "class_name": prediction.class_name,
            "presence": prediction.lengths,
        }
        if prediction.poses is not None:
            columns["poses"] = list(prediction.poses)
        if prediction.novelty:
            columns |= {"novelty": prediction.novelty.score, "novel": prediction.novelty.novel}
        return columns

    def _ask_each(self, rows: Sequence[Row]) -> list[Row | Problem]:
        """The answers of the view as JSON, one by one."""
        return list(map(self._ask, rows))

    def _ask(self, row: Row) -> Row | Problem:
        view, wanted = find_view(self._wanted.view), self._wanted.parameters
        own = {name: row[name] for name in view.query.model_fields if name in row}
        try:
            query = read_query(view, self._manifest, {**wanted, **own})
            names = ((PATH, BYTES), (SECOND, SECOND_BYTES))[: view.pictures[0]]
            pictures = self._decode([(_file(row, *columns), query) for columns in names])
            answer = run(view.ask(self._net, query, *map(unwrap, pictures)))
        except Problem as problem:
            return problem
        return {"answer": answer.model_dump_json()}

    def _decode(
        self, files: Sequence[tuple[bytes | str | None, ViewQuery]]
    ) -> list[Prepared | Problem]:
        """Decode and fit files, or those at paths."""

        async def decode_all() -> list[list[Prepared | Problem]]:
            return await asyncio.gather(*(self._decode_one(*file) for file in files))

        return [outcome for (outcome,) in self._loop.run_until_complete(decode_all())]

    async def _decode_one(
        self, file: bytes | str | None, query: ViewQuery
    ) -> list[Prepared | Problem]:
        assert isinstance(query, PictureQuery)
        manifest, any_size = self._manifest, query.any_size(self._manifest)
        spec = ImageSpec(
            manifest.image_shape, manifest.preprocess, query.fit, query.polarity, any_size
        )
        return await self._decode_pools.decode([self._read(file)], spec)

    def _read(self, file: bytes | str | None) -> bytes | Problem:
        if file is None:
            return Problem("there is no picture")
        if isinstance(file, bytes):
            return file
        try:
            if (size := Path(file).stat().st_size) > self._limits.max_body_bytes:
                return TooLarge(
                    f"a picture may have {self._limits.max_body_bytes:,} bytes: {size:,}"
                )
            return Path(file).read_bytes()
        except OSError as error:
            return Problem(f"the file cannot be read: {error.strerror}")


def _file(row: Row, path: str, content: str) -> bytes | str | None:
    """The bytes of a row's picture, or its path where there is no column of bytes."""
    file: bytes | str | None = row[content] if content in row else row.get(path)
    return file
