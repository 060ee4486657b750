from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient


def answer_of(path: str, client: TestClient, *pictures: bytes, **query: Any) -> dict[str, Any]:
    """What a view answers to pictures."""
    files = [("file", picture) for picture in pictures]
    answer = client.post(path, params=query, files=files)
    assert 200 == answer.status_code, answer.text
    content: dict[str, Any] = answer.json()
    return content
