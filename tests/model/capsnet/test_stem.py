"""Stems: sizes, what a cell sees, and the order of their layers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from model.capsnet.stem import (
    Conv,
    Residual,
    Stem,
    StemConfig,
    StemLayer,
    Whiten,
    Whitening,
)

STEMS: dict[str, tuple[StemLayer, ...]] = {
    "one": (Conv(4, 5),),
    "strides": (Conv(4, 5, 2), Conv(6, 3), Conv(5, 3, 3)),
    "pool": (Conv(4, 3), Conv(5, 3, pool=2), Conv(6, 3)),
    "padding": (Conv(4, 5, 2, padding=1), Conv(6, 3, padding=1)),
    "residual": (Conv(4, 5, 2), Residual(), Conv(6, 1, activation="none")),
    "whitening": (
        Whiten(),
        Conv(4, 3, padding=1, max_pool=2, activation="gelu"),
        Conv(6, 3, padding=1, activation="gelu"),
    ),
}
stems = pytest.mark.parametrize("layers", STEMS.values(), ids=STEMS)


@stems
def test_a_cell_sees_its_field_and_nothing_else(layers: Sequence[StemLayer]) -> None:
    """The gradients of one cell lie in a square of that size, so many strides away."""
    grid = StemConfig(height=43, width=38, stem=tuple(layers)).cells
    images = torch.rand(300, 1, 43, 38, requires_grad=True)
    stem = Stem(1, layers).eval()
    for parameter in stem.parameters():
        nn.init.uniform_(parameter, 0.1, 0.2)  # nothing is cut off at zero
    row, column = grid.rows // 2, grid.columns // 2
    stem(images)[:, 0, row, column].sum().backward()
    assert images.grad is not None
    seen = images.grad.abs().sum(dim=(0, 1)).nonzero()
    first = [cell * grid.stride_px + grid.offset_px for cell in (row, column)]
    assert first == seen.min(dim=0).values.tolist()
    assert [pixel + grid.field_px - 1 for pixel in first] == seen.max(dim=0).values.tolist()


def test_whitened_channels_are_uncorrelated() -> None:
    """Of correlated images: mean zero, variance one, and each channel next to its negative."""
    coarse = torch.rand(200, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    images = nn.functional.interpolate(coarse, scale_factor=4, mode="bilinear")
    images = images + 0.1 * torch.rand(images.shape, generator=torch.Generator().manual_seed(2))
    stem = Stem(3, (Whiten(), Conv(4, 3)))
    assert isinstance(stem[0], Whitening)
    stem[0].fit(images)
    rows = stem[0](images).transpose(0, 1).flatten(1)  # (24, N)
    torch.testing.assert_close(rows[12:], -rows[:12], rtol=0, atol=1e-4)
    torch.testing.assert_close(rows.mean(dim=1), torch.zeros(24), rtol=0, atol=1e-3)
    covariance = torch.cov(rows[:12])
    # The epsilon beside the eigenvalues makes weak channels a little weaker.
    torch.testing.assert_close(covariance, torch.eye(12), rtol=0, atol=0.6)
    torch.testing.assert_close(
        covariance - covariance.diag().diag(), torch.zeros(12, 12), rtol=0, atol=0.01
    )
