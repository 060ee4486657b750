"""From a network or a run to a bundle: what is checked, measured, refused and written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.bundle import CARD, MANIFEST, WEIGHTS, Bundle, digest
from model.capsnet import FAMILIES, Encoding, Network, load
from model.capsnet.baseline import BaselineCnn, BaselineConfig
from model.runtime import Runtime
from training.data.datasets import DIGITS, Examples
from training.export import (
    PARITY_TOLERANCE,
    check_parity,
    describe,
    export_bundle,
    replacing_folder,
    round_measured,
)
from training.graphs import LARGE, ExportError

families = pytest.mark.parametrize("family", FAMILIES)
SMALL = BaselineConfig(convs=(2,), kernels=(3,), pooling=True, hidden=(8,))


@pytest.fixture(scope="module")
def noise() -> Examples:
    """Noise in place of validation images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 1, 28, 28), np.uint8)
    return Examples(images, rng.integers(0, 10, 20))


def open_both(family: str, folder: Path) -> tuple[Network, Runtime]:
    """A family's network in torch, and its bundle in onnxruntime."""
    bundle = Bundle.open(folder / f"tiny-{family}")
    return load(bundle), Runtime(bundle, device="cpu", threads=1)


def small(kind: type[BaselineCnn] = BaselineCnn) -> BaselineCnn:
    """A network that is exported as a single graph."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(SMALL).eval()


def export(network: Network, target: Path, validation: Examples) -> Bundle:
    facts = {"dataset": "noise", "class_names": DIGITS, "preprocess": "stretch"}
    manifest = describe(network, name=target.name, **facts)
    with replacing_folder(target) as folder:
        export_bundle(network, manifest, folder, validation=validation)
    return Bundle.open(target)


@families
@pytest.mark.parametrize("rows", [1, 7])
def test_graphs_compute_what_the_network_does(family: str, rows: int, family_bundles: Path) -> None:
    """Presence, poses, drawings and traces, in batches of any size."""
    network, runtime = open_both(family, family_bundles)
    images, classes = torch.rand(rows, 1, 28, 28), torch.arange(rows) % 10
    with torch.inference_mode():
        expected = network(images)
        pairs = list(zip(runtime.encode(images.numpy()), expected, strict=True))
        if "decode" in FAMILIES[family].offers:
            own = expected.poses[torch.arange(rows), classes]
            drawn = runtime.decode(own.numpy(), classes.numpy())
            pairs += [(drawn, network.decode(own, classes))]
        if "trace" in FAMILIES[family].offers:
            wanted, found = network.trace(images), runtime.trace(images.numpy())
            pairs += zip(found.classes, wanted.classes, strict=True)
            for layer, other in zip(found.hidden.values(), wanted.hidden.values(), strict=True):
                pairs += zip(layer, other, strict=True)
    for actual, wished in pairs:
        bound = PARITY_TOLERANCE * max(1, wished.abs().max().item() if wished.numel() else 1)
        np.testing.assert_allclose(actual, wished.numpy(), atol=bound)


@pytest.mark.parametrize(
    ("weight", "graph"), [("votes.weight", "encoder"), ("decoder.pixels.bias", "decoder")]
)
def test_parity_refuses_another_network(weight: str, graph: str, family_bundles: Path) -> None:
    """The check of every export can fail: for a network of other weights it does."""
    network, runtime = open_both("dynamic", family_bundles)
    check_parity(network, runtime)
    with torch.no_grad():
        network.get_parameter(weight).add_(0.1)
    with pytest.raises(ExportError, match=f"{graph}: off by .*, more than"):
        check_parity(network, runtime)


def test_parity_refuses_another_routing(
    family_bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every field of a trace, one coupling of one image among them."""
    network, runtime = open_both("matrix", family_bundles)
    trace = type(network).trace

    def moved(self: Network, images: Tensor) -> object:
        found = trace(self, images)
        couplings = found.classes.couplings.clone()
        couplings[0, -1, 2, 3] += 1e-3
        return found._replace(classes=found.classes._replace(couplings=couplings))

    monkeypatch.setattr(type(network), "trace", moved)
    with pytest.raises(ExportError, match="routing, couplings: off by"):
        check_parity(network, runtime)


