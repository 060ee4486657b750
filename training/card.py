"""Write the model card: a bundle's facts, training, scores and limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

import torch

from model.bundle import CARD, WEIGHTS, Bundle, Manifest
from model.bundle.dimensions import Factor, PoseDimension
from model.bundle.neighbours import NeighbourImages
from model.capsnet import FAMILIES, build
from training.card_sections import describe_confidence, describe_explained, describe_health
from training.data.datasets import DATASETS
from training.figures import MAX_WRONG
from training.growth import fit_size
from training.pretrained import PACKAGE, trained_from, use_pretrained
from training.provenance import Run, TestRead, images_of, runs_of, unseen_by
from training.recipes import PRESETS, Recipe, recipe_of
from training.training_data import for_pictures

CURVES, WRONG, SWEEP, ROUTING, ROC = (
    f"{name}.png" for name in ("curves", "wrong", "sweep", "routing", "roc")
)

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
    text = "\n\n".join([f"# {bundle.manifest.name}", *_sections(bundle)])
    (bundle.path / CARD).write_text(f"{text}\n")


def _sections(bundle: Bundle) -> Iterator[str]:
    manifest = bundle.manifest
    shown = {path.name for path in bundle.path.glob("*.png")}
    yield _facts(bundle)
    yield "## Training"
    yield from _training(bundle)
    if CURVES in shown:
        yield f"![training curves]({CURVES})"
    yield "## Scores"
    yield from _scores(manifest)
    if WRONG in shown:
        yield _WRONG.format(most=MAX_WRONG, file=WRONG)
    yield from describe_confidence(bundle)
    yield from describe_explained(bundle)
    yield from describe_health(bundle)
    if manifest.pose_dimensions:
        yield _dimensions(manifest)
    elif "decode" in manifest.offers and manifest.preprocess == "crop":
        yield (
            "## Pose dimensions\n\nThey have no names: those are found by moments of ink, which "
            "photographs do not have. The sweeps show what the dimensions do."
        )
    if SWEEP in shown:
        yield _SWEEP.format(file=SWEEP)
    if ROUTING in shown:
        yield _ROUTING.format(iterations=manifest.layers[-1].iterations, file=ROUTING)
    if manifest.novelty:
        yield _novelty(manifest, shown)
    elif manifest.analysed_version and "decode" in manifest.offers and not manifest.mask_threshold:
        yield _NO_NOVELTY
    if said := manifest.neighbours:
        yield _NEIGHBOURS.format(images=said.images, licence=_licence(said))
    yield f"## Limits\n\n{_limits(manifest)}"


_WRONG = """## Wrong answers

The first {most}, or all if they are fewer, in the order of the images. Black: the label, with the
presence of its class (of the less present one of two); coloured: the answer, likewise.

![images with wrong answers]({file})"""
_SWEEP = """## Sweeps

Poses of two of the last training images, decoded with one dimension moved by the number above its
column, the others unchanged (Sabour 2017, figure 4).

![every pose dimension moved from -0.25 to 0.25]({file})"""
_ROUTING = """## Routing

How much each iteration changes, on average over training images, classes and capsules. The network
was trained with {iterations}; where the curves do not fall, more iterations would not settle.

