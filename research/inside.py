"""Tables of what the analysis of bundles found: how sure they are, and how healthy."""

from __future__ import annotations

from collections.abc import Sequence

from model.bundle import Bundle
from research.compare import lines


def confidence_table(bundles: Sequence[Bundle]) -> str:
    """A row for each bundle with a calibration: on test images, or cross-validated."""
    rows = []
    for bundle in bundles:
        manifest = bundle.manifest
        if not manifest.confidence:
            continue
        tested = manifest.metrics.get("confidence", {}).get("test images")
        one = tested or manifest.confidence.cross_validated
        low, high = one["calibration_error_interval"]
        rows.append(
            (
                f"`{manifest.name}`",
                "test" if tested else "held out, cross-validated",
                f"{one['images']:,}",
                f"{one['calibration_error']:.4f} [{low:.4f}, {high:.4f}]",
                f"{one['risk_percent']['0.9']:.2f} %",
                *(
                    f"{sets['coverage']:.4f}, {sets['mean_size']:.2f}, "
                    f"{sets['single_percent']:.1f} %"
                    for sets in one["sets"].values()
                ),
            )
        )
    if not rows:
        return "No bundle has a calibration yet: `python -m training analyse BUNDLE --twin RUN`."
    heads = (f"sets at {coverage}: coverage, size, single" for coverage in ("0.9", "0.95", "0.99"))
    return lines(
        ("bundle", "images", "count", "calibration error", "wrong of the surest 90 %", *heads), rows
    )


def health_table(bundles: Sequence[Bundle]) -> str:
    """A row for each bundle; numbers of several layers are separated by semicolons."""
    rows = []
    for bundle in bundles:
        if not (health := bundle.manifest.health):
            continue
        explained, couplings = bundle.manifest.explained, health.couplings
        starved = (f"{one.starved_percent:g} % of {one.capsules:,}" for one in health.capsules)
        spread = (f"{one.within_class:.3f}, {one.between_classes:.3f}" for one in couplings)
        negated = health.negated_changed_percent
        rows.append(
            (
                f"`{bundle.manifest.name}`",
                "; ".join(starved),
                "; ".join(f"{one.entropy[-1]:.3f}" for one in couplings),
                "; ".join(f"{one.polarisation[-1]:.3f}" for one in couplings),
                "; ".join(spread),
                f"{health.parse_trees:g} of {health.images_per_class:g}",
                "" if negated is None else f"{negated:g} %",
                f"{explained.pose:.2f}, {explained.pca_same:.2f}" if explained else "",
                f"{health.effective_dims:g} of {health.class_dim}",
            )
        )
    if not rows:
        return "Not measured yet: `python -m training health BUNDLE`."
    page = "explanation/health.md"
    head = (
        "bundle",
        f"[starved]({page}#starved-capsules)",
        f"[entropy]({page}#entropy-and-polarisation)",
        "polarisation",
        f"[spread]({page}#spread-of-couplings) in a class, between",
        f"[parse trees]({page}#parse-trees)",
        f"[change of sign]({page}#change-of-sign)",
        "[pose, PCA](explanation/confidence.md#what-a-pose-explains)",
        f"[effective dimensions]({page}#effective-dimensions)",
    )
    return lines(head, rows)
