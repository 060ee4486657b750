"""FastAPI with an async endpoint that sends the work to a pool of as many threads as cores."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from classifier import THREADS, Classifier
from fastapi import FastAPI, Request

app = FastAPI()
classifier = Classifier()
pool = ThreadPoolExecutor(max(1, int(os.environ["CORES"]) // THREADS))


@app.post("/classify")
async def classify(request: Request) -> dict[str, Any]:
    """Classify one picture."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(pool, classifier.classify, await request.body())
