"""Weights stored once, and graphs that refer to them: of every family, and of bad networks."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from torch import Tensor, nn

from model.bundle import WEIGHTS, Bundle
from model.capsnet import FAMILIES, Encoding, build
from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineCnn, BaselineConfig
from model.capsnet.stem import Conv, Residual, Whiten
from model.runtime.cpu import open_session
from training.graphs import (
    ExportError,
    fold_norms,
    round_weights,
    write_graphs,
)

families = pytest.mark.parametrize("family", FAMILIES)
SMALL = BaselineConfig(convs=(2,), kernels=(3,), pooling=True, hidden=(8,))
HALF = onnx.TensorProto.FLOAT16


def bundle_of(family: str, folder: Path) -> Bundle:
    return Bundle.open(folder / f"tiny-{family}")


def read(graph: Path) -> onnx.GraphProto:
    """A graph without its stored weights."""
    return onnx.load(graph, load_external_data=False).graph


@pytest.fixture
def encoders_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are exported without decoder and routing, for tests that look at neither."""
    for name, family in FAMILIES.items():
        monkeypatch.setitem(FAMILIES, name, replace(family, offers=frozenset()))


@pytest.mark.usefixtures("encoders_alone")
def test_convolutions_take_over_their_normalisation(tmp_path: Path) -> None:
    """The network answers and learns as before, its weights fit, the graph has no such nodes.

    It learns nearly as before: the small constant that a normalisation adds to a variance has
    another share in it. In 150 networks, lengths differed by 1.7e-4 at most, also in 64 bits.
    """
    torch.manual_seed(0)
    layers = (Whiten(), Conv(40, 3, padding=1), Residual(), Conv(16, 1, activation="none"))
    config = AttentionConfig(
        height=12, width=12, stem=layers, norm_first=True, primary="spatial", decoder_hidden=(8, 8)
    )
    network = build(config)
    images = torch.rand(64, 1, 12, 12)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    learning = deepcopy(network.train())(images).presence
    network(images)
    before = network.eval()(images).presence
    fold_norms(network)
    relearning = deepcopy(network).train()(images).presence
    torch.testing.assert_close(learning, relearning, rtol=0, atol=1e-3)
    torch.testing.assert_close(before, network(images).presence, rtol=0, atol=1e-5)
    again = build(config).eval()
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(before, again(images).presence, rtol=0, atol=1e-5)
    round_weights(network)
    write_graphs(network, tmp_path)
    kinds = [node.op_type for node in read(tmp_path / "encoder.onnx").node]
    assert (5, 0) == (kinds.count("Conv"), kinds.count("BatchNormalization"))
    answer = open_session(tmp_path / "encoder.onnx").run(["presence"], {"images": images.numpy()})
    np.testing.assert_allclose(network(images).presence.detach(), answer[0], rtol=0, atol=1e-5)


@families
def test_graphs_refer_to_whole_weights(family: str, family_bundles: Path) -> None:
    """Every reference is to one tensor's bytes, and every large one is referred to."""
    bundle = bundle_of(family, family_bundles)
    content = (bundle.path / WEIGHTS).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    spans = {
        (8 + size + start, end - start): name
        for name, (start, end) in ((name, one["data_offsets"]) for name, one in header.items())
        if header[name]["dtype"] == "F16"
    }
    referred = set()
    for role in bundle.manifest.graphs:
        for weight in read(bundle.graph(role)).initializer:
            if uses_external_data(weight):
                info = ExternalDataInfo(weight)
                assert (WEIGHTS, HALF) == (info.location, weight.data_type)
                name = spans[info.offset, info.length]
                shape = header[name]["shape"]
                assert shape == list(weight.dims)
                referred.add(name)
    assert set(spans.values()) == referred


def bad(kind: type[BaselineCnn]) -> BaselineCnn:
    """A network of a kind that may not be exported, its weights rounded."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = kind(SMALL).eval()
    round_weights(network)
    return network


class Scattering(BaselineCnn):
    """It puts its answer together in a way that CUDA graphs cannot capture."""

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """The most present class alone."""
        presence, poses = super().forward(images)
        places = presence.argmax(dim=1, keepdim=True)
        return Encoding((0 * presence).scatter(1, places, presence[:, :1]), poses)


class Hoarding(BaselineCnn):
    """It has a large constant that is no parameter."""

    table: Tensor

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.register_buffer("table", torch.rand(10, 6000), persistent=False)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Presence by way of the constant."""
        presence, poses = super().forward(images)
        return Encoding((presence @ self.table).clamp(0, 1)[:, :10], poses)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Scattering, r"encoder\.onnx holds ScatterElements"),
        (Hoarding, "table would be stored a second time"),
    ],
)
def test_a_network_with_a_bad_graph_is_refused(
    kind: type[BaselineCnn], message: str, tmp_path: Path
) -> None:
    """The message names the file and the operators, or the constant."""
    with pytest.raises(ExportError, match=message):
        write_graphs(bad(kind), tmp_path)
