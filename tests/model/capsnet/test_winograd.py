from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.capsnet.winograd import WinogradConv2d

LAYERS = {
    "the paper's, fewer channels": (20, 9, 2),
    "the paper's at 36 pixels": (28, 9, 2),
    "last tile past the edge": (11, 5, 1),
    "stride over the kernel's parity": (9, 4, 3),
    "one output": (9, 9, 2),
    "kernel too long for the points": (16, 12, 1),
    "kernel shorter than the stride": (8, 1, 2),
}
layers = pytest.mark.parametrize(("size", "kernel", "stride"), LAYERS.values(), ids=LAYERS)


def _layer(size: int, kernel: int, stride: int) -> WinogradConv2d:
    torch.manual_seed(0)
    return WinogradConv2d(3, 4, kernel, stride, size=(size, size))


def _results(layer: WinogradConv2d, images: Tensor) -> dict[str, Tensor]:
    """Output and all gradients of one forward and backward pass."""
    images = images.clone().requires_grad_()
    layer.zero_grad()
    maps = layer(images)
    (maps * torch.linspace(-1, 1, maps.numel()).view_as(maps)).sum().backward()
    assert images.grad is not None
    gradients = {name: p.grad.clone() for name, p in layer.named_parameters() if p.grad is not None}
    return {"maps": maps, "images": images.grad, **gradients}


@layers
@pytest.mark.parametrize("batch", [1, 3])
def test_results_and_gradients_are_those_of_a_convolution(
    size: int, kernel: int, stride: int, batch: int
) -> None:
    """Maps, and the gradients of images, weights and bias, differ by rounding alone."""
    layer, images = _layer(size, kernel, stride), torch.randn(batch, 3, size, size)

    actual_results = _results(layer, images)

    layer.direct = True
    expected = _results(layer, images)

    for name, actual in actual_results.items():
        largest = expected[name].abs().max().item()
        torch.testing.assert_close(actual, expected[name], atol=5e-4 * largest, rtol=0)
