"""What holds in the container alone; `make image-test` runs it."""

from __future__ import annotations

import json
import subprocess

import httpx
import pytest

from tests.e2e.conftest import Container

ADDED_BYTES = 400_000_000
"""What the CPU image may add to its base."""

LOOK_AROUND = """
import importlib.util, json, os, pathlib, shutil
def is_writable(folder):
    try:
        (pathlib.Path(folder) / "new").touch()
    except OSError:
        return False
    return True
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "user": os.getuid(),
    "group": os.getgid(),
    "writable": [folder for folder in ("/", "/app", "/packages", "/tmp") if is_writable(folder)],
    "modules": [name for name in ("torch", "training", "model.capsnet")
                if importlib.util.find_spec(name)],
    "compilers": [name for name in ("cc", "gcc", "clang", "nvcc") if shutil.which(name)],
    "capabilities": [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")],
    "may gain rights": status["NoNewPrivs"].strip() == "0",
}))
"""


@pytest.fixture(autouse=True)
def _only_with_an_image(container: Container | None) -> None:
    if container is None:
        pytest.skip("needs an image: make image-test")


def run_python(container: Container, *arguments: str, **environment: str) -> str:
    command = container.command(environment, entrypoint="python3")
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_nothing_to_spare(container: Container) -> None:
    """A numeric user without rights, nothing to write to but /tmp, no torch and no compiler."""
    expected = {
        "user": 10001,
        "group": 10001,
        "writable": ["/tmp"],  # noqa: S108  the container's own
        "modules": [],
        "compilers": [],
        "capabilities": [0, 0, 0],
        "may gain rights": False,
    }
    assert expected == json.loads(run_python(container, "-c", LOOK_AROUND))


def test_the_health_check_asks_the_service(container: Container, service: httpx.Client) -> None:
    """It passes next to a ready service and fails where none listens."""
    run_python(container, "-m", "service.healthcheck", CAPSNET_PORT=str(service.base_url.port))
    with pytest.raises(subprocess.CalledProcessError):
        run_python(container, "-m", "service.healthcheck", CAPSNET_PORT="1")
