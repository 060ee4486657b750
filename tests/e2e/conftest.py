from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.processes import PATIENCE_S, SOURCE, Command, free_port, running

QUICK = {
    "CAPSNET_DEFAULT_MODEL": "mnist-compact",
    "CAPSNET_MODELS": '["mnist-compact"]',
    "CAPSNET_WORKERS": "1",
}
"""The service starts in a third of the time with one bundle."""


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the data sets; skips where there is none."""
    if "CAPSNET_DATA_DIR" not in os.environ:
        pytest.skip("needs the data sets: set CAPSNET_DATA_DIR")
    return Path(os.environ["CAPSNET_DATA_DIR"])


class Container(NamedTuple):
    """How a container of an image is run: as docker-compose.yml does, with nothing to spare."""

    engine: str
    """docker, or what takes the same arguments."""
    image: str

    def command(self, environment: dict[str, str], *, entrypoint: str | None = None) -> list[str]:
        """The command that runs it in the foreground, with the host's network."""
        return [
            *(self.engine, "run", "--rm", "--network=host", "--read-only", "--tmpfs=/tmp"),
            *("--cap-drop=ALL", "--security-opt=no-new-privileges"),
            *(f"--env={name}={value}" for name, value in environment.items()),
            *([f"--entrypoint={entrypoint}"] if entrypoint else []),
            self.image,
        ]


@pytest.fixture(scope="session")
def container(pytestconfig: pytest.Config) -> Container | None:
    """The container that is tested, if it is not this source tree: `make image-test`."""
    image = pytestconfig.getoption("--image")
    return Container(pytestconfig.getoption("--engine"), image) if image else None


@pytest.fixture
def source_alone(container: Container | None) -> None:
    """For tests that patch this source tree, or look at processes and folders of this machine."""
    if container:
        pytest.skip("is of this source tree and this machine")


@pytest.fixture(scope="session")
def command(container: Container | None) -> Command:
    """Gives the command that starts the service with some settings."""
    return container.command if container else lambda _environment: SOURCE


@pytest.fixture(scope="session")
def service(
    container: Container | None, command: Command, request: pytest.FixtureRequest
) -> Iterator[httpx.Client]:
    """The service as `make serve` starts it, in a process of its own, with all shipped bundles."""
    if container is None:
        yield request.getfixturevalue("shipped")
        return
    with running(command, {}) as (_process, client):
        yield client


@pytest.fixture
def start_service(
    command: Command,
) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]]:
    """Starts a service of the test's own, with further settings; ends it with the test.

    `start_service(command=, probe=, **environment)` waits until the probe says 200. One
    worker serves, and one bundle where no folder of them is named.
    """
    usual = command
    with ExitStack() as stack:

        def start(
            *, command: Command = usual, probe: str = "/readyz", **environment: str
        ) -> tuple[subprocess.Popen[bytes], httpx.Client]:
            few = {"CAPSNET_WORKERS": "1"} if "CAPSNET_BUNDLES" in environment else QUICK
            return stack.enter_context(running(command, {**few, **environment}, probe=probe))

        yield start


@pytest.fixture
def run_service(command: Command) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a service that is expected to end by itself, on a port that nobody else has."""

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        environment = {"CAPSNET_PORT": str(free_port()), **environment}
        return subprocess.run(
            command(environment),
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run
