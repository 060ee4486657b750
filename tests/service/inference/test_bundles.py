from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model.bundle import CARD, MANIFEST, WEIGHTS
from model.preprocess import Floats
from model.runtime import Encoding, Runtime
from service.inference.batcher import Batcher, Runner
from service.inference.bundles import Bundles, NothingToServe, ReloadRefused, load_runtimes
from service.inference.engine import Backend, Engine, Loaded, open_engine
from service.inference.job import Closed, Job
from service.inference.remote import Host, Remote
from service.settings import Settings
from tests.service.inference.gates import PATIENCE_S, Gate

ENCODER = "encoder.onnx"


@pytest.fixture
def add_bundle(bundle_path: Path, tmp_path: Path) -> Callable[[str], Path]:
    """`add_bundle(name)` puts a sound bundle of that name into `tmp_path`."""

    def add(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(bundle_path, folder)
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps({**manifest, "name": name}))
        return folder

    return add


def settings(bundles: Path, *models: str) -> Settings:
    return Settings(bundles=bundles, models=models, device="cpu", threads=1, default_model="mnist")


def alter_weights(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / WEIGHTS).write_bytes(content)


def remove_encoder(folder: Path) -> None:
    (folder / ENCODER).unlink()


def cut_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text[: len(text) // 2])


def write_another_schema(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**values, "schema_version": 99}))


def replace_graph(folder: Path) -> None:
    (folder / ENCODER).write_bytes(b"no graph")
    values = json.loads((folder / MANIFEST).read_text())
    values["sha256"][ENCODER] = hashlib.sha256(b"no graph").hexdigest()
    (folder / MANIFEST).write_text(json.dumps(values))


