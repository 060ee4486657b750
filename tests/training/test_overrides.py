from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from model.capsnet.stem import Conv
from training.overrides import SettingError, override
from training.recipes import PRESETS

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
        ("colour=red", "colour is no setting. The recipe has name, .*dynamic network has channels"),
        ("rounds=2", "rounds is no setting"),
        ("network.epochs=2", "network.epochs is no setting"),
        ("network={}", "network is no setting"),
        ("schedule=linear", "schedule is one of exponential, cosine, not linear"),
        ("epochs=many", "epochs is a number, not many"),
        ("learning_rate=NaN", "learning_rate is a number, not NaN"),
        ("batch_size=1.5", "batch_size is a whole number, not 1.5"),
        ("batch_size=true", "batch_size is a whole number, not true"),
        ("flip=1", "flip is true or false, not 1"),
        ("decoder_hidden=8", "decoder_hidden is a list of 2, each a whole number, not 8"),
        ("stem=[[1, 2, 3, 4, 5]]", r"stem is a list of some, each \[channels, kernel, stride"),
        ("stem=5", "stem is a list"),
        ("epochs=-1", "must be positive"),
        ("primary_kernel=99", "does not fit"),
    ],
)
def test_what_cannot_be_set(setting: str, message: str) -> None:
    """The error says what is known or allowed."""
    with pytest.raises(SettingError, match=message):
        override(MNIST, [setting])


def test_what_something_else_decides() -> None:
    """It is refused rather than passed over."""
    with pytest.raises(SettingError, match=r"network\.channels follows from the pictures"):
        override(MNIST, ["network.channels=3"], fixed={"channels"})
