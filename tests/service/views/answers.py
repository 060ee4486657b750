from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient


def answer_of(path: str, client: TestClient, picture: bytes, **query: Any) -> dict[str, Any]:
    """What a view answers to a picture."""
    answer = client.post(path, params=query, files={"file": picture})
    assert 200 == answer.status_code, answer.text
    content: dict[str, Any] = answer.json()
    return content
