"""A bundle in onnxruntime: what every family's graphs answer, numpy in and numpy out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from model.bundle import Bundle
from model.bundle.manifest import ANY_SIZE
from model.capsnet import FAMILIES
from model.preprocess import Floats
from model.runtime import DeviceError, Runtime
from model.runtime.cpu import open_session

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
BATCHES = pytest.mark.parametrize("count", [1, 2, 7])


@pytest.fixture(scope="module")
def images() -> Floats:
    """Seven sparse images, a fifth of whose pixels are lit."""
    rng = np.random.default_rng(0)
    lit = rng.random((7, 1, 28, 28)) < 0.2
    return (rng.random(lit.shape) * lit).astype(np.float32)


@pytest.fixture(scope="module", params=FAMILIES)
def any_runtime(request: pytest.FixtureRequest, family_bundles: Path) -> Runtime:
    """An untrained bundle of each family in turn."""
    bundle = Bundle.open(family_bundles / f"tiny-{request.param}")
    return Runtime(bundle, device="cpu", threads=1)


@pytest.fixture(
    scope="module", params=[name for name in FAMILIES if "decode" in FAMILIES[name].offers]
)
def drawing(request: pytest.FixtureRequest, family_bundles: Path) -> Runtime:
    """The same, of those families that have a decoder."""
    bundle = Bundle.open(family_bundles / f"tiny-{request.param}")
    return Runtime(bundle, device="cpu", threads=1)


@pytest.fixture(
    scope="module", params=[name for name in FAMILIES if "trace" in FAMILIES[name].offers]
)
def routed(request: pytest.FixtureRequest, family_bundles: Path) -> Runtime:
    """The same, of those families that have routing."""
    bundle = Bundle.open(family_bundles / f"tiny-{request.param}")
    return Runtime(bundle, device="cpu", threads=1)


@BATCHES
def test_encoding_has_its_shapes(count: int, any_runtime: Runtime, images: Floats) -> None:
    """Presence (N, K) and poses (N, K, D), for any N; D is zero where there are no poses."""
    presence, poses = any_runtime.encode(images[:count])
    dim = any_runtime.bundle.manifest.class_dim
    assert ((count, 10), (count, 10, dim)) == (presence.shape, poses.shape)
    assert [np.float32] * 2 == [presence.dtype, poses.dtype]
    assert 0 <= presence.min() < presence.max() <= 1


@BATCHES
def test_drawings_have_their_shape(count: int, drawing: Runtime) -> None:
    """Images (M, C, H, W) in [0, 1], for any M."""
    drawn = drawing.decode(np.full((count, 16), 9, np.float32), np.zeros(count, np.int64))
    assert ((count, 1, 28, 28), np.float32) == (drawn.shape, drawn.dtype)
    assert 0 <= drawn.min() < drawn.max() <= 1


@BATCHES
def test_traces_have_the_shapes_of_their_layers(
    count: int, routed: Runtime, images: Floats
) -> None:
    """As the manifest's layers tell: iterations, input capsules, and types of hidden layers."""
    *hidden, last = routed.bundle.manifest.layers
    inputs = last.types * last.rows * last.columns
    trace = routed.trace(images[:count])
    expected = {
        "couplings": (count, last.iterations, 10, inputs),
        "logits": (count, last.iterations, 10, inputs),
        "presence": (count, last.iterations, 10),
        "poses": (count, last.iterations, 10, 16),
        "input_presence": (count, inputs),
        "votes": (count, 10, inputs, 16),
    }
    assert expected == {name: part.shape for name, part in trace.classes._asdict().items()}
    assert [layer.name for layer in hidden] == list(trace.hidden)
    for layer, after in zip(hidden, [*hidden, last][1:], strict=True):
        couplings, presence = trace.hidden[layer.name]
        assert (count, layer.iterations, after.types, layer.types) == couplings.shape
        maps = (count, layer.iterations, after.types, after.rows, after.columns)
        assert maps == presence.shape


def test_a_trace_ends_in_the_encoding(routed: Runtime, images: Floats) -> None:
    """The last iteration is what the encoder answers."""
    trace, (presence, poses) = routed.trace(images).classes, routed.encode(images)
    np.testing.assert_allclose(trace.presence[:, -1], presence, atol=1e-5)
    np.testing.assert_allclose(trace.poses[:, -1], poses, atol=1e-4)