def take_a_name(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**values, "name": "mnist"}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(replace_graph, "encoder.onnx cannot be loaded", id="no graph"),
        pytest.param(take_a_name, "its name is already taken by", id="a name twice"),
        pytest.param(alter_weights, f"{WEIGHTS} is not the file", id="altered weights"),
        pytest.param(remove_encoder, "encoder.onnx cannot be read", id="missing graph"),
        pytest.param(cut_manifest, "manifest.json is not JSON", id="broken manifest"),
        pytest.param(write_another_schema, "schema version 99", id="another schema"),
    ],
)
def test_a_broken_bundle_is_named_and_left_out(
    damage: Callable[[Path], None],
    reason: str,
    add_bundle: Callable[[str], Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says which bundle is wrong and why; the others are served."""
    add_bundle("mnist")
    broken = add_bundle("two")
    damage(broken)
    assert {"mnist"} == load_runtimes(settings(tmp_path)).keys()
    (message,) = [record.getMessage() for record in caplog.records]
    assert str(broken) in message
    assert reason in message


def test_all_sound_bundles_are_loaded(add_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    """Every folder with a manifest is a bundle; others are not looked at."""
    add_bundle("mnist")
    add_bundle("mnist-compact")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / CARD).write_text("no bundle")
    runtimes = load_runtimes(settings(tmp_path))
    assert {"mnist", "mnist-compact"} == runtimes.keys()
    for name, runtime in runtimes.items():
        assert name == runtime.bundle.manifest.name


def test_only_named_bundles_are_loaded(add_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    """With a list of models, other folders are not loaded."""
    add_bundle("mnist")
    add_bundle("mnist-compact")
    assert {"mnist"} == load_runtimes(settings(tmp_path, "mnist")).keys()


def test_a_named_bundle_that_is_missing_is_named_in_the_log(
    add_bundle: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo in the list of models is seen."""
    add_bundle("mnist")
    assert {"mnist"} == load_runtimes(settings(tmp_path, "mnist", "minst")).keys()
    assert f"{tmp_path / 'minst'}: manifest.json cannot be read" in caplog.text


def test_nothing_is_served_without_the_default_bundle(
    add_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    """The message names the default and what was found instead."""
    add_bundle("mnist-compact")
    expected = r"'mnist' is not among the loaded bundles \(mnist-compact\)"
    with pytest.raises(NothingToServe, match=expected):
        load_runtimes(settings(tmp_path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [(".", r"\(none\) of"), ("nowhere", "there is no folder of bundles .*nowhere")],
)
def test_nothing_is_served_from_an_empty_folder(name: str, expected: str, tmp_path: Path) -> None:
    """Nor from none; the message names it."""
    with pytest.raises(NothingToServe, match=expected):
        load_runtimes(settings(tmp_path / name))


def test_nothing_is_served_if_the_default_bundle_is_broken(
    add_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    """An altered default bundle is never served."""
    alter_weights(add_bundle("mnist"))
    add_bundle("mnist-compact")
    with pytest.raises(NothingToServe):
        load_runtimes(settings(tmp_path))


def test_a_broken_bundle_refuses_a_reload(
    add_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    """The reason names it."""
    add_bundle("mnist")
    broken = add_bundle("two")
    remove_encoder(broken)
    with pytest.raises(ReloadRefused, match=f"{broken}.*encoder.onnx cannot be read"):
        load_runtimes(settings(tmp_path), strict=True)


# Exchanging engines


class Noted(Engine):
    """An engine of nothing that says whether it was closed."""

    def __init__(self) -> None:
        super().__init__(Batcher({"q": Runner(Gate(is_open=True), 4)}), Loaded({}, "none"))
        self.closed = False

    def close(self, timeout_s: float | None = None) -> bool:
        """Close."""
        self.closed = True
        return super().close(PATIENCE_S if timeout_s == 0 else timeout_s)


class Opening:
    """Opens the engines that it was given, in the next turn; exceptions are raised."""

    def __init__(self, *engines: Engine | Exception) -> None:
        self.engines = list(engines)
        self.asked: list[tuple[Path | None, bool]] = []
        self.lose: Callable[[Backend], None] = lambda _backend: None

    async def __call__(
        self, path: Path | None, *, strict: bool, on_lost: Callable[[Backend], None]
    ) -> Engine:
        """Open the next."""
        self.asked.append((path, strict))
        self.lose = on_lost
        await asyncio.sleep(0)
        engine = self.engines.pop(0)
        if isinstance(engine, Exception):
            raise engine
        return engine


async def loaded(*engines: Engine | Exception) -> tuple[Bundles, Opening]:
    """Bundles that have loaded the first of some engines."""
    opening = Opening(*engines)
    bundles = Bundles(opening)
    await bundles.load()
    return bundles, opening


@pytest.mark.anyio
async def test_before_the_first_there_is_none() -> None:
    """A service that starts has nothing to answer with, and nothing to close."""
    bundles = Bundles(Opening())
    with pytest.raises(Closed, match="starting"), bundles.engine():
        pass
    assert 0.0 == bundles.running_s
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_a_request_keeps_its_engine() -> None:
    """A reload changes what later requests get, and closes the old engine after its last."""
    first, second = Noted(), Noted()
    bundles, opening = await loaded(first, second)
    with bundles.engine() as one:
        with bundles.engine() as other:
            await bundles.reload()
            assert one is other is first
        with bundles.engine() as later:
            assert second is later
        assert not first.closed
    assert [True, False] == [first.closed, second.closed]
    assert bundles.close(PATIENCE_S)
    assert second.closed
    assert [(None, False), (None, True)] == opening.asked


@pytest.mark.anyio
async def test_what_is_prepared_is_used_when_it_is_committed() -> None:
    """All workers take it at the same time."""
    first, second = Noted(), Noted()
    bundles, opening = await loaded(first, second)
    await bundles.prepare(Path("engine-2"))
    with bundles.engine() as engine:
        assert first is engine
    bundles.commit()
    with bundles.engine() as engine:
        assert second is engine
    assert (Path("engine-2"), True) == opening.asked[-1]
    bundles.commit()  # nothing else
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_what_is_aborted_is_closed_and_never_used() -> None:
    """Where another worker could not load it."""
    first, second = Noted(), Noted()
    bundles, _ = await loaded(first, second)
    await bundles.prepare()
    bundles.abort()
    bundles.abort()
    bundles.commit()
    with bundles.engine() as engine:
        assert first is engine
    assert [False, True] == [first.closed, second.closed]
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_what_was_prepared_and_forgotten_is_closed() -> None:
    """When another is prepared."""
    first, forgotten, third = Noted(), Noted(), Noted()
    bundles, _ = await loaded(first, forgotten, third)
    await bundles.prepare()
    await bundles.reload()
    assert [True, True, False] == [one.closed for one in (first, forgotten, third)]
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "reason", [NothingToServe("no bundle"), FileNotFoundError("no engine"), ReloadRefused("broken")]
)
async def test_a_refused_reload_changes_nothing(reason: Exception) -> None:
    """And the next may do better."""
    first, second = Noted(), Noted()
    bundles, _ = await loaded(first, reason, second)
    with pytest.raises(ReloadRefused, match=str(reason)):
        await bundles.reload()
    bundles.commit()
    with bundles.engine() as engine:
        assert first is engine
    await bundles.reload()
    assert first.closed
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_of_two_reloads_at_once_the_second_is_refused() -> None:
    """The first goes on."""
    first, second = Noted(), Noted()
    bundles, _ = await loaded(first, second)
    outcomes = await asyncio.gather(bundles.reload(), bundles.reload(), return_exceptions=True)
    assert ["None", "another reload is under way"] == [str(outcome) for outcome in outcomes]
    with bundles.engine() as engine:
        assert second is engine
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_an_engine_that_is_lost_is_used_no_more() -> None:
    """Another is loaded at once; one that was replaced before changes nothing."""
    first, second = Noted(), Noted()
    bundles, opening = await loaded(first, second)
    opening.lose(first.backend)
    assert first.closed
    with pytest.raises(Closed), bundles.engine():
        pass
    assert bundles._connecting
    await bundles._connecting
    opening.lose(first.backend)
    with bundles.engine() as engine:
        assert second is engine
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_loading_waits_until_the_engine_is_there(tmp_path: Path) -> None:
    """A worker may be up before the process that computes for it."""
    path, begun = tmp_path / "engine", asyncio.Event()

    async def connect(path: Path, *, strict: bool, on_lost: object) -> Engine:
        assert not strict
        assert on_lost
        begun.set()
        remote = await Remote().connect(path)
        return Engine(remote, remote.loaded)

    bundles = Bundles(connect)
    loading = asyncio.create_task(bundles.load(path))
    await begun.wait()
    batcher = Batcher({("m", "encode"): Runner(Gate(lambda rows: rows, is_open=True), 4)})
    async with await Host(batcher, Loaded({}, "none")).serve(path):
        await asyncio.wait_for(loading, PATIENCE_S)
        with bundles.engine() as engine:
            row = (np.zeros(2),)
            assert 1 == len((await engine.backend.submit(("m", "encode"), [row], Job(0.0))).rows)
        assert bundles.close(PATIENCE_S)
    assert batcher.close(PATIENCE_S)


@pytest.mark.anyio
async def test_what_cannot_be_loaded_at_the_start_is_told() -> None:
    """Only an engine in another process is waited for."""
    for reason in (NothingToServe("no bundle"), FileNotFoundError("no folder")):
        with pytest.raises(type(reason)):
            await loaded(reason)


async def open_here(runtime: Runtime) -> Engine:
    runtimes = {"mnist": runtime}
    return await asyncio.to_thread(open_engine, runtimes)


@pytest.mark.anyio
async def test_no_request_is_lost_while_bundles_are_exchanged(runtime: Runtime) -> None:
    """Requests of several steps go on through five reloads."""
    bundles = Bundles(lambda _path, **_: open_here(runtime))
    await bundles.load()
    images = np.random.default_rng(0).random((4, 1, 28, 28), np.float32)
    over, answered = asyncio.Event(), asyncio.Semaphore(0)

    async def ask(image: Floats) -> None:
        while not over.is_set():
            with bundles.engine() as engine:
                (encoding,) = await engine.encode(Job(0.0), "mnist", [image])
                assert isinstance(encoding, Encoding)
                await asyncio.sleep(0)
                await engine.decode(Job(0.0), "mnist", encoding.poses, np.arange(10))
            answered.release()

    async with asyncio.TaskGroup() as callers:
        for image in images:
            callers.create_task(ask(image))
        for _ in range(5):
            await bundles.reload()
            for _ in range(8):
                await answered.acquire()
        over.set()
    assert bundles.close(PATIENCE_S)


@pytest.mark.anyio
async def test_what_was_exchanged_is_forgotten(bundle_path: Path) -> None:
    """The sessions of bundles that are served no more give their memory back, frozen or not."""
    own = settings(bundle_path.parent, bundle_path.name)
    bundles = Bundles(lambda _path, **_: open_here(load_runtimes(own)["mnist"]))
    gc.disable()
    try:
        await bundles.load()
        forgotten, loop = asyncio.Event(), asyncio.get_running_loop()
        with bundles.engine() as engine:
            assert isinstance(engine.backend, Batcher)
            runner = engine.backend._runners["mnist", "encode"]
            watched = weakref.ref(runner, lambda _: loop.call_soon_threadsafe(forgotten.set))
        del engine, runner
        await bundles.reload()
        await asyncio.wait_for(forgotten.wait(), PATIENCE_S)
        assert watched() is None
    finally:
        gc.enable()
    assert bundles.close(PATIENCE_S)
