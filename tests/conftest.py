"""Bundles of an untrained and of a tiny trained network, and the service that serves them."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import httpx
import pytest

from model.bundle import Bundle, write_manifest
from model.runtime import Runtime
from service.pictures import SAMPLES
from service.settings import Settings
from tests.e2e.workers import all_ready
from tests.processes import SOURCE, open_client, running
from tests.serving import serve

ROOT = Path(__file__).parent.parent
SHIPPED = {"mnist": "mnist-compact", "strokes": "multimnist-attention", "blocks": "cifar10"}
"""The shipped bundles that stand in for those of tests where there is no torch to export them."""
LONG = (
    *("attack", "browser", "e2e", "fire", "training", "views"),
    *("test_add_view.py", "test_docs_commands.py", "test_examples.py", "test_families.py"),
)
"""The folders, and the files, of tests that take minutes."""

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from model.capsnet import Network
    from tests.exports import Store
    from training.data.datasets import Examples


class Shipped:
    """Copies shipped bundles, under the names of those of tests."""

    def copy(self, name: str, target: Path) -> Path:
        """Copy a bundle to a folder."""
        if name not in SHIPPED:
            pytest.skip("torch exports this bundle")
        shutil.copytree(ROOT / "model" / "bundles" / SHIPPED[name], target)
        manifest = Bundle.open(target).manifest
        write_manifest(target, replace(manifest, name=name, dataset=name))
        return target


def pytest_addoption(parser: pytest.Parser) -> None:
    """What tests/e2e is run against."""
    parser.addoption("--image", help="a container image, instead of this source tree")
    parser.addoption("--engine", default="docker", help="what runs it: docker or podman")


def pytest_configure() -> None:
    """One thread here and in what tests start: the tests themselves run side by side.

    Python starts as it does for users: it keeps what it compiled, so that the next start is
    shorter, and buffers what it writes. Garbage is collected seldom: it took a tenth of the time.
    """
    gc.set_threshold(50_000, 20, 20)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders of long tests: short ones at the end keep all processes busy."""

    def is_short(item: pytest.Item) -> bool:
        return item.path.relative_to(ROOT / "tests").parts[0] not in LONG

    items.sort(key=is_short)


def pytest_collection_finish() -> None:
    """Keep what was imported out of all searches for garbage."""
    gc.freeze()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with the settings of `make docs`: a broken link fails.

    One test process builds it for all that run side by side.
    """
    pytest.importorskip("mkdocs", reason="mkdocs builds the site")
    from filelock import FileLock  # noqa: PLC0415  not of the extra `cpu`

    folder = _shared_folder(tmp_path_factory) / "site"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            _build_site(folder.with_suffix(".new")).rename(folder)
    return folder


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all test processes that run side by side."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _build_site(folder: Path) -> Path:
    """From the files that the image's stage copies: without one of them, a link is broken."""
    allowed = [one for one in (ROOT / ".dockerignore").read_text().splitlines() if one[0] == "!"]
    dockerfile = (ROOT / "docker" / "service.Dockerfile").read_text()
    stage = dockerfile.partition(" AS documentation\n")[2].partition("\nFROM ")[0]
    with TemporaryDirectory() as context:
        for sources, target in re.findall(r"^COPY (.+) \./(\S*)$", stage, re.MULTILINE):
            for source in sources.split():
                assert [one for one in allowed if fnmatch(f"!{source}", f"{one}*")], source
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, Path(context, target))
                else:
                    Path(context, target).mkdir(exist_ok=True)
                    shutil.copy(ROOT / source, Path(context, target))
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
            cwd=context,
            env={"PATH": os.environ["PATH"], "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (0, "") == (done.returncode, done.stderr)
    return folder


@pytest.fixture
def families() -> Iterator[None]:
    """The registered families, as they are again after the test."""
    from model.capsnet.families import FAMILIES  # noqa: PLC0415  torch

    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)


@pytest.fixture(scope="session")
def store(pytestconfig: pytest.Config) -> Store | Shipped:
    """Where bundles of tests come from: exported by torch where it is installed."""
    if find_spec("torch") is None:
        return Shipped()
    from tests.exports import EXPORTS, Store  # noqa: PLC0415  torch

    return Store(pytestconfig.cache.mkdir("bundles"), EXPORTS)


@pytest.fixture(scope="session")
def network() -> Network:
    """An untrained network, its weights rounded to what its bundle holds."""
    from tests import exports  # noqa: PLC0415  torch
    from tests.model.capsnet.networks import TINY  # noqa: PLC0415
    from training.graphs import round_weights  # noqa: PLC0415

    network = exports.make_untrained(TINY["dynamic"])
    round_weights(network)
    return network


