from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from model.bundle import GRAPHS, MANIFEST, Bundle, BundleError
from model.capsnet import CapsNet
from model.runtime import DeviceError, Floats, Runtime

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
BATCHES = pytest.mark.parametrize("count", [1, 2, 7])


@pytest.fixture(scope="module")
def images() -> Floats:
    """Seven sparse images, a fifth of whose pixels are lit."""
    rng = np.random.default_rng(0)
    lit = rng.random((7, 1, 28, 28)) < 0.2
    return (rng.random(lit.shape) * lit).astype(np.float32)


@pytest.fixture(scope="module")
def classes() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A class for each image."""
    return np.arange(7) % 10


@BATCHES
def test_encoding_has_its_shapes(count: int, runtime: Runtime, images: Floats) -> None:
    """Lengths (N, K) and poses (N, K, D), for any N."""
    encoding = runtime.encode(images[:count])
    assert ((count, 10), (count, 10, 16)) == (encoding.lengths.shape, encoding.poses.shape)
    assert [np.float32] * 2 == [part.dtype for part in encoding]


@BATCHES
def test_drawings_have_their_shape(count: int, runtime: Runtime) -> None:
    """Images (M, 1, H, W) in [0, 1], for any M."""
    drawn = runtime.decode(np.full((count, 16), 9, np.float32), np.zeros(count, np.int64))
    assert (count, 1, 28, 28) == drawn.shape
    assert np.float32 == drawn.dtype
    assert 0 <= drawn.min() < drawn.max() <= 1


@BATCHES
def test_routing_has_its_shapes(count: int, runtime: Runtime, images: Floats) -> None:
    """Three iterations of ten classes and the 72 primary capsules of the small network."""
    routing = runtime.route(images[:count])
    expected = {
        "couplings": (count, 3, 10, 72),
        "logits": (count, 3, 10, 72),
        "poses": (count, 3, 10, 16),
        "primary_lengths": (count, 72),
        "votes": (count, 10, 72, 16),
    }
    assert expected == {name: part.shape for name, part in routing._asdict().items()}


def test_lengths_are_those_of_the_poses(runtime: Runtime, images: Floats) -> None:
    """A capsule's length is its pose's norm."""
    encoding = runtime.encode(images)
    assert np.allclose(np.linalg.norm(encoding.poses, axis=2), encoding.lengths, atol=1e-4)


def test_couplings_are_shares(runtime: Runtime, images: Floats) -> None:
    """Each primary capsule gives all of itself, evenly at first."""
    routing = runtime.route(images)
    assert np.allclose(1, routing.couplings.sum(axis=2), atol=1e-5)
    assert np.allclose(0.1, routing.couplings[:, 0], atol=1e-6)
    assert not routing.logits[:, 0].any()


def test_routing_ends_in_the_encoding(runtime: Runtime, images: Floats) -> None:
    """The poses of the last iteration are those that the encoder gives."""
    last = runtime.route(images).poses[:, -1]
    assert np.allclose(runtime.encode(images).poses, last, atol=1e-5)


@BATCHES
def test_encoding_is_the_network_s(
    count: int, runtime: Runtime, network: CapsNet, images: Floats
) -> None:
    """The graph computes what the trained network computes."""
    with torch.inference_mode():
        expected = network(torch.from_numpy(images[:count]))
    for wanted, actual in zip(expected, runtime.encode(images[:count]), strict=True):
        assert np.abs(wanted.numpy() - actual).max() <= 1e-4


@BATCHES
def test_drawings_are_the_network_s(
    count: int,
    runtime: Runtime,
    network: CapsNet,
    images: Floats,
    classes: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> None:
    """The graph draws what the trained network draws, each pose as its class."""
    poses = runtime.encode(images).poses[np.arange(7), classes][:count]
    with torch.inference_mode():
        expected = network.decode(torch.from_numpy(poses), torch.from_numpy(classes[:count]))
    assert np.abs(expected.numpy() - runtime.decode(poses, classes[:count])).max() <= 1e-4


@BATCHES
def test_routing_is_the_network_s(
    count: int, runtime: Runtime, network: CapsNet, images: Floats
) -> None:
    """The graph routes as the trained network does, in every iteration."""
    with torch.inference_mode():
        view = network.look_inside(torch.from_numpy(images[:count]))
    expected = (*view.trace, view.primary_lengths, view.votes)
    for wanted, actual in zip(expected, runtime.route(images[:count]), strict=True):
        assert np.abs(wanted.numpy() - actual).max() <= 1e-4


def test_routing_is_not_that_of_another_bundle(
    bundle_path: Path, images: Floats, tmp_path: Path
) -> None:
    """Its graph opens late, when other files may be where the bundle was."""
    folder = tmp_path / "mnist"
    shutil.copytree(bundle_path, folder)
    exchanged = Runtime(Bundle.open(folder), device="cpu", threads=1)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "dataset": "another"}))
    with pytest.raises(BundleError, match="another bundle is there now"):
        exchanged.route(images)


def test_an_answer_does_not_depend_on_its_batch(runtime: Runtime, images: Floats) -> None:
    """An image alone and among others gets the same lengths and poses."""
    together = runtime.encode(images)
    for place, image in enumerate(images):
        for alone, batched in zip(runtime.encode(image[None]), together, strict=True):
            assert np.abs(alone[0] - batched[place]).max() <= 1e-5


@pytest.mark.parametrize("graph", GRAPHS)
def test_graphs_hold_nothing_that_cuda_graphs_cannot_capture(graph: str, bundle_path: Path) -> None:
    """No shape arithmetic, no control flow and no Einsum."""
    nodes = onnx.load(bundle_path / graph, load_external_data=False).graph.node
    operators = {node.op_type for node in nodes}
    assert "MatMul" in operators or "Gemm" in operators
    assert set() == operators & {"Shape", "Loop", "If", "Scan", "Einsum"}


@pytest.mark.parametrize("graph", GRAPHS)
def test_graphs_tell_nothing_of_the_machine(
    graph: str, bundle_path: Path, pytestconfig: pytest.Config
) -> None:
    """No path of the machine that exported them, and no stack trace."""
    content = (bundle_path / graph).read_bytes()
    private = (pytestconfig.rootpath, bundle_path.parent, sys.prefix, "site-packages", ".py")
    assert [] == [str(word) for word in private if str(word).encode() in content]


@pytest.mark.skipif(HAS_CUDA, reason="CUDA works here")
def test_cuda_does_not_fall_back(bundle_path: Path) -> None:
    """Who asks for CUDA and has none is told so, instead of being served slowly."""
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
