"""Export a run as a bundle, whose graphs compute what its network computes.

An export writes, each by the module in brackets:

- `weights.safetensors`, large weights in 16 bits, and `<role>.onnx` (`graphs`);
- `manifest.json` and `metrics.jsonl` (this one);
- `novelty.npz`, `neighbours.npz` and `decoded.png`, where they apply (`analysis.bundle`);
- `CARD.md`, `figures.png` and, where it scores the bundle, `wrong.png` (`card`);
- `samples/` (`samples`).
"""

from __future__ import annotations

import math
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from model.bundle import MANIFEST, WEIGHTS, Bundle, Manifest, digest, write_manifest
from model.bundle.files import version_of
from model.bundle.manifest import SHOWN
from model.bundle.samples import SAMPLES
from model.capsnet import Network, build, family_of
from model.runtime import Runtime
from training.analysis.bundle import analyse
from training.answers import answer, is_wrong, measure_presence
from training.card import describe_error, write_card
from training.command import DATA_DIR, DataDir, Replace, app, console
from training.data.datasets import DATASETS, Dataset, Examples, draw_rows
from training.data.pairs import validation_pairs
from training.device import choose_threads
from training.evaluate import evaluate, seen_or_not
from training.figures import WRONG
from training.graphs import (
    OPSET,
    ExportError,
    fold_norms,
    refuse_difference,
    round_weights,
    write_graphs,
)
from training.metrics import METRICS
from training.provenance import reads_of, refuse_other, runs_of, unseen_by
from training.samples import write_samples
from training.state import CHECKPOINT, Checkpoint
from training.training_data import load_again

PARITY_BATCHES = (1, 2, 7, 32)
PARITY_TOLERANCE = 1e-4
_CPU = torch.device("cpu")


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(help="A run of `train`.")],
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the bundle; by default the recipe's name.")
    ] = None,
    bundles: Annotated[Path, typer.Option(help="Folder to write the bundle to.")] = Path(
        "model/bundles"
    ),
    replace: Replace = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Where the folder of pictures is now that the network was trained on."),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Leave your own pictures out of the bundle: /neighbours shows reconstructions, "
            "and there are no samples.",
        ),
    ] = False,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Check that the bundle of a run computes what its network computes, and write it.

    It is analysed, and gets its card. An older bundle of this run is replaced at the end, when all
    is there.
    """
    choose_threads()
    checkpoint = Checkpoint.load(run_dir / CHECKPOINT)
    recipe, pictures = checkpoint.recipe, checkpoint.pictures
    target = bundles / (name or (recipe.dataset if pictures else recipe.name))
    if not (run_dir / METRICS).is_file():
        raise ExportError(f"{run_dir} has no {METRICS}, of which the curves are drawn")
    refuse_other(target, checkpoint.record(), replace_other=replace)
    images = load_again(recipe, pictures, data_dir, folder=data)
    network = build(recipe.network)
    network.load_state_dict(checkpoint.network)
    validation = images.validation
    if recipe.task == "pairs":
        size, shift_px = recipe.network.height, recipe.shift_px
        validation = validation_pairs(images.validation, size=size, shift_px=shift_px)
    manifest = _describe_run(checkpoint, network, images.dataset, target)
    with replacing_folder(target) as folder:
        bundle = export_bundle(network, manifest, folder, validation=validation)
        shutil.copy(run_dir / METRICS, folder / METRICS)
        where = data or Path(pictures.folder) if pictures else None
        bundle = analyse(bundle, data_dir, folder=where, own_images=not private)
        licence = "yours" * (not private) if pictures else images.dataset.licence
        if licence and recipe.task != "pairs" and manifest.channels in (1, 3):  # samples are PNGs
            source = f"{'folder ' * bool(pictures)}{recipe.dataset}, {seen_or_not(manifest)}"
            rows = draw_rows(images.validation.labels, len(images.validation.labels), seed=0)
            shown, names = images.validation.at(rows), manifest.class_names
            write_samples(shown, names, folder / SAMPLES, licence=licence, source=source)
        if pictures and unseen_by(checkpoint.runs):
            evaluate(bundle, data_dir, split="validation", folder=where)
        if pictures and private:
            (folder / WRONG).unlink(missing_ok=True)
            write_card(Bundle.open(folder))
    console.print(*conclude_export(Bundle.open(target)), sep="\n")


def conclude_export(bundle: Bundle) -> Iterator[str]:
    """Yield the lines that end an export: the bundle's path, its score and the next command."""
    manifest, path = bundle.manifest, bundle.path
    runs = runs_of(manifest.training)
    scored = not {"test_errors", "validation_errors"}.isdisjoint(manifest.metrics)
    yield f"wrote {path}"
    if (shown := manifest.neighbours) and "pictures" in manifest.training:
        if shown.licence:
            yield f"/neighbours shows your own pictures ({shown.images}); --private leaves them out"
        else:
            yield "private: the bundle has none of your pictures; its decoder draws blurred ones"
    if scored:
        yield f"error: {describe_error(manifest)}"
    if scored or (runs[-1].dataset not in DATASETS and not unseen_by(runs)):
        bundles = f"CAPSNET_BUNDLES={shlex.quote(str(path.parent))}"
        yield f"next: {bundles} CAPSNET_DEFAULT_MODEL={manifest.name} python -m service"
    else:
        option = " --validation" if unseen_by(runs) else ""
        if "pictures" in manifest.training:
            option += " --data FOLDER"
        yield f"next: python -m training evaluate {shlex.quote(str(path))}{option}"


