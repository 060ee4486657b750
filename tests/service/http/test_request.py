from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from model.preprocess import Prepared
from model.runtime import Runtime
from model.views.net import encode_all, encode_picture
from service.errors import Problem, UnsupportedFormat, unwrap
from service.http.context import Context
from service.http.request import Request
from service.inference.engine import Engine, open_engine
from service.inference.job import QueueFull
from service.pictures import ImageSpec
from service.settings import Settings

FRAME = ImageSpec((1, 28, 28), "digit")
Open = Callable[[], Request]


@pytest.fixture(scope="module")
def engine(runtime: Runtime) -> Iterator[Engine]:
    """One small network."""
    engine = open_engine({"mnist": runtime})
    yield engine
    engine.close(10)


@pytest.fixture
def context(engine: Engine) -> Iterator[Context]:
    """A process with room for three rows."""
    context = Context(Settings(max_waiting_rows=3))
    context.loaded = engine
    yield context
    context.loaded = None
    context.close()


@pytest.fixture
def begin(context: Context) -> Open:
    """`begin()` is a request to a route that declares at most four rows."""

    async def nothing(*_: Any) -> Any:
        raise NotImplementedError

    def begin_request() -> Request:
        scope = {"type": "http", "app": SimpleNamespace(state=context), "headers": []}
        request = Request(scope, nothing, nothing, max_cost=4)
        request.engine = context.engine
        return request

    return begin_request


def test_no_more_is_admitted_than_the_route_declares(begin: Open) -> None:
    """Else a request could be larger than what admission ever lets in."""
    with pytest.raises(ValueError, match="declares at most 4 rows, not 5"):
        begin().admit(5)


def test_a_full_queue_refuses_before_anything_is_decoded(begin: Open) -> None:
    """A file that is no image would otherwise get another problem."""
    begin().admit(3)
    with pytest.raises(QueueFull):
        begin().admit(1)


def test_others_go_between_the_rows_of_a_large_request(begin: Open) -> None:
    """One that came while a hundred images are encoded does not wait for all of them."""
    large, small = begin(), begin()
    images = list(np.zeros((100, 1, 28, 28), np.float32))
    order: list[str] = []

    async def encode(request: Request, count: int, name: str) -> None:
        encoding = await encode_all(request.net(request.manifest(None)), images[:count])
        assert (count, 10) == encoding.presence.shape
        order.append(name)

    async def both() -> None:
        first = asyncio.create_task(encode(large, 100, "large"))
        await asyncio.sleep(0)
        await asyncio.gather(first, encode(small, 1, "small"))

    asyncio.run(both())
    assert ["small", "large"] == order


def test_a_job_waits_no_more_once_its_rows_are_computed(
    begin: Open, context: Context, digits: list[bytes]
) -> None:
    """Encoding and decoding count alike."""
    request, admission = begin(), context.admission
    net = request.net(request.manifest(None))

    async def ask() -> list[int]:
        request.admit(3)
        waiting = [admission.waiting]
        (prepared,) = await request.decode([digits[7]], FRAME)
        capsule = (await encode_picture(net, unwrap(prepared))).capsule()
        waiting.append(admission.waiting)
        await net.decode(capsule.pose[None].repeat(2, axis=0), capsule.label)
        return [*waiting, admission.waiting]

    assert [3, 2, 0] == asyncio.run(ask())


def test_bad_images_keep_their_places(begin: Open, digits: list[bytes]) -> None:
    """The others are prepared as if they had come alone."""

    async def ask() -> list[Prepared | Problem]:
        return await begin().decode([digits[1], b"no image", digits[2]], FRAME)

    assert [Prepared, UnsupportedFormat, Prepared] == [type(each) for each in asyncio.run(ask())]
