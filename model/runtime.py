"""One bundle, loaded into onnxruntime: numpy in, numpy out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle import (
    DECODER,
    ENCODER,
    ENCODER_BATCH,
    ENCODER_HALF,
    ROUTING,
    Bundle,
    BundleError,
)
from model.cpu import CpuDevice
from model.cuda import CudaDevice, CudaOptions, DeviceError, DeviceLostError
from model.sessions import Array, Session

__all__ = [
    "Device",
    "DeviceError",
    "DeviceLostError",
    "Encoding",
    "Floats",
    "Routing",
    "Runtime",
]

Device = Literal["auto", "cuda", "cpu"]
Floats = NDArray[np.float32]

BATCH_ROWS = 3
"""Images from which the batch encoder is the faster one on a CPU."""

log = logging.getLogger(__name__)


class Encoding(NamedTuple):
    """What the encoder says of N images."""

    lengths: Floats
    """(N, K): how present each class is, in [0, 1)."""
    poses: Floats
    """(N, K, D)."""


class Routing(NamedTuple):
    """How the capsules of N images came to agree, over R iterations."""

    couplings: Floats
    """(N, R, K, I), summing to one over K."""
    logits: Floats
    """(N, R, K, I), zero in the first iteration."""
    poses: Floats
    """(N, R, K, D)."""
    primary_lengths: Floats
    """(N, I)."""
    votes: Floats
    """(N, K, I, D)."""


class Runtime:
    """The sessions of one bundle. Where `any_thread` is false, for one thread alone.

    On the CPU batches run as they come: few images on all threads, to be done soon, and more on
    half of them, so that two batches run side by side. On CUDA they are padded to buckets, and
    each bucket is a CUDA graph. An image's answer does not depend on which it was.

    Args:
        bundle: what to load.
        device: `cuda` fails rather than falling back; `auto` takes CUDA where it works.
        threads: of the CPU, in all; by default the CPU quota of this process.
        cuda: how CUDA is used, if it is.
        max_encode_rows: largest batch of images that is prepared for.
        max_decode_rows: largest batch of poses; a whole sweep of 16 dimensions fits in 256.

    Raises:
        DeviceError: CUDA was asked for and does not work.
        BundleError: a graph cannot be loaded, or is not there in the precision asked for.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: Device = "auto",
        threads: int = 0,
        cuda: CudaOptions | None = None,
        max_encode_rows: int = 32,
        max_decode_rows: int = 256,
    ) -> None:
        _refuse_two_onnxruntimes()
        self.bundle = bundle
        self.max_encode_rows = max_encode_rows
        self.max_decode_rows = max_decode_rows
        self._cpu = CpuDevice(threads)
        self._cuda_options = cuda or CudaOptions()
        self._cuda: CudaDevice | None = None
        self._router: Session | None = None
        self._opening = threading.Lock()
        self._strict = device == "cuda"
        if device == "cpu":
            self._use_cpu()
        else:
            with self._falling_back():
                self._use_cuda()

    def __repr__(self) -> str:
        return f"Runtime({self.bundle.manifest.name!r}, provider={self.provider!r})"

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return self._decoder.provider

    @property
    def any_thread(self) -> bool:
        """Whether any thread may encode and decode, several at once; on CUDA graphs have owners."""
        return self._cuda is None

    @property
    def side_by_side(self) -> int:
        """How many batches it pays to run at once."""
        return self._cpu.side_by_side if self._cuda is None else 1

    def warm_up(self) -> None:
        """Prepare for all batch sizes, on the thread that will encode and decode.

        Raises:
            DeviceError: CUDA was asked for and does not work after all.
        """
        if self._cuda:
            with self._falling_back():
                self._cuda.warm_up()

    def encode(self, images: Floats) -> Encoding:
        """Class capsules of images (N, 1, H, W), float32 in [0, 1], light strokes on dark."""
        return Encoding(*self._run(self._encoder(len(images)), images=images))

    def decode(self, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Draw poses (M, D) of classes (M,) as images (M, 1, H, W) in [0, 1]."""
        (images,) = self._run(self._decoder, poses=poses, classes=classes)
        return np.asarray(images)

    def route(self, images: Floats) -> Routing:
        """What routing did with images (N, 1, H, W).

        Raises:
            BundleError: the bundle's files are not those any more that were loaded.
        """
        return Routing(*self._run(self._routing, images=images))

    def encoder_graph(self, rows: int) -> str:
        """Which of the bundle's graphs encodes a batch of so many rows on this device."""
        if self._cuda is None:
            return ENCODER if rows < BATCH_ROWS else ENCODER_BATCH
        return ENCODER_HALF if self._cuda_options.precision == "half" else ENCODER

    def encoder_padding(self, rows: int) -> int:
        """How many rows are computed beyond the `rows` images asked for."""
        return self._encoder(rows).padding(rows)

    def decoder_padding(self, rows: int) -> int:
        """How many rows are computed beyond the `rows` poses asked for."""
        return self._decoder.padding(rows)

    def _use_cpu(self) -> None:
        """Batches run as they come."""
        self._cuda = self._router = None
        cpu = self._cpu
        self._encoders: dict[str, Session] = {
            graph: (cpu.open_side_by_side if graph == ENCODER_BATCH else cpu.open)(
                self._path(graph)
            )
            for graph in self._encoder_graphs()
        }
        self._decoder: Session = cpu.open(self._path(DECODER))

    def _use_cuda(self) -> None:
        """Batches are padded to buckets, and buckets are captured as CUDA graphs."""
        cuda = self._cuda = CudaDevice(self._cuda_options)
        self._encoders = {
            graph: cuda.open_bucketed(self._path(graph), max_rows=self.max_encode_rows)
            for graph in self._encoder_graphs()
        }
        self._decoder = cuda.open_bucketed(self._path(DECODER), max_rows=self.max_decode_rows)
        self._router = cuda.open(self._path(ROUTING))

    @property
    def _routing(self) -> Session:
        """On the CPU it is opened when it is first needed: it takes memory, and few ask for it."""
        with self._opening:
            if self._router is None:
                if Bundle.open(self.bundle.path).manifest != self.bundle.manifest:
                    raise BundleError(f"{self.bundle.path}: another bundle is there now; reload")
                self._router = self._cpu.open(self._path(ROUTING))
            return self._router

    def _encoder_graphs(self) -> set[str]:
        return {self.encoder_graph(rows) for rows in range(1, self.max_encode_rows + 1)}

    def _encoder(self, rows: int) -> Session:
        return self._encoders[self.encoder_graph(min(rows, self.max_encode_rows))]

    def _path(self, graph: str) -> Path:
        return self.bundle.path / graph

    def _run(self, session: Session, **inputs: Array) -> list[Array]:
        return self._cuda.run(session, **inputs) if self._cuda else session.run(**inputs)

    @contextmanager
    def _falling_back(self) -> Iterator[None]:
        """Where CUDA was not asked for by name, its failure is a sentence in the log."""
        try:
            yield
        except DeviceError as error:
            if self._strict:
                raise DeviceError(f"CUDA was asked for and does not work: {error}") from error
            _say_once(f"CUDA is not used: {error}")
            self._use_cpu()


@cache
def _say_once(sentence: str) -> None:
    """Several bundles meet the same reason; one line names it."""
    log.info(sentence)


def _refuse_two_onnxruntimes() -> None:
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _is_installed(name)]
    if len(installed) > 1:
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other; "
            "make a fresh environment with one of the extras cpu and gpu"
        )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
