"""What only a CUDA device can show. Imports nothing of the service or of training.

Without the development environment: `python -m pytest --noconftest -m cuda tests/model/runtime`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import model
from model.bundle import Bundle
from model.outputs import Encoding
from model.preprocess import Floats
from model.runtime import DeviceError, Runtime
from model.runtime.cuda import CudaDevice, CudaOptions

pytestmark = pytest.mark.cuda
BUNDLES = Path(model.__file__).parent / "bundles"
LARGEST = 32
SIZES = (1, 2, 3, 4, 5, 8, 13, 16, 31, 32, 33, 70)


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """A CUDA device that answers."""
    try:
        CudaDevice(CudaOptions())
    except DeviceError as error:
        pytest.skip(f"no CUDA here: {error}")


@pytest.fixture(scope="module", params=["mnist-compact", "mnist"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    """The networks that ship."""
    return Bundle.open(BUNDLES / request.param)


@pytest.fixture(scope="module")
def images(bundle: Bundle) -> Floats:
    """Seventy sparse images, a fifth of whose pixels are lit."""
    rng = np.random.default_rng(0)
    lit = rng.random((70, *bundle.manifest.image_shape)) < 0.2
    return (rng.random(lit.shape) * lit).astype(np.float32)


@pytest.fixture(scope="module")
def on_cpu(bundle: Bundle) -> Runtime:
    return Runtime(bundle, device="cpu")


@pytest.fixture(scope="module")
def on_cuda(bundle: Bundle) -> Runtime:
    """Warmed up: every bucket is a captured graph."""
    return warm(bundle, CudaOptions())


def warm(bundle: Bundle, options: CudaOptions) -> Runtime:
    runtime = Runtime(bundle, device="cuda", cuda=options, max_encode_rows=LARGEST)
    runtime.warm_up()
    return runtime


def difference(one: Encoding[Floats], other: Encoding[Floats]) -> float:
    """The largest, over presence and poses."""
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("rows", SIZES)
def test_encoding_is_the_cpu_s(
    rows: int, on_cuda: Runtime, on_cpu: Runtime, images: Floats
) -> None:
    """In every bucket, and for batches that fill none or several."""
    assert difference(on_cpu.encode(images[:rows]), on_cuda.encode(images[:rows])) <= 1e-4


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64, 200, 256, 300])
def test_drawings_are_the_cpu_s(rows: int, on_cuda: Runtime, on_cpu: Runtime) -> None:
    """In buckets of the decoder, and beyond its largest."""
    rng = np.random.default_rng(rows)
    poses = rng.uniform(-0.5, 0.5, (rows, on_cpu.bundle.manifest.class_dim)).astype(np.float32)
    classes = rng.integers(0, on_cpu.bundle.manifest.num_classes, rows)
    drawn = on_cuda.decode(poses, classes)
    assert np.abs(on_cpu.decode(poses, classes) - drawn).max() <= 1e-4


def test_routing_is_the_cpu_s(on_cuda: Runtime, on_cpu: Runtime, images: Floats) -> None:
    """The graph that is not captured gives the CPU's couplings, logits, poses and votes."""
    wanted, found = (runtime.trace(images[:5]).classes for runtime in (on_cpu, on_cuda))
    pairs = zip(wanted, found, strict=True)
    for expected, actual in pairs:
        assert np.abs(expected - actual).max() <= 1e-3  # logits add up over iterations


def test_replays_follow_their_inputs(on_cuda: Runtime, on_cpu: Runtime, images: Floats) -> None:
    """A graph that is replayed a hundred times, in turn with others, reads its inputs each time."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        rows = int(rng.integers(1, LARGEST + 1))
        chosen = images[rng.permutation(70)[:rows]]
        assert difference(on_cpu.encode(chosen), on_cuda.encode(chosen)) <= 1e-4
