from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from service.processes.child import Child
from service.processes.place import Place
from tests.processes import PATIENCE_S

Open = Callable[..., Place]
Until = Callable[[Callable[[], object]], Awaitable[None]]


async def until(true: Callable[[], object]) -> None:
    """Wait for what should happen soon."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  processes do not set events
            await asyncio.sleep(0.01)


@pytest.fixture
async def open_place() -> AsyncIterator[Open]:
    """`open_place("serve", "a")` keeps a process that does that; one word for each start."""
    places: list[Place] = []

    def open_place(*words: str | OSError, bundles: str = "a") -> Place:
        left = list(words)

        async def start(_: Place) -> Child:
            word = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(word, OSError):
                raise word
            return await Child.start(
                "tests.service.processes.program", word, bundles, descriptors=[]
            )

        place = Place(len(places), start=start, receive=lambda *_: None, ended=lambda: None)
        places.append(place)
        return place

    yield open_place
    for place in places:
        place.stop()
        place.kill()
        with suppress(asyncio.CancelledError):
            await place.run
