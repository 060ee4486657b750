"""Run one bundle in onnxruntime: numpy in, numpy out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from model.bundle import Bundle, Manifest
from model.bundle.manifest import ANY_SIZE, HALF, GraphRole
from model.errors import NotOffered
from model.outputs import Encoding, Trace
from model.preprocess import (
    Fit,
    Floats,
    Polarity,
    load_image,
    open_image,
    prepare,
)
from model.runtime.cpu import CpuDevice, open_session
from model.runtime.cuda import CudaDevice, CudaOptions, DeviceError
from model.runtime.sessions import Array, Session

Device = Literal["auto", "cuda", "cpu"]

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
        BundleError: a graph cannot be loaded, or is not there in the precision asked for.
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
        self._cpu, self._lone_cpu = CpuDevice(threads), CpuDevice(lone_threads or threads)
        self._any_size = self._open(
            ANY_SIZE,
            lambda graph: Session(open_session(graph, threads=self._cpu.threads)),
        )
        self._cuda_options = cuda or CudaOptions()
        self.cuda: CudaDevice | None = None
        self._strict = device == "cuda"
        if device == "cpu":
            self._use(self._cpu)
        else:
            with self._falling_back():
                self._use(CudaDevice(self._cuda_options))

    def __repr__(self) -> str:
        return f"Runtime({self.bundle.manifest.name!r}, provider={self.provider!r})"

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return self._encoder(1).provider

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest. Its version ends in `+half` where float16 encodes."""
        manifest = self.bundle.manifest
        if self.encoder_role(1) != HALF:
            return manifest
        return replace(manifest, version=f"{manifest.version}+half")

    def core_s(self, graph: str) -> float:
        """Seconds of a core that a row of `encode`, `decode` or `trace` takes; 0 on a GPU."""
        sessions = {"encode": self._encoder(1), "decode": self._decoder, "trace": self._routing}
        session = sessions[graph]
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
        return Encoding(*self._run(self._encoder(len(images)), images=images))

    def decode(self, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Decode poses (M, D) of classes (M,) as images (M, C, H, W) in [0, 1].

        Raises:
            NotOffered: the network has no decoder.
        """
        if self._decoder is None:
            raise NotOffered(f"{self.bundle.manifest.name} cannot decode")
        (images,) = self._run(self._decoder, poses=poses, classes=classes)
        return np.asarray(images)

    def trace(self, images: Floats) -> Trace[Floats]:
        """Trace the routing of images (N, C, H, W).

        Raises:
            NotOffered: the network has no routing.
        """
        if self._routing is None:
            raise NotOffered(f"{self.bundle.manifest.name} has no routing")
        return Trace.of(self._run(self._routing, images=images), self.bundle.manifest.layers)

    def prepare(
        self,
        picture: Image.Image | Floats | Path | str,
        *,
        fit: Fit = "auto",
        polarity: Polarity = "auto",
    ) -> Floats:
        """A picture of any size and mode, or its file, as a batch of one image, (1, C, H, W).

        An array (H, W, C) in [0, 1], or a `.npy` file, is for networks with as many channels.

        Raises:
            model.preprocess.PreprocessError: it cannot be fitted in the way that was asked for.
            ValueError: it cannot be read; the message says why.
            OSError: the file is not there.
        """
        if isinstance(picture, (str, Path)):
            picture = open_image(Path(picture).read_bytes())
        if isinstance(picture, Image.Image):
            picture = load_image(picture)
        manifest = self.bundle.manifest
        fitted = prepare(
            picture,
            manifest.image_shape,
            rule=manifest.preprocess,
            fit=fit,
            polarity=polarity,
            any_size=manifest.any_size,
        )
        return fitted.image[None]

    def encoder_role(self, rows: int) -> GraphRole:
        """Return the role of the graph that encodes a batch of so many rows on this device."""
        graphs = self.bundle.manifest.graphs
        wanted: GraphRole = "encoder"
        if self.cuda is not None and self._cuda_options.precision == "half":
            wanted = HALF
        elif self.cuda is None and rows >= BATCH_ROWS:
            wanted = "encoder.batch"
        return wanted if wanted in graphs else "encoder"

    def _use(self, device: CpuDevice | CudaDevice) -> None:
        """Open all graphs on a device."""
        self.cuda = device if isinstance(device, CudaDevice) else None
        roles = {self.encoder_role(rows) for rows in range(1, self.max_encode_rows + 1)}
        devices = dict.fromkeys(roles, device)
        if "encoder.batch" in devices:
            devices["encoder"] = self._lone_cpu
        self._encoders = {
            role: encoding.open(self.bundle.graph(role), max_rows=self.max_encode_rows)
            for role, encoding in devices.items()
        }
        decode = partial(device.open, max_rows=self.max_decode_rows)
        self._decoder = self._open("decoder", decode)
        self._routing = self._open("routing", device.open)

    def _open(self, role: GraphRole, open_graph: Callable[[Path], Session]) -> Session | None:
        graphs = self.bundle.manifest.graphs
        return open_graph(self.bundle.graph(role)) if role in graphs else None

    def _encoder(self, rows: int) -> Session:
        return self._encoders[self.encoder_role(min(rows, self.max_encode_rows))]

    def _run(self, session: Session, **inputs: Array) -> list[Array]:
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
            self._use(self._cpu)


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
