"""What every family promises: see `model.capsnet.network`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import nn

from model.capsnet import FAMILIES, Network, NetworkConfig, build, config_from_dict, family_of
from model.capsnet.attention import AttentionCapsNet
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.families import config_to_dict
from model.capsnet.stem import Conv
from model.views.agreement import are_shares
from tests.model.capsnet.networks import SMALL, noise

configs = pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)
CONVOLUTIONAL = {
    name: config
    for name, config in SMALL.items()
    if hasattr(config, "stem") or hasattr(config, "convs")
}
defaults = pytest.mark.parametrize("family", FAMILIES)


def offers(network: Network) -> frozenset[str]:
    return frozenset(family_of(network.config).offers)


def test_families_are_registered() -> None:
    """Each under its own name, with a configuration of its own and a source."""
    assert FAMILIES.keys() >= {"dynamic", "attention", "shared", "matrix", "baseline"}
    assert len(FAMILIES) == len({family.config for family in FAMILIES.values()})
    for name, family in FAMILIES.items():
        assert (name, family) == (family.name, family_of(family.config()))
        assert family.source
        assert isinstance(build(SMALL[name]), Network)


@configs
def test_a_configuration_survives_json(config: NetworkConfig) -> None:
    """What goes through a file comes back equal, convolutions and tuples included."""
    values = json.loads(json.dumps(config_to_dict(config)))
    assert family_of(config).name == values["family"]
    assert config == config_from_dict(values)


@defaults
def test_settings_left_out_take_the_defaults(family: str) -> None:
    """A partial dictionary changes only what it names."""
    expected = replace(FAMILIES[family].config(), num_classes=3)
    assert expected == config_from_dict({"family": family, "num_classes": 3})


@defaults
def test_unknown_settings_are_refused_by_name(family: str) -> None:
    """A misspelt key is an error that names every such key."""
    with pytest.raises(ValueError, match=r"hight=28: Unexpected.*capsules=1: Unexpected"):
        config_from_dict({"family": family, "hight": 28, "num_classes": 3, "capsules": 1})


@pytest.mark.parametrize("values", [{}, {"family": None}, {"family": "hinton"}])
def test_an_unknown_family_is_refused(values: dict[str, Any]) -> None:
    """The message names those that there are; bare sizes are no network either."""
    with pytest.raises(ValueError, match=r"unknown family .*there are dynamic, attention"):
        config_from_dict(values)
    with pytest.raises(ValueError, match="NetworkConfig belongs to no family"):
        build(NetworkConfig())


@pytest.mark.parametrize("value", [0, -1, float("nan")])
@defaults
def test_sizes_are_positive(family: str, value: float) -> None:
    """Whichever size it is, of the family's own or of all, the message names it.

    What is zero by default may be zero.
    """
    config = FAMILIES[family].config
    for field in fields(config):
        default = getattr(config(), field.name)
        if value == 0 == default or field.name in config.may_be_zero:
            continue
        if type(default) in (int, float):
            with pytest.raises(ValueError, match=field.name):
                config_from_dict({"family": family, field.name: value})


@pytest.mark.parametrize(
    "stem",
    [
        *([], [[8, 0]], [[0, 3]], [[8, 3, 0]], [[8]], [[8, 3, 1, 1, -1]], [[8, 3, 1, 1, 0.5]]),
        *([[8, 3, 1, 1, 0, 1, "tanh"]], [["residual", 2]], [["whiten", 0]], [["attention"]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("family", ["dynamic", "attention", "shared"])
def test_a_convolution_that_is_none_is_refused(family: str, stem: list[list[Any]]) -> None:
    """Sizes of zero, too few of them, an unknown kind of layer, and no layer at all."""
    with pytest.raises(ValueError, match=r"stem|Conv|kernels|Whiten"):
        config_from_dict({"family": family, "stem": stem})


@pytest.mark.parametrize("size", [{"height": 3}, {"width": 3}], ids=str)
@pytest.mark.parametrize("config", CONVOLUTIONAL.values(), ids=CONVOLUTIONAL)
def test_an_image_that_is_too_small_is_refused(config: NetworkConfig, size: dict[str, int]) -> None:
    """When it is configured, in a sentence, not by a tensor without elements."""
    with pytest.raises(ValueError, match="too small"):
        replace(config, **size)


def test_one_pixel_short_is_too_small() -> None:
    """17 pixels leave the paper's layers one cell, 16 none."""
    assert (1, 1) == DynamicConfig(height=17, width=17).grid[:2]
    with pytest.raises(ValueError, match="window of 9 does not fit a grid of 8x9 cells"):
        DynamicConfig(height=16, width=17)
    assert BaselineConfig(height=8, width=8, pooling=True)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_shapes_follow_the_batch(any_network: Network, batch: int) -> None:
    """Presence (N, K), poses (N, K, D) and images (N, C, H, W), one image's axis kept."""
    config = any_network.config
    presence, poses = any_network(noise(config, batch))
    dim = config.class_dim if "decode" in offers(any_network) else 0
    assert ((batch, 5), (batch, 5, dim)) == (presence.shape, poses.shape)
    if dim:
        drawn = any_network.decode(poses[:, 1], torch.ones(batch, dtype=torch.int64))
        assert (batch, 3, 17, 20) == drawn.shape
        assert 0 <= drawn.min() <= drawn.max() <= 1


