from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from model.bundle import Bundle, BundleError, Manifest
from training.manifest import update_manifest


def test_no_change_is_lost(bundle: Bundle) -> None:
    """Each starts from what others wrote since the bundle was opened."""

    def add(number: int) -> None:
        def change(manifest: Manifest) -> Manifest:
            return replace(manifest, metrics={**manifest.metrics, str(number): number})

        update_manifest(bundle, change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert set(map(str, range(8))) == Bundle.open(bundle.path).manifest.metrics.keys()


def test_findings_about_replaced_weights_are_refused(bundle: Bundle) -> None:
    """They would describe other weights."""
    older = replace(bundle, manifest=replace(bundle.manifest, version="0" * 12))
    with pytest.raises(BundleError, match="the weights were replaced meanwhile"):
        update_manifest(older, lambda manifest: manifest)
