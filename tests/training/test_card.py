from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from model.bundle import CARD, MANIFEST, Bundle
from model.bundle.dimensions import PoseDimension
from model.bundle.novelty import NoveltyRule
from service.settings import Settings
from tests.training.published import RUN, say_training
from training.card import CURVES, ROUTING, WRONG, write_card
from training.growth import fit_size
from training.provenance import TestRead, reads_of, runs_of
from training.recipes import PRESETS, override
from training.training_data import for_pictures

BUNDLES = sorted(path.parent for path in Settings().bundles.glob(f"*/{MANIFEST}"))
RULE = NoveltyRule(
    quantiles=(0.0, 1.0),
    length=(0.0, 1.0),
    margin=(0.0, 1.0),
    error=(0.0, 1.0),
    threshold=0.01,
    images="5,000 held-out training images",
    others=(
        {
            "kind": "noise",
            "images": 1000,
            "auc": 0.9876,
            "known_percent": 1.5,
            "typical": "9 test images",
        },
        {"kind": "letters", "images": 1000, "auc": 0.9, "known_percent": 2.5},
    ),
)
READ = TestRead(
    run="r1",
    version="0123456789ab",
    dataset="mnist",
    split="test",
    images=10_000,
    errors=44,
    protocol="as usual",
    date="2026-11-22",
)


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
    if manifest.pose_dimensions or manifest.novelty:
        assert manifest.version == manifest.analysed_version


def test_a_card_of_a_new_bundle_says_what_is_not_done(bundle: Bundle) -> None:
    """No section promises what was not measured; the error is missing in so many words."""
    text = card(bundle, health=None)
    assert "not measured yet" in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert ["# mnist", "## Training", "## Scores", "## Limits"] == headings


@pytest.mark.parametrize("family", ["dynamic", "attention", "shared", "matrix", "baseline"])
def test_every_family_has_a_card(family: str, family_bundles: Path, tmp_path: Path) -> None:
    """Its name, its source and what it offers."""
    bundle = say_training(family_bundles / f"tiny-{family}", tmp_path / "tiny")
    text = card(bundle)
    assert f"`{family}`: " in text
    assert ("trace the routing" in text, "reconstruct" in text) == (
        "trace" in bundle.manifest.offers,
        "decode" in bundle.manifest.offers,
    )


def test_a_bundle_of_photographs_says_why_its_dimensions_have_no_names(
    colour_bundle_path: Path, tmp_path: Path
) -> None:
    """Colour, and no moments of ink."""
    text = card(say_training(colour_bundle_path, tmp_path / "blocks"))
    assert "32x24 pixels, colour" in text
    assert "photographs do not have" in text


def test_parameters_are_those_of_the_network(bundle: Bundle) -> None:
    """Counted from the recipe, encoder and decoder apart."""
    tiny = PRESETS["mnist"].to_dict()
    training = {**bundle.manifest.training, "recipe": tiny}
    text = card(bundle, training=training)
    assert "6,804,224 in the encoder, 1,411,344 in the decoder" in text


def test_a_score_carries_its_interval_and_all_reads(bundle: Bundle) -> None:
    """Reads by ancestors count, each with its date."""
    metrics = {
        "test_errors": 43,
        "test_images": 10_000,
        "interval_percent": [0.3194, 0.5787],
        "protocol": "the published test split",
    }
    training = {**bundle.manifest.training, "test_reads": [vars(READ)] * 2}
    text = card(bundle, metrics=metrics, training=training)
    assert "0.43 % of 10,000 test images (95 % interval 0.32 to 0.58 %; 43 wrong)" in text
    assert "read 2 times" in text
    assert 2 == text.count("| 2026-11-22 | 0123456789ab | 44 |")


