"""Run one bundle in onnxruntime: numpy in, numpy out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from model import Device
from model.bundle import Bundle, Manifest
from model.bundle.manifest import ANY_SIZE, GraphRole
from model.errors import NotOffered
from model.outputs import Encoding, Graph, Row, Trace
from model.preprocess import Floats
from model.runtime.cpu import Array, Session, open_graph, open_session
from model.runtime.cuda import CudaDevice, CudaOptions, DeviceError

BATCH_ROWS = 3
"""The number of images from which the batch encoder is the faster one on a CPU."""

log = logging.getLogger(__name__)


class Runtime:
    """The sessions of one bundle. On the CPU any thread may run them, on CUDA one alone.

    On the CPU batches run as they come. On CUDA they are padded to buckets, and each bucket is a
    CUDA graph. An image's answer does not depend on its bucket.

    Args:
        bundle: what to load.
        device: `cuda` fails rather than falling back; `auto` takes CUDA where it works.
        threads: of one inference on the CPU; by default the CPU quota of this process.
        lone_threads: the same for one or two images, where larger batches have a graph of their
            own.
        cuda: how CUDA is used, if it is.
        max_encode_rows: largest batch of images that is prepared for.
        max_decode_rows: largest batch of poses; a whole sweep of 16 dimensions fits in 256.

    Raises:
        DeviceError: CUDA was asked for and does not work.
        BundleError: a graph cannot be loaded.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: Device = "auto",
        threads: int = 0,
        lone_threads: int = 0,
        cuda: CudaOptions | None = None,
        max_encode_rows: int = 32,
        max_decode_rows: int = 256,
    ) -> None:
        _refuse_two_onnxruntimes()
        self.bundle = bundle
        self.max_encode_rows = max_encode_rows
        self.max_decode_rows = max_decode_rows
        self._threads, self._lone_threads = threads, lone_threads or threads
        self._any_size: Session | None = None
        if ANY_SIZE in bundle.manifest.graphs:
            self._any_size = Session(open_session(bundle.graph(ANY_SIZE), threads=threads))
        self._cuda_options = cuda or CudaOptions()
        self._strict = device == "cuda"
        self.cuda: CudaDevice | None = None
        if device == "cpu":
            self._use(None)
        else:
            with self._falling_back():
                self._use(CudaDevice(self._cuda_options))

    def __repr__(self) -> str:
        return f"Runtime({self.bundle.manifest.name!r}, provider={self.provider!r})"

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return self._sessions[self.encoder_role(1)].provider

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self.bundle.manifest

    def core_s(self, graph: str) -> float:
        """Seconds of a core that a row of `encode`, `decode` or `trace` takes; 0 on a GPU."""
        roles = {"encode": self.encoder_role(1), "decode": "decoder", "trace": "routing"}
        session = self._sessions.get(roles[graph])
        return 0.0 if session is None else session.core_s

    def warm_up(self) -> None:
        """Prepare for all batch sizes, on the thread that will encode and decode.

        Raises:
            DeviceError: CUDA was asked for and does not work after all.
        """
        if self.cuda:
            with self._falling_back():
                self.cuda.warm_up()

    def encode(self, images: Floats) -> Encoding[Floats]:
        """Encode images (N, C, H, W), float32 in [0, 1], whose strokes are light on dark.

        Where the bundle takes any size, images that are not the network's are encoded on the CPU.
        """
        if self._any_size and images.shape[1:] != self.bundle.manifest.image_shape:
            return Encoding(*self._any_size.run(images=images))
        return Encoding(*self._run(self.encoder_role(len(images)), images=images))

    def decode(self, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Decode poses (M, D) of classes (M,) as images (M, C, H, W) in [0, 1].

        Raises:
            NotOffered: the network has no decoder.
        """
        if "decoder" not in self._sessions:
            raise NotOffered(f"{self.bundle.manifest.name} cannot decode")
        (images,) = self._run("decoder", poses=poses, classes=classes)
        return np.asarray(images)

    def trace(self, images: Floats) -> Trace[Floats]:
        """Trace the routing of images (N, C, H, W).

        Raises:
            NotOffered: the network has no routing.
        """
        if "routing" not in self._sessions:
            raise NotOffered(f"{self.bundle.manifest.name} has no routing")
        return Trace.of(self._run("routing", images=images), self.bundle.manifest.layers)

    def compute(self, graph: Graph, rows: Sequence[Row]) -> list[Row]:
        """Compute rows as a batch, or one by one where their images differ in size.

        Raises:
            NotOffered: the network has no such graph.
            ArithmeticError: the network answers with NaN or infinity.
        """
        if len(rows) > 1 and len({row[0].shape for row in rows}) > 1:
            return [result for row in rows for result in self.compute(graph, [row])]
        lone = [np.asarray(part)[None] for part in rows[0]] if len(rows) == 1 else None
        columns = lone or [np.stack(column) for column in zip(*rows, strict=True)]
        if graph == "encode":
            outputs: Sequence[Array] = self.encode(*columns)
        elif graph == "decode":
            outputs = [self.decode(*columns)]
        else:
            outputs = [*self.trace(*columns).named().values()]
        if not all(np.isfinite(array).all() for array in outputs):
            raise ArithmeticError("the network answered with NaN or infinity")
        return list(zip(*outputs, strict=True))

    def encoder_role(self, rows: int) -> GraphRole:
        """Return the role of the graph that encodes a batch of so many rows on this device."""
        graphs = self.bundle.manifest.graphs
        wanted: GraphRole = "encoder"
        if self.cuda is None and rows >= BATCH_ROWS:
            wanted = "encoder.batch"
        return wanted if wanted in graphs else "encoder"

    def _use(self, device: CudaDevice | None) -> None:
        """Open all graphs on CUDA, or on the CPU."""
        self.cuda = device
        encoders = (self.encoder_role(rows) for rows in (1, BATCH_ROWS))
        max_rows: dict[GraphRole, int | None] = dict.fromkeys(encoders, self.max_encode_rows)
        max_rows |= {"decoder": self.max_decode_rows, "routing": None}
        self._sessions = {
            role: self._open(role, rows)
            for role, rows in max_rows.items()
            if role in self.bundle.manifest.graphs
        }

    def _open(self, role: GraphRole, max_rows: int | None) -> Session:
        graph = self.bundle.graph(role)
        if self.cuda:
            return self.cuda.open(graph, max_rows=max_rows)
        is_lone = role == "encoder" and "encoder.batch" in self.bundle.manifest.graphs
        return open_graph(graph, threads=self._lone_threads if is_lone else self._threads)

    def _run(self, role: GraphRole, **inputs: Array) -> list[Array]:
        session = self._sessions[role]
        return self.cuda.run(session, **inputs) if self.cuda else session.run(**inputs)

    @contextmanager
    def _falling_back(self) -> Iterator[None]:
        """Log a failure of CUDA where it was not asked for by name."""
        try:
            yield
        except DeviceError as error:
            if self._strict:
                raise DeviceError(f"CUDA was asked for and does not work: {error}") from error
            _say_once(f"running on the CPU: {error}")
            self._use(None)


@cache
def _say_once(sentence: str) -> None:
    """Several bundles meet the same reason; one line names it."""
    log.info(sentence)


def _refuse_two_onnxruntimes() -> None:
    if all(any(metadata.distributions(name=name)) for name in ("onnxruntime", "onnxruntime-gpu")):
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other; "
            "make a fresh environment with one of the extras cpu and gpu"
        )
