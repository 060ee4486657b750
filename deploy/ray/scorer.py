"""One bundle in an actor of Ray Data: pictures in, rows of a table out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import model
from model.preprocess import Floats, Prepared
from model.runtime import Device, Encoding
from model.views.novelty import Novelty, measure_features, score_images
from service.errors import Problem, TooLarge
from service.pictures import ImageSpec
from service.pictures.pools import DecodePools
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
        self._decode_pools = DecodePools(max_pixels=self._limits.max_pixels, processes=_DECODERS)
        self._loop = asyncio.new_event_loop()
        self._decode_pools.start()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Score rows of paths, or of paths and bytes, as one batch of the encoder."""
        paths = batch[PATH]
        given = BYTES in batch.column_names
        files = batch[BYTES].to_pylist() if given else map(self._read, paths.to_pylist())
        prepared = self._loop.run_until_complete(self._prepare(files))
        errors = [one.detail if isinstance(one, Problem) else None for one in prepared]
        images = [one.image for one in prepared if isinstance(one, Prepared)]
        scored = self._encode(np.stack(images)) if images else {}
        numbers = count()
        places = pa.array([None if error else next(numbers) for error in errors], pa.int64())
        columns = {name: column.take(places) for name, column in scored.items()}
        columns |= {PATH: paths, "error": errors}
        nothing = pa.nulls(len(errors))
        schema = self._wanted.schema
        return pa.table({name: columns.get(name, nothing) for name in schema.names}).cast(schema)

    def close(self) -> None:
        """End the processes that decode."""
        self._decode_pools.close()
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

    async def _prepare(self, files: Iterable[bytes | Problem | None]) -> list[Prepared | Problem]:
        uploads = [Problem("there is no picture") if one is None else one for one in files]
        each = [self._decode_pools.prepare([one], self._spec) for one in uploads]
        outcomes = await asyncio.gather(*each)
        return [outcome for (outcome,) in outcomes]

    def _encode(self, images: Floats) -> dict[str, pa.Array]:
        """The columns of N images (C, H, W)."""
        encoding = self._runtime.encode(images)
        labels = encoding.presence.argmax(axis=1)
        names = np.array(self._manifest.class_names, object)
        columns = {
            "label": pa.array(labels),
            "class_name": pa.array(names[labels]),
            "presence": _lists(encoding.presence),
        }
        if self._wanted.poses:
            columns["poses"] = _lists(encoding.poses)
        if self._wanted.novelty:
            judged = self._judge(images, encoding, labels)
            columns["novelty"] = pa.array([one.score for one in judged])
            columns["novel"] = pa.array([one.novel for one in judged])
        return columns

    def _judge(
        self,
        images: Floats,
        encoding: Encoding[Floats],
        labels: NDArray[np.int64],
    ) -> list[Novelty]:
        rule = self._manifest.novelty
        assert rule
        longest = encoding.poses[np.arange(len(labels)), labels]
        drawn = self._runtime.decode(longest, labels)
        return score_images(rule, measure_features(*encoding, images, drawn, rule.gaussians))


def _lists(array: Floats) -> pa.Array:
    """An array of N rows as N lists, of lists where it has more axes."""
    lists = pa.array(array.reshape(-1))
    for size in array.shape[:0:-1]:
        lists = pa.FixedSizeListArray.from_arrays(lists, size)
    return lists
