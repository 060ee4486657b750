"""Triton through PyTriton: images come as a binary tensor, as to the service under /v2."""

from __future__ import annotations

import numpy as np
from classifier import MAX_BATCH, PORT, WORKERS, Classifier
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


class Capsnet:
    """One copy of the encoder."""

    def __init__(self) -> None:
        self._classifier = Classifier()

    @batch
    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Encode images (N, 1, 28, 28)."""
        presence, poses = self._classifier.infer(images)
        return {"label": presence.argmax(axis=1)[:, None], "presence": presence, "poses": poses}


if __name__ == "__main__":
    config = TritonConfig(
        http_address="127.0.0.1", http_port=PORT, allow_grpc=False, allow_metrics=False
    )
    with Triton(config=config) as triton:
        copies = [Capsnet() for _ in range(WORKERS)]
        triton.bind(
            model_name="capsnet",
            infer_func=copies if WORKERS > 1 else copies[0],
            inputs=[Tensor(name="images", dtype=np.float32, shape=(1, 28, 28))],
            outputs=[
                Tensor(name="label", dtype=np.int64, shape=(1,)),
                Tensor(name="presence", dtype=np.float32, shape=(-1,)),
                Tensor(name="poses", dtype=np.float32, shape=(-1, -1)),
            ],
            config=ModelConfig(max_batch_size=MAX_BATCH, batcher=DynamicBatcher()),
            strict=False,
        )
        triton.serve()