@pytest.fixture(scope="session")
def bundle_path(store: Store | Shipped, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network's bundle, `mnist`, with training images.

    Tests that change it work on a copy.
    """
    from tests.extras import add_health, add_noise  # noqa: PLC0415  of the extra `training`

    target = tmp_path_factory.mktemp("bundles") / "mnist"
    store.copy("mnist", target)
    add_noise(target)
    add_health(target)
    return target


@pytest.fixture(scope="session")
def family_bundles(
    bundle_path: Path, store: Store | Shipped, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with an untrained bundle of each family, called `tiny-<family>`."""
    pytest.importorskip("torch", reason="torch exports the bundles of families")
    folder = tmp_path_factory.mktemp("families")
    shutil.copytree(bundle_path, folder / "tiny-dynamic")
    manifest = Bundle.open(bundle_path).manifest
    renamed = replace(manifest, name="tiny-dynamic", dataset="tiny-dynamic")
    write_manifest(folder / "tiny-dynamic", renamed)
    from tests.model.capsnet.networks import TINY  # noqa: PLC0415  torch

    for family in TINY:
        if family != "dynamic":
            name = f"tiny-{family}"
            store.copy(name, folder / name)
    return folder


@pytest.fixture(scope="session")
def colour_bundle_path(bundle_path: Path, store: Store | Shipped) -> Path:
    """The bundle `blocks`, next to `mnist`: untrained, colour photographs of 24x32 pixels."""
    return store.copy("blocks", bundle_path.with_name("blocks"))


@pytest.fixture(scope="session")
def sized_bundles(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `large`, for pictures of 224x224 pixels, `bands`, for arrays, and `blocks`."""
    pytest.importorskip("torch", reason="torch exports the bundles of tests")
    from tests.extras import add_noise  # noqa: PLC0415  of the extra `training`

    folder = tmp_path_factory.mktemp("sized")
    for name in ("blocks", "large", "bands"):
        add_noise(store.copy(name, folder / name))
    return folder


@pytest.fixture(scope="session")
def strokes() -> Examples:
    """Three 28x28 images that cross: a horizontal, a vertical and a diagonal stroke."""
    pytest.importorskip("torch", reason="torch trains the network of strokes")
    from tests import exports  # noqa: PLC0415  torch

    return exports.strokes()


@pytest.fixture(scope="session")
def strokes_bundle_path(bundle_path: Path, store: Store | Shipped) -> Path:
    """The bundle `strokes` of a network that takes pairs of strokes apart, next to `mnist`."""
    return store.copy("strokes", bundle_path.with_name("strokes"))


@pytest.fixture(scope="session")
def runtime(bundle_path: Path) -> Runtime:
    """The bundle, for tests that compare the service's answers with the network's."""
    return Runtime(Bundle.open(bundle_path), device="cpu", threads=1)


@pytest.fixture(scope="session")
def settings(strokes_bundle_path: Path, colour_bundle_path: Path) -> Settings:
    """All three bundles, and limits low enough to be reached quickly."""
    del colour_bundle_path
    return Settings(
        bundles=strokes_bundle_path.parent,
        default_model="mnist",
        device="cpu",
        threads=1,
        max_body_bytes=200_000,
        max_pixels=1_000_000,
        max_pictures=5,
    )


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    """The running service; an unexpected exception in it fails the test."""
    with serve(settings) as client:
        yield client


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The service as `make serve` starts it, with all bundles that ship, for whatever reads.

    One test process starts it for all that run side by side, and ends it after the last of them.
    """
    folder = _shared_folder(tmp_path_factory)
    starting, users = ((folder / name).open("w") for name in ("shipped.lock", "shipped.users"))
    port = folder / "shipped"
    with ExitStack() as stack:
        stack.enter_context(starting)
        stack.enter_context(users)
        fcntl.flock(starting, fcntl.LOCK_EX)
        if port.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            client = stack.enter_context(open_client(int(port.read_text())))
        else:
            _, client = stack.enter_context(running(lambda _: SOURCE, {}))
            all_ready(client)
            port.write_text(str(client.base_url.port))
            stack.callback(port.unlink)
            stack.callback(fcntl.flock, users, fcntl.LOCK_EX)  # waits for the others
            stack.callback(fcntl.flock, starting, fcntl.LOCK_EX)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield client


@pytest.fixture(scope="session")
def digits() -> list[bytes]:
    """A real digit of each class, 28x28 PNG, by label."""
    return [(SAMPLES / f"{label}.png").read_bytes() for label in range(10)]
