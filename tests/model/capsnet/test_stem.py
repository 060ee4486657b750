from __future__ import annotations

import pytest
import torch
from torch import nn

from model.capsnet.stem import Conv, Geometry, Stem, geometry, initialise

STEMS = {
    "one": (Conv(4, 5),),
    "strides": (Conv(4, 5, 2), Conv(6, 3), Conv(5, 3, 3)),
    "pool": (Conv(4, 3), Conv(5, 3, pool=2), Conv(6, 3)),
}
stems = pytest.mark.parametrize("convs", STEMS.values(), ids=STEMS)


@stems
@pytest.mark.parametrize("batch_norm", [False, True])
def test_features_have_the_size_of_the_geometry(
    convs: tuple[Conv, ...], *, batch_norm: bool
) -> None:
    """Of colour images that are not square, for one image too."""
    grid = geometry(31, 26, convs)
    features = Stem(3, convs, batch_norm=batch_norm).eval()(torch.rand(1, 3, 31, 26))
    assert (1, convs[-1].channels, grid.rows, grid.columns) == features.shape


@stems
def test_a_cell_sees_its_field_and_nothing_else(convs: tuple[Conv, ...]) -> None:
    """The gradient of one cell lies in a square of that size, so many strides away."""
    grid = geometry(31, 26, convs)
    images = torch.rand(1, 1, 31, 26, requires_grad=True)
    stem = Stem(1, convs)
    for parameter in stem.parameters():
        nn.init.constant_(parameter, 0.1)  # nothing is cut off at zero
    row, column = grid.rows - 1, 1
    stem(images)[0, 0, row, column].backward()
    assert images.grad is not None
    seen = images.grad[0, 0].nonzero()
    first = [row * grid.stride_px, column * grid.stride_px]
    assert first == seen.min(dim=0).values.tolist()
    assert [place + grid.field_px - 1 for place in first] == seen.max(dim=0).values.tolist()


def test_normalisation_comes_after_the_rectifier() -> None:
    """As Mazzia et al. have it: convolution, ReLU, batch normalisation."""
    layers = [type(layer) for layer in Stem(1, (Conv(4, 3),), batch_norm=True)]
    assert [nn.Conv2d, nn.ReLU, nn.BatchNorm2d] == layers


def test_a_window_that_does_not_fit_is_refused() -> None:
    """A pooling window too; the message says what the grid was."""
    assert (1, 2) == Geometry(3, 4, 1, 1).then(3, 1)[:2]
    with pytest.raises(ValueError, match="window of 5 does not fit a grid of 3x4"):
        Geometry(3, 4, 1, 1).then(5, 1)
    with pytest.raises(ValueError, match="window of 4"):
        geometry(5, 5, (Conv(8, 3, pool=4),))


def test_fan_in_weights_keep_the_variance() -> None:
    """Deviations are the square root of two over the number of inputs; biases are zero."""
    stem = Stem(3, (Conv(64, 5), Conv(64, 3)))
    initialise(stem)
    for layer in (stem[0], stem[2]):
        assert isinstance(layer, nn.Conv2d)
        assert layer.bias is not None
        assert not layer.bias.any()
        expected = (2 / layer.weight[0].numel()) ** 0.5
        assert expected == pytest.approx(layer.weight.std().item(), rel=0.1)