![mean change by routing iteration]({file})"""


def _facts(bundle: Bundle) -> str:
    manifest, family = bundle.manifest, FAMILIES[bundle.manifest.family]
    channels, height, width = manifest.image_shape
    size_mb = (bundle.path / WEIGHTS).stat().st_size / 1e6
    offers = {
        "decode": "reconstruct, perturb and sweep poses",
        "trace": "trace the routing",
        "neighbours": "find the nearest training images",
    }
    task = "pairs of overlapping digits" if manifest.mask_threshold is not None else "images"
    rows = {
        "task": f"{task} of {manifest.num_classes} classes ({manifest.dataset}), {width}x{height} "
        f"pixels, {'grey' if channels == 1 else 'colour'}",
        "family": f"`{family.name}`: {family.title} ({family.source})",
        "routed capsules": "; ".join(
            f"{layer.capsules:,} into `{layer.name}` ({layer.types} "
            f"types on a {layer.columns}x{layer.rows} grid, {layer.iterations} "
            f"iteration{'s' * (layer.iterations > 1)})"
            for layer in manifest.layers
        ),
        "parameters": _parameters(bundle),
        "weights": f"{size_mb:.1f} MB, version {manifest.version}",
        "offers": ", ".join(["classify", *(offers[offer] for offer in manifest.offers)]),
        "error": describe_error(manifest),
    }
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items() if text)]
    )


def _parameters(bundle: Bundle) -> str:
    with torch.device("meta"):
        network = build(recipe_of(bundle).network)
    total, decoder = (
        sum(weight.numel() for name, weight in network.named_parameters() if name.startswith(part))
        for part in ("", "decoder.")
    )
    return f"{total - decoder:,} in the encoder, {decoder:,} in the decoder"


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
                f"(95 % interval {low:.2f} to {high:.2f} %; {errors:,} wrong){_seeds(metrics)}"
            )
    if dataset not in DATASETS and not held_out_count:
        return "not measured: trained on all pictures of the folder"
    return "not measured yet: `python -m training evaluate`"


def _seeds(metrics: Mapping[str, Any]) -> str:
    """The mean test error over seeds, if several were trained."""
    if not (seeds := metrics.get("seeds")):
        return ""
    mean, deviation = seeds["mean_percent"], seeds["deviation_percent"]
    text = f"; mean of {seeds['count']} seeds {mean:.2f} ± {deviation:.2f} %"
    if "interval_percent" in seeds:
        low, high = seeds["interval_percent"]
        text += f" (95 % interval {low:.2f} to {high:.2f} %)"
    return text


def _training(bundle: Bundle) -> Iterator[str]:
    recipe, training = recipe_of(bundle), bundle.manifest.training
    *before, own = runs = runs_of(training)
    examples = training["examples"]
    count = sum(training.get("pictures", {}).get("class_counts", ())) or examples
    yield f"    {_command(recipe, runs, count)}"
    planned = recipe.epochs
    epochs = min(own.images / examples, planned)
    hours = sum(run.seconds for run in runs) / 3600
    devices = dict.fromkeys(device for run in runs for device in run.devices)
    images = "pairs" if recipe.task == "pairs" else "images"
    half = f"Half-finished: {planned:g} epochs were planned. " * (epochs < 0.99 * planned)
    start = "; then ".join(
        f"{run}" + (f", those that fit ({', '.join(run.taken)})" if run.taken else "")
        for run in before
    )
    seen, different = images_of(runs)
    again = f" Of {seen:,} {images} in all, {different:,} were different." * (seen > different)
    yield (
        f"{half}{own.steps:,} steps of {recipe.batch_size} {images} ({epochs:.1f} epochs of "
        f"{examples:,}), seed {own.seed}, {hours:.2f} hours in all on "
        f"{' and '.join(devices)}{_precision(own)}."
        + (f" Started from the weights of {start}." if start else "")
        + f" Kept are the weights of step {own.kept_step:,}." * (own.kept_step > 0)
        + describe_origin(recipe)
        + f"{again} The whole recipe is in `manifest.json`, the log in `metrics.jsonl`."
    )


def describe_origin(recipe: Recipe) -> str:
    """The origin and licence of published weights, where the stem has some."""
    if not recipe.pretrained:
        return ""
    slow = f"were trained with {recipe.pretrained_rate:g} times the rate of the others"
    state = slow if recipe.pretrained_rate else "were not trained further"
    return f" The stem's weights are published ({recipe.pretrained}) and {state}."


def _precision(run: Run) -> str:
    return f", convolutions in {' and '.join(run.convolutions)}" if run.convolutions else ""


def _command(recipe: Recipe, runs: list[Run], count: int) -> str:
    """The command that trains such a network again with today's preset.

    Args:
        count: training pictures of its folder, if it learnt from one.
    """
    *before, own = runs
    preset, sizes = PRESETS.get(own.preset) or _same_network(recipe), list[str]()
    if preset and own.dataset not in DATASETS:
        if recipe.pretrained:
            preset = use_pretrained(preset, trained_from(recipe))
            sizes += [f"--stem {'pretrained' if PACKAGE in recipe.pretrained else 'FILE'}"]
        usual, network = preset.network, recipe.network
        sizes += ["--data FOLDER"]
        sizes += [f"--channels {network.channels}"] * (network.channels != usual.channels)
        sizes += [
            f"--set network.{side}={getattr(network, side)}"
            for side in ("height", "width")
            if getattr(network, side) != getattr(usual, side)
        ]
        preset = fit_size(for_pictures(preset, count), network)
    if preset is None or preset.network != recipe.network:
        return f"# no preset makes this network: its recipe, {own.preset}, is in manifest.json"
    words = [f"python -m training train {preset.name} --seed {own.seed}"]
    words += ["--final"] * (not own.held_out) + sizes
    words += [
        f"--set {field.name}={_setting(getattr(recipe, field.name))}"
        for field in fields(recipe)
        if field.name not in ("name", "dataset", "network")
        and getattr(recipe, field.name) != getattr(preset, field.name)
    ]
    if before:
        words.append("--transfer RUN" if before[-1].taken else "--weights RUN")
    return " ".join(words)


def _same_network(recipe: Recipe) -> Recipe | None:
    """The first preset of this network and data set: a run's own may have another name today."""
    wanted = recipe.network, recipe.dataset
    return next(
        (preset for preset in PRESETS.values() if (preset.network, preset.dataset) == wanted), None
    )


