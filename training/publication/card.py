"""The model card: what a bundle is, how it was trained, what it scores and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model.bundle import CARD, WEIGHTS, Bundle, Manifest
from training.data.datasets import DATASETS, HELD_OUT
from training.publication.findings import tell_findings
from training.recipes import PRESETS, Recipe
from training.run.lineage import Leg, devices_of, images_of, seconds_of, unseen_by

_TEMPLATE = """# {name}

{summary}

| | |
|---|---|
| task | {task}, {size}x{size} greyscale |
| encoder | convolution, {capsules:,} primary capsules ({types} types on a {grid}x{grid} grid), \
{classes} class capsules of {dim}-D, {iterations} routing iterations |
| weights | {weights_mb:.1f} MB in {storage}, computed in 32 |
| test error | {score} |
| source | Sabour, Frosst and Hinton, "Dynamic Routing Between Capsules", 2017 |

## Training

    {command}

{steps:,} steps of {batch} {images} ({epochs:.1f} epochs of {examples:,}), seed {seed}, \
{hours:.2f} hours in all on {devices}. \
{start}The whole recipe is in `manifest.json`, the log in `metrics.jsonl`.

![training curves](curves.png)

## Scores

{protocol}
{shifts}
Storing the weights in {storage} changed {answers_changed} of {validation_images:,} answers on \
{validation} (wrong before {errors_before}, after {errors_after}) \
and moved no length of the first 500 by more than {largest_length_change:.1e}. Those {shown} \
{validation_note}.

{findings}## Limits

{limits}
"""

_DIGIT_LIMITS = """\
Trained on digits of US census clerks and students, centred and free of clutter. It answers every
picture with one of its {classes} classes, also where there is none: look at the length before
you believe the label."""
_PAIR_LIMITS = """\
Trained on two overlapping digits of different classes, written by US census clerks and students,
their middles at most {apart} pixels apart each way. It has seen neither single digits, nor three,
nor twice the same one, and makes two of what it is shown: a long capsule may stand on the strokes
of another digit. `/segment` with `count=auto` leaves out those that explain no ink of their own."""
_CLOTHES_LIMITS = """\
Trained on small pictures of single pieces of clothing from a shop, light on a dark ground, upright,
filling their square. Others are scaled to a square as they are, without looking for the piece. It
answers every picture with one of its {classes} classes, also where there is none: look at the
length before you believe the label."""
_WORDING = {
    "digits": ("digits", _DIGIT_LIMITS),
    "clothes": ("pictures", _CLOTHES_LIMITS),
}
_STORAGE = {16: "16 bits", 8: "8 bits with a scale for each channel"}
_SHIFTS = """
| shift | pairs wrong | digits missed | squared error of a digit | IoU of masks | ink of a digit: \
true, drawn, drawn of an absent class |
|---|---|---|---|---|---|
{rows}
"""


def write_card(bundle: Bundle) -> None:
    """Write `CARD.md` from the manifest and the drawings in the folder."""
    (bundle.path / CARD).write_text(_TEMPLATE.format(**_facts(bundle)))


def lineage(manifest: Manifest) -> list[Leg]:
    """The runs that made a bundle's network."""
    return [Leg.from_dict(leg) for leg in manifest.training["lineage"]]


def _facts(bundle: Bundle) -> dict[str, Any]:
    manifest, training = bundle.manifest, bundle.manifest.training
    recipe, examples, metrics = training["recipe"], training["examples"], manifest.metrics
    *before, own = legs = lineage(manifest)
    epochs = own.images / examples
    return {
        **manifest.rounding,
        "name": manifest.name,
        "storage": _STORAGE[manifest.rounding["stored_bits"]],
        "summary": _summary(epochs, manifest, legs),
        "classes": manifest.num_classes,
        **_wording(manifest),
        "size": manifest.image_size,
        "capsules": manifest.primary_types * manifest.primary_grid**2,
        "types": manifest.primary_types,
        "grid": manifest.primary_grid,
        "dim": manifest.class_dim,
        "iterations": manifest.routing_iterations,
        "weights_mb": (bundle.path / WEIGHTS).stat().st_size / 1e6,
        "score": f"{metrics['test_error_percent']:.2f} % ({metrics['test_errors']} of "
        f"{metrics['test_images']:,})"
        if metrics
        else "not measured yet",
        "protocol": _protocol(metrics),
        "command": _command(recipe, legs),
        "start": _start(before),
        "steps": own.steps,
        "batch": recipe["batch_size"],
        "epochs": epochs,
        "examples": examples,
        "devices": " and ".join(_article(device) for device in devices_of(legs)),
        "seed": own.seed,
        "hours": seconds_of(legs) / 3600,
        "findings": tell_findings(bundle),
        "validation_note": "were not trained on" if unseen_by(legs) else "were trained on",
    }


