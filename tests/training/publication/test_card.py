from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.bundle import CARD, MANIFEST, WEIGHTS, Bundle
from service.settings import Settings
from training.publication.card import _command, write_card
from training.recipes import PRESETS
from training.run.lineage import Leg

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


def a_leg(preset: str, **changes: Any) -> Leg:
    recipe = PRESETS[preset]
    leg = Leg(preset, recipe.dataset, recipe.task, 1, 10, 640, 0, 36, ("CPU",))
    return replace(leg, **changes)


@pytest.mark.parametrize(
    ("changes", "before", "expected"),
    [
        ({}, [], "mnist-compact --seed 1 --final"),
        ({"epochs": 2.5}, [], "mnist-compact --seed 1 --final --epochs 2.5"),
        ({}, [a_leg("mnist", seed=2)], "mnist-compact --seed 1 --final --weights RUN"),
        (
            {},
            [a_leg("mnist", seed=2, taken=("conv.weight",))],
            "mnist-compact --seed 1 --final --transfer RUN",
        ),
    ],
)
def test_the_command_gives_the_same_training(
    changes: dict[str, Any], before: list[Leg], expected: str
) -> None:
    """Preset, seed, other epochs than the preset's and where it started."""
    recipe = replace(PRESETS["mnist-compact"], **changes).to_dict()
    command = _command(recipe, [*before, a_leg("mnist-compact")])
    assert f"python -m training train {expected}" == command


def test_there_is_no_command_for_a_preset_that_has_changed() -> None:
    """A recipe that the preset of its name no longer is can only be read in the manifest."""
    recipe = replace(PRESETS["mnist-compact"], shift_px=1).to_dict()
    assert "no preset of today" in _command(recipe, [a_leg("mnist-compact")])
