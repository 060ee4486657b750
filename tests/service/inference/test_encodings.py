"""Encodings that are kept, and those that several requests wait for."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from service.inference.encodings import Encodings, Row, digest

pytestmark = pytest.mark.anyio
ENTRY_BYTES = 540
"""The size of a row of ten numbers."""


class Computer:
    """Computes rows of one number, once it may."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.computed = 0
        self.may_go = asyncio.Event()
        if is_open:
            self.may_go.set()

    async def __call__(self) -> Row | Exception:
        """Compute a row."""
        self.computed += 1
        number = self.computed
        await self.may_go.wait()
        return (np.full(10, number, np.float32),)


async def numbers(*found: asyncio.Task[tuple[Row | Exception, bool]]) -> list[tuple[int, bool]]:
    """The number of each row, and whether it was computed for this call."""
    results = [await one for one in found]
    return [(int(row[0][0]), own) for row, own in results if isinstance(row, tuple)]


def find(
    encodings: Encodings, key: str, compute: Computer
) -> asyncio.Task[tuple[Row | Exception, bool]]:
    return asyncio.ensure_future(encodings.find(key, compute))


async def test_what_is_asked_twice_is_computed_once() -> None:
    """At the same time, and later; another key has a row of its own."""
    encodings, compute = Encodings(10_000), Computer(is_open=False)
    together = [find(encodings, "a", compute) for _ in range(3)]
    await asyncio.sleep(0)
    compute.may_go.set()
    assert [(1, True), (1, False), (1, False)] == await numbers(*together)
    assert [(1, False), (2, True)] == await numbers(
        find(encodings, "a", compute), find(encodings, "b", compute)
    )


async def test_the_entry_that_was_used_longest_ago_gives_way() -> None:
    """As soon as there are more bytes than the limit."""
    encodings, compute = Encodings(2 * ENTRY_BYTES), Computer()
    for key in ("a", "b", "a", "c"):
        await find(encodings, key, compute)
    assert [(1, False), (3, False), (4, True)] == await numbers(
        *(find(encodings, key, compute) for key in ("a", "c", "b"))
    )
    small = Encodings(ENTRY_BYTES - 1)
    await find(small, "a", compute)
    assert f"Encodings(0 kept, 0 of {ENTRY_BYTES - 1} bytes)" == repr(small)


async def test_if_the_first_caller_leaves_the_next_one_computes() -> None:
    """The others wait for it."""
    encodings, compute = Encodings(10_000), Computer(is_open=False)
    leaver, *stayers = [find(encodings, "a", compute) for _ in range(3)]
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.sleep(0)
    compute.may_go.set()
    assert [(2, True), (2, False)] == sorted(await numbers(*stayers), reverse=True)


async def test_a_failure_is_shared_and_not_kept() -> None:
    """Those who wait get it; the next request tries again."""
    encodings, go = Encodings(10_000), asyncio.Event()

    async def fail() -> Exception:
        await go.wait()
        return ArithmeticError("NaN")

    calls = [asyncio.ensure_future(encodings.find("a", fail)) for _ in range(2)]
    await asyncio.sleep(0)
    go.set()
    assert ["NaN", "NaN"] == [str((await call)[0]) for call in calls]
    assert [(1, True)] == await numbers(find(encodings, "a", Computer()))


async def test_kept_rows_cannot_be_changed() -> None:
    """One request must not change what another one gets."""
    encodings, compute = Encodings(10_000), Computer()
    await find(encodings, "a", compute)
    row, _ = await find(encodings, "a", compute)
    with pytest.raises(ValueError, match="read-only"):
        row[0][0] = 1  # type: ignore[index]


def test_images_of_equal_bytes_and_other_shapes_differ() -> None:
    """A wide image is no high one."""
    assert digest(np.zeros((1, 2, 8), np.float32)) != digest(np.zeros((1, 8, 2), np.float32))
