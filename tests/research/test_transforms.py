from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from research.transforms import TRANSFORMS, Reach, transform
from training.data.datasets import DATASETS, HELD_OUT, Examples, digest, load, split_last


@pytest.fixture(scope="module")
def blocks() -> Examples:
    """300 images of one block of 10 rows and 4 columns in the middle."""
    images = np.zeros((300, 1, 28, 28), np.uint8)
    images[..., 9:19, 12:16] = 255
    return Examples(images, np.arange(300) % 10)


def spread(images: np.ndarray) -> np.ndarray:
    """Covariance (N, 2, 2) of down and right, in pixels squared, weighted by ink."""
    places = np.indices(images.shape[2:]).reshape(2, -1).T  # (P, 2)
    return np.stack(
        [np.cov(places.T, aweights=image.ravel().astype(float), ddof=0) for image in images]
    )


def test_without_reach_nothing_changes(blocks: Examples) -> None:
    """Bit for bit: interpolating at whole positions gives the pixel there."""
    noise = np.random.default_rng(0).integers(0, 256, (9, 1, 28, 28), dtype=np.uint8)
    same = transform(Examples(noise, blocks.labels[:9]), Reach())
    assert np.array_equal(noise, same.images)


def test_a_turn_is_within_its_reach(blocks: Examples) -> None:
    """The block's long axis leans by up to twenty degrees each way, and by any angle between."""
    turned = transform(blocks, TRANSFORMS["turned"]).images
    axes = np.linalg.eigh(spread(turned))[1][:, :, -1]
    degrees = np.degrees(np.arctan(axes[:, 1] / axes[:, 0]))
    assert [-20, 20] == pytest.approx([degrees.min(), degrees.max()], abs=1)
    assert 0 == pytest.approx(degrees.mean(), abs=2)


def test_scales_of_both_directions_differ(blocks: Examples) -> None:
    """Height and width grow or shrink by up to a fifth, each on its own."""
    before = spread(blocks.images[:1])[0]
    after = spread(transform(blocks, TRANSFORMS["scaled"]).images)
    heights, widths = (np.sqrt(after[:, axis, axis] / before[axis, axis]) for axis in (0, 1))
    assert [0.8, 1.2] == pytest.approx([heights.min(), heights.max()], abs=0.05)
    assert 0.15 > abs(np.corrcoef(heights, widths)[0, 1])


def test_a_shear_moves_rows_sideways(blocks: Examples) -> None:
    """By up to a fifth of a pixel for each row, and leaves heights alone."""
    before = spread(blocks.images[:1])[0]
    after = spread(transform(blocks, TRANSFORMS["sheared"]).images)
    slopes = after[:, 0, 1] / after[:, 0, 0]
    assert [-0.2, 0.2] == pytest.approx([slopes.min(), slopes.max()], abs=0.02)
    np.testing.assert_allclose(before[0, 0], after[:, 0, 0], rtol=0.02)


def test_moves_are_whole_pixels_and_lose_no_ink(blocks: Examples) -> None:
    """Up to four each way; a digit near an edge stays within the image."""
    images = np.roll(blocks.images, -8, axis=2)  # one row is free above
    moved = transform(Examples(images, blocks.labels), TRANSFORMS["moved"]).images
    tops = [int(np.flatnonzero(image.any(axis=1))[0]) for image in moved[:, 0]]
    assert set(range(6)) == set(tops)
    assert {int(images[0].sum())} == {int(image.sum()) for image in moved}


def test_an_empty_image_stays_empty() -> None:
    """There is nothing to move."""
    empty = Examples(np.zeros((1, 1, 28, 28), np.uint8), np.zeros(1, np.int64))
    assert not transform(empty, TRANSFORMS["affine 100 %"]).images.any()


def test_a_digits_transform_depends_on_its_place_alone(blocks: Examples) -> None:
    """The first images of a larger set are the smaller set, across chunks of work."""
    few = Examples(blocks.images[:7], blocks.labels[:7])
    reach = TRANSFORMS["affine 50 %"]
    whole = transform(Examples(*(np.concatenate([a] * 2) for a in blocks)), reach)
    assert np.array_equal(whole.images[:7], transform(few, reach).images)


def test_sets_are_the_same_bit_for_bit(blocks: Examples) -> None:
    """The digest was computed once; a change of numbers, order or arithmetic shows here."""
    transformed = transform(blocks, TRANSFORMS["affine 100 %"])
    assert "b199a67f9041f522c42e7e3f6aafc318f2d8f479ca9be0f6d3cd6709e17c04a5" == digest(
        *transformed
    )


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_docs_give_digests_of_held_out_digits(name: str) -> None:
    """Sets that are made anew can be checked without the test split."""
    digits = load(DATASETS["mnist"], "train", Path(os.environ["CAPSNET_DATA_DIR"]))
    _, validation = split_last(digits, HELD_OUT)
    docs = (Path(__file__).parents[2] / "docs" / "reference" / "presets.md").read_text()
    assert f"| {name} | `{digest(*transform(validation, TRANSFORMS[name]))}` |" in docs
