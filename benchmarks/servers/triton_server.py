"""Triton through PyTriton: its HTTP front and dynamic batcher, Python behind them.

The picture comes as one element of a BYTES tensor; Triton itself writes the answer's JSON.
"""

from __future__ import annotations

import numpy as np
from classifier import DELAY_MS, MAX_BATCH, PORT, WORKERS, Classifier, decode
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


class Capsnet:
    """One copy of the classifier."""

    def __init__(self) -> None:
        self._classifier = Classifier()
        self._names = np.char.encode(self._classifier.class_names)

    @batch
    def __call__(self, pictures: np.ndarray) -> dict[str, np.ndarray]:
        """Classify pictures (N, 1) of bytes."""
        lengths = self._classifier.encode([decode(png) for (png,) in pictures])
        labels = lengths.argmax(axis=1)[:, None]
        return {
            "label": labels,
            "class_name": self._names[labels],
            "length": np.take_along_axis(lengths, labels, axis=1),
            "lengths": lengths,
        }


if __name__ == "__main__":
    config = TritonConfig(
        http_address="127.0.0.1", http_port=PORT, allow_grpc=False, allow_metrics=False
    )
    with Triton(config=config) as triton:
        copies = [Capsnet() for _ in range(WORKERS)]
        triton.bind(
            model_name="capsnet",
            infer_func=copies if WORKERS > 1 else copies[0],
            inputs=[Tensor(name="pictures", dtype=bytes, shape=(1,))],
            outputs=[
                Tensor(name="label", dtype=np.int64, shape=(1,)),
                Tensor(name="class_name", dtype=bytes, shape=(1,)),
                Tensor(name="length", dtype=np.float32, shape=(1,)),
                Tensor(name="lengths", dtype=np.float32, shape=(-1,)),
            ],
            config=ModelConfig(
                max_batch_size=MAX_BATCH,
                batcher=DynamicBatcher(max_queue_delay_microseconds=round(DELAY_MS * 1000)),
            ),
            strict=False,
        )
        triton.serve()