def test_an_answer_does_not_depend_on_its_batch(any_runtime: Runtime, images: Floats) -> None:
    """An image alone and among others gets the same presence and poses."""
    together = any_runtime.encode(images)
    for place, image in enumerate(images):
        for alone, batched in zip(any_runtime.encode(image[None]), together, strict=True):
            np.testing.assert_allclose(alone[0], batched[place], atol=1e-5, rtol=1e-5)


def test_graphs_hold_nothing_that_cuda_graphs_cannot_capture(any_runtime: Runtime) -> None:
    """No shape arithmetic, no control flow, no Einsum and no scattering."""
    for role in any_runtime.bundle.manifest.graphs.keys() - {ANY_SIZE}:  # runs on the CPU alone
        nodes = onnx.load(any_runtime.bundle.graph(role), load_external_data=False).graph.node
        operators = {node.op_type for node in nodes}
        assert operators & {"MatMul", "Gemm", "ReduceSum", "Conv"}
        forbidden = {"Shape", "Loop", "If", "Scan", "Einsum", "ScatterElements", "ScatterND"}
        assert set() == operators & forbidden


def test_graphs_tell_nothing_of_the_machine(
    any_runtime: Runtime, pytestconfig: pytest.Config
) -> None:
    """No path of the machine that exported them, and no stack trace."""
    bundle = any_runtime.bundle
    private = (pytestconfig.rootpath, bundle.path.parent, sys.prefix, "site-packages", ".py")
    for role in bundle.manifest.graphs:
        content = bundle.graph(role).read_bytes()
        assert [] == [str(word) for word in private if str(word).encode() in content]


def test_colour_goes_through(colour_bundle_path: Path) -> None:
    """Images of three channels that are not square, encoded, routed and drawn."""
    runtime = Runtime(Bundle.open(colour_bundle_path), device="cpu", threads=1)
    images = np.random.default_rng(0).random((3, 3, 24, 32), np.float32)
    presence, poses = runtime.encode(images)
    drawn = runtime.decode(poses[:, 1], np.ones(3, np.int64))
    assert ((3, 3), (3, 3, 24, 32)) == (presence.shape, drawn.shape)
    swapped = runtime.encode(images[:, ::-1])
    assert np.abs(swapped.presence - presence).max() > 1e-4
    np.testing.assert_allclose(runtime.trace(images).classes.presence[:, -1], presence, atol=1e-5)


@pytest.mark.parametrize(("rows", "role"), [(1, "encoder"), (2, "encoder"), (3, "encoder.batch")])
def test_several_images_take_the_batch_encoder(rows: int, role: str, runtime: Runtime) -> None:
    """Where there is one, on a CPU."""
    assert role == runtime.encoder_role(rows)


def test_without_a_batch_encoder_the_plain_one_takes_all(family_bundles: Path) -> None:
    """Most families have but one."""
    runtime = Runtime(Bundle.open(family_bundles / "tiny-shared"), device="cpu", threads=1)
    assert {"encoder"} == {runtime.encoder_role(rows) for rows in (1, 3, 32, 100)}


@pytest.mark.skipif(HAS_CUDA, reason="CUDA works here")
def test_larger_images_take_no_more_threads(
    family_bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers share the cores."""
    asked = []

    def open_recorded(graph: Path, *, threads: int = 0) -> onnxruntime.InferenceSession:
        asked.append(threads)
        return open_session(graph, threads=threads)

    monkeypatch.setattr("model.runtime.runtime.open_session", open_recorded)
    Runtime(Bundle.open(family_bundles / "tiny-shared"), device="cpu", threads=3)
    assert [3] == asked


def test_cuda_does_not_fall_back(bundle_path: Path) -> None:
    """A user who asks for CUDA and has none gets an error, not a slow network."""
    with pytest.raises(DeviceError, match="no CUDA provider; install the gpu extra"):
        Runtime(Bundle.open(bundle_path), device="cuda")


@pytest.mark.skipif(HAS_CUDA, reason="CUDA works here")
def test_auto_takes_the_cpu_where_there_is_nothing_else(bundle_path: Path) -> None:
    """The runtime says which provider it took."""
    runtime = Runtime(Bundle.open(bundle_path), device="auto", threads=1)
    assert "CPUExecutionProvider" == runtime.provider
    assert "Runtime('mnist', provider='CPUExecutionProvider')" == repr(runtime)


def test_two_onnxruntimes_are_refused(
    bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages of both extras overwrite each other's files, so neither can be trusted."""
    for name in ("onnxruntime", "onnxruntime-gpu"):
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        (folder / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match="onnxruntime and onnxruntime-gpu are both installed"):
        Runtime(Bundle.open(bundle_path), device="cpu")
