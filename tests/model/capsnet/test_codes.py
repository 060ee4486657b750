"""Homogeneous poses: codes that start as the components of each class, and their decoder."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.capsnet import build
from model.capsnet.attention import AttentionConfig
from model.capsnet.codes import fit_codes
from model.capsnet.stem import Conv

CONFIG = AttentionConfig(
    channels=2,
    height=12,
    width=8,
    num_classes=3,
    class_dim=5,
    stem=(Conv(8, 3, 2),),
    primary="spatial",
    pose="homogeneous",
)


def spread(count: int) -> tuple[Tensor, Tensor]:
    """Images of three classes, each around a mean of its own along four directions of its own."""
    generator = torch.Generator().manual_seed(3)
    means = 0.3 + 0.4 * torch.rand(3, 1, 2 * 12 * 8, generator=generator)
    axes = torch.randn(3, 4, 2 * 12 * 8, generator=generator) / 100
    numbers = torch.randn(3, count, 4, generator=generator)
    images = (means + numbers @ axes).clamp(0, 1)
    return images.reshape(-1, 2, 12, 8), torch.arange(3).repeat_interleave(count)


@pytest.mark.parametrize("count", [30, 400], ids=["fewer than pixels", "more than pixels"])
def test_a_pose_draws_the_image_as_its_class_has_it(count: int) -> None:
    """Images that differ by as many directions as the code has numbers come back whole."""
    images, labels = spread(count)
    network = build(CONFIG).eval()
    fit_codes(network, images, labels)
    with torch.inference_mode():
        poses = network(images).poses[torch.arange(len(labels)), labels]
        drawn = network.decode(poses, labels)
        others = network.decode(poses, (labels + 1) % 3)
    inner = (images - images.mean(dim=0)).square().mean()
    assert (drawn - images).square().mean() < 0.01 * inner
    assert inner < (others - images).square().mean()
