"""An encoder in 8 bits, which the analysis adds to a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession, SessionOptions

from model.bundle import Bundle
from model.bundle.manifest import EIGHT_BITS
from model.preprocess import Floats, scale
from model.runtime import Runtime
from service.settings import Settings
from tests.serving import serve
from tests.training.published import HELD_OUT, say_training
from training.analysis.bundle import analyse, analyse_eight_bits
from training.data.datasets import Examples
from training.evaluate import validation_examples
from training.graphs import ExportError


@pytest.fixture
def analysed(bundle: Bundle, data_dir: Path) -> Bundle:
    return analyse_eight_bits(bundle, data_dir)


@pytest.fixture
def images(bundle: Bundle, data_dir: Path) -> Floats:
    examples: Examples = validation_examples(bundle, data_dir)
    return scale(examples.images[:7])


def open_both(bundle: Bundle) -> tuple[Runtime, Runtime]:
    """In float32 and in 8 bits."""
    full = Runtime(bundle, device="cpu", threads=1)
    return full, Runtime(bundle, device="cpu", threads=1, cpu_precision="int8")


def test_a_bundle_gets_a_small_graph_and_its_effect(analysed: Bundle) -> None:
    """The graph shares the weights of the bundle, and the manifest is the one that is read back."""
    manifest = Bundle.open(analysed.path).manifest
    assert manifest == analysed.manifest
    assert manifest.graphs[EIGHT_BITS] in manifest.sha256
    assert analysed.graph(EIGHT_BITS).stat().st_size < 50_000
    assert HELD_OUT == manifest.eight_bits["validation_images"]
    assert 0 < manifest.eight_bits["largest_presence_change"] < 0.1


def test_8_bits_answer_nearly_the_same(analysed: Bundle, images: Floats) -> None:
    """An image's answer does not depend on its batch."""
    full, eight = open_both(analysed)
    assert [EIGHT_BITS] * 3 == [eight.encoder_role(rows) for rows in (1, 3, 32)]
    for expected, rounded in zip(full.encode(images), eight.encode(images), strict=True):
        assert 0 < np.abs(expected - rounded).max() < 0.1
    for alone, together in zip(eight.encode(images[:1]), eight.encode(images), strict=True):
        np.testing.assert_allclose(alone, together[:1], atol=1e-5)


def test_convolutions_compute_with_integers(analysed: Bundle, tmp_path: Path) -> None:
    """Weights are rounded when the graph is loaded, not for each image."""
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    InferenceSession(analysed.graph(EIGHT_BITS), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(tmp_path / "optimised.onnx", load_external_data=False).graph.node
    operators = [node.op_type for node in nodes]
    assert 1 == operators.count("QLinearConv")
    assert "Cast" not in operators


def test_the_service_computes_in_8_bits_where_it_is_set(
    bundle: Bundle, data_dir: Path, digits: list[bytes]
) -> None:
    """A network without such a graph stays in float32."""
    settings = Settings(bundles=bundle.path.parent, device="cpu", threads=1, cpu_precision="int8")
    with serve(settings) as client:
        (summary,) = client.get("/models").json()["models"]
        assert bundle.manifest.version == summary["version"]
    analyse_eight_bits(bundle, data_dir)
    with serve(settings) as client:
        version, file = f"{bundle.manifest.version}+int8", {"file": digits[7]}
        assert version == client.post("/classify", files=file).json()["version"]
        png = client.post("/sweep", files=file, headers={"Accept": "image/png"})
        assert png.headers["X-Model"].endswith(f"; version={version}")
        (summary,) = client.get("/models").json()["models"]
        assert version == summary["version"]


def test_a_processor_that_computes_something_else_is_noticed(
    bundle: Bundle,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is written, and the rest of the analysis goes on, so that an export succeeds."""
    monkeypatch.setattr("training.eight_bits.TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="integer products are off by"):
        analyse_eight_bits(bundle, data_dir)
    assert bundle == Bundle.open(bundle.path)
    analysed = analyse(bundle, data_dir).manifest
    assert EIGHT_BITS not in analysed.graphs
    assert analysed.health
    assert "there is no encoder in 8 bits: " in caplog.text


def test_8_bits_that_cost_right_answers_are_left_out(
    bundle: Bundle, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate is 0.1 percentage points; here, no result passes it."""
    monkeypatch.setattr("training.eight_bits.MAX_LOST", -2.0)
    with pytest.raises(ExportError, match="of 40 answers are wrong"):
        analyse_eight_bits(bundle, data_dir)
    assert bundle == Bundle.open(bundle.path)


def test_a_network_with_one_convolution_stays_as_it_is(
    family_bundles: Path, data_dir: Path
) -> None:
    """The first convolution is computed in float32."""
    plain = say_training(family_bundles / "tiny-baseline", data_dir / "baseline")
    assert plain == analyse_eight_bits(plain, data_dir)