def _setting(value: Any) -> str:
    """The value as `training.recipes.override` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def _scores(manifest: Manifest) -> Iterator[str]:
    metrics, rounding = manifest.metrics, manifest.rounding
    yield f"{_sentence(describe_error(manifest))} {_sentence(metrics.get('protocol', ''))}".strip()
    if mirrored := metrics.get("mirrored"):
        yield (
            "A second score, of the mean presence of each image and its mirror image: "
            f"{mirrored['errors']:,} wrong (95 % interval of the error {_range(mirrored)} %)."
        )
    if (found := metrics.get("recalls")) and manifest.training.get("pictures"):
        yield _recalls(found, manifest.training["pictures"], manifest.class_names)
    if shifts := metrics.get("shifts"):
        head = (
            "| shift | pairs wrong (95 % interval) | digits missed | squared error of a digit | "
            "IoU of masks | `count=auto` wrong for pairs, for single digits |"
        )
        rows = [
            f"| {shift} | {scores['error_percent']:.2f} % ({_range(scores)}) | "
            f"{scores['digit_error_percent']:.2f} % | "
            f"{scores['squared_error']:.1f} | {scores['mask_iou']:.3f} | "
            f"{scores['auto_pair_error_percent']:.1f} %, "
            f"{scores['auto_single_error_percent']:.1f} % |"
            for shift, scores in shifts.items()
        ]
        yield "\n".join([head, "|---|---|---|---|---|---|", *rows])
    if reads := [TestRead(**read) for read in manifest.training.get("test_reads", ())]:
        times = "once" if len(reads) == 1 else f"{len(reads)} times"
        rows = [
            f"| {read.date} | {read.version or 'unknown'} | {read.errors:,} |" for read in reads
        ]
        yield f"The test split was read {times} by the runs that made this network:"
        yield "\n".join(["| date | version of the weights | wrong |", "|---|---|---|", *rows])
    if rounding:
        seen = "not " * bool(unseen_by(runs_of(manifest.training)))
        yield (
            f"Storing large weights in {rounding['stored_bits']} bits changed "
            f"{rounding['answers_changed']} of {rounding['validation_images']:,} answers on the "
            f"last training images (wrong before {rounding['errors_before']}, after "
            f"{rounding['errors_after']}), which the network was {seen}trained on."
        )


def _recalls(
    found: Sequence[Sequence[Any]], pictures: Mapping[str, Any], class_names: Sequence[str]
) -> str:
    """A table of the recall of each class, the lowest first."""
    counts = dict(zip(class_names, pictures.get("class_counts", ()), strict=False))
    rows = [
        f"| {name} | {100 * right / images:.0f} % ({right:,} of {images:,}) | "
        f"{counts.get(name, 'not recorded')} |"
        for name, right, images in found
    ]
    head = "| class, the worst first | answered right | training pictures |"
    return "\n".join([head, "|---|---|---|", *rows])


def _range(scores: Mapping[str, Any]) -> str:
    return "{:.2f} to {:.2f}".format(*scores["interval_percent"])


def _dimensions(manifest: Manifest) -> str:
    labels = sorted({dimension.label for dimension in manifest.pose_dimensions})
    head = " | ".join(manifest.class_names[label] for label in labels)
    rows = [
        " | ".join([f"| {dim}", *(_cell(manifest.meaning(label, dim)) for label in labels)]) + " |"
        for dim in range(manifest.class_dim)
    ]
    named = sum(dimension.is_named for dimension in manifest.pose_dimensions)
    by_factor = any(one.name in get_args(Factor) for one in manifest.pose_dimensions)
    table = "\n".join([f"| | {head} |", "|---" * (len(labels) + 1) + "|", *rows])
    return f"""## Pose dimensions

