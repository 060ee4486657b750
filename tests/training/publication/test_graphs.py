from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from onnxruntime import SessionOptions

from model.bundle import (
    DECODER,
    ENCODER,
    ENCODER_BATCH,
    ENCODER_HALF,
    GRAPHS,
    ROUTING,
    WEIGHTS,
    Bundle,
)
from model.capsnet import CapsNet, CapsNetConfig
from model.cpu import PROVIDER, open_session
from model.sessions import load
from training.publication.graphs import ExportError, write_graphs
from training.publication.storage import narrow, round_weights

ENCODES = ("conv.weight", "primary.conv.weight", "classes.weight")
DRAWS = ("decoder.class_weight", "decoder.hidden.weight", "decoder.pixels.weight")


@pytest.fixture(scope="module")
def folder(exported: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the bundle, to which tests may add graphs."""
    return Path(shutil.copytree(exported.path, tmp_path_factory.mktemp("copy") / "tiny"))


def read(graph: Path) -> onnx.GraphProto:
    """A graph without its stored weights."""
    return onnx.load(graph, load_external_data=False).graph


def name_in(graph: str, parameter: str) -> str:
    """What a parameter of the network is called in a graph."""
    if graph == ROUTING:
        return f"network.{parameter}"
    return parameter.removeprefix("decoder.") if graph == DECODER else parameter


def test_weights_are_stored_once(folder: Path, untrained: CapsNet, bits: int) -> None:
    """The graphs share them: the file holds no more than these numbers, scales and padding."""
    stored = narrow(untrained, bits).values()
    numbers = sum(one.numbers.nbytes for one in stored)
    scales = sum(one.scales.nbytes for one in stored if one.scales is not None)
    assert numbers <= (folder / WEIGHTS).stat().st_size <= numbers + scales + 64 * 12


def test_eight_bits_take_half_of_sixteen(folder: Path, untrained: CapsNet, bits: int) -> None:
    """But for the first convolution and the scales."""
    weights = sum(parameter.numel() for parameter in untrained.parameters())
    ratio = (folder / WEIGHTS).stat().st_size / (weights * bits / 8)
    assert ratio == pytest.approx(1, abs=0.03)


def test_every_graph_takes_the_same_stored_weights(folder: Path) -> None:
    """A weight has one place in the file, whichever graph reads it."""
    places: dict[str, list[int]] = {name: [] for name in (*ENCODES, *DRAWS)}
    for graph in GRAPHS:
        offsets = {
            one.name: ExternalDataInfo(one).offset
            for one in read(folder / graph).initializer
            if uses_external_data(one)
        }
        for name in DRAWS if graph == DECODER else ENCODES:
            places[name].append(offsets[f"{name_in(graph, name)}.stored"])
    assert [4, 4, 4, 1, 1, 1] == [len(each) for each in places.values()]
    assert {1} == {len(set(each)) for each in places.values()}


def test_graphs_hold_no_weights(folder: Path) -> None:
    """A graph file holds structure, not weights."""
    assert all((folder / name).stat().st_size < 100_000 for name in GRAPHS)


@pytest.mark.parametrize("graph", [graph for graph in GRAPHS if graph != ENCODER_HALF])
def test_graphs_widen_weights_to_what_the_network_holds(
    folder: Path, untrained: CapsNet, graph: str
) -> None:
    """Bit for bit."""
    names = DRAWS if graph == DECODER else ENCODES
    model = onnx.load(folder / graph, load_external_data=False)
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name_in(graph, name)) for name in names
    )
    onnx.save(model, folder / "widened.onnx")
    session = open_session(folder / "widened.onnx", threads=1)
    inputs = {
        one.name: np.zeros((1, *one.shape[1:]), np.int64 if one.name == "classes" else np.float32)
        for one in session.get_inputs()
    }
    widened = session.run([name_in(graph, name) for name in names], inputs)
    for name, weight in zip(names, widened, strict=True):
        np.testing.assert_array_equal(untrained.get_parameter(name).detach(), weight)


@pytest.mark.parametrize("graph", GRAPHS)
def test_weights_are_widened_when_a_graph_is_loaded(folder: Path, graph: str) -> None:
    """No inference does again what depends on weights alone."""
    optimised = folder / f"optimised.{graph}"
    options = SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(optimised)
    load(folder / graph, options, [PROVIDER])
    loaded = onnx.load(optimised).graph
    constants = {one.name for one in loaded.initializer}
    assert not [node.op_type for node in loaded.node if set(node.input) <= constants]
    assert onnx.TensorProto.INT8 not in {one.data_type for one in loaded.initializer}


def test_half_precision_computes_in_float16(folder: Path) -> None:
    """Convolutions and votes take float16 weights; outputs are float32."""
    float16, float32 = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    graph = onnx.shape_inference.infer_shapes(onnx.load(folder / ENCODER_HALF)).graph
    halves = {one.name for one in graph.value_info if one.type.tensor_type.elem_type == float16}
    consumers = [node.op_type for node in graph.node if {*ENCODES} & {*node.input}]
    assert halves >= {*ENCODES}
    assert ["Conv", "Conv", "MatMul"] == consumers
    ends = (*graph.input, *graph.output)
    assert [float32] * 3 == [value.type.tensor_type.elem_type for value in ends]


def test_the_batch_encoder_multiplies_matrices_instead_of_convolving(folder: Path) -> None:
    """Of the two convolutions, the primary capsules' is in Winograd's form."""
    convolutions = {
        name: [node.op_type for node in read(folder / name).node].count("Conv")
        for name in (ENCODER, ENCODER_BATCH)
    }
    assert {ENCODER: 2, ENCODER_BATCH: 1} == convolutions


def test_kernels_that_the_exporter_transforms_are_no_weights(
    config: CapsNetConfig, tmp_path: Path
) -> None:
    """Small kernels come transformed from the exporter: they stay in the graph, unrounded."""
    network = CapsNet(replace(config, primary_kernel=5)).eval()
    round_weights(network, 16)
    images = torch.rand(3, 1, 28, 28)

    write_graphs(network, tmp_path)

    session = open_session(tmp_path / ENCODER_BATCH, threads=1)
    (lengths,) = session.run(["lengths"], {"images": images.numpy()})
    np.testing.assert_allclose(lengths, network(images).lengths.detach(), atol=1e-4)


def test_weights_that_were_not_rounded_are_refused(config: CapsNetConfig, tmp_path: Path) -> None:
    """Storing them would change the network that parity is checked against."""
    with pytest.raises(ExportError, match="was not rounded to 8 bits"):
        write_graphs(CapsNet(config), tmp_path, 8)
