from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from training.data.augment import BatchStream, Pad, erase, shift
from training.data.datasets import Examples
from training.recipes import Recipe

CPU = torch.device("cpu")


def stream(count: int, *, batch_size: int, seed: int = 1, shift_px: int = 2) -> BatchStream:
    """Batches of examples whose label is their number, and whose pixels are 2 + 2 * label."""
    labels = np.arange(count)
    images = np.zeros((count, 1, 6, 6), np.uint8)
    images[:, :, 2:4, 2:4] = 2 + 2 * labels[:, None, None, None]
    recipe = Recipe("r", batch_size=batch_size, shift_px=shift_px)
    return BatchStream(Examples(images, labels), recipe, seed=seed, device=CPU)


def labels(batches: BatchStream, steps: int) -> list[int]:
    """The labels of the first batches, one after the other."""
    return torch.cat([batches.batch(step).labels[:, 0] for step in range(steps)]).tolist()


def moved_by(image: Tensor) -> tuple[int, int]:
    """How far down and right the 2x2 square of an image of the stream has been moved."""
    down, right = image.squeeze(0).nonzero().amin(dim=0).tolist()
    return down - 2, right - 2


@pytest.mark.parametrize(
    "batch_size",
    [
        pytest.param(5, id="whole batches"),
        pytest.param(4, id="batches across epochs"),
        pytest.param(25, id="batches of several epochs"),
    ],
)
def test_every_example_comes_once_an_epoch(batch_size: int) -> None:
    """However batches lie across epochs, each ten examples in a row are all ten."""
    seen = np.reshape(labels(stream(10, batch_size=batch_size), 100 // batch_size), (10, 10))
    np.testing.assert_array_equal(np.tile(np.arange(10), (10, 1)), np.sort(seen, axis=1))


def test_classes_are_drawn_evenly_where_that_is_asked_for() -> None:
    """Each has its share of every epoch, and all its examples get their turn."""
    labels = np.repeat(np.arange(3), [40, 8, 3])
    images = np.arange(51, dtype=np.uint8)[:, None, None, None].repeat(2, 2).repeat(2, 3)
    recipe = Recipe("r", batch_size=51, shift_px=0, even_classes=True)
    batches = BatchStream(Examples(images, labels), recipe, seed=1, device=CPU)
    seen = np.zeros(51, int)
    for step in range(12):
        batch = batches.batch(step)
        assert [17, 17, 17] == batch.labels[:, 0].bincount().tolist()
        numbers = (batch.images[:, 0, 0, 0] * 255).round().long()
        np.testing.assert_array_equal(labels[numbers], batch.labels[:, 0])
        counts = numbers.bincount(minlength=51).numpy()
        for label in range(3):
            assert np.ptp(counts[labels == label]) <= 1
        seen += counts
    assert seen.min() >= 1


def test_each_epoch_and_each_seed_has_its_own_order() -> None:
    """Examples are shuffled, and anew each time, whatever else random numbers are drawn for."""
    seen = labels(stream(50, batch_size=50), 2)
    torch.manual_seed(99)
    assert seen == labels(stream(50, batch_size=50), 2)
    orders = (seen[:50], seen[50:], labels(stream(50, batch_size=50, seed=2), 1), list(range(50)))
    assert 4 == len(set(map(tuple, orders)))


@pytest.mark.parametrize("step", [1, 7, 9, 30])
def test_a_resumed_stream_goes_on_as_if_never_interrupted(step: int) -> None:
    """A new stream gives the same images at a step as one that made all steps before it."""
    running = stream(10, batch_size=4)
    for earlier in range(step):
        running.batch(earlier)
    expected, actual = running.batch(step), stream(10, batch_size=4).batch(step)
    torch.testing.assert_close(tuple(expected), tuple(actual), rtol=0, atol=0)


def test_each_batch_and_each_seed_has_its_own_shifts() -> None:
    """Where an image stands in its batch does not tell how far it is moved, nor does the image."""
    batches = [stream(40, batch_size=20, seed=seed) for seed in (1, 2)]
    steps = [batches[0].batch(0), batches[0].batch(1), batches[1].batch(0)]
    assert 3 == len({tuple(map(moved_by, batch.images)) for batch in steps})
    alone = stream(1, batch_size=1)
    assert len({moved_by(alone.batch(step).images[0]) for step in range(20)}) > 1


def test_an_image_keeps_its_label() -> None:
    """Shuffling moves images and labels alike."""
    batch = stream(100, batch_size=100).batch(0)
    brightest = (batch.images.amax(dim=(1, 2, 3)) * 255).round().long()
    assert (2 + 2 * batch.labels[:, 0]).tolist() == brightest.tolist()


def test_types_and_shapes_are_the_networks() -> None:
    """Images are (B, C, H, W) float32 from 0 (black) to 1 (white), and labels (B, 1) int64."""
    images, _, numbers = stream(10, batch_size=4).batch(0)
    assert ((4, 1, 6, 6), torch.float32) == (tuple(images.shape), images.dtype)
    assert ((4, 1), torch.int64) == (tuple(numbers.shape), numbers.dtype)
    examples = Examples(np.array([[[[0, 51, 255]]]], np.uint8), np.zeros(1, np.int64))
    recipe = Recipe("r", batch_size=1, shift_px=0)
    (image,) = BatchStream(examples, recipe, seed=1, device=CPU).batch(0).images
    torch.testing.assert_close(torch.tensor([[[0.0, 0.2, 1.0]]]), image)


@pytest.mark.parametrize("reach", [0, 1, 2])
def test_shifts_cover_their_range_and_no_more(reach: int) -> None:
    """Every whole number of pixels within reach occurs, down and right in any combination."""
    images = stream(120, batch_size=600, shift_px=reach).batch(0).images
    both = range(-reach, reach + 1)
    expected = {(down, right) for down in both for right in both}
    assert expected == {moved_by(image) for image in images}


@pytest.mark.parametrize("pad", ["zero", "reflect"])
@pytest.mark.parametrize("reach", [1, 3])
def test_shift_agrees_with_numpys_padding(reach: int, pad: Pad) -> None:
    """Each channel is padded alike, and the window moves over it."""
    both = torch.arange(-reach, reach + 1)
    shifts = torch.cartesian_prod(both, both)
    shape = (len(shifts), 3, 5, 7)
    images = np.random.default_rng(0).integers(1, 256, shape, np.uint8)
    edges = ((0, 0), (0, 0), (reach, reach), (reach, reach))
    padded = np.pad(images, edges, "reflect" if pad == "reflect" else "constant")
    expected = np.stack(
        [
            image[:, reach - down : reach - down + 5, reach - right : reach - right + 7]
            for image, (down, right) in zip(padded, shifts.tolist(), strict=True)
        ]
    )
    actual = shift(torch.from_numpy(images), shifts, reach, pad)
    np.testing.assert_array_equal(expected, actual.numpy())


def test_flips_mirror_half_of_the_images() -> None:
    """Left and right change places, nothing else; the order of the examples stays what it was."""
    images = np.zeros((100, 1, 6, 6), np.uint8)
    images[:, :, 1, 2] = 255
    examples = Examples(images, np.arange(100))
    recipe = Recipe("r", batch_size=100, shift_px=0)
    plain, flipping = (
        BatchStream(examples, replace(recipe, flip=flip), seed=1, device=CPU).batch(0)
        for flip in (False, True)
    )
    mirrored = flipping.images[:, 0, 1, 3] == 1
    assert 35 < mirrored.sum() < 65
    expected = torch.where(mirrored[:, None, None, None], plain.images.flip(3), plain.images)
    torch.testing.assert_close(expected, flipping.images)
    torch.testing.assert_close(plain.labels, flipping.labels)


def test_alternating_flips_mirror_every_image_every_other_epoch() -> None:
    """Half of the images begin mirrored; each one is mirrored where it was not an epoch before."""
    images = np.zeros((200, 1, 4, 4), np.uint8)
    images[..., 0] = 255
    recipe = Recipe("r", batch_size=200, shift_px=0, flip=True, flip_alternates=True)
    batches = BatchStream(Examples(images, np.arange(200)), recipe, seed=1, device=CPU)
    mirrored = [
        batch.images[batch.labels[:, 0].argsort(), 0, 0, 3] == 1
        for batch in (batches.batch(step) for step in range(3))
    ]
    assert torch.equal(mirrored[0], ~mirrored[1])
    assert torch.equal(mirrored[0], mirrored[2])
    assert 60 < mirrored[0].sum() < 140


@pytest.mark.parametrize("erase_px", [0, 3])
def test_cutout_fills_a_square_with_the_mean_colour(erase_px: int) -> None:
    """Four by four pixels, fewer at the edges, of the training images' mean; the rest is kept."""
    images = np.zeros((50, 3, 12, 12), np.uint8)
    images[:, 0], images[:, 1] = 200, np.arange(50)[:, None, None] * 2
    recipe = Recipe("r", batch_size=50, shift_px=0, cutout_px=4, erase_px=erase_px)
    batch = BatchStream(Examples(images, np.arange(50)), recipe, seed=1, device=CPU).batch(0)
    assert (batch.targets[:, 0] * 255 == 200).all(), "targets are whole"
    cut = (batch.images[:, 1] * 255 - 49).abs() < 0.1
    cut &= batch.labels[:, None] * 2 != 49
    counts = cut.sum(dim=(1, 2))
    assert 16 == counts.max()
    assert counts.min() >= (4 if not erase_px else 0)
    if not erase_px:
        kept = batch.images[:, 1][~cut]
        assert set((kept * 255).round().int().tolist()) <= set(range(0, 100, 2))


def test_a_square_is_erased_around_its_middle() -> None:
    """In all channels; what lies outside the image is left out, and a side of none erases none."""
    squares = torch.tensor([[3, 1, 2], [2, 0, 4], [0, 2, 2]])
    images = torch.ones(3, 2, 4, 5, dtype=torch.uint8)
    expected = images.clone()
    expected[0, :, 0:3, 1:4] = 0
    expected[1, :, 0:1, 3:5] = 0
    torch.testing.assert_close(expected, erase(images, squares))


def coloured(**options: Any) -> BatchStream:
    """60 white images of two channels, higher than they are wide."""
    examples = Examples(np.full((60, 2, 9, 7), 255, np.uint8), np.arange(60))
    return BatchStream(examples, Recipe("r", batch_size=60, **options), seed=1, device=CPU)


def test_erased_squares_have_all_sides_up_to_the_largest() -> None:
    """Their number of black pixels in a channel never exceeds the largest square's."""
    images = torch.cat([coloured(shift_px=0, erase_px=3).batch(step).images for step in range(5)])
    black = (images == 0).sum(dim=(2, 3))
    assert torch.equal(black[:, 0], black[:, 1])
    assert {0, 1, 4, 9} <= set(black[:, 0].tolist())
    assert 9 == black.max()
    assert (images == 0).any(dim=0).all()


def test_erasing_changes_nothing_else() -> None:
    """Order, shifts and distortion are those of a stream that does not erase."""
    options = {"shift_px": 2, "flip": True, "affine": 0.5, "elastic_px": 1}
    plain, erased = (coloured(erase_px=erase_px, **options).batch(2) for erase_px in (0, 4))
    torch.testing.assert_close(plain.labels, erased.labels)
    left = erased.images != 0
    torch.testing.assert_close(plain.images[left], erased.images[left])


@pytest.mark.parametrize("distortion", [{}, {"affine": 0.5, "elastic_px": 1}], ids=str)
def test_reflected_edges_stay_white(distortion: dict[str, Any]) -> None:
    """No black moves into photographs."""
    images = coloured(shift_px=3, pad="reflect", **distortion).batch(0).images
    torch.testing.assert_close(torch.ones_like(images), images)