@pytest.mark.parametrize(
    ("changes", "before", "expected"),
    [
        ({}, [], "mnist-compact --seed 1"),
        ({"epochs": 2.5}, [], "mnist-compact --seed 1 --set epochs=2.5"),
        ({"flip": True}, [], "mnist-compact --seed 1 --set flip=true"),
        ({"frozen": ("stem", "x")}, [], "mnist-compact --seed 1 --set frozen=stem,x"),
        ({}, [replace(RUN, seed=2)], "mnist-compact --seed 1 --weights RUN"),
        ({}, [replace(RUN, taken=("stem.0.weight",))], "mnist-compact --seed 1 --transfer RUN"),
    ],
)
def test_the_command_gives_the_same_training(
    changes: dict[str, Any], before: list[Any], expected: str, bundle_path: Path, tmp_path: Path
) -> None:
    """Preset, seed, other settings than the preset's and where it started."""
    recipe = replace(PRESETS["mnist-compact"], **changes).to_dict()
    own = replace(RUN, dataset="mnist")
    bundle = say_training(bundle_path, tmp_path / "mnist", runs=(*before, own), **recipe)
    training = {**bundle.manifest.training, "recipe": recipe}
    assert f"    python -m training train {expected}\n" in card(bundle, training=training)
    words = expected.split()
    settings = [word for before, word in pairwise(words) if before == "--set"]
    assert override(PRESETS["mnist-compact"], settings).to_dict() == recipe


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, ""),
        ({"channels": 1}, " --channels 1"),
        ({"height": 48}, " --set network.height=48"),
        (
            {"channels": 1, "height": 36, "width": 48},
            " --channels 1 --set network.height=36 --set network.width=48",
        ),
    ],
)
def test_the_command_for_a_folder_names_the_size_of_its_images(
    sizes: dict[str, int], expected: str, bundle_path: Path, tmp_path: Path
) -> None:
    """The preset alone would make another network of larger or coloured pictures."""
    preset = for_pictures(PRESETS["pictures"], 640)  # as many as the run has examples
    fitted = fit_size(preset, replace(preset.network, num_classes=3, **sizes))
    recipe = replace(fitted, dataset="shapes").to_dict()
    own = replace(RUN, preset="pictures", dataset="shapes")
    bundle = say_training(bundle_path, tmp_path / "mnist", runs=(own,), **recipe)
    text = card(bundle, training={**bundle.manifest.training, "recipe": recipe})
    assert f"    python -m training train pictures --seed 1 --data FOLDER{expected}\n" in text


@pytest.mark.parametrize(
    ("run", "name", "expected"),
    [
        pytest.param({"held_out": 0}, "mnist-compact", "--final", id="nothing was held out"),
        pytest.param({"preset": "gone"}, None, "# no preset", id="a preset that is gone"),
        pytest.param(
            {"preset": "old"},
            "old",
            "    python -m training train mnist-compact --seed ",
            id="renamed",
        ),
    ],
)
def test_the_command_is_one_of_today(
    bundle: Bundle, run: dict[str, Any], name: str | None, expected: str
) -> None:
    """Of the preset which has the network and data set, or none where the recipe is gone."""
    runs = [{**one.to_dict(), **run} for one in runs_of(bundle.manifest.training)]
    training = {**bundle.manifest.training, "runs": runs}
    if name:
        training["recipe"] = PRESETS["mnist-compact"].to_dict() | {"name": name}
    assert expected in card(bundle, training=training)


def test_dimensions_are_told_in_words(bundle: Bundle) -> None:
    """A row for each dimension, a column for each class that was measured."""
    names = (
        PoseDimension(7, 0, "slant", -1, 0.625),
        PoseDimension(7, 1, "localised", 0, 0.7),
        PoseDimension(7, 2, "none"),
        PoseDimension(7, 3, "azimuth", 0, 0.5),
    )
    told = card(bundle, pose_dimensions=names).splitlines()
    assert {"| | 7 |", "| 0 | leans left 0.62 |", "| 1 | *part* |", "| 2 | - |"} <= set(told)
    assert "| 3 | turns the object 0.50 |" in told
    assert "2 of 4 dimensions have one." in told
    assert "follows a factor of the rendered objects" in " ".join(told)
    assert "rendered objects" not in card(bundle, pose_dimensions=names[:3])


def test_novelty_is_told_by_kind(bundle: Bundle) -> None:
    """Each kind's area under the curve and false welcomes, and on what the rule was fitted."""
    told = card(bundle, novelty=RULE)
    assert "| noise | 1,000 | 0.9876 | 1.5 % |" in told.splitlines()
    assert "| letters | 1,000 |  | 2.5 % |" in told.splitlines()  # of images that were learnt
    assert "ROC curves compare them with 9 test images." in told
    assert RULE.images in told


@pytest.mark.parametrize("picture", [CURVES, ROUTING, WRONG])
def test_pictures_are_shown_where_they_were_drawn(bundle: Bundle, picture: str) -> None:
    """The card links no picture that is not there."""
    assert f"]({picture})" not in card(bundle)
    (bundle.path / picture).touch()
    assert f"]({picture})" in card(bundle)
