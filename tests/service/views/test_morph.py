from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize(("count", "expected"), [(1, (422, "file")), (3, (413, None))])
def test_two_images_are_needed(
    count: int, expected: tuple[int, str | None], client: TestClient, digits: list[bytes]
) -> None:
    """Neither one nor three."""
    answer = client.post("/morph", files=[("file", digits[4])] * count)
    assert expected == (answer.status_code, answer.json().get("parameter"))


def test_images_of_two_classes_need_a_target(client: TestClient, digits: list[bytes]) -> None:
    """The message names both classes."""
    labels = [
        client.post("/classify", files={"file": digit}).json()["predictions"][0]["label"]
        for digit in digits
    ]
    other = next(place for place, label in enumerate(labels) if label != labels[0])
    files = [("file", digits[place]) for place in (0, other)]
    answer = client.post("/morph", files=files)
    assert (422, "target") == (answer.status_code, answer.json()["parameter"]), answer.text
    assert f"'{labels[0]}' and '{labels[other]}'" in answer.json()["detail"]
