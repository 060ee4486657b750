from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from model.bundle import ENCODER_HALF, GRAPHS, WEIGHTS, Bundle, Manifest
from model.capsnet import CapsNet, CapsNetConfig
from model.cpu import open_session
from model.runtime import Runtime
from training.data.datasets import Examples
from training.publication.export import check_parity, export_bundle, round_weights
from training.publication.graphs import ExportError, write_graphs

CONFIG = CapsNetConfig(conv_channels=8, primary_types=2, decoder_hidden=(16, 16), class_bias=True)
MANIFEST = Manifest(
    name="tiny",
    dataset="mnist",
    class_names=tuple("0123456789"),
    image_size=28,
    class_dim=16,
    preprocess="digit",
    routing_iterations=3,
    primary_types=2,
    primary_grid=6,
    opset=20,
)


@pytest.fixture(scope="module")
def network() -> CapsNet:
    """An untrained network; exporting rounds its weights."""
    torch.manual_seed(0)
    return CapsNet(CONFIG).eval()


@pytest.fixture(scope="module")
def digits() -> Examples:
    """Noise in place of validation digits."""
    rng = np.random.default_rng(0)
    return Examples(
        rng.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 20, dtype=np.uint8),
    )


@pytest.fixture(scope="module")
def exported(
    network: CapsNet, digits: Examples, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    """The network's bundle."""
    target = tmp_path_factory.mktemp("bundles") / "tiny"
    return export_bundle(network, MANIFEST, target, validation=digits)


def test_bundle_is_whole_and_nothing_else_is_left(exported: Bundle) -> None:
    """The graphs, one file of weights and a manifest, and no scratch folder beside them."""
    expected = {*GRAPHS, ENCODER_HALF, WEIGHTS, "manifest.json"}
    assert expected == {path.name for path in exported.path.iterdir()}
    assert expected - {"manifest.json"} == exported.manifest.sha256.keys()
    assert [exported.path] == list(exported.path.parent.iterdir())


def test_weights_are_stored_once_in_16_bits(exported: Bundle, network: CapsNet) -> None:
    """The graphs share their weights: the file is no larger than two bytes a number."""
    numbers = sum(parameter.numel() for parameter in network.parameters())
    assert (exported.path / WEIGHTS).stat().st_size <= 2 * numbers + 64 * 8


def test_graphs_hold_no_weights(exported: Bundle) -> None:
    """A graph file holds structure, not weights."""
    assert all((exported.path / graph).stat().st_size < 100_000 for graph in GRAPHS)


def test_graphs_say_nothing_of_the_machine_that_made_them(exported: Bundle) -> None:
    """No paths, no stack traces."""
    for graph in (*GRAPHS, ENCODER_HALF):
        content = (exported.path / graph).read_bytes()
        assert b".py" not in content
        assert str(Path.cwd()).encode() not in content


def test_inputs_and_outputs_are_those_of_the_contract(exported: Bundle) -> None:
    """Names and dynamic batch axis, as `model.bundle` documents them."""
    found = {}
    for graph in (*GRAPHS, ENCODER_HALF):
        proto = onnx.load(exported.path / graph, load_external_data=False).graph
        found[graph] = [value.name for value in (*proto.input, *proto.output)]
        assert proto.input[0].type.tensor_type.shape.dim[0].dim_param
    assert {
        "encoder.onnx": ["images", "lengths", "poses"],
        "encoder.batch.onnx": ["images", "lengths", "poses"],
        "decoder.onnx": ["poses", "classes", "images"],
        "encoder.fp16.onnx": ["images", "lengths", "poses"],
        "routing.onnx": [
            "images", "couplings", "logits", "route_poses", "primary_lengths", "votes",
        ],
    } == found  # fmt: skip


def test_the_batch_encoder_multiplies_matrices_instead_of_convolving(exported: Bundle) -> None:
    """Of the two convolutions, the primary capsules' is in Winograd's form."""
    convolutions = {}
    for name in ("encoder.onnx", "encoder.batch.onnx"):
        nodes = onnx.load(exported.path / name, load_external_data=False).graph.node
        convolutions[name] = [node.op_type for node in nodes].count("Conv")
    assert {"encoder.onnx": 2, "encoder.batch.onnx": 1} == convolutions


def test_kernels_that_the_exporter_transforms_are_no_weights(tmp_path: Path) -> None:
    """Small kernels come transformed from the exporter: they stay in the graph, unrounded."""
    network = CapsNet(replace(CONFIG, primary_kernel=5)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.half())
    images = torch.rand(3, 1, 28, 28)

    write_graphs(network, tmp_path)

    session = open_session(tmp_path / "encoder.batch.onnx", threads=1)
    (lengths,) = session.run(["lengths"], {"images": images.numpy()})
    np.testing.assert_allclose(lengths, network(images).lengths.detach(), atol=1e-4)


def test_rounding_is_reported(exported: Bundle) -> None:
    """The manifest says what 16 bits did."""
    rounding = exported.manifest.rounding
    assert (16, 20) == (rounding["stored_bits"], rounding["validation_images"])
    assert 0 <= rounding["largest_length_change"] < 1e-2


def test_half_precision_is_measured(exported: Bundle) -> None:
    """The manifest says what float16 convolutions and votes did: something, and not much."""
    half = exported.manifest.half_precision
    assert 20 == half["validation_images"]
    assert 0 < half["largest_length_change"] < 1e-2


def test_half_precision_computes_in_float16(exported: Bundle) -> None:
    """Convolutions and votes take float16 weights as they are stored; outputs are float32."""
    graph = onnx.load(exported.path / ENCODER_HALF, load_external_data=False).graph
    float16, float32 = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    stored = {one.name for one in graph.initializer if one.data_type == float16}
    consumers = {node.op_type for node in graph.node if stored & set(node.input)}
    assert {"Conv", "MatMul"} == consumers
    ends = (*graph.input, *graph.output)
    assert [float32] * 3 == [value.type.tensor_type.elem_type for value in ends]


@pytest.mark.usefixtures("exported")
def test_rounded_weights_fit_in_16_bits(network: CapsNet) -> None:
    """The network that parity is checked against holds the stored weights."""
    weight = network.primary.conv.weight
    assert torch.equal(weight, weight.half().float())


def test_parity_check_refuses_another_network(exported: Bundle) -> None:
    """A network with other weights is not what the bundle computes."""
    torch.manual_seed(1)
    other = CapsNet(CONFIG).eval()
    with pytest.raises(ExportError, match="off by"):
        check_parity(other, Runtime(exported, device="cpu"))


def test_failed_export_leaves_the_old_bundle(
    exported: Bundle, digits: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where parity fails, nothing is written and the bundle that was there stays."""
    monkeypatch.setattr("training.publication.export.PARITY_TOLERANCE", -1.0)
    torch.manual_seed(2)
    with pytest.raises(ExportError):
        export_bundle(CapsNet(CONFIG), MANIFEST, exported.path, validation=digits)
    assert exported.manifest == Bundle.open(exported.path).manifest
    assert [exported.path] == list(exported.path.parent.iterdir())


def test_rounding_that_moves_the_score_is_refused(digits: Examples) -> None:
    """Weights that 16 bits cannot hold are not published."""
    torch.manual_seed(3)
    network = CapsNet(replace(CONFIG, class_bias=False)).eval()
    with torch.no_grad():
        network.primary.conv.weight.mul_(1e7)  # beyond the range of 16 bits
    with pytest.raises(ExportError, match="16-bit weights"):
        round_weights(network, digits)
