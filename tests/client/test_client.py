"""Every method against the real service, compared with what plain HTTP says."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from capsnet import (
    AsyncCapsNet,
    CapsNet,
    DeadlineExceeded,
    FailedPrediction,
    Prediction,
    Problem,
)
from service.pictures import SAMPLES
from tests.client.conftest import MAX_PICTURES
from tests.processes import SOURCE, running

FOUR = SAMPLES / "4.png"
POSE = np.linspace(-0.3, 0.3, 16)
LISTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "models": ("/models", ()),
    "model": ("/models/mnist-compact", ("mnist-compact",)),
    "samples": ("/models/mnist-compact/samples", ("mnist-compact",)),
}
"""Path of the route, and the arguments of the method. Views are compared in tests/views."""


def without_nulls(value: Any) -> Any:
    """Nulls may be left out."""
    match value:
        case dict():
            members = {name: without_nulls(one) for name, one in value.items()}
            return {name: one for name, one in members.items() if one is not None}
        case list() | tuple():
            return [without_nulls(one) for one in value]
    return value


@pytest.mark.parametrize("name", LISTS)
def test_answers_are_those_of_plain_http(
    name: str, capsnet: CapsNet, service: httpx.Client
) -> None:
    """Every member of the JSON is in the typed answer."""
    path, arguments = LISTS[name]
    found = getattr(capsnet, name)(*arguments)
    members = found if isinstance(found, dict) else found.to_dict()
    expected = without_nulls(service.get(path).json())
    assert [] == list(differences(expected, without_nulls(members)))


def test_samples_are_overlaid_and_taken_apart(capsnet: CapsNet) -> None:
    """What one method gives, another takes."""
    pair = capsnet.overlay(capsnet.sample(3), capsnet.sample(5), dx=4, dy=2)
    assert {3, 5} == {one.label for one in capsnet.segment(pair).segments}


def test_samples_of_a_bundle_are_listed_and_sent(capsnet: CapsNet) -> None:
    """The file that the list names is an image of the class that it names."""
    seven = capsnet.samples("mnist-compact").samples[7]
    image = capsnet.sample_of("mnist-compact", seven.file)
    assert seven.class_name == capsnet.classify(image).class_name


def test_all_kinds_of_image_are_answered_alike(capsnet: CapsNet) -> None:
    """A path, its bytes, an open file, a Pillow image and arrays."""
    picture = Image.open(FOUR)
    pixels: Any = np.asarray(picture)
    with FOUR.open("rb") as file:
        sources = [FOUR, str(FOUR), FOUR.read_bytes(), file, picture, pixels, pixels / 255]
        answers = [*map(capsnet.classify, sources), *capsnet.classify([pixels[None]])]
    lengths = [one.lengths.tolist() for one in answers if isinstance(one, Prediction)]
    assert [lengths[0]] * (len(sources) + 1) == lengths


def folder(count: int) -> list[Path]:
    return [SAMPLES / f"{number % 10}.png" for number in range(count)]


def labels(outcomes: list[Prediction | FailedPrediction]) -> list[int | None]:
    return [one.label if isinstance(one, Prediction) else None for one in outcomes]


def requests(service: httpx.Client) -> float:
    """Requests to /classify so far."""
    pattern = 'capsnet_requests_total{method="POST",route="/classify",status="200"}'
    lines = service.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(pattern))


def test_a_hundred_images_are_split_as_the_service_accepts(
    capsnet: CapsNet, service: httpx.Client, url: str
) -> None:
    """In order, in as few requests as the service's limit allows, with both clients."""

    async def run() -> list[Prediction | FailedPrediction]:
        async with AsyncCapsNet(url) as client:
            return await client.classify(folder(100))

    expected = [number % 10 for number in range(100)]
    before = requests(service)
    assert expected == labels(capsnet.classify(folder(100)))
    assert -(-100 // MAX_PICTURES) == requests(service) - before
    assert expected == labels(asyncio.run(run()))


def test_images_that_are_too_large_together_are_sent_apart() -> None:
    """The service limits the pixels of a request: half of the images, and half of that, fit."""
    settings = {
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_MODELS": '["mnist-compact"]',
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MAX_PIXELS": "1100000",
    }
    file = io.BytesIO()
    Image.new("1", (1050, 1000), 1).save(file, "PNG")
    images = [file.getvalue()] * 40

    async def run(url: str) -> list[Prediction | FailedPrediction]:
        async with AsyncCapsNet(url) as client:
            return await client.classify(images)

    with running(lambda _: SOURCE, settings) as (_, service):
        url = str(service.base_url)
        with CapsNet(url) as client:
            outcomes = [*client.classify(images), *asyncio.run(run(url))]
    assert 80 == sum(isinstance(one, Prediction) for one in outcomes)


@pytest.mark.parametrize("place", [5, 2 * MAX_PICTURES])
def test_an_image_of_several_that_is_none_fails_alone(capsnet: CapsNet, place: int) -> None:
    """Also where it is the only one of its request."""
    images: list[Path | bytes] = [*folder(2 * MAX_PICTURES)]
    images.insert(place, b"no image")
    outcomes = capsnet.classify(images)
    failed = outcomes[place]
    assert isinstance(failed, FailedPrediction)
    assert "urn:capsnet:problem:unsupported-format" == failed.problem.type
    assert 2 * MAX_PICTURES == sum(isinstance(one, Prediction) for one in outcomes)


BAD: dict[str, tuple[Callable[[CapsNet], Any], str, str | None]] = {
    "no image": (lambda one: one.classify(b"no image"), "unsupported-format", None),
    "unknown bundle": (lambda one: one.classify(FOUR, model="nobody"), "unknown-model", "model"),
    "dim": (lambda one: one.perturb(FOUR, dim=16, delta=0.1), "invalid-parameter", "dim"),
    "pose": (lambda one: one.decode([0.1] * 3, label=4), "invalid-parameter", "pose"),
    "sample": (lambda one: one.sample(11), "invalid-parameter", "label"),
}


@pytest.mark.parametrize(("ask", "slug", "parameter"), BAD.values(), ids=BAD)
def test_bad_input_is_named(
    ask: Callable[[CapsNet], Any], slug: str, parameter: str | None, capsnet: CapsNet
) -> None:
    """Each kind by its type and, if one is at fault, its parameter; the log has the request."""
    with pytest.raises(Problem) as raised:
        ask(capsnet)
    problem = raised.value
    assert (f"urn:capsnet:problem:{slug}", parameter) == (problem.type, problem.parameter)
    assert problem.request_id
    assert problem.request_id in str(problem)


def test_the_deadline_is_the_services_too(capsnet: CapsNet) -> None:
    """What takes longer than allowed is given up there, and says so."""
    with pytest.raises(DeadlineExceeded, match=r"Deadline|Queue"):
        capsnet.sweep(FOUR, timeout_s=0.005)


def test_a_reload_needs_an_admin_key(capsnet: CapsNet, url: str) -> None:
    """The client sends its key."""
    assert capsnet.models().to_dict() == capsnet.reload().to_dict()
    with CapsNet(url) as keyless, pytest.raises(Problem, match="key"):
        keyless.reload()


def test_the_address_is_taken_from_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`CAPSNET_URL`, where none is given."""
    monkeypatch.setenv("CAPSNET_URL", url)
    with CapsNet() as client:
        assert (url, f"CapsNet({url!r})") == (client.url, repr(client))
        assert "mnist-compact" in [one.name for one in client.models().models]


@pytest.mark.parametrize("kind", [CapsNet, AsyncCapsNet])
def test_an_address_that_is_none_is_refused(kind: type) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="http://localhost:port is no URL: Invalid port"):
        kind("http://localhost:port")


def test_an_address_may_have_a_path(url: str) -> None:
    """As behind a proxy; /v1 is the service's own."""
    with CapsNet(f"{url}/v1") as client:
        assert 4 == client.classify(FOUR).label


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ by more than rounding."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from differences(value, other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{path}[{place}]")
    elif one != (pytest.approx(other, abs=1e-4) if isinstance(other, int | float) else other):
        yield f"{path}: {one} and {other}"
