from __future__ import annotations

import numpy as np
import pytest

from model.views.occlusion import MAX_PATCHES, find_background, is_altered, plan_occlusion


@pytest.mark.parametrize(("patch", "stride"), [(3, 2), (4, 4), (5, 3), (9, 1)])
def test_every_pixel_is_covered(patch: int, stride: int) -> None:
    """Also at the right and lower edges, which no multiple of the stride may reach."""
    image = np.ones((1, 10, 12), np.float32)
    images = plan_occlusion(10, 12, patch=patch, stride=stride).images(image, np.zeros(1))
    assert (images.min(axis=0) == 0).all()
    assert {patch * patch} == set((images == 0).sum(axis=(1, 2, 3)).tolist())


def test_the_patch_alone_is_changed() -> None:
    """Each image is the given one but for one square, which shows the background, row by row."""
    image = np.random.default_rng(0).random((3, 8, 8), np.float32)
    plan = plan_occlusion(8, 8, patch=3, stride=2)
    background = np.array([0.1, 0.2, 0.3], np.float32)
    images = plan.images(image, background)
    assert plan.shape[0] * plan.shape[1] == len(images)
    for place, one in enumerate(images):
        row, column = divmod(place, plan.shape[1])
        square = np.s_[:, plan.tops[row] : plan.tops[row] + 3, plan.lefts[column] :][0:3]
        inside = one[square][:, :, :3]
        assert (inside == background[:, None, None]).all()
        assert 9 >= (one != image).any(axis=0).sum()


def test_maps_put_changes_where_the_patch_was() -> None:
    """The mean over the patches that cover a pixel, by a slow loop."""
    plan = plan_occlusion(7, 9, patch=3, stride=2)
    changes = np.random.default_rng(1).standard_normal(plan.shape[0] * plan.shape[1])
    found = plan.on_pixels(changes)
    assert (7, 9) == found.shape
    for y in range(7):
        for x in range(9):
            covering = [
                changes[row * plan.shape[1] + column]
                for row, top in enumerate(plan.tops)
                for column, left in enumerate(plan.lefts)
                if top <= y < top + 3 and left <= x < left + 3
            ]
            assert np.mean(covering) == pytest.approx(float(found[y, x]), abs=1e-6)


def test_a_patch_on_the_background_hides_nothing() -> None:
    """Only places with ink are altered."""
    image = np.zeros((1, 8, 8), np.float32)
    image[0, 1, 1] = 1
    images = plan_occlusion(8, 8, patch=2, stride=2).images(image, np.zeros(1))
    assert [0] == np.flatnonzero(is_altered(image, images)).tolist()


def test_the_background_of_a_photograph_is_its_mean() -> None:
    """That of strokes is black."""
    image = np.random.default_rng(0).random((3, 8, 8), np.float32)
    assert image.mean(axis=(1, 2)).tolist() == find_background(image, strokes=False).tolist()
    assert [0, 0, 0] == find_background(image, strokes=True).tolist()


@pytest.mark.parametrize(
    ("patch", "stride", "words"),
    [(29, 1, "larger than an image"), (4, 5, "leaves gaps"), (4, 1, f"may be {MAX_PATCHES}")],
)
def test_what_cannot_be_done_is_refused(patch: int, stride: int, words: str) -> None:
    """The message says why."""
    with pytest.raises(ValueError, match=words):
        plan_occlusion(28, 28, patch=patch, stride=stride)


def test_by_default_any_square_is_covered() -> None:
    """With as many places as are admitted, and not too few to show anything."""
    for size in range(1, 300):
        plan = plan_occlusion(size, size)
        assert min(size, 6) ** 2 <= plan.shape[0] * plan.shape[1] <= MAX_PATCHES, size


def test_by_default_any_oblong_image_is_covered() -> None:
    """Its patch has 1/25 of the area, up to the shorter side."""
    assert [14, 14] == [plan_occlusion(*size).patch for size in ((54, 96), (96, 54))]
    assert 3 == plan_occlusion(3, 200).patch
    for longer in range(8, 225):
        for shorter in (longer // 3, longer // 2, 9 * longer // 16, 3 * longer // 4):
            plan_occlusion(longer, shorter)
