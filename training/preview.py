"""What a network draws while it is trained: a picture in the run's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from model.bundle.atomic_file import replacing
from model.canvas import enlarge, png
from model.capsnet import Network
from model.preprocess import scale
from training.answers import evaluating
from training.data.datasets import Examples

PREVIEW = "preview.png"
_COLUMNS, _HEIGHT_PX = 10, 64


def draw_preview(network: Network, examples: Examples, device: torch.device, target: Path) -> None:
    """Draw up to ten images of all classes, and below each what its class capsule decodes to."""
    order = np.argsort(examples.labels, kind="stable")
    count = min(_COLUMNS, len(order))
    chosen = order[np.linspace(0, len(order) - 1, count).round().astype(int)]
    shown = scale(examples.images[chosen])
    labels = torch.tensor(examples.labels[chosen], device=device)
    with evaluating(network), torch.inference_mode():
        poses = network(torch.from_numpy(shown).to(device)).poses
        own = poses[torch.arange(count, device=device), labels]
        drawn = network.decode(own, labels).float().cpu().numpy()
    rows = [np.concatenate(list(images), axis=2) for images in (shown, drawn)]  # (C, H, 10 W)
    factor = max(1, round(_HEIGHT_PX / shown.shape[2]))
    with replacing(target) as file:
        file.write(png(enlarge(np.concatenate(rows, axis=1), factor)))