class Leaning(BaselineCnn):
    """Its answer to an image depends on the images next to it."""

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Presence less the batch's mean."""
        presence, poses = super().forward(images)
        return Encoding((presence - presence.mean(dim=0)).abs(), poses)


def test_an_answer_that_depends_on_its_batch_is_refused(tmp_path: Path, noise: Examples) -> None:
    """However well the graph computes it."""
    with pytest.raises(ExportError, match="off by"):
        export(small(Leaning), tmp_path / "leaning", noise)
    assert [] == list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def exported(noise: Examples, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of a small network, alone in its folder."""
    return export(small(), tmp_path_factory.mktemp("exported") / "small", noise)


def test_a_bundle_is_whole_and_nothing_else_is_left(exported: Bundle) -> None:
    """Graphs, one file of weights and a manifest, whose version is that of the weights."""
    files = {path.name for path in exported.path.iterdir()}
    assert {"encoder.onnx", WEIGHTS, MANIFEST} == files
    assert files - {MANIFEST} == exported.manifest.sha256.keys()
    assert [exported.path] == list(exported.path.parent.iterdir())
    version = exported.manifest.version
    assert digest(exported.path / WEIGHTS).startswith(version)
    assert 12 == len(version)


@pytest.fixture
def fragile() -> Network:
    """Its answer is 3, before 2, by a difference that 16 bits do not hold."""
    config = replace(SMALL, hidden=(128,))
    network = BaselineCnn(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.get_parameter("features.4.bias").fill_(1)
        network.classes.weight[2] = 1
        network.classes.weight[3] = 1.0001
    assert network.classes.weight.numel() >= LARGE
    return network


def test_rounding_that_loses_answers_is_refused(fragile: Network, noise: Examples) -> None:
    """The message counts them."""
    with pytest.raises(ExportError, match="20 right answers of 20 are lost, 0 won"):
        round_measured(fragile, replace(noise, labels=np.full(20, 3)))


def test_a_bundle_is_replaced_when_all_is_there(tmp_path: Path) -> None:
    """What fails on the way, or cannot take its place, leaves the one before and nothing else."""
    target = tmp_path / "digits"
    for text in ("old", "new"):
        with replacing_folder(target) as folder:
            (folder / MANIFEST).write_text("{}")
            (folder / CARD).write_text(text)
    with pytest.raises(FileNotFoundError), replacing_folder(target) as folder:
        (folder / "missing").rename(folder / CARD)
    assert [target] == list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError), replacing_folder(target) as folder:
        folder.rmdir()
    assert "new" == (target / CARD).read_text()
    assert [target] == list(tmp_path.iterdir())


def test_a_folder_that_is_no_bundle_is_kept(tmp_path: Path) -> None:
    """A name may be that of the folder of pictures."""
    (tmp_path / "1.png").write_bytes(b"a picture")
    with pytest.raises(ExportError, match="is no bundle"), replacing_folder(tmp_path) as folder:
        (folder / CARD).write_text("new")
    assert ["1.png"] == [path.name for path in tmp_path.iterdir()]


class Crossed(BaselineCnn):
    """It lists a normalisation after a convolution, and uses it before."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        norm = nn.BatchNorm2d(1)
        norm.running_mean.fill_(0.5)  # type: ignore[union-attr]
        norm.running_var.fill_(4)  # type: ignore[union-attr]
        self.filter = nn.ModuleList([nn.Conv2d(1, 1, 3, padding=1), norm])

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Presence of normalised and filtered images."""
        mix, norm = self.filter
        return super().forward(mix(norm(images)))


def test_a_normalisation_that_is_wrongly_folded_is_refused(tmp_path: Path, noise: Examples) -> None:
    """A bundle computes what the trained network did, not what folding made of it."""
    with pytest.raises(ExportError, match="folded normalisation, encoder: off by"):
        export(small(Crossed), tmp_path / "crossed", noise)
    assert [] == list(tmp_path.iterdir())
