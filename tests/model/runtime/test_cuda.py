"""What can be known of CUDA without CUDA; tests/model/runtime/test_on_cuda.py needs a device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

from model.bundle import Bundle
from model.runtime import DeviceError, DeviceLostError, Runtime, cuda
from model.runtime.cpu import PROVIDER, open_session
from model.runtime.cuda import CudaDevice, CudaOptions

IMAGES = np.zeros((3, 1, 28, 28), np.float32)


class StandIn(CudaDevice):
    """Buckets and fixed buffers on the CPU, in the place of CUDA."""

    def __init__(self, options: CudaOptions) -> None:
        self.options = options
        self.location = ("cpu", 0)
        self.bucketed = []
        self.lost = False

    def is_lost(self) -> bool:
        """As it was set."""
        return self.lost

    def open_session(self, graph: Path, *, graphs: bool) -> InferenceSession:
        """On the CPU."""
        del graphs
        return open_session(graph, threads=1)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA seems to work."""
    monkeypatch.setattr("model.runtime.runtime.CudaDevice", StandIn)
    monkeypatch.setattr(cuda, "PROVIDER", PROVIDER)


Open = Callable[..., Runtime]


@pytest.fixture
def open_runtime(bundle_path: Path) -> Open:
    """`open_runtime(...)` loads the small bundle with buckets of up to four rows."""

    def load(**arguments: object) -> Runtime:
        bundle = Bundle.open(bundle_path)
        return Runtime(bundle, max_encode_rows=4, max_decode_rows=4, threads=1, **arguments)  # type: ignore[arg-type]

    return load


@pytest.mark.usefixtures("stand_in")
def test_buckets_change_no_answer(open_runtime: Open) -> None:
    """Encoding, drawing and routing are those of the CPU, for more rows than a bucket holds too."""
    on_cuda, on_cpu = open_runtime(device="cuda"), open_runtime(device="cpu")
    on_cuda.warm_up()
    images = np.random.default_rng(0).random((7, 1, 28, 28), np.float32)
    classes = np.arange(7)
    poses = on_cpu.encode(images).poses[np.arange(7), classes]
    pairs = [
        *zip(on_cpu.encode(images), on_cuda.encode(images), strict=True),
        *zip(on_cpu.trace(images).classes, on_cuda.trace(images).classes, strict=True),
        (on_cpu.decode(poses, classes), on_cuda.decode(poses, classes)),
    ]
    assert max(np.abs(expected - actual).max() for expected, actual in pairs) <= 1e-5


@pytest.mark.usefixtures("stand_in")
def test_auto_falls_back_in_one_sentence(
    open_runtime: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the warm-up fails, the CPU answers, and the log says why, once for all bundles."""
    runtimes = [open_runtime(device="auto") for _ in range(2)]
    monkeypatch.setattr(StandIn, "warm_up", _fail)
    with caplog.at_level(logging.INFO, logger="model.runtime"):
        for runtime in runtimes:
            runtime.warm_up()
    assert ["running on the CPU: no kernel"] == caplog.messages
    assert (3, 10) == runtimes[0].encode(IMAGES).presence.shape


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("lost", "expected"), [(True, DeviceLostError), (False, ValueError)], ids=["lost", "there"]
)
def test_an_error_means_a_lost_device_only_if_the_device_is_lost(
    lost: bool,  # noqa: FBT001  a parameter of the test
    expected: type[Exception],
    open_runtime: Open,
) -> None:
    """After an error the device is asked; a bad batch is no reason to end the process."""
    runtime = open_runtime(device="cuda")
    assert isinstance(runtime.cuda, StandIn)
    runtime.cuda.lost = lost
    with pytest.raises(expected, match="images has rows of"):
        runtime.encode(IMAGES[:, :, 1:])


def _fail(*_: object) -> None:
    raise DeviceError("no kernel")
