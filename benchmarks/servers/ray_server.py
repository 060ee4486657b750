"""Ray Serve with dynamic batching."""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray
from classifier import DELAY_MS, MAX_BATCH, PORT, WORKERS, Classifier, decode
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=WORKERS, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Capsnet:
    """The classifier as a deployment."""

    def __init__(self) -> None:
        self.classifier = Classifier()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=DELAY_MS / 1000)
    async def classify(self, pictures: list[bytes]) -> list[dict[str, Any]]:
        """Classify what came together."""
        lengths = self.classifier.encode([decode(png) for png in pictures])
        return [self.classifier.describe(one) for one in lengths]

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Classify one picture."""
        return await self.classify(await request.body())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(
        http_options={"host": "127.0.0.1", "port": PORT},
        logging_config={"enable_access_log": False},
    )
    serve.run(Capsnet.bind(), route_prefix="/classify")
    signal.pause()
