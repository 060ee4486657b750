"""The reconstruction network: from one class capsule's pose back to pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.capsnet.config import CapsNetConfig


class Decoder(nn.Module):
    """512-1024-pixels, fully connected (paper, figure 2).

    The paper feeds all capsules with every class but one set to zero. Zeros contribute nothing, so
    the first layer is stored as one matrix for each class and only the class asked for is used.
    """

    def __init__(self, config: CapsNetConfig) -> None:
        super().__init__()
        first, second = config.decoder_hidden
        self.image_size = config.image_size
        self.class_weight = nn.Parameter(torch.empty(config.num_classes, config.class_dim, first))
        self.class_bias = nn.Parameter(torch.zeros(first))
        self.hidden = nn.Linear(first, second)
        self.pixels = nn.Linear(second, config.image_size**2)

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """(M, D) poses and (M,) int64 classes to (M, 1, H, W) images in [0, 1]."""
        weight = self.class_weight.index_select(0, classes)  # (M, D, first)
        first = torch.matmul(poses.unsqueeze(1), weight).squeeze(1) + self.class_bias
        second = self.hidden(first.relu()).relu()
        flat = torch.sigmoid(self.pixels(second))
        return flat.reshape(-1, 1, self.image_size, self.image_size)
