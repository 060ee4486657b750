"""The training tasks: classify an image, or both digits of a pair."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.bundle.atomic_file import replacing
from model.canvas import enlarge, png, showing
from model.capsnet import Network, family_of
from model.preprocess import scale
from training.answers import evaluating, is_missed, is_wrong, measure_presence
from training.data.augment import BatchStream, RowStream
from training.data.datasets import Examples
from training.data.pairs import PairStream, validation_pairs
from training.device import convolution_precision, has_bfloat16
from training.losses import Losses, classification_loss
from training.recipes import Recipe, TaskName

PREVIEW = "preview.png"
"""The preview's name in the folder of a run. It shows reconstructions during training."""
_PREVIEW_COLUMNS, _PREVIEW_HEIGHT_PX = 10, 64


class Task(ABC):
    """Makes batches and losses for the trainer. Of several processes, each computes some rows."""

    def __init__(
        self, recipe: Recipe, training: Examples, *, seed: int, device: torch.device
    ) -> None:
        self._recipe, self._training = recipe, training
        self.batches = open_stream(recipe, training, seed=seed, device=device)
        self._device = device
        self._classify = classification_loss(recipe)
        self._autocast = convolution_precision(recipe.convolutions, device) == "bfloat16"
        """Whether the forward pass runs under autocast to bfloat16, which needs no GradScaler."""
        self._autocast_decoder = recipe.decoder == "bfloat16" and has_bfloat16(device)

    @abstractmethod
    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """Measure metrics on held-out images, `validation_error_percent` among them."""

    def draw(  # noqa: B027  pairs have none
        self, network: Network, validation: Examples | None, target: Path
    ) -> None:
        """Draw a preview of reconstructions, where the network decodes single images."""

    def losses(self, network: Network, rows: Tensor, step: Tensor) -> Losses:
        """Compute the losses of a batch, or of this process's rows. `step` is a scalar tensor.

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
        losses: Losses = {recipe.loss: self._classify(scores, present, step)}
        if recipe.mse_weight and "decode" in family_of(recipe.network).offers:
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


class Single(Task):
    """The task of classifying one object, and reconstructing it from its class capsule."""

    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """Return the percentage of images whose most present class is not the label.

        Where classes are drawn evenly, the mean over classes of their percentages, too.
        """
        wrong = is_wrong(
            measure_presence(network, validation.images, self._device), validation.labels
        )
        errors = {"validation_error_percent": 100 * float(wrong.mean())}
        if self._recipe.even_classes:
            shares = [wrong[validation.labels == label].mean() for label in set(validation.labels)]
            errors["validation_class_error_percent"] = 100 * float(np.mean(shares))
        return errors

    def draw(self, network: Network, validation: Examples | None, target: Path) -> None:
        """Draw images, held out if there are some, and below each its reconstruction."""
        if self._recipe.mse_weight and "decode" in family_of(self._recipe.network).offers:
            with showing(self._recipe.shown_channels):
                draw_preview(network, validation or self._training, self._device, target)


class Pairs(Task):
    """The task of classifying two digits in each image (Sabour 2017, section 6)."""

    def errors(self, network: Network, validation: Examples) -> dict[str, float]:
        """Return the percentages of wrong pairs and of wrong digits in them, on a fixed set."""
        size, shift_px = self._recipe.network.height, self._recipe.shift_px
        pairs = validation_pairs(validation, size=size, shift_px=shift_px)
        missed = is_missed(measure_presence(network, pairs.images, self._device), pairs.labels)
        return {
            "validation_error_percent": 100 * float(missed.any(axis=1).mean()),
            "validation_digit_error_percent": 100 * float(missed.mean()),
        }


def open_stream(
    recipe: Recipe, training: Examples, *, seed: int, device: torch.device
) -> RowStream:
    """The batches of the recipe's task."""
    if recipe.task == "single":
        return BatchStream(training, recipe, seed=seed, device=device)
    size_px = recipe.network.height
    return PairStream(training, recipe, size_px=size_px, seed=seed, device=device)


TASKS: dict[TaskName, type[Task]] = {"single": Single, "pairs": Pairs}


def draw_preview(network: Network, examples: Examples, device: torch.device, target: Path) -> None:
    """Draw up to ten images of all classes, and below each what its class capsule decodes to."""
    order = np.argsort(examples.labels, kind="stable")
    count = min(_PREVIEW_COLUMNS, len(order))
    chosen = order[np.linspace(0, len(order) - 1, count).round().astype(int)]
    shown = scale(examples.images[chosen])
    labels = torch.tensor(examples.labels[chosen], device=device)
    with evaluating(network), torch.inference_mode():
        poses = network(torch.from_numpy(shown).to(device)).poses
        label_poses = poses[torch.arange(count, device=device), labels]
        drawn = network.decode(label_poses, labels).float().cpu().numpy()
    rows = [np.concatenate(list(images), axis=2) for images in (shown, drawn)]  # (C, H, 10 W)
    factor = max(1, round(_PREVIEW_HEIGHT_PX / shown.shape[2]))
    with replacing(target) as file:
        file.write(png(enlarge(np.concatenate(rows, axis=1), factor)))