def _describe_run(
    checkpoint: Checkpoint, network: Network, dataset: Dataset, target: Path
) -> Manifest:
    """The manifest of a run's network that is exported to a folder of this name."""
    recipe = checkpoint.recipe
    facts: dict[str, Any] = {"preprocess": dataset.preprocess, "dataset": recipe.dataset}
    if recipe.task == "pairs":
        # `analyse` chooses the threshold; until then a manifest for pairs must have one.
        facts = {"preprocess": "pair", "dataset": f"multi{recipe.dataset}", "mask_threshold": 0.0}
    training, reads = checkpoint.record(), reads_of(target.parent, checkpoint.runs)
    if "pictures" in training:
        training["pictures"]["folder"] = ""  # its path is private
    return describe(
        network,
        name=target.name,
        class_names=dataset.class_names,
        shown_channels=recipe.shown_channels if recipe.network.channels not in (1, SHOWN) else (),
        training=training | {"test_reads": [asdict(read) for read in reads]},
        **facts,
    )


def describe(network: Network, **facts: Any) -> Manifest:
    """A manifest of the network's sizes and of other facts, `name` and `dataset` among them."""
    config, family = network.config, family_of(network.config)
    parts = {"decode": "decoder", "trace": "routing"}
    roles = [*network.encoders(), *(parts[offer] for offer in sorted(family.offers))]
    return Manifest(
        family=family.name,
        family_title=family.title,
        channels=config.channels,
        height=config.height,
        width=config.width,
        class_dim=config.class_dim if "decode" in family.offers else 0,
        presence=family.presence,
        routing=family.routing,
        offers=tuple(sorted(family.offers)),
        layers=network.layers,
        opset=OPSET,
        **{"graphs": {role: f"{role}.onnx" for role in roles}, **facts},
    )


def export_bundle(
    network: Network, manifest: Manifest, folder: Path, *, validation: Examples
) -> Bundle:
    """Write weights, graphs and manifest into an empty folder.

    Args:
        network: the trained network; its weights are rounded as they will be stored.
        manifest: as `describe` gives it.
        validation: on which the effect of rounding is measured.

    Raises:
        ExportError: rounding made the network worse, a graph holds an operator that CUDA graphs
            cannot capture, or the exported network does not compute what the trained one does.
    """
    network = network.cpu().eval()
    images = _sparse_noise(network)
    trained = _compute(network, images)
    fold_norms(network)
    for (graph, expected), (_, folded) in zip(trained, _compute(network, images), strict=True):
        refuse_difference(f"folded normalisation, {graph}", folded, expected, PARITY_TOLERANCE)
    rounding = round_measured(network, validation)
    write_graphs(network, folder)
    bundle = seal(replace(manifest, rounding=rounding), folder)
    check_parity(network, Runtime(bundle, device="cpu"))
    return bundle


