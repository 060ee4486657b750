from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from model.capsnet import build, family_of
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.stem import Conv, Residual, Whiten
from training.data.datasets import DATASETS
from training.recipes import (
    PAPER_CODE_MSE_WEIGHT,
    PAPER_MSE_WEIGHT,
    PRESETS,
    Recipe,
    SettingError,
    override,
)


def test_the_papers_code_weighs_reconstruction_twenty_times_more() -> None:
    """Its margin loss is halved and averaged over ten classes; the reconstruction error is not."""
    assert pytest.approx(20 * PAPER_MSE_WEIGHT) == PAPER_CODE_MSE_WEIGHT


@pytest.mark.parametrize(
    "recipe",
    [
        *(pytest.param(recipe, id=name) for name, recipe in PRESETS.items()),
        pytest.param(
            Recipe(
                "other",
                dataset="fashion-mnist",
                network=MatrixConfig(decoder_hidden=(8, 16), conv_caps=(4, 4)),
                loss="spread",
                absent_weight=0.25,
                spread_steps=7,
                mse_weight=0,
                detach_poses=True,
                frozen=("stem.", "votes."),
                epochs=0.5,
                batch_size=3,
                learning_rate=0.02,
                schedule="exponential",
                decay_rate=0.5,
                decay_steps=7,
                warmup_steps=11,
                shift_px=0,
                flip=True,
                affine=0.5,
                elastic_px=1,
                erase_px=3,
                pad="reflect",
                average_decay=0.9,
                flip_alternates=True,
                cutout_px=4,
                muon_rate=0.02,
                muon_momentum=0.9,
                reconstruction_share=0.5,
                decoder="bfloat16",
            ),
            id="nothing default",
        ),
    ],
)
def test_a_recipe_survives_json(recipe: Recipe) -> None:
    """What is read back equals what was written, tuples and all."""
    assert recipe == Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))


@pytest.mark.parametrize("network", [False, True], ids=["recipe", "network"])
def test_an_unknown_setting_is_refused(*, network: bool) -> None:
    """A key that no recipe, or no network of its family, has is not dropped silently."""
    values = Recipe("r").to_dict()
    (values["network"] if network else values)["colour"] = "red"
    with pytest.raises(ValueError, match="colour='red': Unexpected keyword argument"):
        Recipe.from_dict(values)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"epochs": -1},
        {"epochs": math.nan},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"schedule": "linear"},
        {"task": "triples"},
        {"loss": "hinge"},
        {"pad": "wrap"},
        {"votes": "float16"},
        {"average_decay": 1},
        {"spread_steps": 0},
        {"mse_weight": -1},
        {"affine": 1.1},
        {"affine": -0.1},
        {"elastic_px": -1},
        {"erase_px": -1},
        {"task": "pairs", "flip": True},
        {"task": "pairs", "erase_px": 2},
        {"task": "pairs", "pad": "reflect"},
        {"task": "pairs", "cutout_px": 2},
        {"task": "pairs", "loss": "spread"},
        {"task": "pairs", "network": DynamicConfig(height=36, width=40)},
        {"cutout_px": -1},
        {"muon_rate": -1},
        {"muon_momentum": 1},
        {"reconstruction_share": 0},
        {"decay_rate": 0},
        {"decoder": "float16"},
        {"network": MatrixConfig(), "votes": "bfloat16"},
        {"network": MatrixConfig(), "muon_votes": 0.2},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    """No recipe can be made, or changed into one, that cannot be followed."""
    with pytest.raises(ValueError, match=r"should be|pairs|are for"):
        replace(Recipe("r"), **change)


@pytest.mark.parametrize("family", ["dynamic", "attention", "shared", "matrix", "baseline"])
def test_there_is_a_preset_of_each_family(family: str) -> None:
    """And of the paper's text and code."""
    assert family in {family_of(recipe.network).name for recipe in PRESETS.values()}
    assert {"mnist-paper", "mnist-paper-code"} <= PRESETS.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fits_its_data_set(name: str) -> None:
    """Called what it is listed under, with a capsule for each class and images of its channels."""
    recipe = PRESETS[name]
    assert name == recipe.name
    if name != "pictures":
        dataset, network = DATASETS[recipe.dataset], recipe.network
        expected = (len(dataset.class_names), dataset.image_shape[0])
        assert expected == (network.num_classes, network.channels)


def test_the_paper_preset_is_the_papers() -> None:
    """The preset has the text's rate, weight, shifts and network."""
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


@pytest.mark.parametrize(("name", "capsules"), [("multimnist", 3200), ("multimnist-compact", 800)])
def test_pairs_have_larger_images(name: str, capsules: int) -> None:
    """Digits of 28 px shifted by up to four fit into 36 px, on a grid of 10 x 10."""
    recipe = PRESETS[name]
    assert isinstance(recipe.network, DynamicConfig)
    expected = ("pairs", 36, 36, 4, capsules)
    network = recipe.network
    actual = (recipe.task, network.height, network.width, recipe.shift_px, network.num_primary)
    assert expected == actual


