from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model.bundle.poses import PoseGallery
from model.canvas import draw_sheet

D, K = 4, 3


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "poses": rng.standard_normal((6, D)).astype(np.float16),
        "labels": np.array([0, 0, 2, 2, 2, 1], np.uint16),
        "images": np.arange(6, dtype=np.uint16),
        "whitening": np.eye(D, dtype=np.float16)[None].repeat(K, 0),
        "sheet": np.zeros(0, np.uint8),
        "prototypes": np.array([[1, 0, -1, -1], [0, -1, -1, -1], [2, 0, 1, -1]], np.int16),
        "shares": np.zeros((K, 4), np.float32),
        "typical": np.ones(K, np.float32),
    }


@pytest.mark.parametrize("channels", [1, 3])
def test_each_pose_has_its_image(channels: int) -> None:
    """Cut from the sheet; its file is lossy, so flat images are compared."""
    shades = np.arange(6, dtype=np.uint8) * 40
    images = np.broadcast_to(shades[:, None, None, None], (6, channels, 8, 16))
    sheet = np.frombuffer(draw_sheet(images), np.uint8)
    gallery = PoseGallery(**{**arrays(), "sheet": sheet, "images": np.array([5, 4, 3, 2, 1, 1])})
    found = gallery.thumbnails(np.array([0, 3, 5]), (channels, 8, 16))
    assert (3, channels, 8, 16) == found.shape
    expected = shades[[5, 2, 1]]
    assert 6 > np.abs(found.mean(axis=(1, 2, 3)) - expected).max()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.zeros(5, np.uint16)}, "do not go together"),
        ({"images": np.zeros((6, 1), np.uint16)}, "do not go together"),
        ({"poses": np.zeros((0, D), np.float16)}, "do not go together"),
        ({"poses": np.zeros(6, np.float16)}, "do not go together"),
        ({"whitening": np.zeros((K, D, D + 1), np.float16)}, "not \\(K, D, D\\)"),
        ({"labels": np.full(6, K, np.uint16)}, "of no class"),
        ({"prototypes": np.full((K, 4), 2, np.int16)}, "no pose of its class"),
        ({"shares": np.zeros((K, 3), np.float32)}, "shares are not"),
        ({"typical": np.zeros(K + 1, np.float32)}, "typical is not"),
        ({"poses": np.full((6, D), np.nan, np.float16)}, "not finite"),
        ({"poses": np.zeros((6, D), np.int16)}, "numbers of another kind"),
    ],
)
def test_a_gallery_that_contradicts_itself_is_refused(change: dict[str, Any], words: str) -> None:
    """Rather than answering nonsense."""
    with pytest.raises(ValueError, match=words):
        PoseGallery(**{**arrays(), **change})
