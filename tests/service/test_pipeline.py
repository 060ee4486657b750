from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from model.preprocess import Prepared
from model.runtime import Runtime
from model.views.net import encode_all, encode_picture
from service.errors import Problem, UnsupportedFormat, unwrap
from service.inference.engine import Engine, open_engine
from service.inference.job import Admission, Job, QueueFull
from service.net import ServedNet
from service.pictures import ImageSpec
from service.pictures.pools import DecodePools
from service.pipeline import Pipeline
from tests.service.inference.gates import Clock

FRAME = ImageSpec((1, 28, 28), "digit")
Open = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def engine(runtime: Runtime) -> Iterator[Engine]:
    """One small network."""
    engine = open_engine({"mnist": runtime})
    yield engine
    engine.backend.close(10)


@pytest.fixture
def admission() -> Admission:
    """With room for three rows."""
    return Admission(3)


@pytest.fixture
def inspect(engine: Engine, admission: Admission) -> Iterator[Open]:
    """`inspect(job)` is what one request asks."""
    preparation = DecodePools(max_pixels=5_000_000, processes=2)

    def open_inspector(job: Job | None = None) -> Pipeline:
        return Pipeline(
            engine,
            job or Job(time.monotonic()),
            admission=admission,
            decode_pools=preparation,
            default_model="mnist",
            max_cost=4,
        )

    yield open_inspector
    preparation.close()


def test_no_more_is_admitted_than_the_route_declares(inspect: Open) -> None:
    """Else a request could be larger than what admission ever lets in."""
    with pytest.raises(ValueError, match="declares at most 4 rows, not 5"):
        inspect().admit(5)


def test_a_full_queue_refuses_before_anything_is_decoded(inspect: Open) -> None:
    """What is no image would otherwise be told so."""
    inspect().admit(3)
    with pytest.raises(QueueFull):
        inspect().admit(1)


def test_a_drawing_that_would_be_late_is_refused_at_once(inspect: Open) -> None:
    """The deadline that counts is that of the end of the body, after the pipeline was made."""
    now = time.monotonic()
    clock = Clock()
    clock.now = now - 100
    drawing = Admission(8, clock=clock)
    drawing.admit(first := Job(now))
    clock.now = now
    drawing.record_completed(first, 1)  # a hundred seconds for each
    drawing.admit(Job(now))
    pipeline = inspect()
    pipeline.drawing = drawing
    pipeline.job.deadline = now + 60
    with pytest.raises(QueueFull):
        pipeline.admit(1)
    pipeline.release()
    assert (0, 1) == (pipeline.admission.waiting, drawing.waiting)


def test_others_go_between_the_rows_of_a_large_request(inspect: Open) -> None:
    """One that came while a hundred images are encoded does not wait for all of them."""
    large, small = inspect(), inspect()
    images = list(np.zeros((100, 1, 28, 28), np.float32))
    order: list[str] = []

    async def encode(pipeline: Pipeline, count: int, name: str) -> None:
        encoding = await encode_all(ServedNet(pipeline, pipeline.manifest(None)), images[:count])
        assert (count, 10) == encoding.presence.shape
        order.append(name)

    async def both() -> None:
        first = asyncio.create_task(encode(large, 100, "large"))
        await asyncio.sleep(0)
        small.job.arrived = time.monotonic()
        await asyncio.gather(first, encode(small, 1, "small"))

    asyncio.run(both())
    assert ["small", "large"] == order


def test_a_job_waits_no_more_once_its_rows_are_computed(
    inspect: Open, admission: Admission, digits: list[bytes]
) -> None:
    """Encoding and decoding count alike."""
    one = inspect()
    manifest = one.manifest(None)

    async def ask() -> list[int]:
        one.admit(3)
        waiting = [admission.waiting]
        (prepared,) = await one.prepare([digits[7]], FRAME)
        net = ServedNet(one, manifest)
        capsule = (await encode_picture(net, unwrap(prepared))).capsule()
        waiting.append(admission.waiting)
        await net.decode(capsule.pose[None].repeat(2, axis=0), capsule.label)
        return [*waiting, admission.waiting]

    assert [3, 2, 0] == asyncio.run(ask())


def test_bad_images_keep_their_places(inspect: Open, digits: list[bytes]) -> None:
    """The others are prepared as if they had come alone."""

    async def ask() -> list[Prepared | Problem]:
        return await inspect().prepare([digits[1], b"no image", digits[2]], FRAME)

    assert [Prepared, UnsupportedFormat, Prepared] == [type(each) for each in asyncio.run(ask())]
