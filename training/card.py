"""Write the model card: a bundle's facts, training, scores and limits.

Templates print the words of others, such as names of classes and files, also of downloaded bundles.
Every value is escaped, so that no such word becomes markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from model.bundle import CARD, WEIGHTS, Bundle, Manifest, directions
from model.capsnet import FAMILIES, build
from training.confidence import coverage_range, scores_of
from training.data.assemblies import VIEWS
from training.data.datasets import DATASETS
from training.data.pictures import printable
from training.figures import MAX_WRONG, draw_figures
from training.provenance import runs_of, unseen_by
from training.recipes import recipe_of

_PAGES = Path("../../../docs/explanation")
"""Where the cards of shipped bundles find the definitions of what they measure."""


def write_card(bundle: Bundle) -> None:
    """Write `CARD.md` from the manifest, and draw the figures of what is on record.

    Sections without content, and figures that are not in the folder, are left out.
    """
    draw_figures(bundle)
    manifest, recipe = bundle.manifest, recipe_of(bundle)
    training, runs = manifest.training, runs_of(manifest.training)
    encoder, decoder = _count_parameters(bundle)
    published, shown = DATASETS.get(manifest.dataset), manifest.neighbours
    class_counts = training.get("pictures", {}).get("class_counts", ())
    test_images = manifest.metrics.get("test_images", 0)
    text = render(
        "card.md",
        manifest=manifest,
        training={"pictures": None, "test_reads": (), **training},
        metrics={**dict.fromkeys(("recalls", "shifts")), **manifest.metrics},
        family=FAMILIES[manifest.family],
        recipe=recipe,
        runs=runs,
        epochs=min(runs[-1].images / training["examples"], recipe.epochs),
        held_out=unseen_by(runs),
        encoder_parameters=encoder,
        decoder_parameters=decoder,
        weights_mb=(bundle.path / WEIGHTS).stat().st_size / 1e6,
        error=describe_error(manifest),
        dataset=DATASETS.get(shown.source) if shown else None,
        kind=published.kind if published else "pictures",
        class_counts=dict(zip(manifest.class_names, class_counts, strict=False)),
        link=lambda words, target: _link(bundle, words, target),
        confidence=scores_of(manifest),
        coverage_range=coverage_range,
        objects=test_images // VIEWS if manifest.dataset == "assemblies" else 0,
        limits_of_directions=directions,
        figures={path.name for path in bundle.path.glob("*.png")},
        max_wrong=MAX_WRONG,
    )
    (bundle.path / CARD).write_text(text)


def describe_error(manifest: Manifest) -> str:
    """The error on the split that was scored, or that there is none."""
    runs = runs_of(manifest.training)
    if runs[-1].dataset not in DATASETS and not unseen_by(runs):
        missing = "not measured: trained on all pictures of the folder"
    else:
        missing = "not measured yet: `python -m training evaluate`"
    return describe_score(manifest.metrics) or missing


def describe_score(metrics: Mapping[str, Any]) -> str:
    """The error on the split that was scored, with its interval; empty where there is none."""
    for split, name in (("test", "test"), ("validation", "held-out")):
        if f"{split}_errors" in metrics:
            errors, images = metrics[f"{split}_errors"], metrics[f"{split}_images"]
            low, high = metrics["interval_percent"]
            return (
                f"{100 * errors / images:.2f} % of {images:,} {name} images "
                f"(95 % interval {low:.2f} to {high:.2f} %; {errors:,} wrong)"
            )
    return ""


def _count_parameters(bundle: Bundle) -> tuple[int, int]:
    """The numbers of weights in the encoder and in the decoder."""
    with torch.device("meta"):
        network = build(recipe_of(bundle).network)
    sizes = {name: weight.numel() for name, weight in network.named_parameters()}
    decoder = sum(size for name, size in sizes.items() if name.startswith("decoder."))
    return sum(sizes.values()) - decoder, decoder


def _link(bundle: Bundle, words: str, target: str) -> Markup:
    """Words that link to their definition, a page and its heading, where that is."""
    page = _PAGES / target.partition("#")[0]
    near = (bundle.path.resolve() / page).exists()
    return Markup(f"[{words}]({_PAGES.as_posix()}/{target})") if near else Markup(words)  # noqa: S704


def render(template: str, **values: Any) -> str:
    """Fill in a template: `card.md`, whose text is Markdown, `report.html` or `advice.txt`."""
    markdown = template.endswith(".md")
    environment = Environment(
        loader=PackageLoader("training"),
        autoescape=select_autoescape(),
        finalize=_as_markdown if markdown else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "thousands": "{:,}".format,
        "sentence": _sentence,
        "code": _as_code,
        "mean": lambda values: float(np.mean([*values])),
    }
    text = environment.get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text) if markdown else text


def _as_markdown(value: Any) -> Any:
    """A value that is no HTML, ends no cell of a table and starts no line."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value).replace("&", "&amp;").replace("<", "&lt;").replace("|", r"\|")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _as_code(text: str) -> Markup:
    """The text of a line of code, which Markdown shows as it is."""
    return Markup(printable(text))  # noqa: S704
