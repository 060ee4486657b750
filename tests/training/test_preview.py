"""What a run draws of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from PIL import Image

from model.preprocess import scale
from training.data.datasets import Examples
from training.recipes import Recipe
from training.tasks import PREVIEW
from training.trainer import Trainer

MakeTrainer = Callable[..., Trainer]


def test_images_stand_above_what_the_network_draws(
    make_trainer: MakeTrainer, bars: Examples, tiny: Recipe
) -> None:
    """Held-out images of all classes, twice as large, and their reconstructions."""
    trainer = make_trainer(validation=bars, recipe=replace(tiny, epochs=30))
    trainer.run()
    shown = np.asarray(Image.open(trainer.plan.directory / PREVIEW))
    assert (2 * 2 * 28, 10 * 2 * 28) == shown.shape
    above, below = (half[::2, ::2].reshape(28, 10, 28) for half in np.split(shown, 2))
    images = {image.tobytes() for image in bars.images[:3, 0]}
    assert images == {above[:, column].tobytes() for column in range(10)}
    with torch.inference_mode():
        poses = trainer.network.eval()(torch.from_numpy(scale(bars.images[:1]))).poses
        drawn = trainer.network.decode(poses[:, 0], torch.zeros(1, dtype=torch.int64))
    np.testing.assert_allclose(below[:, 0], 255 * drawn[0, 0].numpy(), atol=1)


def test_a_final_run_shows_what_it_is_trained_on(make_trainer: MakeTrainer) -> None:
    """Nothing is held out."""
    trainer = make_trainer()
    trainer.run()
    assert (trainer.plan.directory / PREVIEW).is_file()


def test_a_network_that_draws_nothing_has_no_preview(
    make_trainer: MakeTrainer, tiny_baseline: Recipe
) -> None:
    """A baseline has no decoder."""
    trainer = make_trainer(recipe=tiny_baseline)
    trainer.run()
    assert not (trainer.plan.directory / PREVIEW).exists()