Rows are dimensions, columns classes: what the decoded image does as a dimension grows, and the
share of the change that the name explains; *part* where at least half of the change lies in one
part of the image, - where nothing that has a name explains 30 % of it. Names were chosen on some
images and confirmed on others:
{named} of {len(manifest.pose_dimensions)} dimensions have one.{_BY_FACTOR * by_factor}

{table}"""


_BY_FACTOR = """
A dimension that follows a factor of the rendered objects (azimuth, elevation, size, lamp) is named
after the factor where this explains 20 % of the change."""


def _cell(one: PoseDimension | None) -> str:
    if one is None or one.name == "none":
        return "-"
    return "*part*" if one.name == "localised" else f"{one.effect} {one.strength:.2f}"


_NO_NOVELTY = """## Novelty

This bundle has no novelty rule: a rule needs at least 300 held-out images."""


def _novelty(manifest: Manifest, shown: set[str]) -> str:
    rule = manifest.novelty
    assert rule is not None
    features = ["presence of its class", "lead over the second", "error of its reconstruction"]
    features += ["Mahalanobis distance of its poses"] if rule.distance else []
    text = f"""## Novelty

`/classify?novelty=true` compares an image with training images: {", ".join(features)}.
In each, the score is the share of training images that are less unusual. The novelty score is the
highest of them; an image is novel above a threshold that 95 % of training images stay below. The
rule was fitted on one half of {rule.images}, and the threshold on the other."""
    if rule.test_novel_percent is not None:
        text += f" Of the test images, {rule.test_novel_percent:g} % are novel: false alarms."
    elif not unseen_by(runs_of(manifest.training)):
        text += " New images of the same kind are more unusual: more than 5 % of them are novel."
    if not rule.others:
        return text
    rows = "\n".join(
        f"| {kind['kind']} | {kind['images']:,} | {_auc(kind)} | {kind['known_percent']:g} % |"
        for kind in rule.others
    )
    compared = "".join(dict.fromkeys(str(kind.get("typical", "")) for kind in rule.others))
    compared = f" ROC curves compare them with {compared}." * bool(compared)
    figure = f"\n\n![ROC curves]({ROC})" if compared and ROC in shown else ""
    return f"""{text} The rule was not fitted
to the kinds below; its hyperparameters were chosen on noise and clothes.{compared}

| images of another kind | images | area under the ROC curve | not novel |
|---|---|---|---|
{rows}{figure}"""


def _auc(kind: Mapping[str, Any]) -> str:
    """The area under the ROC curve, if typical images are known to be new to the network."""
    return f"{kind['auc']:.4f}" if "typical" in kind else ""


_NEIGHBOURS = """## Neighbours

`/neighbours` finds the nearest of {images}, by the pose of a class. {licence}"""


def _licence(said: NeighbourImages) -> str:
    if not said.licence:
        if said.source not in DATASETS:
            return f"The bundle has their poses alone, not the images ({said.source})."
        return f"The bundle has their poses alone: {said.source} states no licence for its images."
    return f"The bundle has thumbnails of them ({said.source}, {said.licence})."


def _limits(manifest: Manifest) -> str:
    if manifest.mask_threshold is not None:
        return _LIMITS["pairs"]
    dataset = DATASETS.get(manifest.dataset)
    kind = dataset.kind if dataset else "pictures"
    known = _LIMITS.get(kind, f"Trained on {kind} of {manifest.dataset}, at the same size.")
    return f"{known} {_ANY.format(classes=manifest.num_classes)}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
