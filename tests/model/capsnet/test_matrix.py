"""Hinton, Sabour and Frosst, "Matrix capsules with EM routing" (2018)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from model.capsnet.matrix import (
    ConvCapsules,
    MatrixCapsNet,
    MatrixClassCapsules,
    MatrixConfig,
    PrimaryMatrixCapsules,
)
from model.capsnet.routing.em import MASS, Parents
from model.capsnet.stem import Conv
from tests.model.capsnet.networks import SMALL, count_encoder, lively, noise

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


def test_the_smaller_network_has_the_paper_s_size() -> None:
    """A = 64, B = 8, C = D = 16: 68 thousand."""
    small = replace(PAPER, stem=(Conv(64, 5, 2),), primary_types=8, conv_caps=(16, 16))
    assert 68_000 == pytest.approx(count_encoder(small), rel=0.05)


def test_the_layers_are_the_paper_s() -> None:
    """32 pixels become grids of 14, 6 and 4; the last field is 15 pixels wide, two apart."""
    assert [(14, 5, 2), (6, 9, 4), (4, 17, 4)] == [
        (grid.rows, grid.field_px, grid.stride_px) for grid in PAPER.grids
    ]
    with torch.device("meta"):
        layers = MatrixCapsNet(PAPER).layers
    assert ["conv_caps_1", "conv_caps_2", "classes"] == [layer.name for layer in layers]
    assert [32 * 14**2, 32 * 6**2, 32 * 4**2] == [layer.capsules for layer in layers]


def test_a_primary_capsule_is_a_cell_s_type(config: MatrixConfig) -> None:
    """Channels 16 t to 16 t + 15 are its pose, row by row; the last B its types' activations."""
    layer = PrimaryMatrixCapsules(replace(config, batch_norm=False))
    features = torch.randn(2, config.stem[-1].channels, 3, 4)
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
    for window, parent in ((0, 0), (3, 2), (layer.window_count - 1, 1)):
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


def test_parents_at_different_places_compete(network: MatrixCapsNet) -> None:
    """A child that several windows see gives less to each than one in a corner."""
    layer = first(network)
    start = layer(*capsules(layer))[0].assignments[0]
    corner, shared = start[0, 0, 0], start[0, 0, 2 * layer.in_types]  # its second neighbour
    seen_by = (layer.cells == layer.cells[0, 2]).sum().item()
    assert seen_by > 1
    assert [1 / layer.out_types, 1 / layer.out_types / seen_by] == pytest.approx(
        [corner.item(), shared.item()]
    )


def test_an_unseen_child_is_left_out(config: MatrixConfig) -> None:
    """Where a stride leaves a row over, no window has it, and nothing becomes NaN."""
    layer = ConvCapsules(config, 0)
    poses, activations = capsules(layer)
    total = config.grids[0].rows * config.grids[0].columns
    everything = torch.randn(2, total, layer.in_types, 4, 4)
    everything[:, : poses.shape[1]] = poses
    assert all(part.isfinite().all() for part in layer(everything, torch.rand(2, total, 2))[-1])
    assert activations.shape[1] <= total


@pytest.mark.parametrize("loudness", [0.0, 1.0, 1e3, 1e5])
@pytest.mark.parametrize("activation", [0.0, 0.5, 1.0])
def test_extremes_stay_finite(network: MatrixCapsNet, loudness: float, activation: float) -> None:
    """Zeros, ones and huge poses through convolutional capsules: values and gradients."""
    layer = first(network)
    poses, activations = capsules(layer)
    poses = (loudness * poses).requires_grad_()
    steps = layer(poses, torch.full_like(activations, activation))
    (steps[-1].poses.sum() + steps[-1].activations.sum()).backward()
    for tensor in (*steps[-1], poses.grad, *(parameter.grad for parameter in layer.parameters())):
        assert tensor is not None
        assert tensor.isfinite().all()


def routed(layer: MatrixClassCapsules, poses: Tensor, activations: Tensor) -> Parents:
    steps, _ = layer(poses, activations)
    last: Parents = steps[-1]
    return last


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


def test_a_part_that_moves_moves_the_class_s_pose() -> None:
    """One column to the right: the second number grows by a stride's share of the width."""
    layer = MatrixClassCapsules(MatrixConfig(conv_caps=(2, 2), routing_iterations=1))
    grid = layer.config.grids[-1]
    pose = torch.randn(1, 1, 2, 4, 4).expand(1, 9, 2, 4, 4)
    left, right = torch.zeros(2, 1, 9, 2)
    left[0, 3], right[0, 4] = 1, 1
    moved = routed(layer, pose, right).poses - routed(layer, pose, left).poses
    expected = torch.zeros_like(moved)
    expected[..., 1] = grid.stride_px / 28
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=0)


def test_the_order_of_places_does_not_matter(config: MatrixConfig) -> None:
    """Class capsules share their transformations over coordinates, but for the coordinates."""
    layer = MatrixClassCapsules(config)
    poses = torch.randn(2, layer.cells, layer.types, 4, 4)
    activations = torch.rand(2, layer.cells, layer.types)
    expected = routed(layer, poses, activations)
    order = torch.randperm(layer.cells)
    layer.coordinates = layer.coordinates[order]
    actual = routed(layer, poses[:, order], activations[:, order])
    torch.testing.assert_close(actual.poses, expected.poses, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(actual.activations, expected.activations, atol=1e-6, rtol=0)


def test_classes_do_not_pay_for_having_more_children() -> None:
    """Four times as many coordinates, each with the same capsules: the cost stays in its range."""
    costs = []
    for size in (28, 56):
        config = MatrixConfig(height=size, width=size, conv_caps=(2, 2))
        layer = MatrixClassCapsules(replace(config, inverse_temperature=1.0, routing_iterations=1))
        torch.manual_seed(1)
        layer.load_state_dict(MatrixClassCapsules(config).state_dict())
        layer.coordinates.zero_()
        pose = torch.linspace(-1, 1, 32).reshape(1, 1, 2, 4, 4).expand(1, layer.cells, 2, 4, 4)
        costs.append(-routed(layer, pose, torch.ones(1, layer.cells, 2)).activations.logit()[0, 0])
    assert costs[0].item() == pytest.approx(costs[1].item(), rel=1e-3)


def test_what_went_from_type_to_type_is_a_share(network: MatrixCapsNet) -> None:
    """Of each input type, over the output types, in every iteration of every layer."""
    for layer in network.trace(noise(network.config)).hidden.values():
        totals = layer.couplings.sum(dim=2)
        torch.testing.assert_close(totals, torch.ones_like(totals), atol=1e-4, rtol=0)
        assert 0 <= layer.presence.min() <= layer.presence.max() <= 1


def test_activations_are_shown_where_they_are(network: MatrixCapsNet) -> None:
    """The maps of the last hidden layer, type by type, are the class capsules' children."""
    trace = network.trace(noise(network.config))
    last = list(trace.hidden.values())[-1].presence[:, -1]  # (N, T, rows, columns)
    torch.testing.assert_close(last.flatten(1), trace.classes.input_presence)


def test_poses_are_four_by_four() -> None:
    """Another size is no matrix capsule."""
    with pytest.raises(ValueError, match="poses of 16 numbers"):
        MatrixConfig(class_dim=8)


def test_a_coordinate_is_not_stored_with_the_weights(network: MatrixCapsNet) -> None:
    """Indices and coordinates follow from the configuration."""
    assert not [
        name for name in network.state_dict() if name.split(".")[-1] in ("cells", "coordinates")
    ]
