"""A bundle in onnxruntime: what every family's graphs answer, numpy in and numpy out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from model.bundle import Bundle
from model.bundle.manifest import ANY_SIZE
from model.capsnet import FAMILIES
from model.preprocess import Floats
from model.runtime import DeviceError, Runtime


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
    scope="module", params=[name for name in FAMILIES if "trace" in FAMILIES[name].offers]
)
def routed(request: pytest.FixtureRequest, family_bundles: Path) -> Runtime:
    """The same, of those families that have routing."""
    bundle = Bundle.open(family_bundles / f"tiny-{request.param}")
    return Runtime(bundle, device="cpu", threads=1)


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


@pytest.mark.parametrize(("rows", "role"), [(1, "encoder"), (2, "encoder"), (3, "encoder.batch")])
def test_several_images_take_the_batch_encoder(rows: int, role: str, runtime: Runtime) -> None:
    """Where there is one, on a CPU."""
    assert role == runtime.encoder_role(rows)


def test_cuda_does_not_fall_back(bundle_path: Path) -> None:
    """A user who asks for CUDA and has none gets an error, not a slow network."""
    with pytest.raises(DeviceError, match="no CUDA provider; install the gpu extra"):
        Runtime(Bundle.open(bundle_path), device="cuda")


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