MNIST = PRESETS["mnist"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("learning_rate=5e-4", {"learning_rate": 5e-4}),
        ("epochs=3", {"epochs": 3.0}),
        ("flip=true", {"flip": True}),
        ("schedule=exponential", {"schedule": "exponential"}),
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
        ("stem=[[32, 5], [64, 3, 2]]", {"stem": (Conv(32, 5), Conv(64, 3, 2))}),
        (
            'stem=[["whiten"], [8, 3], ["residual", 5]]',
            {"stem": (Whiten(), Conv(8, 3), Residual(kernel=5))},
        ),
        ("decoder_hidden=8,16", {"decoder_hidden": (8, 16)}),
        ("initialisation=truncated-normal", {"initialisation": "truncated-normal"}),
    ],
)
def test_fields_of_its_network(setting: str, expected: dict[str, Any]) -> None:
    """By their own name, or with the network's before it."""
    network = replace(MNIST.network, **expected)
    assert replace(MNIST, network=network) == override(MNIST, [setting])


def test_settings_that_need_each_other() -> None:
    """They are taken together, in any order: either alone would not fit."""
    changed = override(PRESETS["mnist-baseline"], ["convs=4", "kernels=5", "epochs=1"])
    assert ((4,), (5,), 1) == (changed.network.convs, changed.network.kernels, changed.epochs)


def test_every_field_has_a_kind_that_is_understood() -> None:
    """What any preset holds may be set to what it is."""
    for recipe in PRESETS.values():
        for settings, prefix in ((recipe, ""), (recipe.network, "network.")):
            for name, value in vars(settings).items():
                if name == "network":
                    continue
                text = value if isinstance(value, str) else json.dumps(value)
                assert recipe == override(recipe, [f"{prefix}{name}={text}"]), name


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs", "'epochs' is not KEY=VALUE"),
        ("colour=red", "colour is no setting. The recipe has .*name, .*dynamic network"),
        ("rounds=2", "rounds is no setting"),
        ("network.epochs=2", "network.epochs is no setting"),
        ("network={}", "network is no setting"),
        ("schedule=linear", "schedule='linear': Input should be 'exponential' or 'cosine'"),
        ("epochs=many", "epochs='many': Input should be a valid number"),
        ("learning_rate=NaN", "learning_rate=nan: Input should be a finite number"),
        ("batch_size=1.5", "batch_size=1.5: Input should be a valid integer"),
        ("batch_size=true", "batch_size=True: Input should be a valid integer"),
        ("flip=1", "flip=1: Input should be a valid boolean"),
        ("decoder_hidden=8", "decoder_hidden has two sizes"),
        ("stem=[[1]]", r"stem\.0=.*\[1\] is no layer of a stem"),
        ("stem=", "at least one layer"),
        ("decay_rate=-1", "decay_rate=-1: Input should be greater than 0"),
        ("absent_weight=-5", "absent_weight=-5: .* greater than or equal to 0"),
        ("stem=5", "5.* is no layer of a stem"),
        ("epochs=-1", "epochs=-1: Input should be greater than 0"),
        ("primary_kernel=99", "does not fit"),
    ],
)
def test_what_cannot_be_set(setting: str, message: str) -> None:
    """The error says what is known or allowed."""
    with pytest.raises(SettingError, match=message):
        override(MNIST, [setting])


def test_what_something_else_decides() -> None:
    """It is refused rather than passed over."""
    with pytest.raises(SettingError, match=r"network\.channels is set by the data set"):
        override(MNIST, ["network.channels=3"], fixed={"channels"})


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_class_is_present_before_training(name: str, digits: list[bytes]) -> None:
    """In more than half of a batch of digits by over 0.5: a saturated squash learns slowly."""
    config = PRESETS[name].network
    if family_of(config).presence == "probability":
        pytest.skip("its presence is no squash's")
    images = torch.from_numpy(
        np.stack([np.asarray(Image.open(io.BytesIO(digit)), np.float32) / 255 for digit in digits])
    )[:, None]
    size = (config.height, config.width)
    images = functional.interpolate(images, size).expand(-1, config.channels, -1, -1)
    torch.manual_seed(0)
    with torch.no_grad():
        presence = build(config).train()(images).presence
    assert (presence > 0.5).float().mean(dim=0).max() <= 0.5


def test_older_bundles_weighed_the_sum_over_pixels() -> None:
    """Their weight becomes that of the mean, times pixels and channels."""
    values = PRESETS["cifar10"].to_dict()
    del values["mse_weight"]
    assert (
        pytest.approx(1.536)
        == Recipe.from_dict(values | {"reconstruction_weight": 0.0005}).mse_weight
    )


@pytest.mark.parametrize("preset", ["mnist-shared", "mnist-matrix", "mnist-baseline"])
def test_cross_entropy_of_norms_needs_norms(preset: str) -> None:
    """A network that cannot undo its squash, or has another loss, is refused."""
    with pytest.raises(ValueError, match="cross_entropy_weight is for the margin loss"):
        replace(PRESETS[preset], cross_entropy_weight=0.1)


def test_pairs_have_no_rivals() -> None:
    """Each of their digits is the target of one capsule alone."""
    with pytest.raises(ValueError, match="rival_share is for images of one class"):
        replace(PRESETS["multimnist-attention"], rival_share=0.1)
