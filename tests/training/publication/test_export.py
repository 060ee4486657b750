from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from model.bundle import GRAPHS, WEIGHTS, Bundle
from model.capsnet import CapsNet, CapsNetConfig
from model.runtime import Runtime
from training.data.datasets import Examples
from training.evaluation.answers import measure_lengths
from training.publication.export import (
    PARITY_TOLERANCE,
    check_parity,
    export_bundle,
    round_measured,
)
from training.publication.graphs import ExportError
from training.publication.storage import narrow


def test_bundle_is_whole_and_nothing_else_is_left(exported: Bundle) -> None:
    """The graphs, one file of weights and a manifest, and no scratch folder beside them."""
    expected = {*GRAPHS, WEIGHTS, "manifest.json"}
    assert expected == {path.name for path in exported.path.iterdir()}
    assert expected - {"manifest.json"} == exported.manifest.sha256.keys()
    assert [exported.path] == list(exported.path.parent.iterdir())


def test_graphs_say_nothing_of_the_machine_that_made_them(exported: Bundle) -> None:
    """No paths, no stack traces."""
    for graph in GRAPHS:
        content = (exported.path / graph).read_bytes()
        assert b".py" not in content
        assert str(Path.cwd()).encode() not in content


def test_inputs_and_outputs_are_those_of_the_contract(exported: Bundle) -> None:
    """Names and dynamic batch axis, as `model.bundle` documents them."""
    found = {}
    for graph in GRAPHS:
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


def test_rounding_is_reported(exported: Bundle, bits: int) -> None:
    """The manifest says in how many bits weights are stored, and what that did."""
    rounding = exported.manifest.rounding
    assert (bits, 20) == (rounding["stored_bits"], rounding["validation_images"])
    assert 0 <= rounding["largest_length_change"] < 1e-2


def test_half_precision_is_measured(exported: Bundle) -> None:
    """The manifest says what float16 convolutions and votes did: something, and not much."""
    half = exported.manifest.half_precision
    assert 20 == half["validation_images"]
    assert 0 < half["largest_length_change"] < 1e-2


@pytest.mark.usefixtures("exported")
def test_the_exported_network_holds_what_is_stored(untrained: CapsNet, bits: int) -> None:
    """Parity is checked against the rounded network, not the trained one."""
    for name, stored in narrow(untrained, bits).items():
        assert torch.equal(stored.widen(), untrained.get_parameter(name))


@pytest.mark.parametrize("rows", [1, 2, 7, 32])
def test_graphs_compute_what_the_rounded_network_does(
    exported: Bundle, untrained: CapsNet, rows: int
) -> None:
    """The encoders and the decoder, whichever of them takes so many rows."""
    runtime = Runtime(exported, device="cpu", threads=1)
    images, classes = torch.rand(rows, 1, 28, 28), torch.arange(rows) % 10
    with torch.inference_mode():
        expected = untrained(images)
        own = expected.poses[torch.arange(rows), classes]
        drawn = untrained.decode(own, classes)
    for wanted, given in zip(expected, runtime.encode(images.numpy()), strict=True):
        np.testing.assert_allclose(given, wanted.numpy(), atol=PARITY_TOLERANCE)
    decoded = runtime.decode(own.numpy(), classes.numpy())
    np.testing.assert_allclose(decoded, drawn.numpy(), atol=PARITY_TOLERANCE)


def test_parity_check_refuses_another_network(exported: Bundle, config: CapsNetConfig) -> None:
    """A network with other weights is not what the bundle computes."""
    torch.manual_seed(1)
    with pytest.raises(ExportError, match="off by"):
        check_parity(CapsNet(config).eval(), Runtime(exported, device="cpu"))


@pytest.mark.parametrize("bits", [16], indirect=True)
def test_failed_export_leaves_the_old_bundle(
    exported: Bundle, config: CapsNetConfig, digits: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where parity fails, nothing is written and the bundle that was there stays."""
    monkeypatch.setattr("training.publication.export.PARITY_TOLERANCE", -1.0)
    torch.manual_seed(2)
    with pytest.raises(ExportError):
        export_bundle(CapsNet(config), exported.manifest, exported.path, validation=digits)
    assert exported.manifest == Bundle.open(exported.path).manifest
    assert [exported.path] == list(exported.path.parent.iterdir())


def test_weights_that_16_bits_cannot_hold_are_refused(
    config: CapsNetConfig, digits: Examples
) -> None:
    """They would be infinite."""
    network = CapsNet(replace(config, class_bias=False)).eval()
    with torch.no_grad():
        network.primary.conv.weight.mul_(1e7)
    with pytest.raises(ExportError, match="weights in 16 bits"):
        round_measured(network, digits, 16)


@pytest.fixture
def fragile(config: CapsNetConfig, digits: Examples) -> tuple[CapsNet, Examples]:
    """A network that 8 bits break, and digits that it answers rightly before.

    In each filter one weight is so large that in 8 bits the others become zero; what it is
    multiplied by always is.
    """
    torch.manual_seed(3)
    network = CapsNet(replace(config, class_bias=False)).eval()
    with torch.no_grad():
        network.conv.weight[0], network.conv.bias[0] = 0, -1
        network.primary.conv.weight[:, 0, 0, 0] = 1000
    lengths = measure_lengths(network, digits.images, device=torch.device("cpu"))
    return network, digits._replace(labels=lengths.argmax(axis=1).astype(np.uint8))


def test_eight_bits_that_lose_answers_are_refused(fragile: tuple[CapsNet, Examples]) -> None:
    """The message counts them and names the way out."""
    network, digits = fragile
    assert len(set(digits.labels)) > 1
    with pytest.raises(ExportError, match=r"lose \d+ right answers of 20 and win 0; store 16 bits"):
        round_measured(network, digits, 8)


def test_sixteen_bits_keep_what_eight_would_lose(fragile: tuple[CapsNet, Examples]) -> None:
    """The way out is one."""
    assert 0 == round_measured(*fragile, 16)["errors_after"]
