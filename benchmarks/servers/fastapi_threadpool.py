"""FastAPI as its tutorial has it: blocking work in a plain `def` endpoint, which gets a thread."""

from __future__ import annotations

from typing import Annotated, Any

from classifier import Classifier
from fastapi import Depends, FastAPI, Request

app = FastAPI()
classifier = Classifier()


async def read_body(request: Request) -> bytes:
    """The raw picture."""
    return await request.body()


@app.post("/classify")
def classify(png: Annotated[bytes, Depends(read_body)]) -> dict[str, Any]:
    """Classify one picture."""
    return classifier.classify(png)
