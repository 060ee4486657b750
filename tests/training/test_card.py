from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from model.bundle import CARD, MANIFEST, Bundle
from service.settings import Settings
from tests.extras import make_direction
from tests.training.published import RUN, say_training
from training.card import write_card
from training.provenance import reads_of, runs_of
from training.recipes import PRESETS

BUNDLES = sorted(path.parent for path in Settings().bundles.glob(f"*/{MANIFEST}"))


@pytest.fixture
def bundle(bundle_path: Path, tmp_path: Path) -> Bundle:
    """A bundle that learnt the toys."""
    return say_training(bundle_path, tmp_path / "mnist")


def card(bundle: Bundle, **changes: Any) -> str:
    """The card where the manifest has these entries."""
    write_card(Bundle(bundle.path, replace(bundle.manifest, **changes)))
    return (bundle.path / CARD).read_text()


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_shipped_cards_say_what_their_manifests_say(folder: Path, tmp_path: Path) -> None:
    """A card that ships is the one that its manifest gives, score and recipe included."""
    bundle = Bundle.open(folder)
    (tmp_path / "docs").symlink_to(folder.parents[2] / "docs")  # which cards link to
    copy = tmp_path / "model" / "bundles" / folder.name
    copy.mkdir(parents=True)
    for file in folder.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / CARD).unlink()
    write_card(Bundle(copy, bundle.manifest))
    assert (folder / CARD).read_text() == (copy / CARD).read_text()


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_shipped_cards_tell_every_read(folder: Path) -> None:
    """Of the test split, as the record next to the bundles has it; research reads it too."""
    training = Bundle.open(folder).manifest.training
    recorded = reads_of(folder.parent, runs_of(training))
    assert [asdict(read) for read in recorded] == training["test_reads"]


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_shipped_findings_are_of_the_shipped_weights(folder: Path) -> None:
    """New weights need new measurements before the card shows any."""
    manifest = Bundle.open(folder).manifest
    if manifest.directions or manifest.novelty:
        assert manifest.version == manifest.analysed_version


def test_a_card_of_a_new_bundle_says_what_is_not_done(bundle: Bundle) -> None:
    """No section promises what was not measured; the error is missing in so many words."""
    text = card(bundle, health=None)
    assert "not measured yet" in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert ["# mnist", "## Training", "## Scores", "## Limits"] == headings


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({"command": "python -m training train pictures --channels 1"}, "train pictures --chann"),
        ({}, "# the command was not recorded"),
    ],
)
def test_the_command_is_the_one_that_was_typed(
    bundle: Bundle, run: dict[str, Any], expected: str
) -> None:
    """It stands by itself, as code; a run that a program began has none."""
    training = {**bundle.manifest.training, "runs": [asdict(replace(RUN, **run))]}
    (line,) = [line for line in card(bundle, training=training).splitlines() if "    " in line]
    assert expected in line


def test_earlier_runs_and_published_weights_are_named(bundle: Bundle) -> None:
    """Where the weights started from, which were taken, and whose they are."""
    recipe = {**PRESETS["mnist"].to_dict(), "pretrained": "X, MIT"}
    first = replace(RUN, id="r0", seed=2, taken=("stem.0.weight",))
    training = {
        **bundle.manifest.training,
        "recipe": recipe,
        "runs": [asdict(first), asdict(RUN)],
    }
    text = card(bundle, training=training)
    start = "Started from the weights of mnist-compact, seed 2, 10 steps, those that fit (stem.0.w"
    assert start in text
    assert "published (X, MIT) and were not trained further" in text


def test_names_of_others_are_no_markup(bundle: Bundle) -> None:
    """Of classes, or whatever else a downloaded manifest says."""
    names = tuple(f"<b>{digit}</b>|\n# {digit}" for digit in range(10))
    metrics = {"recalls": [[name, 1, 2] for name in names]}
    pictures = {"class_counts": ["<i>"] * 10}
    training = {**bundle.manifest.training, "pictures": pictures}
    text = card(bundle, class_names=names, metrics=metrics, training=training)
    assert "| &lt;b>7&lt;/b>\\|\\n# 7 | 50 % (1 of 2) | &lt;i> |" in text.splitlines()
    assert "<b>" not in text
    assert "<i>" not in text


def test_directions_are_told_by_name(bundle: Bundle) -> None:
    """A row for each, over all classes; those that are refused are named."""
    found = (make_direction(6), make_direction(7, largest_other=0.5), make_direction(7, "width"))
    told = card(bundle, directions=found).splitlines()
    assert "| slant | 1 of 2 | 1.00 ± 0.10 | 100 % | 0.50 | 0.90 | 1.5 degrees |" in told
    assert "| width | 1 of 1 | 1.00 ± 0.10 | 100 % | 0.00 | 0.90 | 1.5 px |" in told
    assert "Refused: slant of 7." in told
    assert "Refused: none." in card(bundle, directions=found[::2]).splitlines()
