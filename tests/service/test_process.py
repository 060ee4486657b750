from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from service import process
from service.control import Message
from service.process import Process

SOURCE = """
import os, socket, sys
end = socket.socket(fileno=int(sys.argv[1]))
{body}
"""


Write = Callable[[str], int]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(source)` says what `python -m child` runs."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(process, "_LONGEST_WAIT_S", 0.001)
    return (tmp_path / "child.py").write_text


@pytest.mark.anyio
async def test_a_process_that_never_gets_ready_is_given_up(write: Write) -> None:
    """A crash loop ends with a sentence."""
    write("raise SystemExit(3)")
    ended: list[int] = []
    child = Process("child", receive=lambda *_: None, ended=ended.append)
    with pytest.raises(RuntimeError, match=r"child \d+ ended 5 times before it was ready"):
        await child.run()
    assert 5 == len(set(ended))


@pytest.mark.anyio
async def test_another_takes_the_place_of_one_that_was_ready(write: Write) -> None:
    """However often: only those that never got ready count."""
    write(SOURCE.format(body="end.sendall(b'{\"ready\": true}\\n')"))
    starts = 0

    def receive(one: Process, message: Message) -> None:
        nonlocal starts
        assert {"ready": True} == message
        starts += 1
        if starts == 8:
            one.stop()

    child = Process("child", receive=receive, ended=lambda _pid: None)
    assert 0 == await asyncio.wait_for(child.run(), 60)
    assert 8 == starts


@pytest.mark.anyio
async def test_it_is_given_its_socket_and_arguments(write: Write) -> None:
    """And answers through the one what it was told by the other."""
    body = 'end.sendall(b\'{"argument": "%s"}\\n\' % sys.argv[2].encode()); end.recv(1)'
    write(SOURCE.format(body=body))
    received: asyncio.Queue[Message] = asyncio.Queue()
    child = Process(
        "child",
        "value",
        receive=lambda _child, message: received.put_nowait(message),
        ended=lambda _pid: None,
    )
    run = asyncio.ensure_future(child.run())
    assert {"argument": "value"} == await received.get()
    assert child.up
    assert not child.ready
    child.stop()
    assert 0 == await run


@pytest.mark.anyio
async def test_it_can_be_killed(write: Write) -> None:
    """Even if it reads nothing."""
    write(SOURCE.format(body="import time; end.sendall(b'{\"up\": true}\\n'); time.sleep(600)"))
    up = asyncio.Event()
    child = Process("child", receive=lambda *_: up.set(), ended=lambda _pid: None)
    run = asyncio.ensure_future(child.run())
    await up.wait()
    child.kill()
    assert -9 == await run
