from __future__ import annotations

import io
import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from model.bundle import Bundle
from model.capsnet import build
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.stem import Conv, Residual, Whiten
from training.data.datasets import DATASETS
from training.recipes import PRESETS, Recipe, SettingError, override, recipe_of

BUNDLES = Path(__file__).parents[2] / "model" / "bundles"


@pytest.mark.parametrize("name", PRESETS)
def test_a_recipe_survives_json(name: str) -> None:
    """What is read back equals what was written, tuples and all."""
    recipe = PRESETS[name]
    assert recipe == Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))


@pytest.mark.parametrize("name", sorted(path.name for path in BUNDLES.iterdir() if path.is_dir()))
def test_recipes_and_commands_of_shipped_bundles_are_understood(name: str) -> None:
    """Settings that left since are passed over; a card's command has none of them."""
    assert recipe_of(Bundle.open(BUNDLES / name)).dataset in DATASETS
    card = (BUNDLES / name / "CARD.md").read_text()
    for command in re.findall(r"python -m training train (.*)", card):
        preset, *words = shlex.split(command)
        settings = [word for option, word in pairwise(words) if option == "--set"]
        assert override(PRESETS[preset], settings)


def test_an_unknown_setting_of_a_network_is_refused() -> None:
    """A key that no network of its family has is not dropped silently."""
    values = Recipe("r").to_dict()
    values["network"]["colour"] = "red"
    with pytest.raises(ValueError, match="colour: Unexpected keyword argument"):
        Recipe.from_dict(values)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"mse_weight": -1},
        {"reconstruction_share": 0},
        {"task": "pairs", "flip": True},
        {"task": "pairs", "elastic_px": 1},
        {"task": "pairs", "pad": "reflect"},
        {"task": "pairs", "cutout_px": 2},
        {"task": "pairs", "loss": "spread"},
        {"task": "pairs", "network": DynamicConfig(height=36, width=40)},
        {"network": MatrixConfig(), "muon_votes": 0.2},
        {"shown_channels": (0, 1)},
        {"shown_channels": (0, 1, -1)},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    """No recipe can be made, or changed into one, that cannot be followed."""
    with pytest.raises(ValueError, match=r"should be|pairs|is for|shown_channels"):
        replace(Recipe("r"), **change)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fits_its_data_set(name: str) -> None:
    """Called what it is listed under, with a capsule for each class and images of its channels."""
    recipe = PRESETS[name]
    assert name == recipe.name
    if name != "pictures":
        dataset, network = DATASETS[recipe.dataset], recipe.network
        expected = (len(dataset.class_names), dataset.image_shape[0])
        assert expected == (network.num_classes, network.channels)


def test_the_presets_of_the_paper_are_the_papers() -> None:
    """Its text's rate, weight, shifts and network; its code weighs the reconstruction 20 times."""
    paper = PRESETS["mnist-paper"]
    expected = (1e-3, "exponential", 0.0005 * 784, 2, DynamicConfig(routing_iterations=3))
    actual = (
        paper.learning_rate,
        paper.schedule,
        paper.mse_weight,
        paper.shift_px,
        paper.network,
    )
    assert expected == actual
    assert pytest.approx(20 * paper.mse_weight) == PRESETS["mnist-paper-code"].mse_weight


MNIST = PRESETS["mnist"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("learning_rate=5e-4", {"learning_rate": 5e-4}),
        ("epochs=3", {"epochs": 3.0}),
        ("flip=true", {"flip": True}),
        ("name=7", {"name": "7"}),
        ("frozen=stem,primary", {"frozen": ("stem", "primary")}),
        ('frozen=["stem"]', {"frozen": ("stem",)}),
        ("frozen=", {"frozen": ()}),
    ],
)
def test_fields_of_a_recipe(setting: str, expected: dict[str, Any]) -> None:
    """Numbers, words and lists, as JSON or plain."""
    assert replace(MNIST, **expected) == override(MNIST, [setting])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("routing_iterations=1", {"routing_iterations": 1}),
        ("network.class_dim=8", {"class_dim": 8}),
        (
            'stem=[["whiten"], [8, 3], ["residual", 5]]',
            {"stem": (Whiten(), Conv(8, 3), Residual(kernel=5))},
        ),
        ("decoder_hidden=8,16", {"decoder_hidden": (8, 16)}),
    ],
)
def test_fields_of_its_network(setting: str, expected: dict[str, Any]) -> None:
    """By their own name, or with the network's before it."""
    network = replace(MNIST.network, **expected)
    assert replace(MNIST, network=network) == override(MNIST, [setting])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs", "'epochs' is not KEY=VALUE"),
        ("colour=red", "colour is no setting. The recipe has .*name, .*dynamic network"),
        ("network.epochs=2", "network.epochs is no setting"),
        ("schedule=linear", "schedule: Input should be 'exponential' or 'cosine'"),
        ("epochs=many", "epochs: Input should be a valid number"),
        ("decoder_hidden=8", "decoder_hidden has two sizes"),
        ("stem=[[1]]", r"stem\.0\.convolution\.1: Field required"),
        ('stem=[["residual", 4]]', r"stem\.0\.residual\.1: kernels of residual blocks are odd"),
        ("stem=", "at least one layer"),
        ("primary_kernel=99", "does not fit"),
    ],
)
def test_what_cannot_be_set(setting: str, message: str) -> None:
    """The error says what is known or allowed."""
    with pytest.raises(SettingError, match=message):
        override(MNIST, [setting])


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_class_is_present_before_training(name: str, digits: list[bytes]) -> None:
    """In more than half of a batch of digits by over 0.5: a saturated squash learns slowly."""
    config = PRESETS[name].network
    images = torch.from_numpy(
        np.stack([np.asarray(Image.open(io.BytesIO(digit)), np.float32) / 255 for digit in digits])
    )[:, None]
    size = (config.height, config.width)
    images = functional.interpolate(images, size).expand(-1, config.channels, -1, -1)
    torch.manual_seed(0)
    with torch.no_grad():
        presence = build(config).train()(images).presence
    assert (presence > 0.5).float().mean(dim=0).max() <= 0.5
