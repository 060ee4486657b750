"""The reconstruction network, which decodes one class capsule's pose to pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.capsnet.network import NetworkConfig


class Decoder(nn.Module):
    """512-1024-pixels, fully connected (Sabour 2017, figure 2).

    The paper feeds all capsules with every class but one set to zero. Zeros contribute nothing, so
    the first layer is stored as one matrix for each class and only the class asked for is used.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        first, second = config.decoder_hidden
        self.image_shape = config.image_shape
        self.class_weight = nn.Parameter(torch.empty(config.num_classes, config.class_dim, first))
        self.class_bias = nn.Parameter(torch.zeros(first))
        self.hidden = nn.Linear(first, second)
        self.pixels = nn.Linear(second, math.prod(config.image_shape))
        nn.init.xavier_uniform_(self.class_weight.view(-1, first))

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,), int64, to images (M, C, H, W) in [0, 1]."""
        weight = self.class_weight.index_select(0, classes)  # (M, D, first)
        first = torch.matmul(poses.unsqueeze(1), weight).squeeze(1) + self.class_bias
        second = self.hidden(first.relu()).relu()
        return torch.sigmoid(self.pixels(second)).reshape(-1, *self.image_shape)
