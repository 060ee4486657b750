from __future__ import annotations

from pathlib import Path

import pytest

from model.bundle import CARD, MANIFEST, WEIGHTS, Bundle
from service.settings import Settings
from training.publication.card import _epochs_option, write_card
from training.recipes import PRESETS

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


def test_the_command_names_other_epochs_than_the_presets() -> None:
    """Whoever repeats the training gives the same option."""
    recipe = PRESETS["mnist-compact"].to_dict()
    assert "" == _epochs_option(recipe)
    assert " --epochs 2.5" == _epochs_option({**recipe, "epochs": 2.5})
