from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from model.bundle import Bundle, Manifest
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
