from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from model.bundle import Bundle
from model.preprocess import Floats
from model.runtime import DeviceError, DeviceLostError, Encoding, Runtime
from service.admission import Admission
from service.errors import Problem
from service.inference.batcher import Closed
from service.inference.engine import Engine, ServedNet, open_engine
from service.slow import SlowThread
from tests.service.inference.gates import PATIENCE_S, Gate

pytestmark = pytest.mark.anyio


def ask(engine: Engine) -> ServedNet:
    """A network of an engine for a request of its own."""
    claim = Admission(1000, 1000).claim("10.0.0.1")
    return ServedNet(engine.manifests["mnist"], engine, claim, SlowThread())


class Watched(Runtime):
    """The real network, on the batcher's thread alone; at the gate it waits until it is let.

    An image of ones breaks it, with one of twos the device is lost, and one of threes is answered
    with NaN.
    """

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, device="cpu", threads=1)
        self.gate = Gate(lambda rows: rows, is_open=True)

    def warm_up(self) -> None:
        """Note the thread."""
        self.gate.threads.add(threading.get_ident())

    def encode(self, images: Floats) -> Encoding[Floats]:
        """Encode at the gate."""
        self.gate(list(images))
        if (images == 2).any():
            raise DeviceLostError("the device fell off")
        if (images == 1).all(axis=(1, 2, 3)).any():
            raise RuntimeError("a bad image")
        found = super().encode(images)
        found.presence[(images == 3).all(axis=(1, 2, 3))] = np.nan
        return found


@pytest.fixture
def watched(bundle_path: Path) -> Watched:
    return Watched(Bundle.open(bundle_path))


@pytest.fixture
def engine(watched: Watched) -> Iterator[Engine]:
    engine = open_engine({"mnist": watched})
    yield engine
    watched.gate.let(100)
    assert engine.close(PATIENCE_S)


@pytest.fixture(scope="module")
def images() -> Floats:
    """Noise, (10, 1, 28, 28)."""
    return np.random.default_rng(0).random((10, 1, 28, 28), np.float32)


async def test_the_loop_is_free_while_a_network_works(bundle_path: Path, images: Floats) -> None:
    """Inference waits for a gate that only the event loop opens, so it cannot be holding it up."""
    watched = Watched(Bundle.open(bundle_path))
    watched.gate = Gate(lambda rows: rows)
    engine = open_engine({"mnist": watched})
    call = asyncio.create_task(ask(engine).encode(images[:1]))
    await watched.gate.running()
    assert not call.done()
    watched.gate.let()
    assert 1 == len(await call)
    assert engine.close(PATIENCE_S)


async def test_others_go_between_the_rows_of_a_large_request(
    engine: Engine, images: Floats
) -> None:
    """One that came while a hundred images are encoded does not wait for all of them."""
    order: list[str] = []

    async def encode(count: int, name: str) -> None:
        assert count == len(await ask(engine).encode(np.resize(images, (count, 1, 28, 28))))
        order.append(name)

    large = asyncio.create_task(encode(100, "large"))
    await asyncio.sleep(0)
    await asyncio.gather(large, encode(1, "small"))
    assert ["small", "large"] == order


async def test_nan_is_no_answer(engine: Engine, images: Floats) -> None:
    """Only who sent the image gets an error."""
    odd = np.full_like(images[0], 3)
    encodings = await ask(engine).encode([images[0], odd, images[1]])
    assert [Encoding, Problem, Encoding] == [type(one) for one in encodings]


async def test_a_lost_device_ends_the_engine(watched: Watched, images: Floats) -> None:
    """Every further call would fail too, so the owner of the engine gets the error."""
    told: list[Exception] = []
    runtimes = {"mnist": watched}
    engine = open_engine(runtimes, on_lost=told.append)
    for image in (np.full_like(images[0], 2), images[0]):
        with pytest.raises(Closed):
            await ask(engine).encode([image])
    assert engine.close(PATIENCE_S)
    assert ["the device fell off"] == [str(error) for error in told]


class Broken(Runtime):
    """Its device works only until it is warmed up."""

    def warm_up(self) -> None:
        """Fail."""
        raise DeviceError("CUDA was asked for and does not work")


def test_a_device_that_fails_its_warm_up_stops_the_start(bundle_path: Path) -> None:
    """Who makes an engine hears of it, although the warm-up is on another thread."""
    with pytest.raises(DeviceError, match="asked for and does not work"):
        open_engine({"mnist": Broken(Bundle.open(bundle_path), device="cpu", threads=1)})
