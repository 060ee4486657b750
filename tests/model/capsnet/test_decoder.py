from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model.capsnet import NetworkConfig
from model.capsnet.decoder import (
    ConvolutionalDecoder,
    Decoder,
    build_decoder,
    decoder_channels_for,
)
from tests.model.capsnet.networks import SIZES, count_parameters


@pytest.fixture
def config() -> NetworkConfig:
    """Colour images that are not square."""
    return NetworkConfig(**SIZES, class_dim=6)


@pytest.fixture
def decoder(config: NetworkConfig) -> Decoder:
    """A decoder every parameter of which, biases included, is random."""
    decoder = Decoder(config)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter)
    return decoder


def masked_dense_decoder(decoder: Decoder, capsules: Tensor, classes: Tensor) -> Tensor:
    """The paper's decoder: all capsules (M, K, D), those not asked for zeroed, as one vector."""
    mask = torch.zeros(capsules.shape[:2])
    for row, asked in enumerate(classes.tolist()):
        mask[row, asked] = 1.0
    flat = (capsules * mask.unsqueeze(-1)).flatten(1)  # (M, K * D)
    dense = decoder.class_weight.reshape(flat.shape[1], -1)  # (K * D, first)
    first = torch.relu(flat @ dense + decoder.class_bias)
    second = torch.relu(first @ decoder.hidden.weight.T + decoder.hidden.bias)
    return torch.sigmoid(second @ decoder.pixels.weight.T + decoder.pixels.bias)


@pytest.mark.parametrize("classes", [[3], [0, 0], [4, 1, 4, 0, 2]], ids=str)
def test_the_decoder_is_the_papers_masked_one(
    config: NetworkConfig, decoder: Decoder, classes: list[int]
) -> None:
    """Using one class's matrix equals zeroing all other capsules before a dense layer."""
    asked = torch.tensor(classes)
    capsules = torch.randn(len(classes), config.num_classes, config.class_dim)
    poses = torch.stack([capsules[row, k] for row, k in enumerate(classes)])

    expected = masked_dense_decoder(decoder, capsules, asked)
    torch.testing.assert_close(decoder(poses, asked).flatten(1), expected)


@pytest.mark.parametrize("count", [1, 6])
def test_each_pose_becomes_one_image(config: NetworkConfig, decoder: Decoder, count: int) -> None:
    """A single pose keeps its batch and channel axes."""
    images = decoder(torch.randn(count, config.class_dim), torch.zeros(count, dtype=torch.int64))

    assert (count, 3, config.height, config.width) == images.shape


def test_pixels_stay_between_black_and_white(config: NetworkConfig, decoder: Decoder) -> None:
    """Absurd poses saturate instead of leaving the range."""
    images = decoder(1e3 * torch.randn(20, config.class_dim), torch.arange(20) % 5)

    assert (images.min().item(), images.max().item()) == (0.0, 1.0)


def test_pixels_are_laid_out_channel_by_channel_and_row_by_row(
    config: NetworkConfig, decoder: Decoder
) -> None:
    """Output (channel * height + y) * width + x is the pixel at row y and column x."""
    torch.nn.init.zeros_(decoder.pixels.weight)
    with torch.no_grad():
        place = (2 * config.height + 4) * config.width + 7
        decoder.pixels.bias.zero_()[place] = 50.0

    image = decoder(torch.randn(1, config.class_dim), torch.tensor([1]))[0]

    assert (image > 0.9).nonzero().tolist() == [[2, 4, 7]]


def test_the_class_decides_the_image(config: NetworkConfig, decoder: Decoder) -> None:
    """One pose drawn as each class gives as many different images."""
    pose = torch.randn(1, config.class_dim).expand(config.num_classes, -1)

    images = decoder(pose, torch.arange(config.num_classes)).flatten(1)

    assert config.num_classes == len(images.unique(dim=0))


def test_only_the_class_asked_for_learns(config: NetworkConfig, decoder: Decoder) -> None:
    """The other classes' matrices get a gradient of zero, as the paper's mask gives them."""
    decoder(torch.randn(4, config.class_dim), torch.tensor([2, 2, 0, 2])).sum().backward()

    gradient = decoder.class_weight.grad
    assert gradient is not None
    assert gradient.abs().amax(dim=(1, 2)).gt(0).tolist() == [True, False, True, False, False]


def test_the_decoder_teaches_the_pose(config: NetworkConfig, decoder: Decoder) -> None:
    """The reconstruction loss reaches the encoder through the poses."""
    pose = torch.randn(1, config.class_dim, requires_grad=True)

    (gradient,) = torch.autograd.grad(decoder(pose, torch.tensor([1])).sum(), pose)

    assert gradient.abs().max() > 0


