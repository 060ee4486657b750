from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from model.capsnet import CapsNet, CapsNetConfig


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("image_size", "expected"), [(28, 8_215_568), (36, 11_361_808)])
def test_the_network_has_the_papers_size(image_size: int, expected: int) -> None:
    """Defaults are the paper's network; 36 px is its MultiMNIST one."""
    with torch.device("meta"):
        assert expected == _count(CapsNet(CapsNetConfig(image_size=image_size)))


def test_each_part_has_the_papers_size() -> None:
    """The parameters sit in the layers the paper puts them in."""
    with torch.device("meta"):
        network = CapsNet(CapsNetConfig())
    parts = (network.conv, network.primary, network.classes, network.decoder)

    assert [_count(part) for part in parts] == [20_992, 5_308_672, 1_474_560, 1_411_344]


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_shapes_follow_the_batch(
    network: CapsNet, config: CapsNetConfig, images: Tensor, batch: int
) -> None:
    """A batch of one keeps its axis."""
    lengths, poses = network(images[:batch])

    assert (batch, config.num_classes) == lengths.shape
    assert (batch, config.num_classes, config.class_dim) == poses.shape


@pytest.mark.parametrize(
    "change",
    [
        {"num_classes": 1},
        {"primary_types": 1},
        {"class_dim": 1},
        {"image_size": 5},
        {"conv_stride": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 2])
def test_the_configured_sizes_fit_each_other(
    config: CapsNetConfig, change: dict[str, Any], batch: int
) -> None:
    """A single class, type, component or cell and a wider stride work from images to images."""
    config = replace(config, **change)
    network = CapsNet(config)
    images = torch.rand(batch, 1, config.image_size, config.image_size)

    poses = network(images).poses
    view = network.look_inside(images)

    assert (batch, config.num_classes, config.class_dim) == poses.shape
    assert (batch, config.num_primary) == view.primary_lengths.shape
    assert images.shape == network.decode(poses[:, 0], torch.zeros(batch, dtype=torch.int64)).shape


def test_an_answer_does_not_depend_on_batch_mates(network: CapsNet, images: Tensor) -> None:
    """Each image alone gets the answer it gets among others."""
    together = network(images).poses

    for row, pose in enumerate(together):
        torch.testing.assert_close(network(images[row : row + 1]).poses[0], pose, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("batch", "pixels"), [(1, 20), (4, 16), (9, 20), (16, 8)])
def test_images_of_another_size_are_refused(network: CapsNet, batch: int, pixels: int) -> None:
    """Capsules of different images are never regrouped to make the numbers fit."""
    with pytest.raises((RuntimeError, ValueError)):
        network(torch.rand(batch, 1, pixels, pixels))


def test_lengths_are_the_norms_of_the_poses(network: CapsNet, images: Tensor) -> None:
    """The encoder's two answers agree and stay below one."""
    lengths, poses = network(images)

    torch.testing.assert_close(lengths, poses.norm(dim=-1), atol=1e-5, rtol=0)
    assert lengths.max().item() < 1


def test_the_first_layer_is_rectified(network: CapsNet, images: Tensor) -> None:
    """Negative features count as none."""
    nn.init.zeros_(network.conv.weight)
    answers = []
    for value in (-5.0, 0.0, 5.0):
        assert network.conv.bias is not None
        nn.init.constant_(network.conv.bias, value)
        answers.append(network(images).poses)

    assert torch.equal(answers[1], answers[0])
    assert not torch.equal(answers[1], answers[2])


@pytest.mark.parametrize(
    "change",
    [
        {"primary_scale": 0.1},
        {"primary_relu": True},
        {"class_bias": True},
        {"routing_iterations": 1},
    ],
    ids=str,
)
def test_a_setting_changes_the_answer(
    config: CapsNetConfig, network: CapsNet, images: Tensor, change: dict[str, Any]
) -> None:
    """With all shared weights equal, the setting alone moves the lengths."""
    changed = CapsNet(replace(config, **change))
    changed.load_state_dict(network.state_dict(), strict=False)

    assert (changed(images).lengths - network(images).lengths).abs().max() > 1e-3


def test_looking_inside_agrees_with_the_answer(network: CapsNet, images: Tensor) -> None:
    """The trace shown to people ends with the poses the network answers."""
    view = network.look_inside(images)

    torch.testing.assert_close(view.trace.poses[:, -1], network(images).poses)


def test_looking_inside_shows_the_primary_capsules(
    network: CapsNet, config: CapsNetConfig, images: Tensor
) -> None:
    """Lengths are those of the capsules whose votes are shown."""
    capsules = network.primary(network.conv(images).relu())

    view = network.look_inside(images)

    torch.testing.assert_close(view.votes, network.classes.votes(capsules))
    torch.testing.assert_close(view.primary_lengths, capsules.norm(dim=-1), atol=4e-4, rtol=0)
    assert (config.routing_iterations, config.num_primary) == (
        view.trace.couplings.shape[1],
        view.votes.shape[2],
    )


@pytest.mark.parametrize("gradient", ["all", "last"])
def test_every_parameter_learns(
    config: CapsNetConfig, images: Tensor, gradient: Literal["all", "last"]
) -> None:
    """Classification and reconstruction together reach all weights and biases."""
    network = CapsNet(replace(config, class_bias=True, routing_gradient=gradient))
    lengths, poses = network(images)

    reconstructions = network.decode(poses.flatten(0, 1), torch.arange(5).repeat(len(images)))
    (lengths[:, 0].sum() + reconstructions.sum()).backward()

    unmoved = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert unmoved == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dead_network_gives_no_nan(network: CapsNet, images: Tensor, dtype: torch.dtype) -> None:
    """Capsules that are all zero, under autocast or not, leave every gradient finite."""
    for parameter in network.primary.parameters():
        nn.init.zeros_(parameter)

    with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
        lengths, poses = network(images)
        loss = lengths.sum() + network.decode(poses[:, 0], torch.zeros(4, dtype=torch.int64)).sum()
    loss.backward()

    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
