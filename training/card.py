"""Write the model card: a bundle's facts, training, scores and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from markupsafe import Markup

from model.bundle import CARD, WEIGHTS, Bundle, Manifest, directions
from model.capsnet import FAMILIES, build
from training.data.datasets import DATASETS
from training.figures import MAX_WRONG
from training.provenance import images_of, runs_of, unseen_by
from training.recipes import recipe_of
from training.reliability import coverage_range
from training.templates import render

CURVES, WRONG, SWEEP = "curves.png", "wrong.png", "sweep.png"
CONFIDENCE, EXPLAINED, HEALTH = "confidence.png", "explained.png", "health.png"
_PAGES = Path("../../../docs/explanation")
"""Where the cards of shipped bundles find the definitions of what they measure."""
_LIMITS = {
    "digits": "Trained on digits of US census clerks and students, centred and free of clutter.",
    "pairs": "Trained on two overlapping digits of different classes. It has seen neither single "
    "digits, nor three, nor twice the same one, and finds two in whatever it is shown: a capsule "
    "may be present for strokes of another digit. `/segment` with `count=auto` leaves out those "
    "that are short or explain little of the image beyond longer ones.",
    "clothes": "Trained on small pictures of single pieces of clothing from a shop, light on a "
    "dark background, upright, filling their square. Other pictures are scaled whole.",
    "assemblies": "Trained on rendered objects: four parts, joined in five ways, light on black, "
    "each filling the image, seen from above. Other objects, backgrounds and sizes are new to it.",
    "pictures": "Trained on pictures of one folder, cropped to the middle and scaled. What they "
    "have in common beside their classes, such as their background, light or camera, it may rely "
    "on.",
}
_ANY = (
    "It answers every picture with one of its {classes} classes, also where there is none: look at "
    "the presence before you believe the label."
)


def write_card(bundle: Bundle) -> None:
    """Write `CARD.md` from the manifest.

    Sections without content, and figures that are not in the folder, are left out.
    """
    manifest, recipe = bundle.manifest, recipe_of(bundle)
    training = manifest.training
    runs = runs_of(training)
    seen, different = images_of(runs)
    encoder, decoder = _count_parameters(bundle)
    text = render(
        "card.md",
        manifest=manifest,
        training={"pictures": None, "test_reads": (), **training},
        metrics={**dict.fromkeys(("mirrored", "recalls", "shifts")), **manifest.metrics},
        family=FAMILIES[manifest.family],
        recipe=recipe,
        run=runs[-1],
        earlier_runs=runs[:-1],
        examples=training["examples"],
        examples_are="pairs" if recipe.task == "pairs" else "images",
        epochs=min(runs[-1].images / training["examples"], recipe.epochs),
        hours=sum(run.seconds for run in runs) / 3600,
        devices=dict.fromkeys(device for run in runs for device in run.devices),
        seen=seen,
        different=different,
        held_out=unseen_by(runs),
        encoder_parameters=encoder,
        decoder_parameters=decoder,
        weights_mb=(bundle.path / WEIGHTS).stat().st_size / 1e6,
        error=describe_error(manifest),
        for_pairs=manifest.mask_threshold is not None,
        dataset=DATASETS.get(manifest.neighbours.source) if manifest.neighbours else None,
        limits=_limits(manifest),
        class_counts=dict(
            zip(manifest.class_names, _class_counts(manifest), strict=False),
        ),
        link=lambda words, target: _link(bundle, words, target),
        **_confidence(manifest),
        directions=_directions(manifest),
        limits_of_directions=directions,
        **_figures(bundle),
    )
    (bundle.path / CARD).write_text(text)


def describe_error(manifest: Manifest) -> str:
    """The error on the split that was scored, with its interval, or that there is none."""
    metrics, runs = manifest.metrics, runs_of(manifest.training)
    dataset, held_out_count = runs[-1].dataset, unseen_by(runs)
    for split, name in (("test", "test"), ("validation", "held-out")):
        if f"{split}_errors" in metrics:
            errors, images = metrics[f"{split}_errors"], metrics[f"{split}_images"]
            low, high = metrics["interval_percent"]
            return (
                f"{100 * errors / images:.2f} % of {images:,} {name} images "
                f"(95 % interval {low:.2f} to {high:.2f} %; {errors:,} wrong)"
            )
    if dataset not in DATASETS and not held_out_count:
        return "not measured: trained on all pictures of the folder"
    return "not measured yet: `python -m training evaluate`"


def _count_parameters(bundle: Bundle) -> tuple[int, int]:
    """The numbers of weights in the encoder and in the decoder."""
    with torch.device("meta"):
        network = build(recipe_of(bundle).network)
    total, decoder = (
        sum(weight.numel() for name, weight in network.named_parameters() if name.startswith(part))
        for part in ("", "decoder.")
    )
    return total - decoder, decoder


def _class_counts(manifest: Manifest) -> tuple[int, ...]:
    return tuple(manifest.training.get("pictures", {}).get("class_counts", ()))


def _confidence(manifest: Manifest) -> dict[str, Any]:
    """How exact the coverage of sets can be, and the scores of each kind of images."""
    confidence = manifest.confidence
    if confidence is None:
        return {"confidence": [], "coverage_widths": {}}
    kinds = manifest.metrics.get("confidence") or {}
    if not kinds and confidence.cross_validated:
        kinds = {"held-out images, cross-validated": confidence.cross_validated}
    counts = sorted(confidence.counts or (confidence.count,))
    return {
        "confidence": [{"kind": kind, **scores} for kind, scores in kinds.items()],
        "coverage_widths": {count: _widths(count) for count in (counts[0], counts[-1])},
        "top_label_alone": confidence.is_top_label_alone(0.99),
    }


def _widths(count: int) -> dict[float, str]:
    """The coverage of sets whose thresholds come from so many images, by requested coverage."""
    spans = {share: coverage_range(count, share) for share in (0.9, 0.95, 0.99)}
    return {
        share: f"{100 * span[0]:.1f} to {100 * span[1]:.1f} %" if span else "all labels"
        for share, span in spans.items()
    }


def _directions(manifest: Manifest) -> list[dict[str, Any]]:
    """A row for each direction, over all classes that have it."""
    rows = []
    for name in dict.fromkeys(one.name for one in manifest.directions):
        found = [one for one in manifest.directions if one.name == name]
        numbers = []
        for one in found:
            quality, reading = one.quality, one.reading
            measured = (quality.got, quality.spread, quality.same_way)
            numbers.append((*measured, reading.r2, reading.mean_error, one.share or 0))
        rows.append(
            {
                "name": name,
                "unit": found[0].unit,
                "classes": len(found),
                "offered": sum(one.offered for one in found),
                "largest_other": max(one.quality.largest_other for one in found),
                **dict(
                    zip(
                        ("got", "spread", "same_way", "r2", "mean_error", "share"),
                        np.mean(numbers, axis=0).tolist(),
                        strict=True,
                    )
                ),
            }
        )
    return rows


def _figures(bundle: Bundle) -> dict[str, Any]:
    """The names of all figures, and which of them the bundle has."""
    return {
        "figures": {path.name for path in bundle.path.glob("*.png")},
        "max_wrong": MAX_WRONG,
        "curves": CURVES,
        "wrong": WRONG,
        "sweep": SWEEP,
        "confidence_figure": CONFIDENCE,
        "explained_figure": EXPLAINED,
        "health_figure": HEALTH,
    }


def _limits(manifest: Manifest) -> str:
    if manifest.mask_threshold is not None:
        return _LIMITS["pairs"]
    dataset = DATASETS.get(manifest.dataset)
    kind = dataset.kind if dataset else "pictures"
    known = _LIMITS.get(kind, f"Trained on {kind} of {manifest.dataset}, at the same size.")
    return f"{known} {_ANY.format(classes=manifest.num_classes)}"


def _link(bundle: Bundle, words: str, target: str) -> Markup:
    """Words that link to their definition, a page and its heading, where that is."""
    page = _PAGES / target.partition("#")[0]
    near = (bundle.path.resolve() / page).exists()
    return Markup(f"[{words}]({_PAGES.as_posix()}/{target})") if near else Markup(words)  # noqa: S704
