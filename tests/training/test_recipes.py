from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import pytest

from model.capsnet import CapsNetConfig
from training.data.datasets import DATASETS
from training.recipes import PRESETS, RECONSTRUCTION_WEIGHTS, Recipe


@pytest.mark.parametrize(
    ("name", "weight"), [("none", 0.0), ("paper", 0.0005), ("paper-code", 0.01)]
)
def test_reconstruction_weights(
    name: Literal["none", "paper", "paper-code"], weight: float
) -> None:
    """Each name stands for a weight of the error summed over pixels."""
    assert weight == Recipe("r", reconstruction=name).reconstruction_weight


def test_the_papers_code_weighs_reconstruction_twenty_times_more() -> None:
    """Its margin loss is halved and averaged over ten classes; the reconstruction error is not."""
    weights = RECONSTRUCTION_WEIGHTS
    assert pytest.approx(20 * weights["paper"]) == weights["paper-code"]


@pytest.mark.parametrize(
    "recipe",
    [
        *(pytest.param(recipe, id=name) for name, recipe in PRESETS.items()),
        pytest.param(
            Recipe(
                "other",
                task="pairs",
                dataset="fashion-mnist",
                network=CapsNetConfig(decoder_hidden=(8, 16), routing_gradient="last"),
                epochs=0.5,
                batch_size=3,
                learning_rate=0.02,
                schedule="exponential",
                decay_rate=0.5,
                decay_steps=7,
                warmup_steps=11,
                reconstruction="none",
                shift_px=0,
                average_decay=0.9,
            ),
            id="nothing default",
        ),
    ],
)
def test_a_recipe_survives_json(recipe: Recipe) -> None:
    """What is read back equals what was written, tuples and all."""
    assert recipe == Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))


def test_an_unknown_setting_is_refused() -> None:
    """A key that no recipe has is not dropped silently."""
    with pytest.raises(TypeError, match="colour"):
        Recipe.from_dict({**Recipe("r").to_dict(), "colour": "red"})


def test_an_unknown_network_setting_is_refused() -> None:
    """Nor is a key that no network has."""
    values = Recipe("r").to_dict()
    with pytest.raises(ValueError, match="unknown network settings: colour"):
        Recipe.from_dict({**values, "network": {**values["network"], "colour": "red"}})


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"epochs": -1},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"schedule": "linear"},
        {"task": "triples"},
        {"reconstruction": "strong"},
        {"average_decay": 1},
        {"task": "pairs", "flip": True},
        {"affine": 1.1},
        {"affine": -0.1},
        {"elastic_px": -1},
        {"task": "pairs", "affine": 0.5},
        {"task": "pairs", "elastic_px": 1},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    """No recipe can be made, or changed into one, that cannot be followed."""
    with pytest.raises(ValueError, match=r"must be|unknown|neither mirrored"):
        replace(Recipe("r"), **change)


def test_there_is_a_preset_for_each_purpose() -> None:
    """The paper's text and code, a long run, one on a CPU and a small network can be asked for."""
    expected = {"mnist-paper", "mnist-paper-code", "mnist", "mnist-cpu", "mnist-compact"}
    assert expected | {"multimnist", "multimnist-compact"} <= PRESETS.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_knows_its_name(name: str) -> None:
    """A preset is called what it is listed under."""
    assert name == PRESETS[name].name


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fits_its_data_set(name: str) -> None:
    """A preset's network has a capsule for each class of its data set."""
    dataset = DATASETS[PRESETS[name].dataset]
    assert len(dataset.class_names) == PRESETS[name].network.num_classes


def test_the_paper_preset_is_the_papers() -> None:
    """The preset has the text's rate, weight, shifts and network."""
    paper = PRESETS["mnist-paper"]
    expected = (1e-3, "exponential", 0.0005, 2, CapsNetConfig(routing_iterations=3))
    actual = (
        paper.learning_rate,
        paper.schedule,
        paper.reconstruction_weight,
        paper.shift_px,
        paper.network,
    )
    assert expected == actual


def test_the_paper_code_preset_differs_as_its_code_does() -> None:
    """Beside the text's recipe it has the code's weight, bias, scale and initial weights."""
    network = CapsNetConfig(
        class_bias=True, primary_scale=0.03125, initialisation="truncated-normal"
    )
    expected = replace(
        PRESETS["mnist-paper"],
        name="mnist-paper-code",
        reconstruction="paper-code",
        network=network,
    )
    assert expected == PRESETS["mnist-paper-code"]


@pytest.mark.parametrize(("name", "capsules"), [("multimnist", 3200), ("multimnist-compact", 800)])
def test_pairs_have_larger_images(name: str, capsules: int) -> None:
    """Digits of 28 px shifted by up to four fit into 36 px, on a grid of 10 x 10."""
    recipe = PRESETS[name]
    expected = ("pairs", 36, 4, capsules)
    network = recipe.network
    assert expected == (recipe.task, network.image_size, recipe.shift_px, network.num_primary)
