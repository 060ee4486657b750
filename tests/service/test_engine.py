from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from model.bundle import Bundle
from model.preprocess import Floats, scale
from model.runtime import DeviceError, Encoding, Runtime
from service.app import create_app
from service.engine import Engine
from service.settings import Settings

PATIENCE_S = 30
"""How long a test waits for what should happen at once, before it fails."""


class Watched(Runtime):
    """The real network; notes its threads, and at the gate waits until it is opened."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, device="cpu", threads=1)
        self.threads: set[int] = set()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def warm_up(self) -> None:
        """Warm up."""
        self.threads.add(threading.get_ident())
        super().warm_up()

    def encode(self, images: Floats) -> Encoding:
        """Encode; an image of ones breaks it."""
        self.threads.add(threading.get_ident())
        self.entered.set()
        assert self.gate.wait(PATIENCE_S)
        if (images == 1).all(axis=(1, 2, 3)).any():
            raise RuntimeError("a bad image")
        return super().encode(images)

    def decode(self, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Decode."""
        self.threads.add(threading.get_ident())
        return super().decode(poses, classes)


@pytest.fixture
def watched(bundle_path: Path) -> Watched:
    return Watched(Bundle.open(bundle_path))


@pytest.fixture
def engine(watched: Watched) -> Iterator[Engine]:
    engine = Engine({"mnist": watched})
    yield engine
    watched.gate.set()
    engine.close()


@pytest.fixture(scope="module")
def images(digits: list[bytes]) -> Floats:
    """The ten digits, (10, 1, 28, 28)."""
    pixels = [np.asarray(Image.open(io.BytesIO(one)), np.uint8) for one in digits]
    return scale(np.stack(pixels)[:, None])


async def encode_one(engine: Engine, image: Floats) -> Encoding:
    (encoding,) = await engine.encode("mnist", [image])
    assert isinstance(encoding, Encoding)
    return encoding


def test_the_loop_is_free_while_a_network_works(
    engine: Engine, watched: Watched, images: Floats
) -> None:
    """Inference waits for a gate that only the event loop opens, so it cannot be holding it up."""
    watched.gate.clear()

    async def scenario() -> Encoding:
        work = asyncio.create_task(encode_one(engine, images[0]))
        assert await asyncio.to_thread(watched.entered.wait, PATIENCE_S)
        assert not work.done()
        watched.gate.set()
        return await work

    assert (10,) == asyncio.run(scenario()).presence.shape


def test_other_requests_are_answered_while_a_network_works(
    watched: Watched, settings: Settings, digits: list[bytes]
) -> None:
    """/livez and /models do not wait for a classification."""
    watched.gate.clear()
    app = create_app(settings, Engine({"mnist": watched}))

    async def scenario() -> list[Any]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://service") as client,
        ):
            work = asyncio.create_task(client.post("/classify", files={"file": digits[7]}))
            assert await asyncio.to_thread(watched.entered.wait, PATIENCE_S)
            quick = [await client.get(route) for route in ("/livez", "/models")]
            assert not work.done()
            watched.gate.set()
            return [answer.status_code for answer in [*quick, await work]]

    assert [200, 200, 200] == asyncio.run(scenario())


def test_each_of_many_tasks_gets_its_own_answer(
    engine: Engine, runtime: Runtime, images: Floats
) -> None:
    """A hundred calls at once are answered as the network answers them one by one."""
    alone = [runtime.encode(image[None]).presence[0] for image in images]

    async def scenario() -> list[Encoding]:
        return await asyncio.gather(
            *(encode_one(engine, images[place % 10]) for place in range(100))
        )

    for place, encoding in enumerate(asyncio.run(scenario())):
        assert np.allclose(alone[place % 10], encoding.presence, atol=1e-5)


def test_answers_of_one_call_are_in_order(engine: Engine, runtime: Runtime, images: Floats) -> None:
    """One call's images come back in their places, also where they fill several batches."""
    alone = [runtime.encode(image[None]).poses[0] for image in images]
    order = [place % 7 for place in range(75)]
    encodings = asyncio.run(engine.encode("mnist", [images[place] for place in order]))
    assert 75 == len(encodings)
    for place, encoding in zip(order, encodings, strict=True):
        assert isinstance(encoding, Encoding)
        assert np.allclose(alone[place], encoding.poses, atol=1e-5)


