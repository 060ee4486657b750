"""The work that every baseline does for a request; the servers around it are what differs.

Knows only Pillow, numpy and onnxruntime, so that it runs in each server's own environment. What to
load and how to tune it comes as environment variables, so that workers inherit it.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image

BUNDLE = Path(os.environ["BUNDLE"])
"""Folder with the encoder's graphs and manifest.json."""
PORT = int(os.environ["PORT"])
WORKERS = int(os.environ.get("WORKERS", "1"))
"""Processes, or whatever else the server calls its parallel copies of the model."""
MAX_BATCH = int(os.environ.get("MAX_BATCH", "32"))
"""Most rows of one inference; 1 where the server does not batch."""
DELAY_MS = float(os.environ.get("DELAY_MS", "0"))
"""How long a server may wait for a batch to fill."""
THREADS = int(os.environ.get("THREADS", "1"))
"""onnxruntime's, for one inference."""
SPIN = os.environ.get("SPIN", "1")
"""Whether onnxruntime's idle threads wait in a busy loop, its default."""

BATCH_ROWS = 3
"""From so many rows on `encoder.batch.onnx` is the faster graph, as in the service."""


def decode(png: bytes) -> np.ndarray:
    """The bytes of a 28x28 picture to float32 (1, 28, 28) in [0, 1]."""
    return to_image(Image.open(io.BytesIO(png)))


def to_image(picture: Image.Image) -> np.ndarray:
    """The same from a picture that Pillow has opened."""
    return np.asarray(picture.convert("L"), np.float32)[None] / np.float32(255)


class Classifier:
    """The encoder's graphs for few rows and for many, where there may be many; class names."""

    def __init__(self) -> None:
        self._few = _open("encoder.onnx")
        batched = MAX_BATCH >= BATCH_ROWS and (BUNDLE / "encoder.batch.onnx").exists()
        self._many = _open("encoder.batch.onnx") if batched else self._few
        self.class_names = json.loads((BUNDLE / "manifest.json").read_text())["class_names"]

    def encode(self, images: list[np.ndarray]) -> np.ndarray:
        """Capsule lengths (N, K) of N images (1, 28, 28)."""
        return self._session(len(images)).run(["presence"], {"images": np.stack(images)})[0]

    def infer(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Presence (N, K) and poses (N, K, D) of images (N, 1, 28, 28)."""
        return tuple(self._session(len(images)).run(["presence", "poses"], {"images": images}))

    def _session(self, rows: int) -> onnxruntime.InferenceSession:
        return self._few if rows < BATCH_ROWS else self._many

    def describe(self, lengths: np.ndarray) -> dict[str, Any]:
        """The JSON answer for capsule lengths (K,)."""
        label = int(lengths.argmax())
        return {
            "label": label,
            "class_name": self.class_names[label],
            "length": float(lengths[label]),
            "lengths": lengths.tolist(),
        }

    def classify(self, png: bytes) -> dict[str, Any]:
        """All of it, for servers that do not batch."""
        return self.describe(self.encode([decode(png)])[0])


def _open(graph: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", SPIN)
    return onnxruntime.InferenceSession(BUNDLE / graph, options, providers=["CPUExecutionProvider"])
