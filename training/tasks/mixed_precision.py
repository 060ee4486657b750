"""Forward passes in training: on a GPU partly in bfloat16, whose gradients need no scaling."""

from __future__ import annotations

import torch
from torch import Tensor

from model.capsnet import CapsNet
from model.capsnet.network import Encoding
from training.baseline import Baseline


def encode(network: CapsNet, images: Tensor) -> Encoding:
    """Run the encoder; on a GPU its convolutions are in bfloat16."""
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
        encoding: Encoding = network(images)
    return encoding


def score(network: Baseline, images: Tensor, kept: Tensor | float = 1.0) -> Tensor:
    """Scores of classes; on a GPU products are in bfloat16."""
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
        return network.logits(images, kept)