def test_presence_is_between_zero_and_one(any_network: Network) -> None:
    """For noise, for black and white, and for what no image is; it is never constant."""
    images = noise(any_network.config, 6)
    for some in (images, images * 0, images * 0 + 1, images * 1000):
        presence = any_network(some).presence
        assert 0 <= presence.min() <= presence.max() <= 1 + 1e-6
    assert any_network(images).presence.std(dim=0).max() > 1e-5


def test_presence_is_what_the_registry_says(any_network: Network) -> None:
    """The length of poses, an activation next to them, or probabilities that sum to one."""
    presence, poses = any_network(noise(any_network.config))
    kind = family_of(any_network.config).presence
    if kind == "length":
        torch.testing.assert_close(presence, poses.norm(dim=-1), atol=4e-4, rtol=0)
    elif kind == "probability":
        torch.testing.assert_close(presence.sum(dim=1), torch.ones(4))
    else:
        assert (presence - poses.norm(dim=-1)).abs().max() > 0.1


def test_an_answer_does_not_depend_on_its_batch(any_network: Network) -> None:
    """Alone and next to others, one of them fifty times as bright, an image gets one answer."""
    images = noise(any_network.config)
    images[3] *= 50
    together = any_network(images)
    for row, image in enumerate(images[:3]):
        for alone, batched in zip(any_network(image[None]), together, strict=True):
            torch.testing.assert_close(alone[0], batched[row], atol=1e-5, rtol=1e-5)


def test_a_trace_ends_in_the_answer(routed_network: Network) -> None:
    """The last iteration's presence and poses are those that the network answers."""
    images = noise(routed_network.config)
    trace, answer = routed_network.trace(images).classes, routed_network(images)
    torch.testing.assert_close(trace.presence[:, -1], answer.presence)
    torch.testing.assert_close(trace.poses[:, -1], answer.poses)


def test_a_trace_has_the_shapes_of_its_layers(routed_network: Network) -> None:
    """Iterations and input capsules are those that `layers` tells, and hidden layers' too."""
    *hidden, last = routed_network.layers
    trace = routed_network.trace(noise(routed_network.config, 2))
    steps, inputs, dim = last.iterations, last.capsules, routed_network.config.class_dim
    expected = {
        "couplings": (2, steps, 5, inputs),
        "logits": (2, steps, 5, inputs),
        "presence": (2, steps, 5),
        "poses": (2, steps, 5, dim),
        "input_presence": (2, inputs),
        "votes": (2, 5, inputs, dim),
    }
    assert expected == {name: part.shape for name, part in trace.classes._asdict().items()}
    following = [*hidden, last][1:]
    for layer, after, found in zip(hidden, following, trace.hidden.values(), strict=True):
        assert (2, layer.iterations, after.types, layer.types) == found.couplings.shape
        maps = (2, layer.iterations, after.types, after.rows, after.columns)
        assert maps == found.presence.shape


