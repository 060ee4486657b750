"""One bundle in an actor of Ray Data: pictures in, rows of a table out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import model
from model.interpret.novelty import Novelty, judge, measure_features
from model.preprocess import Prepared
from model.runtime import Device, Encoding
from service.errors import Problem, TooLarge
from service.pictures import ImageSpec
from service.pictures.preparation import Preparation
from service.settings import Settings

PATH, BYTES = "path", "bytes"
"""Columns of the input."""
_DECODERS = 2
"""Processes beside an actor, in which pictures that are not tiny are decoded."""


class Wanted(NamedTuple):
    """What is computed, with what."""

    model: str
    """A bundle that ships, or a folder."""
    poses: bool = False
    novelty: bool = False
    device: Device = "cpu"

    @property
    def schema(self) -> pa.Schema:
        """Of the output; where there is an error, all but the path is null."""
        columns = {
            PATH: pa.string(),
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
        ValueError: the bundle has no novelty rule, and novelty is wanted.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._limits = Settings.from_environment()
        self._runtime = model.load(wanted.model, device=wanted.device, threads=1)
        self._runtime.warm_up()
        self._manifest = self._runtime.bundle.manifest
        if wanted.novelty and not self._manifest.novelty:
            raise ValueError(f"{self._manifest.name} has no novelty rule")
        self._spec = ImageSpec(self._manifest.image_shape, self._manifest.preprocess)
        self._preparation = Preparation(max_pixels=self._limits.max_pixels, processes=_DECODERS)
        self._loop = asyncio.new_event_loop()
        self._preparation.start()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Score rows of paths, or of paths and bytes."""
        paths = batch[PATH].to_pylist()
        files = batch[BYTES].to_pylist() if BYTES in batch.column_names else map(self._read, paths)
        rows, most = [], self._runtime.max_encode_rows
        files = list(files)
        for start in range(0, len(files), most):
            rows += self._score(files[start : start + most])
        for path, row in zip(paths, rows, strict=True):
            row[PATH] = path
        return pa.Table.from_pylist(rows, schema=self._wanted.schema)

    def close(self) -> None:
        """End the processes that decode."""
        self._preparation.close()
        self._loop.close()

    def _read(self, path: str) -> bytes | Problem:
        try:
            if (size := Path(path).stat().st_size) > self._limits.max_body_bytes:
                return TooLarge(
                    f"a picture may have {self._limits.max_body_bytes:,} bytes: {size:,}"
                )
            return Path(path).read_bytes()
        except OSError as error:
            return Problem(f"the file cannot be read: {error.strerror}")

    def _score(self, files: Sequence[bytes | Problem | None]) -> list[dict[str, Any]]:
        """The rows of one batch of the encoder, in order."""
        prepared = self._loop.run_until_complete(self._prepare(files))
        good = [one for one in prepared if isinstance(one, Prepared)]
        scored = iter(self._encode(np.stack([one.image for one in good])) if good else ())
        return [
            {"error": one.detail} if isinstance(one, Problem) else next(scored) for one in prepared
        ]

    async def _prepare(self, files: Sequence[bytes | Problem | None]) -> list[Prepared | Problem]:
        uploads = [Problem("there is no picture") if one is None else one for one in files]
        each = [self._preparation.prepare([one], self._spec) for one in uploads]
        outcomes = await asyncio.gather(*each)
        return [outcome for (outcome,) in outcomes]

    def _encode(self, images: np.ndarray[Any, np.dtype[np.float32]]) -> list[dict[str, Any]]:
        encoding = self._runtime.encode(images)
        labels = encoding.presence.argmax(axis=1)
        rows: list[dict[str, Any]] = [
            {"label": label, "class_name": self._manifest.class_names[label], "presence": presence}
            for label, presence in zip(labels.tolist(), encoding.presence, strict=True)
        ]
        if self._wanted.poses:
            for row, poses in zip(rows, encoding.poses, strict=True):
                row["poses"] = list(poses)
        if self._wanted.novelty:
            for row, one in zip(rows, self._judge(images, encoding, labels), strict=True):
                row |= {"novelty": one.score, "novel": one.novel}
        return rows

    def _judge(
        self,
        images: np.ndarray[Any, np.dtype[np.float32]],
        encoding: Encoding,
        labels: np.ndarray[Any, np.dtype[np.int64]],
    ) -> list[Novelty]:
        rule = self._manifest.novelty
        assert rule
        longest = encoding.poses[np.arange(len(labels)), labels]
        drawn = self._runtime.decode(longest, labels)
        return judge(rule, measure_features(*encoding, images, drawn, rule.gaussians))
