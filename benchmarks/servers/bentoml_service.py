"""BentoML, with adaptive batching and without.

A batchable endpoint takes a list: here the files of a form. The other takes the raw picture.
"""

from __future__ import annotations

from typing import Annotated, Any

import bentoml
from bentoml.validators import ContentType
from classifier import DELAY_MS, MAX_BATCH, WORKERS, Classifier, to_image
from PIL.Image import Image as Picture

Png = Annotated[Picture, ContentType("image/png")]


@bentoml.service(workers=WORKERS, threads=2)
class Capsnet:
    """The classifier as a BentoML service."""

    def __init__(self) -> None:
        self.classifier = Classifier()

    @bentoml.api(batchable=True, max_batch_size=max(2, MAX_BATCH), max_latency_ms=int(DELAY_MS))
    def classify(self, pictures: list[Picture]) -> list[dict[str, Any]]:
        """Classify pictures of any number of requests."""
        lengths = self.classifier.encode([to_image(picture) for picture in pictures])
        return [self.classifier.describe(one) for one in lengths]

    @bentoml.api
    def classify_one(self, picture: Png, /) -> dict[str, Any]:
        """Classify one picture."""
        return self.classifier.describe(self.classifier.encode([to_image(picture)])[0])
