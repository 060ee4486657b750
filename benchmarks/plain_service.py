"""A plain FastAPI service: decode a picture, run the encoder, answer with the lengths.

Blocking work runs in a `def` endpoint, which FastAPI gives a thread, as its tutorial has it.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
from fastapi import Depends, FastAPI, Request
from PIL import Image


def create_app() -> FastAPI:
    """The service for the bundle in the folder BUNDLE, with THREADS for each inference."""
    folder = Path(os.environ["BUNDLE"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["THREADS"])
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        folder / "encoder.onnx", options, providers=["CPUExecutionProvider"]
    )
    class_names = json.loads((folder / "manifest.json").read_text())["class_names"]
    app = FastAPI()

    @app.post("/classify")
    def classify(png: Annotated[bytes, Depends(_read_body)]) -> dict[str, Any]:
        picture = Image.open(io.BytesIO(png)).convert("L")
        image = np.asarray(picture, np.float32)[None, None] / np.float32(255)
        lengths = session.run(["presence"], {"images": image})[0][0]
        label = int(lengths.argmax())
        return {
            "label": label,
            "class_name": class_names[label],
            "length": float(lengths[label]),
            "lengths": lengths.tolist(),
        }

    return app


async def _read_body(request: Request) -> bytes:
    return await request.body()