def test_poses_are_decoded_each_for_its_class(
    engine: Engine, runtime: Runtime, images: Floats
) -> None:
    """Decoding gives (M, 1, H, W), each pose drawn as the class beside it."""
    poses, classes = runtime.encode(images).poses[3], np.arange(10)
    expected = [runtime.decode(poses[[k]], classes[[k]])[0] for k in range(10)]
    actual = asyncio.run(engine.decode("mnist", poses, classes))
    assert np.allclose(np.stack(expected), actual, atol=1e-5)


def test_one_thread_owns_the_network(engine: Engine, watched: Watched, images: Floats) -> None:
    """The sessions are warmed up and used by one thread, which is not the event loop's."""
    assert 1 == len(watched.threads)

    async def scenario() -> None:
        encodings = await asyncio.gather(*(encode_one(engine, image) for image in images))
        poses = np.stack([encoding.poses[0] for encoding in encodings])
        await engine.decode("mnist", poses, np.zeros(10, np.int64))

    asyncio.run(scenario())
    assert 1 == len(watched.threads)
    assert threading.get_ident() not in watched.threads


def test_a_bad_image_fails_alone(engine: Engine, images: Floats) -> None:
    """The call gets the exception in the image's place, and the others their answers."""
    bad = np.ones_like(images[0])
    first, failed, last = asyncio.run(engine.encode("mnist", [images[0], bad, images[1]]))
    assert isinstance(first, Encoding)
    assert isinstance(failed, RuntimeError)
    assert isinstance(last, Encoding)


def test_a_cancelled_call_leaves_the_others_alone(
    engine: Engine, watched: Watched, images: Floats
) -> None:
    """A caller that gave up takes no one's answer with it."""
    watched.gate.clear()

    async def scenario() -> Encoding:
        first = asyncio.create_task(encode_one(engine, images[0]))
        assert await asyncio.to_thread(watched.entered.wait, PATIENCE_S)
        second = asyncio.create_task(encode_one(engine, images[1]))
        await asyncio.sleep(0)
        first.cancel()
        watched.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert (10, 16) == asyncio.run(scenario()).poses.shape


def test_closing_finishes_what_was_accepted(watched: Watched, images: Floats) -> None:
    """Calls that were accepted before the end are answered, begun or not."""
    engine = Engine({"mnist": watched})
    watched.gate.clear()

    async def scenario() -> list[Encoding]:
        begun = asyncio.create_task(encode_one(engine, images[0]))
        assert await asyncio.to_thread(watched.entered.wait, PATIENCE_S)
        waiting = asyncio.create_task(encode_one(engine, images[1]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        watched.gate.set()
        await closing
        return [await begun, await waiting]

    assert [(10,), (10,)] == [encoding.presence.shape for encoding in asyncio.run(scenario())]


class Broken(Runtime):
    """Its device works only until it is warmed up."""

    def warm_up(self) -> None:
        """Fail."""
        raise DeviceError("CUDA was asked for and does not work")


def test_a_device_that_fails_its_warm_up_stops_the_start(bundle_path: Path) -> None:
    """Who makes an engine hears of it, although the warm-up is on another thread."""
    with pytest.raises(DeviceError, match="asked for and does not work"):
        Engine({"mnist": Broken(Bundle.open(bundle_path), device="cpu", threads=1)})


class FallenBack(Runtime):
    """Takes two batches at once only when its warm-up has left it on the CPU."""

    warm = False

    @property
    def side_by_side(self) -> int:
        """One on a device that is not this one."""
        return 2 if self.warm else 1

    @property
    def any_thread(self) -> bool:
        """Nor may every thread call that device."""
        return self.warm

    def warm_up(self) -> None:
        """Fall back."""
        self.warm = True


def test_threads_suit_the_device_that_is_left_after_the_warm_up(bundle_path: Path) -> None:
    """CUDA, which wants one for itself, may turn out not to work."""
    before = set(threading.enumerate())
    engine = Engine({"mnist": FallenBack(Bundle.open(bundle_path), device="cpu", threads=2)})
    try:
        assert 2 == len(set(threading.enumerate()) - before)
        assert engine.batcher._waiting.runner(("mnist", "encode")).anywhere()
    finally:
        engine.close()


def test_the_engine_names_what_it_holds(engine: Engine) -> None:
    """Its repr is what the log says at start."""
    assert "mnist" in repr(engine)
    assert "CPUExecutionProvider" in repr(engine)
