from __future__ import annotations

import numpy as np
import pytest

from model.views.occlusion import plan_occlusion


@pytest.mark.parametrize("patch", [3, 4, 5, 9])
def test_every_pixel_is_covered(patch: int) -> None:
    """Also at the right and lower edges, which no multiple of the stride may reach."""
    image = np.ones((1, 10, 12), np.float32)
    images = plan_occlusion(10, 12, patch).images(image, np.zeros(1, np.float32))
    assert (images.min(axis=0) == 0).all()
    assert {patch * patch} == set((images == 0).sum(axis=(1, 2, 3)).tolist())


def test_maps_put_changes_where_the_patch_was() -> None:
    """The mean over the patches that cover a pixel, by a slow loop."""
    plan = plan_occlusion(7, 9, 4)
    changes = np.random.default_rng(1).standard_normal(len(plan.areas), np.float32)
    found = plan.on_pixels(changes)
    assert (7, 9) == found.shape
    for y in range(7):
        for x in range(9):
            covering = [
                changes[row * len(plan.lefts) + column]
                for row, top in enumerate(plan.tops)
                for column, left in enumerate(plan.lefts)
                if top <= y < top + 4 and left <= x < left + 4
            ]
            assert np.mean(covering) == pytest.approx(float(found[y, x]), abs=1e-6)


@pytest.mark.parametrize(("patch", "words"), [(29, "larger than an image"), (1, "do not cover")])
def test_what_cannot_be_done_is_refused(patch: int, words: str) -> None:
    """The message says why."""
    with pytest.raises(ValueError, match=words):
        plan_occlusion(28, 28, patch)