def seal(manifest: Manifest, folder: Path) -> Bundle:
    """Write the manifest of a folder that has graphs and weights, with their digests."""
    files = (*manifest.graphs.values(), WEIGHTS)
    digests = {name: digest(folder / name) for name in files}
    sealed = replace(manifest, sha256=digests, version=version_of(digests[WEIGHTS]))
    write_manifest(folder, sealed)
    return Bundle.open(folder)


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """An empty folder of the same name, which takes `target`'s place if the block succeeds.

    Raises:
        ExportError: `target` is a folder with something else than a bundle.
    """
    if target.is_dir() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise ExportError(f"{target} exists and is no bundle: choose another --name or --bundles")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        folder = Path(scratch) / target.name
        folder.mkdir()
        yield folder
        old = Path(scratch) / "old"
        if target.exists():
            target.rename(old)
        try:
            folder.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise


def round_measured(network: Network, validation: Examples) -> dict[str, Any]:
    """Round the large weights in place as they will be stored, and measure the effect.

    Rounding changes some answers: right ones become wrong, wrong ones become right. The network is
    worse if it loses more right answers than it wins, by more than two standard deviations of as
    many tosses of a coin.

    Returns:
        what that did to presence and answers on the validation images.

    Raises:
        ExportError: a weight does not fit, or the network is worse for it.
    """
    labels = validation.labels
    presence = measure_presence(network, validation.images, device=_CPU)
    round_weights(network)
    rounded = measure_presence(network, validation.images, device=_CPU)
    before, after = (is_wrong(values, labels) for values in (presence, rounded))
    lost, won = int((after & ~before).sum()), int((before & ~after).sum())
    if not np.isfinite(rounded).all() or lost - won > 2 * math.sqrt(lost + won):
        raise ExportError(f"in 16 bits {lost} right answers of {len(labels)} are lost, {won} won")
    return {
        "stored_bits": 16,
        "errors_before": int(before.sum()),
        "errors_after": int(after.sum()),
        "validation_images": len(labels),
        "answers_changed": int(
            (answer(presence, labels) != answer(rounded, labels)).any(axis=1).sum()
        ),
        "largest_presence_change": float(np.abs(rounded - presence).max()),
    }


def check_parity(network: Network, runtime: Runtime) -> None:
    """Compare a loaded bundle, in batches of several sizes, with the network of the same weights.

    The network answers all images together, so that answers may not depend on the batch. Images are
    sparse noise in [0, 1], seeded.

    Raises:
        ExportError: an output differs by more than 1e-4, of its largest number where that is over 1
            (as logits and votes may be).
    """
    offers = runtime.bundle.manifest.offers
    images = _sparse_noise(network)
    expected = _compute(network, images)
    label_poses, classes = _choose_poses(expected[1][1])
    for count in PARITY_BATCHES:
        part = images[:count].numpy()
        actual = [*runtime.encode(part)]
        if "decode" in offers:
            actual.append(runtime.decode(label_poses[:count].numpy(), classes[:count].numpy()))
        if "trace" in offers:
            actual += runtime.trace(part).named().values()
        for (graph, wanted), output in zip(expected, actual, strict=True):
            refuse_difference(graph, output, wanted[:count].numpy(), PARITY_TOLERANCE)
    if runtime.bundle.manifest.any_size:
        wide = torch.cat((images[:2], images[2:4]), dim=3)  # two images side by side
        with torch.inference_mode():
            for wanted, output in zip(network(wide), runtime.encode(wide.numpy()), strict=True):
                refuse_difference("encoder of any size", output, wanted.numpy(), PARITY_TOLERANCE)


def _compute(network: Network, images: Tensor) -> list[tuple[str, Tensor]]:
    """Compute all outputs for images (N, C, H, W), each with the name of its graph.

    Presence and poses come first.
    """
    offers = family_of(network.config).offers
    with torch.inference_mode():
        encoding = network(images)
        outputs = [("encoder", output) for output in encoding]
        if "decode" in offers:
            outputs.append(("decoder", network.decode(*_choose_poses(encoding.poses))))
        if "trace" in offers:
            traced = network.trace(images).named()
            outputs += [(f"routing, {name}", array) for name, array in traced.items()]
    return outputs


def _choose_poses(poses: Tensor) -> tuple[Tensor, Tensor]:
    """Choose one pose of each image, of all classes in turn: (N, K, D) to (N, D), (N,)."""
    classes = torch.arange(len(poses)) % poses.shape[1]
    return poses[torch.arange(len(poses)), classes], classes


def _sparse_noise(network: Network) -> Tensor:
    """The images on which networks and graphs are compared."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(max(PARITY_BATCHES), *network.config.image_shape, generator=generator)
    return images * (torch.rand(images.shape, generator=generator) < 0.2)
