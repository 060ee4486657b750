"""The task of a training: classify an image, or both digits of a pair."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.bundle.disk import replacing
from model.canvas import enlarge, png, showing
from model.capsnet import Network, family_of
from model.preprocess import scale
from training.answers import evaluating, is_missed, is_wrong, measure_presence
from training.data.augment import BatchStream, RowStream
from training.data.datasets import Examples, first_rows
from training.data.pairs import PairStream, validation_pairs
from training.device import convolution_precision, has_bfloat16
from training.losses import Losses, classification_loss
from training.metrics import CLASS_ERROR, VALIDATION_ERROR
from training.recipes import Recipe

PREVIEW = "preview.png"
"""The preview's name in the folder of a run. It shows reconstructions during training."""
_PREVIEW_COLUMNS, _PREVIEW_HEIGHT_PX = 10, 64


class Task:
    """Makes the batches and losses of a recipe's task for the trainer, and measures its errors."""

    def __init__(
        self, recipe: Recipe, training: Examples, *, seed: int, device: torch.device
    ) -> None:
        self._recipe, self._training, self._device = recipe, training, device
        if recipe.task == "single":
            self.batches: RowStream = BatchStream(training, recipe, seed=seed, device=device)
        else:
            size_px = recipe.network.height
            self.batches = PairStream(training, recipe, size_px=size_px, seed=seed, device=device)
        self._decodes = recipe.mse_weight > 0 and "decode" in family_of(recipe.network).offers
        self._autocast = convolution_precision(recipe.convolutions, device) == "bfloat16"
        """Whether the forward pass runs under autocast to bfloat16, which needs no GradScaler."""
        self._autocast_decoder = recipe.decoder == "bfloat16" and has_bfloat16(device)

    def losses(self, network: Network, rows: Tensor, step: Tensor) -> Losses:
        """Compute the losses of the rows of a batch. `step` is a scalar tensor.

        The classes of an image are the positive targets; the capsule of each must reconstruct its
        object alone.
        """
        recipe = self._recipe
        images, targets, labels = self.batches.make(rows)
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            if recipe.loss == "cross-entropy":
                scores = network.logits(images)
            else:
                scores, poses = network(images)
        present = torch.zeros_like(scores).scatter_(1, labels, 1)
        losses: Losses = {recipe.loss: classification_loss(recipe, scores, present, step)}
        if self._decodes:
            count = math.ceil(recipe.reconstruction_share * len(labels))
            shown, poses = targets[:count], poses[:count]
            losses["reconstruction"] = self._reconstruct(network, poses, labels[:count], shown)
        return losses

    def _reconstruct(
        self, network: Network, poses: Tensor, classes: Tensor, shown: Tensor
    ) -> Tensor:
        """The loss of decoding poses (B, K, D) as classes (B, L), summed over an image's classes.

        Targets `shown` are images (B, C, H, W), or the L objects of each image (B, L, H, W).
        """
        chosen = poses.take_along_dim(classes[..., None], dim=1).flatten(0, 1)  # (B L, D)
        if self._recipe.detach_poses:
            chosen = chosen.detach()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast_decoder):
            decoded = network.decode(chosen, classes.flatten())
        targets = shown.reshape(decoded.shape)
        return classes.shape[1] * functional.mse_loss(decoded.float(), targets)

    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """Measure the percentage of held-out images that are answered wrongly.

        Where classes are drawn evenly, also the mean over classes of their percentages. Of pairs,
        the percentages of wrong pairs and of wrong digits in them, on a fixed set.
        """
        recipe = self._recipe
        if recipe.task == "pairs":
            size, shift_px = recipe.network.height, recipe.shift_px
            pairs = validation_pairs(validation, size=size, shift_px=shift_px)
            missed = is_missed(measure_presence(network, pairs.images, self._device), pairs.labels)
            return {
                VALIDATION_ERROR: 100 * float(missed.any(axis=1).mean()),
                "validation_digit_error_percent": 100 * float(missed.mean()),
            }
        presence = measure_presence(network, validation.images, self._device)
        wrong = is_wrong(presence, validation.labels)
        errors = {VALIDATION_ERROR: 100 * float(wrong.mean())}
        if recipe.even_classes:
            shares = [wrong[validation.labels == label].mean() for label in set(validation.labels)]
            errors[CLASS_ERROR] = 100 * float(np.mean(shares))
        return errors

    def draw(self, network: Network, validation: Examples | None, target: Path) -> None:
        """Draw up to ten single images, held out if there are some, and their reconstructions."""
        if not self._decodes or self._recipe.task != "single":
            return
        examples = validation or self._training
        chosen = first_rows(examples.labels, _PREVIEW_COLUMNS)
        shown = scale(examples.images[chosen])
        labels = torch.tensor(examples.labels[chosen], device=self._device)
        with evaluating(network), torch.inference_mode():
            poses = network(torch.from_numpy(shown).to(self._device)).poses
            label_poses = poses.take_along_dim(labels[:, None, None], dim=1)[:, 0]
            drawn = network.decode(label_poses, labels).float().cpu().numpy()
        rows = [np.concatenate(list(images), axis=2) for images in (shown, drawn)]  # (C, H, 10 W)
        factor = max(1, round(_PREVIEW_HEIGHT_PX / shown.shape[2]))
        with replacing(target) as file, showing(self._recipe.shown_channels):
            file.write(png(enlarge(np.concatenate(rows, axis=1), factor)))
