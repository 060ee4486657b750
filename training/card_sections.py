"""Sections of the model card: confidence, what a pose explains, and the health of the capsules.

Each number links to its definition, where the bundle lies next to the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scipy import stats

from model.bundle import Bundle
from model.bundle.confidence import Confidence
from training.provenance import runs_of, unseen_by

CONFIDENCE, EXPLAINED, HEALTH = "confidence.png", "explained.png", "health.png"
_PAGES = Path("../../../docs/explanation")


def describe_confidence(bundle: Bundle) -> Iterator[str]:
    """The section on probabilities and sets of labels, or why there is none."""
    manifest = bundle.manifest
    confidence, pairs = manifest.confidence, manifest.mask_threshold is not None
    if not confidence:
        if manifest.analysed_version and not pairs and not unseen_by(runs_of(manifest.training)):
            yield f"## Confidence\n\n{_NO_CONFIDENCE}"
        return
    method = "a temperature" if confidence.method == "temperature" else "isotonic regression"
    per_class = ", for each class its own, as some are rare" * confidence.per_class
    yield (
        f"## Confidence\n\n`/classify?coverage=0.95` adds a probability and a set of labels. The "
        f"probability comes from the presence of the classes by {method}, the sets by split "
        f"conformal prediction{per_class}. Both were fitted on {confidence.images}."
    )
    yield _widths(confidence)
    kinds = dict(manifest.metrics.get("confidence", {}))
    if not kinds:
        kinds = {"held-out images, cross-validated": confidence.cross_validated}
    yield _table(bundle, kinds)
    if (bundle.path / CONFIDENCE).exists():
        yield f"![reliability, risk and sizes of sets]({CONFIDENCE})"


_NO_CONFIDENCE = """There are no probabilities and no sets of labels: the network was trained on all
training images, so none is left to fit them on. A twin gives them, a network of the same recipe
that leaves images out: `python -m training analyse BUNDLE --twin RUN`."""


def describe_explained(bundle: Bundle) -> Iterator[str]:
    """The section on the variance that poses explain."""
    explained = bundle.manifest.explained
    if not explained:
        return
    pca = ", ".join(f"{share:.2f} ({size})" for size, share in explained.pca.items())
    defined = _link(bundle, "explain", "confidence.md#what-a-pose-explains")
    yield (
        f"## What a pose explains\n\nThe {explained.class_dim} numbers of the most present class's "
        f"pose, decoded, {defined} {explained.pose:.2f} of the variance of {explained.count:,} "
        f"{explained.images}. The mean training image of that class explains "
        f"{explained.class_mean:.2f}; principal components of training images explain (how many): "
        f"{pca}."
    )
    if explained.is_low:
        yield (
            "This is less than PCA explains with as many numbers. Views that need the decoder say "
            "so: what they draw shows little of an image except its class."
        )
    if (bundle.path / EXPLAINED).exists():
        yield f"![images, their reconstructions and those of PCA]({EXPLAINED})"


def describe_health(bundle: Bundle) -> Iterator[str]:
    """The section on the health of the capsules."""
    health = bundle.manifest.health
    if not health:
        return

    def link(words: str, heading: str) -> str:
        return _link(bundle, words, f"health.md#{heading}")

    capsules = "\n".join(
        f"| {one.layer} | {one.capsules:,} | {one.starved_percent:g} % | {one.mean_presence:.3f} |"
        for one in health.capsules
    )
    couplings = "\n".join(
        f"| {one.layer} | {_each(one.entropy)} | {_each(one.polarisation)} | "
        f"{one.within_class:.3f} | {one.between_classes:.3f} |"
        for one in health.couplings
    )
    starved, entropy = (
        link("starved", "starved-capsules"),
        link("entropy", "entropy-and-polarisation"),
    )
    spread, trees = link("spread", "spread-of-couplings"), link("parse trees", "parse-trees")
    negated = link("change their sign", "change-of-sign")
    dims = link("effective dimensions", "effective-dimensions")
    signs, changed = "", health.negated_changed_percent
    if changed is not None:
        signs = (
            f" If all\ninput capsules {negated}, {changed:g} % of the answers change, and presence"
        )
        signs += f"\nby {health.negated_presence_change:.3f}."
    yield f"""## Health

What critics of capsules measure, on {health.count:,} {health.images}.

| layer | capsules | {starved} | mean presence |
|---|---|---|---|
{capsules}

| couplings to | {entropy} by iteration | polarisation | {spread} in a class | between classes |
|---|---|---|---|---|
{couplings}

A class has {health.parse_trees:g} different {trees} in {health.images_per_class:g} images.{signs}
The {health.class_dim} numbers of a pose have {health.effective_dims:g} {dims}."""
    if (bundle.path / HEALTH).exists():
        yield f"![couplings and starved capsules]({HEALTH})"


def _each(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def coverage_range(count: int, coverage: float) -> tuple[float, float] | None:
    """The coverage, over new images, that 95 % of calibrations on `count` images have.

    It has a beta distribution (Vovk 2012; Angelopoulos and Bates 2021, section 3.2). None if so few
    images only promise the set of all labels.
    """
    rank = math.ceil((count + 1) * coverage - 1e-9)
    if rank > count:
        return None
    low, high = stats.beta.interval(0.95, rank, count + 1 - rank)
    return float(low), float(high)


def _widths(confidence: Confidence) -> str:
    """How exact the coverage can be, from so many images."""
    said = []
    for coverage in (0.9, 0.95, 0.99):
        span = coverage_range(confidence.count, coverage)
        width = f"{100 * span[0]:.1f} to {100 * span[1]:.1f} %" if span else "all labels"
        said.append(f"{100 * coverage:g} %: {width}")
    fitted = f"{confidence.count:,} image{'s' * (confidence.count > 1)}"
    few = " (*all labels*: so few images promise no smaller set)" * ("all labels" in said[-1])
    return (
        f"Sets that were fitted on {fitted} cover, in 95 of 100 such fits, {'; '.join(said)}{few}."
    )


def _table(bundle: Bundle, kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each kind of images, with the sets of each coverage."""
    first = next(iter(kinds.values()))
    error = _link(bundle, "calibration error", "confidence.md#calibration-error")
    sets = _link(bundle, "sets", "confidence.md#sets-of-labels")
    heads = [f"{sets} at {float(coverage):g}: coverage, size, single" for coverage in first["sets"]]
    rows = [
        ["images", "count", "wrong, %", f"{error} (95 % interval)", *heads],
        ["---"] * (4 + len(heads)),
    ]
    for kind, one in kinds.items():
        cells = [kind, f"{one['images']:,}", "", ""]
        if "calibration_error" in one:
            low, high = one["calibration_error_interval"]
            cells[2] = f"{one['error_percent']:.2f}"
            cells[3] = f"{one['calibration_error']:.4f} ({low:.4f} to {high:.4f})"
        for chosen in one["sets"].values():
            covered = f"{chosen['coverage']:.4f}, " if "coverage" in chosen else ""
            cells.append(f"{covered}{chosen['mean_size']:.2f}, {chosen['single_percent']:.1f} %")
        rows.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _link(bundle: Bundle, words: str, target: str) -> str:
    """Words that link to their definition, a page and its heading, where that is."""
    page = _PAGES / target.partition("#")[0]
    near = (bundle.path.resolve() / page).exists()
    return f"[{words}]({_PAGES.as_posix()}/{target})" if near else words