def test_couplings_that_are_shares_are_those_of_the_logits(routed_network: Network) -> None:
    """A softmax over classes, not over inputs; other couplings are free weights of the votes."""
    classes = routed_network.trace(noise(routed_network.config)).classes
    shares = classes.couplings
    if isinstance(routed_network, AttentionCapsNet):
        shares = shares - routed_network.prior
    if are_shares(shares.detach().flatten(0, 1).numpy()):
        torch.testing.assert_close(classes.logits.softmax(dim=2), shares)


@pytest.mark.parametrize("name", ["dynamic", "shared", "matrix"])
def test_couplings_divide_each_input_among_the_classes(name: str) -> None:
    """As the papers of these families have it."""
    shares = build(SMALL[name]).trace(noise(SMALL[name])).classes.couplings
    torch.testing.assert_close(shares.sum(dim=2), torch.ones_like(shares[:, :, 0]))


def test_layers_tell_where_capsules_sit(routed_network: Network) -> None:
    """The last field ends within the image, less than a stride before its end."""
    for layer in routed_network.layers:
        for cells, pixels in ((layer.rows, 17), (layer.columns, 20)):
            end = (cells - 1) * layer.stride_px + layer.field_px
            if cells > 1:
                assert pixels - 2 * layer.stride_px < end <= pixels


def test_every_parameter_learns(any_network: Network) -> None:
    """Gradients of presence and of drawings reach all that is trained."""
    presence, poses = any_network(noise(any_network.config, 8))
    loss = presence[:, 0].square().sum()
    if "decode" in offers(any_network):
        classes = torch.arange(5).repeat(8)
        loss = loss + any_network.decode(poses.flatten(0, 1), classes).square().sum()
    loss.backward()
    unmoved = [n for n, p in any_network.named_parameters() if p.grad is None or not p.grad.any()]
    assert [] == unmoved


def test_a_dead_network_gives_no_nan(any_network: Network) -> None:
    """Features that are all zero leave every answer and gradient finite, black images too."""
    for module in any_network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.zeros_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    presence, poses = any_network(noise(any_network.config) * 0)
    (presence.sum() + poses.sum()).backward()
    assert presence.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in any_network.parameters())


@pytest.mark.parametrize("shape", [(3, 20, 17), (1, 17, 20), (3, 16, 20), (4, 17, 20)])
def test_images_of_another_shape_are_refused(
    any_network: Network, shape: tuple[int, int, int]
) -> None:
    """Capsules of different images are never regrouped to make the numbers fit.

    Where all share their weights another size is welcome, but no other number of channels.
    """
    refused = pytest.raises((ValueError, RuntimeError))
    of_any_size = family_of(any_network.config).name == "shared" and shape[0] == 3
    with nullcontext() if of_any_size else refused:
        any_network(torch.rand(4, *shape))


def test_a_stem_reads_all_channels(any_network: Network) -> None:
    """Colour matters: red and blue exchanged give another answer."""
    images = noise(any_network.config)
    moved = any_network(images.flip(1)).presence - any_network(images).presence
    assert moved.abs().max() > 1e-4


def test_a_convolution_is_configured_by_its_numbers() -> None:
    """Lists, as JSON has them, become convolutions."""
    config = config_from_dict({"family": "dynamic", "stem": [[16, 9], [8, 3, 2, 1]]})
    assert isinstance(config, DynamicConfig)
    assert (Conv(16, 9), Conv(8, 3, 2)) == config.stem


@pytest.mark.parametrize(
    ("family", "old", "new", "value"),
    [
        ("matrix", "vote_temperature", "log_p_divisor", 2.0),
        ("baseline", "several", "multi_label", True),
    ],
)
def test_earlier_names_are_read(family: str, old: str, new: str, value: float) -> None:
    """Bundles and checkpoints from before a setting was renamed still load."""
    config = config_from_dict({"family": family, old: value})
    assert value == config_to_dict(config)[new]
    assert config == config_from_dict(config_to_dict(config))