def test_the_decoder_starts_as_one_dense_layer() -> None:
    """Every class's matrix is filled, within the bound for the whole masked layer."""
    config = NetworkConfig(num_classes=5, class_dim=6, decoder_hidden=(40, 8))
    weight = Decoder(config).class_weight
    bound = (6 / (5 * 6 + 40)) ** 0.5

    assert 0.9 * bound < weight.abs().amax(dim=(1, 2)).min().item()
    assert weight.abs().max().item() <= bound


CONVOLUTIONAL: dict[str, Any] = {**SIZES, "decoder_hidden": (7,), "decoder_channels": (6, 5, 4)}


@pytest.fixture
def convolutional() -> ConvolutionalDecoder:
    """A decoder of up-convolutions every parameter of which is random."""
    decoder = build_decoder(NetworkConfig(**CONVOLUTIONAL, class_dim=6))
    assert isinstance(decoder, ConvolutionalDecoder)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter)
    return decoder


def test_the_configuration_chooses_the_decoder(config: NetworkConfig) -> None:
    """Bundles without channels have the paper's, as before there were up-convolutions."""
    assert isinstance(build_decoder(config), Decoder)


@pytest.mark.parametrize("hidden", [(7, 8), ()], ids=str)
def test_up_convolutions_need_one_hidden_layer(hidden: tuple[int, ...]) -> None:
    """A second size would be read by nothing."""
    with pytest.raises(ValueError, match="decoder_hidden has two sizes, or one"):
        NetworkConfig(decoder_hidden=hidden, decoder_channels=(4, 4))


@pytest.mark.parametrize("count", [1, 6])
def test_up_convolutions_draw_images_that_no_power_of_two_divides(
    convolutional: ConvolutionalDecoder, count: int
) -> None:
    """A grid of 5x5 becomes 20x20, and 17x20 of it are kept."""
    images = convolutional(torch.randn(count, 6), torch.zeros(count, dtype=torch.int64))
    assert (count, 3, 17, 20) == images.shape
    assert 0 <= images.min() <= images.max() <= 1


def test_large_images_are_drawn_small_and_doubled() -> None:
    """Between two pixels that the last convolution draws, others are interpolated."""
    small = build_decoder(NetworkConfig(**CONVOLUTIONAL, class_dim=6))
    sizes = {"height": 2 * SIZES["height"], "width": 2 * SIZES["width"]}
    config = NetworkConfig(**{**CONVOLUTIONAL, **sizes}, class_dim=6, decoder_doublings=1)
    large = build_decoder(config)
    large.load_state_dict(small.state_dict())
    poses, classes = torch.randn(2, 6), torch.tensor([0, 4])
    images = large(poses, classes)
    assert (2, 3, 34, 40) == images.shape
    inner = images.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    torch.testing.assert_close(inner, small(poses, classes), atol=0.02, rtol=0)


def test_only_up_convolutions_are_doubled() -> None:
    """Nothing would read the setting."""
    with pytest.raises(ValueError, match="0 without decoder_channels"):
        NetworkConfig(decoder_doublings=1)


def test_each_class_has_a_bias_of_its_own(convolutional: ConvolutionalDecoder) -> None:
    """A pose of zeros draws another image for each class."""
    classes = torch.arange(5)
    images = convolutional(torch.zeros(5, 6), classes).flatten(1)
    assert 5 == len(images.unique(dim=0))


def test_up_convolutions_teach_the_pose(convolutional: ConvolutionalDecoder) -> None:
    """The reconstruction loss reaches the encoder, and the matrix of the class alone."""
    pose = torch.randn(1, 6, requires_grad=True)
    convolutional(pose, torch.tensor([1])).sum().backward()
    assert pose.grad is not None
    assert pose.grad.abs().max() > 0
    gradient = convolutional.class_weight.grad
    assert gradient is not None
    assert [False, True, False, False, False] == gradient.abs().amax(dim=(1, 2)).gt(0).tolist()


@pytest.mark.parametrize("size", [28, 32, 36, 48, 64, 96, 128, 224])
def test_weights_do_not_grow_with_the_square_of_the_size(size: int) -> None:
    """The coarse grid has 6x6 to 11x11 cells, whatever the size."""
    channels = decoder_channels_for(size, size)
    config = NetworkConfig(
        height=size, width=size, decoder_hidden=(256,), decoder_channels=channels
    )
    decoder = build_decoder(config)
    assert isinstance(decoder, ConvolutionalDecoder)
    assert 5 <= decoder.grid[1] <= 11
    assert count_parameters(decoder) < 4_500_000