def _protocol(metrics: dict[str, Any]) -> str:
    if not metrics:
        return "Not measured yet: `python -m training evaluate FOLDER --record`."
    if not (earlier := metrics.get("earlier_errors")):
        return f"{metrics['protocol']}. Read once."
    wrong = ", ".join(f"{errors:,}" for errors in earlier)
    return f"{metrics['protocol']}. Read {len(earlier) + 1} times; before, {wrong} were wrong."


def _command(recipe: dict[str, Any], legs: Sequence[Leg]) -> str:
    """What trains such a network again, as long as the preset is what it was."""
    *before, own = legs
    preset = PRESETS.get(own.preset)
    followed = Recipe.from_dict(recipe)
    if preset is None or replace(preset, epochs=followed.epochs) != followed:
        return f"# no preset of today: the recipe {own.preset} in manifest.json"
    words = [f"python -m training train {own.preset} --seed {own.seed}"]
    if not own.held_out:
        words.append("--final")
    if preset.epochs != followed.epochs:
        words.append(f"--epochs {followed.epochs:g}")
    if before:
        words.append("--transfer RUN" if before[-1].taken else "--weights RUN")
    return " ".join(words)


def _start(before: Sequence[Leg]) -> str:
    if not before:
        return ""
    runs = "; then ".join(f"{leg}{_tell_taken(leg)}" for leg in before)
    return f"Started from the weights of {runs}. "


def _article(device: str) -> str:
    return "a CPU" if device == "CPU" else device


def _tell_taken(leg: Leg) -> str:
    return f", those that fit ({', '.join(leg.taken)})" if leg.taken else ""


def _wording(manifest: Manifest) -> dict[str, str]:
    return _pair_wording(manifest) if manifest.preprocess == "pair" else _single_wording(manifest)


def _single_wording(manifest: Manifest) -> dict[str, str]:
    count = manifest.rounding["validation_images"]
    shown, limits = _WORDING[DATASETS[manifest.dataset].kind]
    return {
        "shown": shown,
        "task": f"{manifest.num_classes} classes of {manifest.dataset}",
        "images": "images",
        "shifts": "",
        "validation": f"the last {count:,} training {shown}",
        "limits": limits.format(classes=manifest.num_classes),
    }


def _pair_wording(manifest: Manifest) -> dict[str, str]:
    rows = [
        f"| {shift} | {scores['error_percent']:.2f} % | {scores['digit_error_percent']:.2f} % | "
        f"{scores['squared_error']:.1f} | {scores['mask_iou']:.3f} | {scores['true_ink']:.0f}, "
        f"{scores['present_ink']:.0f}, {scores['absent_ink']:.0f} |"
        for shift, scores in manifest.metrics.get("shifts", {}).items()
    ]
    count = manifest.rounding["validation_images"]
    recipe = manifest.training["recipe"]
    return {
        "shown": "digits",
        "task": f"two overlapping digits of {manifest.num_classes} classes ({manifest.dataset})",
        "images": "pairs",
        "shifts": _SHIFTS.format(rows="\n".join(rows)) if rows else "",
        "validation": f"{count:,} pairs of the last {HELD_OUT:,} training digits",
        "limits": _PAIR_LIMITS.format(apart=2 * recipe["shift_px"]),
    }


def _summary(epochs: float, manifest: Manifest, legs: Sequence[Leg]) -> str:
    planned = manifest.training["recipe"]["epochs"]
    where = " on a CPU alone" if devices_of(legs) == ("CPU",) else ""
    if epochs < 0.99 * planned:
        return f"A half-finished training{where}: {epochs:.1f} of {planned:g} epochs."
    seen, different = images_of(legs)
    if manifest.preprocess == "pair":
        again = (
            "" if different == seen else f", {(seen - different) / 1e6:.1f} million of them again"
        )
        pairs = f"{seen / 1e6:.1f} million pairs{again}"
        return f"Trained{where}, on {pairs}; the paper's training set has 60 million."
    epochs = seen / manifest.training["examples"]
    if epochs < 50:
        short = f"A short training of {epochs:.0f} epochs{where}"
        return f"{short}; the paper's code runs about 640."
    return f"Trained{where} for {epochs:.0f} epochs."
