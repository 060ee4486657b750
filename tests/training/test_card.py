from __future__ import annotations

from pathlib import Path

import pytest

from model.bundle import CARD, MANIFEST, WEIGHTS, Bundle
from service.settings import Settings
from training.card import write_card

BUNDLES = sorted(path.parent for path in Settings().bundles.glob(f"*/{MANIFEST}"))


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_shipped_cards_say_what_their_manifests_say(folder: Path, tmp_path: Path) -> None:
    """A card that ships is the one that its manifest gives, score and recipe included."""
    bundle = Bundle.open(folder)
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / CARD).unlink()
    write_card(Bundle(tmp_path, bundle.manifest))
    assert (folder / CARD).read_text() == (tmp_path / CARD).read_text()


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_shipped_findings_are_of_the_shipped_weights(folder: Path) -> None:
    """Whoever exchanges weights measures anew what the card says of them."""
    manifest = Bundle.open(folder).manifest
    if manifest.pose_dimensions or manifest.known:
        assert manifest.sha256[WEIGHTS] == manifest.studied_weights
