from __future__ import annotations

import json
from dataclasses import replace

import pytest

from model.capsnet import CapsNetConfig

SIZES = [
    "image_size",
    "conv_channels",
    "conv_kernel",
    "conv_stride",
    "primary_types",
    "primary_dim",
    "primary_kernel",
    "primary_stride",
    "num_classes",
    "class_dim",
    "routing_iterations",
]


@pytest.mark.parametrize(("image_size", "expected"), [(17, 32), (28, 1152), (36, 3200)])
def test_the_number_of_primary_capsules_follows_the_image_size(
    image_size: int, expected: int
) -> None:
    """Two valid 9 px convolutions, the second with stride 2, leave this many capsules."""
    assert expected == CapsNetConfig(image_size=image_size).num_primary


def test_the_strides_shrink_the_grid() -> None:
    """Each layer's own kernel and stride decide the size of its feature map."""
    config = CapsNetConfig(
        image_size=30, conv_kernel=5, conv_stride=2, primary_kernel=4, primary_stride=3
    )

    assert (config.conv_size, config.grid_size) == (13, 4)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_is_not_positive_is_refused(name: str, value: int) -> None:
    """The message names the offending size."""
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        CapsNetConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, -0.5])
def test_a_primary_scale_that_is_not_positive_is_refused(value: float) -> None:
    """A scale of zero would silence every primary capsule."""
    with pytest.raises(ValueError, match="primary_scale must be positive"):
        CapsNetConfig(primary_scale=value)


@pytest.mark.parametrize("value", [(0, 1024), (512, -1)])
def test_each_hidden_layer_of_the_decoder_must_be_positive(value: tuple[int, int]) -> None:
    """Both sizes of the pair are looked at."""
    with pytest.raises(ValueError, match="decoder_hidden must be positive"):
        CapsNetConfig(decoder_hidden=value)


@pytest.mark.parametrize("image_size", [1, 8, 16])
def test_an_image_smaller_than_the_kernels_is_refused(image_size: int) -> None:
    """Below 17 px no primary capsule would be left."""
    with pytest.raises(ValueError, match="too small for kernels of 9 and 9 px"):
        CapsNetConfig(image_size=image_size)


def test_settings_survive_json() -> None:
    """What goes through a JSON file comes back equal, tuples included."""
    config = CapsNetConfig(
        image_size=36,
        routing_gradient="last",
        class_bias=True,
        primary_relu=True,
        primary_scale=0.25,
        initialisation="truncated-normal",
        decoder_hidden=(64, 128),
    )

    assert config == CapsNetConfig.from_dict(json.loads(json.dumps(config.to_dict())))


def test_settings_left_out_take_the_papers_values() -> None:
    """A partial dictionary changes only what it names."""
    assert replace(CapsNetConfig(), num_classes=3) == CapsNetConfig.from_dict({"num_classes": 3})


def test_unknown_settings_are_refused_by_name() -> None:
    """A misspelt key is an error that lists every such key."""
    with pytest.raises(ValueError, match="unknown network settings: capsules, image_sise"):
        CapsNetConfig.from_dict({"image_sise": 28, "num_classes": 10, "capsules": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("primary_dim", -8),
        ("decoder_hidden", [512, 0]),
        ("routing_gradient", "first"),
        ("initialisation", "zeros"),
        ("primary_scale", float("nan")),
    ],
)
def test_values_read_from_a_file_are_checked(name: str, value: object) -> None:
    """A value out of range is an error and never falls back silently to another choice."""
    with pytest.raises(ValueError, match=name):
        CapsNetConfig.from_dict({name: value})
