"""Hinton, Sabour and Frosst, "Matrix capsules with EM routing" (2018)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from model.capsnet.em import MASS
from model.capsnet.matrix import (
    ConvCapsules,
    MatrixCapsNet,
    MatrixClassCapsules,
    MatrixConfig,
    PrimaryMatrixCapsules,
)
from tests.model.capsnet.networks import SMALL, count_encoder, lively

PAPER = MatrixConfig(channels=1, height=32, width=32, num_classes=5, batch_norm=False)
"""Its larger network, on smallNORB's crops; batch normalisation is not in the paper."""


@pytest.fixture
def network() -> MatrixCapsNet:
    network = lively(SMALL["matrix"])
    assert isinstance(network, MatrixCapsNet)
    return network


@pytest.fixture
def config(network: MatrixCapsNet) -> MatrixConfig:
    return network.config


def capsules(layer: ConvCapsules, count: int = 2) -> tuple[Tensor, Tensor]:
    """Poses and activations of the children of a layer."""
    cells = int(layer.cells.max()) + 1
    poses = torch.randn(count, cells, layer.in_types, 4, 4)
    return poses, torch.rand(count, cells, layer.in_types)


def first(network: MatrixCapsNet) -> ConvCapsules:
    layer = network.conv_caps[0]
    assert isinstance(layer, ConvCapsules)
    with torch.no_grad():
        layer.saving.normal_()
        layer.price.normal_()
    return layer


def test_the_larger_network_has_the_paper_s_size() -> None:
    """A = B = C = D = 32: 310 thousand parameters, as the paper rounds them, layer by layer."""
    conv, primary = 25 * 32 + 32, 32 * 17 * 32 + 17 * 32
    conv_caps = 9 * 32 * 32 * 16 + 2 * 32
    classes = 32 * 5 * 16 + 2 * 5
    assert conv + primary + 2 * conv_caps + classes == count_encoder(PAPER)
    assert 310_000 == pytest.approx(count_encoder(PAPER), rel=0.03)


def test_a_primary_capsule_is_a_cell_s_type(config: MatrixConfig) -> None:
    """Channels 16 t to 16 t + 15 are its pose, row by row; the last B its types' activations."""
    layer = PrimaryMatrixCapsules(replace(config, batch_norm=False))
    features = torch.randn(2, config.features, 3, 4)
    maps = layer.conv(features)
    poses, activations = layer(features)
    assert ((2, 12, 2, 4, 4), (2, 12, 2)) == (poses.shape, activations.shape)
    for t, row, column in np.ndindex(2, 3, 4):
        expected = maps[:, 16 * t : 16 * (t + 1), row, column].reshape(2, 4, 4)
        torch.testing.assert_close(poses[:, row * 4 + column, t], expected)
        active = maps[:, 32 + t, row, column].sigmoid()
        torch.testing.assert_close(activations[:, row * 4 + column, t], active)


def test_a_vote_is_a_product_of_matrices(network: MatrixCapsNet) -> None:
    """After one iteration a parent's pose is the mean of M_i W_ic, weighted by activations."""
    layer = first(network)
    layer.config = replace(layer.config, routing_iterations=1)
    poses, activations = capsules(layer)
    (step,) = layer(poses, activations)
    for window, parent in ((0, 0), (3, 2), (len(layer.cells) - 1, 1)):
        total, mass = torch.zeros(2, 4, 4), torch.zeros(2, 1, 1)
        for place, cell in enumerate(layer.cells[window].tolist()):
            for t in range(layer.in_types):
                child = place * layer.in_types + t
                weight = layer.weight[child].reshape(4, layer.out_types, 4)[:, parent]
                share = step.assignments[:, window, parent, child]
                weighed = (share * activations[:, cell, t])[:, None, None]
                total, mass = total + weighed * (poses[:, cell, t] @ weight), mass + weighed
        expected = (total / (mass + MASS)).flatten(1)
        torch.testing.assert_close(step.poses[:, window, parent], expected, atol=1e-5, rtol=1e-4)


def test_a_child_divides_itself_among_all_parents_that_see_it(network: MatrixCapsNet) -> None:
    """Over types *and* windows its assignments sum to one, in every iteration (Gritzman 2019)."""
    layer = first(network)
    for step in layer(*capsules(layer)):
        totals = torch.zeros(2, int(layer.cells.max()) + 1, layer.in_types)
        for window, cells in enumerate(layer.cells.tolist()):
            for place, cell in enumerate(cells):
                children = slice(place * layer.in_types, (place + 1) * layer.in_types)
                totals[:, cell] += step.assignments[:, window, :, children].sum(dim=1)
        seen = totals[:, layer.cells.unique()]
        torch.testing.assert_close(seen, torch.ones_like(seen))


def test_the_place_of_a_child_is_added_to_its_votes(config: MatrixConfig) -> None:
    """The middle of its field, in shares of height and width, to the first two numbers."""
    layer, grid = MatrixClassCapsules(config), config.grids[-1]
    cells = grid.rows * grid.columns
    _, votes = layer(torch.zeros(1, cells, layer.types, 4, 4), torch.ones(1, cells, layer.types))
    assert (config.height, config.width) == (17, 20)
    for t, row, column in np.ndindex(layer.types, grid.rows, grid.columns):
        vote = votes[0, 0, (t * grid.rows + row) * grid.columns + column]
        middle = [place * grid.stride_px + grid.field_px / 2 for place in (row, column)]
        expected = [middle[0] / 17, middle[1] / 20, *[0.0] * 14]
        assert expected == pytest.approx(vote.tolist())
