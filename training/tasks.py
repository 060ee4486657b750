"""What a network is trained to do: name the class of an image, or both classes of a pair."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from model.capsnet import Encoding, Network, family_of
from training.answers import error_percent, measure_presence, pair_errors
from training.data.augment import BatchStream, Distortion
from training.data.examples import Examples
from training.data.pairs import PairStream, validation_pairs
from training.losses import Losses, classification_loss, reconstruction_loss
from training.recipes import Recipe


class Task(Protocol):
    """What the trainer asks of a task."""

    @property
    def epoch_size(self) -> int:
        """Images in an epoch."""
        ...

    def rows(self, step: int) -> Tensor:
        """What decides the batch of a step: a row for each image, on the training device.

        It depends on the seed and the step alone.
        """
        ...

    def losses(self, network: Network, rows: Tensor, step: Tensor) -> Losses:
        """Of a batch, or of some of its rows, at a step (a scalar tensor)."""
        ...

    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """Metrics on held-out images, `validation_error_percent` among them."""
        ...


class Single:
    """One object in each image: name it, and draw it from its class capsule."""

    def __init__(
        self, recipe: Recipe, training: Examples, *, seed: int, device: torch.device
    ) -> None:
        self._recipe = recipe
        self._device = device
        self._classify = classification_loss(recipe)
        self.batches = BatchStream(
            training,
            batch_size=recipe.batch_size,
            shift_px=recipe.shift_px,
            seed=seed,
            flip=recipe.flip,
            distortion=Distortion(recipe.affine, recipe.elastic_px),
            erase_px=recipe.erase_px,
            pad=recipe.pad,
            device=device,
        )

    @property
    def epoch_size(self) -> int:
        """Every training image once."""
        return len(self.batches)

    def rows(self, step: int) -> Tensor:
        """Images, and how each is moved and distorted."""
        return self.batches.rows(step)

    def losses(self, network: Network, rows: Tensor, step: Tensor) -> Losses:
        """One class is present, and its capsule draws the image."""
        images, labels = self.batches.make(rows)
        presence, poses = _encode(network, images)
        present = torch.zeros_like(presence).scatter_(1, labels[:, None], 1)
        losses: Losses = {self._recipe.loss: self._classify(presence, present, step)}
        if _reconstructs(self._recipe):
            own = poses.take_along_dim(labels[:, None, None], dim=1).squeeze(1)  # (B, D)
            drawn = network.decode(_for_decoder(own, self._recipe), labels)
            losses["reconstruction"] = reconstruction_loss(drawn, images)
        return losses

    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """How often the most present class is not the label."""
        error = error_percent(network, validation, self._device)
        return {"validation_error_percent": error}


class Pairs:
    """Two digits of different classes in each image (Sabour 2017, section 6)."""

    def __init__(
        self, recipe: Recipe, training: Examples, *, seed: int, device: torch.device
    ) -> None:
        self._recipe = recipe
        self._device = device
        self._classify = classification_loss(recipe)
        self.batches = PairStream(
            training,
            size=recipe.network.height,
            batch_size=recipe.batch_size,
            shift_px=recipe.shift_px,
            seed=seed,
            distortion=Distortion(recipe.affine, recipe.elastic_px),
            device=device,
        )

    @property
    def epoch_size(self) -> int:
        """A fixed number of pairs; there are too many to see them all."""
        return len(self.batches)

    def rows(self, step: int) -> Tensor:
        """Pairs of digits and their shifts."""
        return self.batches.rows(step)

    def losses(self, network: Network, rows: Tensor, step: Tensor) -> Losses:
        """Two classes are present, and each one's capsule draws its digit alone."""
        images, layers, labels = self.batches.make(rows)
        presence, poses = _encode(network, images)
        present = torch.zeros_like(presence).scatter_(1, labels, 1)
        losses: Losses = {self._recipe.loss: self._classify(presence, present, step)}
        if _reconstructs(self._recipe):
            own = poses.take_along_dim(labels[..., None], dim=1)  # (B, 2, D)
            both = _for_decoder(own, self._recipe).flatten(0, 1)
            drawn = network.decode(both, labels.flatten())  # (2 B, 1, H, W)
            losses["reconstruction"] = reconstruction_loss(drawn.reshape_as(layers), layers)
        return losses

    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """How often the two most present classes are not the labels, on a fixed set of pairs."""
        size, shift_px = self._recipe.network.height, self._recipe.shift_px
        pairs = validation_pairs(validation, size=size, shift_px=shift_px)
        presence = measure_presence(network, pairs.images, self._device)
        errors = pair_errors(presence, pairs.labels)
        return {
            "validation_error_percent": errors.pair_percent,
            "validation_digit_error_percent": errors.digit_percent,
        }


def make_task(recipe: Recipe, training: Examples, *, seed: int, device: torch.device) -> Task:
    """The task that the recipe names."""
    if recipe.task == "pairs":
        return Pairs(recipe, training, seed=seed, device=device)
    return Single(recipe, training, seed=seed, device=device)


def _encode(network: Network, images: Tensor) -> Encoding:
    """Run the encoder; on a GPU its convolutions are in bfloat16, whose gradients need no scale."""
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
        encoding: Encoding = network(images)
    return encoding


def _reconstructs(recipe: Recipe) -> bool:
    return recipe.reconstruction_weight > 0 and "decode" in family_of(recipe.network).offers


def _for_decoder(poses: Tensor, recipe: Recipe) -> Tensor:
    """Poses as the decoder learns from them: its gradient may stop there."""
    return poses.detach() if recipe.detach_poses else poses
