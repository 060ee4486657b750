from __future__ import annotations

import asyncio
import gc
import json
import shutil
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from model.bundle import MANIFEST
from service.app import create_app
from service.lifecycle import Lifecycle
from service.loading import ReloadRefused
from service.settings import Settings

KEY = "a-key-of-tests-alone"
ENCODER = "encoder.onnx"


@pytest.fixture
def bundles(bundle_path: Path, tmp_path: Path) -> Path:
    """A folder of bundles that the test may change."""
    shutil.copytree(bundle_path, tmp_path / "bundles" / "mnist")
    return tmp_path / "bundles"


@pytest.fixture
def own_settings(settings: Settings, bundles: Path) -> Settings:
    """The settings of a service with keys that reads this folder."""
    return settings.model_copy(update={"bundles": bundles, "api_keys": (SecretStr(KEY),)})


def install(bundles: Path, dataset: str) -> None:
    """Put another version of the bundle in the place of the one that is there."""
    incoming = bundles.parent / "incoming"
    shutil.copytree(bundles / "mnist", incoming)
    manifest = json.loads((incoming / MANIFEST).read_text())
    (incoming / MANIFEST).write_text(json.dumps({**manifest, "dataset": dataset}))
    shutil.rmtree(bundles / "mnist")
    incoming.rename(bundles / "mnist")


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """The service with its bundles loaded, and a client with a key."""
    app = create_app(settings)
    app.state.loader.load()
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://service",
            headers={"X-API-Key": KEY},
        ) as client,
    ):
        yield app, client


async def version(client: httpx.AsyncClient) -> str:
    answer: str = (await client.get("/models/mnist")).json()["dataset"]
    return answer


def test_no_request_is_lost_while_bundles_are_exchanged(
    own_settings: Settings, bundles: Path, digits: list[bytes]
) -> None:
    """Requests of several steps go on through five exchanges, and the last bundle serves."""

    async def scenario() -> list[int]:
        statuses: list[int] = []
        over = asyncio.Event()

        async def ask(client: httpx.AsyncClient, picture: bytes) -> None:
            while not over.is_set():
                answer = await client.post("/perturb?dim=4&delta=0.1", files={"file": picture})
                statuses.append(answer.status_code)

        async with running(own_settings) as (_app, client), asyncio.TaskGroup() as callers:
            for picture in digits:
                callers.create_task(ask(client, picture))
            for number in range(5):
                install(bundles, f"version-{number}")
                assert 200 == (await client.post("/models/reload")).status_code
                assert f"version-{number}" == await version(client)
            over.set()
            return statuses

    assert {200} == set(asyncio.run(scenario()))


@pytest.fixture
def without_collector() -> Iterator[None]:
    """No search for cycles, except when the service asks for one."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_what_was_exchanged_is_forgotten(own_settings: Settings) -> None:
    """The sessions of a bundle that is served no more give their memory back, frozen or not."""

    async def scenario() -> None:
        async with running(own_settings) as (app, client):
            with app.state.serving.inspector() as inspector:
                runtime = weakref.ref(inspector.engine._runtimes["mnist"])
            del inspector
            assert 200 == (await client.post("/models/reload")).status_code
            async with asyncio.timeout(10):
                while runtime() is not None:  # noqa: ASYNC110  threads end in their own time
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_broken_bundle_leaves_all_as_they_were(own_settings: Settings, bundles: Path) -> None:
    """The answer names it, and the old bundle serves on."""

    async def scenario() -> tuple[httpx.Response, str]:
        async with running(own_settings) as (_app, client):
            install(bundles, "broken")
            (bundles / "mnist" / ENCODER).write_bytes(b"no graph")
            return await client.post("/models/reload"), await version(client)

    answer, dataset = asyncio.run(scenario())
    assert 409 == answer.status_code
    problem = answer.json()
    assert "urn:capsnet:problem:bundle-refused" == problem["type"]
    assert str(bundles / "mnist") in problem["detail"]
    assert ENCODER in problem["detail"]
    assert "mnist" == dataset


def test_a_reload_keeps_the_default_bundle(own_settings: Settings, bundles: Path) -> None:
    """A folder that was emptied by mistake ends nothing."""
    lifecycle = Lifecycle()
    app = create_app(own_settings, lifecycle=lifecycle)
    app.state.loader.load()
    shutil.rmtree(bundles / "mnist")
    with pytest.raises(ReloadRefused, match="'mnist' is not among the loaded bundles"):
        app.state.loader.reload()
    assert lifecycle.failure is None
    assert app.state.serving.close(10)


def test_what_nobody_waits_for_is_logged(
    own_settings: Settings, bundles: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a signal, the reason is in the log."""
    app = create_app(own_settings)
    app.state.loader.load()
    (bundles / "mnist" / MANIFEST).write_text("{")
    app.state.loader.reload_and_log()
    assert f"nothing reloaded: {bundles / 'mnist'}: {MANIFEST} is not JSON" in caplog.text
    assert app.state.serving.close(10)


def test_without_keys_there_is_no_such_route(own_settings: Settings) -> None:
    """Who may not be asked for a key may not exchange bundles either."""

    async def scenario() -> int:
        async with running(own_settings.model_copy(update={"api_keys": ()})) as (_app, client):
            return (await client.post("/models/reload")).status_code

    assert 405 == asyncio.run(scenario())
