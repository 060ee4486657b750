"""The sections of a model card that tell what was found inside the network."""

from __future__ import annotations

from model.bundle import Bundle, Manifest
from model.dimensions import PoseDimension
from model.familiarity import Familiarity
from training.data.datasets import HELD_OUT
from training.evaluation.wrong_answers import MOST_DRAWN
from training.paper import MULTIMNIST_SHIFT_PX

ROUTING_CURVE = "routing.png"
ROC = "roc.png"
SWEEP = "sweep.png"
WRONG = "wrong.png"


def tell_findings(bundle: Bundle) -> str:
    """All sections for which there is something to tell; empty, or ending in an empty line."""
    manifest = bundle.manifest
    sections = []
    if (bundle.path / WRONG).exists():
        sections.append(_wrong(manifest))
    if manifest.pose_dimensions:
        sections.append(_dimensions(manifest))
    if (bundle.path / SWEEP).exists():
        sections.append(_SWEEP.format(drawn=_drawn(manifest), count=HELD_OUT, sweep=SWEEP))
    if (bundle.path / ROUTING_CURVE).exists():
        sections.append(
            _ROUTING.format(iterations=manifest.routing_iterations, curve=ROUTING_CURVE)
        )
    if manifest.known is not None:
        sections.append(_familiarity(manifest.known))
    return "".join(f"{section}\n\n" for section in sections)


_ROUTING = """## Routing

How much each iteration changes, on average over validation images, classes and capsules. The
network was trained with {iterations}; where the curves do not fall, more iterations would not
settle.

![mean change by routing iteration]({curve})"""


_SWEEP = """## Sweeps

The poses of two {drawn}s, drawn again and again with one dimension moved: by as much as stands
above its column, the others unchanged (the paper's figure 4). They are the first of the last
{count:,} training {drawn}s of the two classes whose dimensions have the most names.

![every pose dimension moved from -0.25 to 0.25]({sweep})"""


def _wrong(manifest: Manifest) -> str:
    errors = manifest.metrics["test_errors"]
    pairs = manifest.preprocess == "pair"
    kind = f"pairs at shift {MULTIMNIST_SHIFT_PX}" if pairs else "test images"
    shown = f"The first {MOST_DRAWN} of the {errors:,}" if errors > MOST_DRAWN else "All"
    which = "the shorter of the two capsules" if pairs else "its capsule"
    return f"""## Wrong answers

{shown} {kind} that were answered wrongly, in the order of the test set. Black: the label, with the
length of {which}; coloured: the answer, likewise.

![test images with wrong answers]({WRONG})"""


def _drawn(manifest: Manifest) -> str:
    return "picture" if manifest.preprocess == "stretch" else "digit"


def _dimensions(manifest: Manifest) -> str:
    labels = sorted({one.label for one in manifest.pose_dimensions})
    head = " | ".join(manifest.class_names[label] for label in labels)
    rows = [
        " | ".join([f"| {dim}", *(_cell(manifest.meaning(label, dim)) for label in labels)]) + " |"
        for dim in range(manifest.class_dim)
    ]
    named = sum(one.sign != 0 for one in manifest.pose_dimensions)
    table = "\n".join([f"| | {head} |", "|---" * (len(labels) + 1) + "|", *rows])
    drawn = _drawn(manifest)
    return f"""## Pose dimensions

What the drawn {drawn} does as a dimension grows, and the share of the change that the name \
explains;
*part* where at least half of the change lies in one part of the {drawn}, - where nothing that has a
name explains 30 % of it. Names were chosen on some {drawn}s and confirmed on others: {named} of \
{len(manifest.pose_dimensions)} dimensions have one.

{table}"""


def _cell(one: PoseDimension | None) -> str:
    if one is None or one.name == "none":
        return "-"
    if one.name == "localised":
        return "*part*"
    return f"{one.effect} {one.strength:.2f}"


def _familiarity(rule: Familiarity) -> str:
    told = f"""## How sure

`/classify?known=true` takes a picture for known if neither the length of the longest capsule, nor
its lead over the second, nor the error of its drawing is odder than in all but 1 % of known
pictures. Fitted on {rule.pictures}."""
    return f"{told} {_strangers(rule)}" if rule.strangers else told


def _strangers(rule: Familiarity) -> str:
    rows = "\n".join(
        f"| {kind['kind']} | {kind['images']:,} | {kind['auc']:.4f} | {kind['known_percent']:g} % |"
        for kind in rule.strangers
    )
    return f"""The kinds below had no part in it.

| strangers | images | area under the ROC curve | taken for known |
|---|---|---|---|
{rows}

![ROC curves]({ROC})"""
