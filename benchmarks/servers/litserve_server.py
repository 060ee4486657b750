"""LitServe with batching and its fast queue."""

from typing import Annotated, Any

import litserve
import numpy as np
from classifier import DELAY_MS, MAX_BATCH, PORT, WORKERS, Classifier, decode
from fastapi import Body

Png = Annotated[bytes, Body(media_type="image/png")]


class Capsnet(litserve.LitAPI):
    """The classifier as LitServe's hooks; `predict` gets a list where it batches."""

    def setup(self, device: str) -> None:  # noqa: ARG002  LitServe's signature
        """Load the encoder, once in each worker."""
        self.classifier = Classifier()

    def decode_request(self, request: Png) -> np.ndarray:
        """Bytes to image."""
        return decode(request)

    def batch(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Images stay a list; the classifier stacks them."""
        return inputs

    def predict(self, inputs: Any) -> np.ndarray:
        """Images to lengths."""
        return self.classifier.encode(inputs if MAX_BATCH > 1 else [inputs])

    def unbatch(self, outputs: np.ndarray) -> list[np.ndarray]:
        """Lengths (N, K) to N times (K,)."""
        return list(outputs)

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        """Lengths to the answer."""
        return self.classifier.describe(output.reshape(-1))


if __name__ == "__main__":
    server = litserve.LitServer(
        Capsnet(max_batch_size=MAX_BATCH, batch_timeout=DELAY_MS / 1000, api_path="/classify"),
        accelerator="cpu",
        workers_per_device=WORKERS,
        fast_queue=True,
    )
    server.run(host="127.0.0.1", port=PORT, log_level="warning", generate_client_file=False)
