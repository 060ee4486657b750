from __future__ import annotations

import io
from typing import Any

from fastapi.testclient import TestClient
from PIL import Image


def answer_of(path: str, client: TestClient, *pictures: bytes, **query: Any) -> dict[str, Any]:
    """What a view answers to pictures."""
    files = [("file", picture) for picture in pictures]
    answer = client.post(path, params=query, files=files)
    assert 200 == answer.status_code, answer.text
    content: dict[str, Any] = answer.json()
    return content


def drawing_of(path: str, client: TestClient, *pictures: bytes, **query: Any) -> Image.Image:
    """What a view draws of pictures for those who accept PNG."""
    files = [("file", picture) for picture in pictures]
    answer = client.post(path, params=query, files=files, headers={"accept": "image/png"})
    assert (200, "image/png") == (answer.status_code, answer.headers["content-type"]), answer.text
    return Image.open(io.BytesIO(answer.content), formats=["PNG"])
