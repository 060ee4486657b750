"""The model card: what a bundle is, how it was trained, what it scores and where it ends."""

from __future__ import annotations

from typing import Any

from model.bundle import CARD, WEIGHTS, Bundle, Manifest
from training.data.datasets import DATASETS, HELD_OUT
from training.publication.findings import tell_findings
from training.recipes import PRESETS

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
{hours} hours in all on one {device}. \
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


def _facts(bundle: Bundle) -> dict[str, Any]:
    manifest, training = bundle.manifest, bundle.manifest.training
    recipe, held_out = training["recipe"], training["held_out_for_validation"]
    metrics = manifest.metrics
    examples = training["examples"]
    epochs = training["steps"] * recipe["batch_size"] / examples
    final = "" if held_out else " --final"
    return {
        **manifest.rounding,
        "name": manifest.name,
        "storage": _STORAGE[manifest.rounding["stored_bits"]],
        "summary": _summary(epochs, training, pairs=manifest.preprocess == "pair"),
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
        "protocol": metrics.get("protocol", "Not measured yet: `make evaluate`."),
        "command": f"python -m training train {recipe['name']} --seed {training['seed']}{final}"
        + _epochs_option(recipe)
        + _start_option(training),
        "start": _start(training),
        "steps": training["steps"],
        "batch": recipe["batch_size"],
        "epochs": epochs,
        "examples": examples,
        "device": training["device"],
        "seed": training["seed"],
        "hours": training["hours"],
        "findings": tell_findings(bundle),
        "validation_note": "were not trained on" if held_out else "were trained on",
    }


def _epochs_option(recipe: dict[str, Any]) -> str:
    preset = PRESETS.get(recipe["name"])
    if preset is None or preset.epochs == recipe["epochs"]:
        return ""
    return f" --epochs {recipe['epochs']:g}"


def _start_option(training: dict[str, Any]) -> str:
    if not training.get("started_from"):
        return ""
    return " --transfer RUN" if training.get("transferred") else " --weights RUN"


def _start(training: dict[str, Any]) -> str:
    if not training.get("started_from"):
        return ""
    taken = training.get("transferred")
    those = f" that fit ({', '.join(taken)})" if taken else ""
    return f"Started from the weights of {training['started_from']}{those}. "


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


def _summary(epochs: float, training: dict[str, Any], *, pairs: bool) -> str:
    planned, started_from = training["recipe"]["epochs"], training.get("started_from")
    where = " on a CPU alone" if training["device"] == "CPU" else ""
    more = f", on top of {started_from}" if started_from else ""
    if epochs < 0.99 * planned:
        return f"A half-finished training{where}: {epochs:.1f} of {planned:g} epochs."
    if pairs:
        seen = f"{epochs * training['examples'] / 1e6:.1f} million pairs"
        return f"Trained{where}, on {seen}{more}; the paper's training set has 60 million."
    if planned < 50:
        short = f"A short training of {planned:g} epochs{where}{more}"
        return f"{short}; the paper's code runs about 640."
    return f"Trained{where} for {planned:g} epochs."
