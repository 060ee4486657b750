from __future__ import annotations

import httpx
import pytest

from service.pictures import SAMPLES


@pytest.mark.parametrize("digit", range(10))
def test_sample_digits_are_answered_right(
    digit: int, bundle_name: str, service: httpx.Client
) -> None:
    """Every shipped bundle knows the ten digits that the documentation shows."""
    picture = (SAMPLES / f"{digit}.png").read_bytes()
    answer = service.post("/classify", params={"model": bundle_name}, files={"file": picture})
    assert digit == answer.json()["predictions"][0]["label"]


def test_every_bundle_has_samples(service: httpx.Client) -> None:
    """Each with licence and source; those of one class are read as that class."""
    for model in service.get("/models").json()["models"]:
        name = model["name"]
        samples = service.get(f"/models/{name}/samples").json()["samples"]
        assert 5 <= len(samples) <= 10
        assert all(one["licence"] and one["source"] for one in samples)
        files = [service.get(f"/models/{name}/samples/{one['file']}").content for one in samples]
        sent = [("file", png) for png in files]
        answer = service.post("/classify", params={"model": name}, files=sent).json()
        assert {one["file"]: one["label"] for one in samples if one["label"] is not None} == {
            one["file"]: read["label"]
            for one, read in zip(samples, answer["predictions"], strict=True)
            if one["label"] is not None
        }


def test_reconstructions_resemble_the_samples(bundle_name: str, service: httpx.Client) -> None:
    """What a network draws of a digit is read as that digit by `mnist-compact`.

    Eight of ten do of `mnist-matrix`, whose poses were trained without any decoder, and of
    `mnist-shared`.
    """
    read = []
    for digit in range(10):
        drawn = service.post(
            "/reconstruct",
            params={"model": bundle_name},
            headers={"Accept": "image/png"},
            files={"file": (SAMPLES / f"{digit}.png").read_bytes()},
        ).content
        asked = {"params": {"model": "mnist-compact"}, "files": {"file": drawn}}
        answer = service.post("/classify", **asked)
        read.append(answer.json()["predictions"][0]["label"])
    right = sum(label == digit for digit, label in enumerate(read))
    assert right >= (8 if bundle_name in ("mnist-matrix", "mnist-shared") else 10)
