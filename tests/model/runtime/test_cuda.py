"""What can be known of CUDA without CUDA; tests/model/runtime/test_on_cuda.py needs a device."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

from model.bundle import Bundle
from model.runtime import DeviceError, DeviceLostError, Runtime, cuda
from model.runtime.cpu import PROVIDER, open_session
from model.runtime.cuda import ConvSearch, CudaDevice, CudaOptions

IMAGES = np.zeros((3, 1, 28, 28), np.float32)


class StandIn(CudaDevice):
    """Buckets and fixed buffers on the CPU, in the place of CUDA."""

    def __init__(self, options: CudaOptions) -> None:
        self.options = options
        self.location = ("cpu", 0)
        self.bucketed = []
        self.opened: list[str] = []
        self.lost = False

    def is_lost(self) -> bool:
        """As it was set."""
        return self.lost

    def open_session(self, graph: Path, *, graphs: bool) -> InferenceSession:
        """On the CPU."""
        del graphs
        self.opened.append(graph.name)
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


def opened(runtime: Runtime) -> list[str]:
    assert isinstance(runtime.cuda, StandIn)
    return runtime.cuda.opened


def test_options_are_said_in_onnxruntime_s_words() -> None:
    """Float32 without TF32, heuristic search and exact growth unless something else is set."""
    expected = {
        "device_id": "0",
        "use_tf32": "0",
        "enable_cuda_graph": "1",
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kSameAsRequested",
    }
    assert expected == CudaOptions().for_provider(graphs=True)


def test_every_option_reaches_the_provider() -> None:
    """What is set is what onnxruntime receives."""
    options = CudaOptions(
        device_id=2,
        tf32=True,
        conv_search="exhaustive",
        arena_growth="power-of-two",
        memory_limit_bytes=10**9,
    )
    expected = {
        "device_id": "2",
        "use_tf32": "1",
        "enable_cuda_graph": "0",
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "arena_extend_strategy": "kNextPowerOfTwo",
        "gpu_mem_limit": "1000000000",
    }
    assert expected == options.for_provider(graphs=False)


@pytest.mark.parametrize(
    ("asked", "used"),
    [("heuristic", "EXHAUSTIVE"), ("default", "DEFAULT"), ("exhaustive", "EXHAUSTIVE")],
)
def test_half_precision_never_searches_by_heuristic(asked: ConvSearch, used: str) -> None:
    """With it, cuDNN finds no large convolutions in float16, and the encoder would not start."""
    options = CudaOptions(precision="half", conv_search=asked).for_provider(graphs=True)
    assert used == options["cudnn_conv_algo_search"]


@pytest.mark.usefixtures("stand_in")
def test_batches_are_padded_on_cuda_alone(open_runtime: Open) -> None:
    """Three rows go into a bucket of four; the CPU computes three."""
    on_cuda, on_cpu = open_runtime(device="cuda"), open_runtime(device="cpu")
    assert (1, 1) == (on_cuda.encoder_padding(3), on_cuda.decoder_padding(3))
    assert (0, 0) == (on_cpu.encoder_padding(3), on_cpu.decoder_padding(3))


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
def test_half_precision_takes_its_own_encoder(open_runtime: Open) -> None:
    """The setting chooses the graph on CUDA, and nothing on the CPU."""
    half = open_runtime(device="cuda", cuda=CudaOptions(precision="half"))
    assert ["encoder.fp16.onnx", "decoder.onnx", "routing.onnx"] == opened(half)
    whole = open_runtime(device="cuda")
    assert ["encoder.onnx", "decoder.onnx", "routing.onnx"] == opened(whole)
    assert "encoder" == open_runtime(device="cpu", cuda=CudaOptions(precision="half")).encoder_role(
        1
    )


@pytest.mark.usefixtures("stand_in")
def test_a_session_that_left_cuda_is_found_out(
    open_runtime: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the warm-up the providers are looked at, not before."""
    runtime = open_runtime(device="cuda")
    monkeypatch.setattr(cuda, "PROVIDER", "CUDAExecutionProvider")
    with pytest.raises(DeviceError, match="onnxruntime runs on CPUExecutionProvider instead"):
        runtime.warm_up()


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
    assert [0, 0] == [runtime.encoder_padding(3) for runtime in runtimes]
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


@pytest.mark.usefixtures("stand_in")
def test_one_thread_at_a_time_calls_cuda(open_runtime: Open) -> None:
    """While one captures, as when bundles are loaded anew, a batch of another waits."""
    runtime = open_runtime(device="cuda")
    encoding = threading.Thread(target=runtime.encode, args=(IMAGES,))
    with cuda.capture_lock:
        encoding.start()
        encoding.join(0.05)
        assert encoding.is_alive()
    encoding.join(10)
    assert not encoding.is_alive()


def _fail(*_: object) -> None:
    raise DeviceError("no kernel")


def test_a_missing_driver_is_one_sentence() -> None:
    """Where there is no NVIDIA driver, that is what is said, before onnxruntime is asked."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(DeviceError, match=r"^there is no NVIDIA driver here \(.+\)$"):
            cuda.find_driver()
    else:
        pytest.skip("there is a driver")
