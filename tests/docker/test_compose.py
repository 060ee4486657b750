from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
NAMES = {f"CAPSNET_{name.upper()}" for name in Settings.model_fields}
KEY_FILES = {"CAPSNET_API_KEYS_FILE", "CAPSNET_ADMIN_KEYS_FILE"}
FIXED = {"CAPSNET_HOST", "CAPSNET_PORT", "CAPSNET_DEVICE", "CAPSNET_BUNDLES", *KEY_FILES}
"""What docker-compose.yml decides."""
SERVICES = ["capsnet", "training", "prometheus", "grafana"]
COMMANDS = [["docker", "compose"], ["docker-compose"]]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return services


def find_compose() -> list[str]:
    """Docker Compose 2.24 or later, which knows !reset."""
    for command in COMMANDS:
        if not shutil.which(command[0]):
            continue
        result = subprocess.run(
            [*command, "version", "--short"], capture_output=True, text=True, check=False
        )
        version = tuple(map(int, re.findall(r"\d+", result.stdout)[:2]))
        if result.returncode == 0 and version >= (2, 24):
            return command
    pytest.skip("needs docker compose 2.24 or later")


def run_compose(command: list[str], *arguments: str, **environment: str) -> dict[str, Any]:
    """What Compose makes of its files."""
    output = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    services: dict[str, Any] = yaml.safe_load(output)["services"]
    return services


def test_every_setting_reaches_the_container(services: dict[str, Any]) -> None:
    """A setting of the environment or of .env is passed on, unless the file decides it."""
    environment = services["capsnet"]["environment"]
    ours = {name for name in environment if name.startswith("CAPSNET_")}
    assert NAMES == ours
    assert FIXED == {name for name in ours if environment[name] is not None}


def test_the_example_holds_every_setting_with_its_default() -> None:
    """Uncommented, .env.example changes nothing."""
    text = (ROOT / ".env.example").read_text()
    entries = dict(re.findall(r"^# (CAPSNET_\w+)=(.*)$", text, re.MULTILINE))
    assert NAMES - FIXED == entries.keys()
    assert all(name in text for name in FIXED)
    given = {name.removeprefix("CAPSNET_").lower(): value for name, value in entries.items()}
    values = {
        name: json.loads(value) if value.startswith("[") else value
        for name, value in given.items()
        if value
    }
    assert Settings() == Settings(**values)


@pytest.mark.parametrize("name", SERVICES)
def test_containers_get_no_more_than_they_need(name: str, services: dict[str, Any]) -> None:
    """Read-only root, no capabilities, no way to new privileges, a limit on memory."""
    service = services[name]
    assert service["init"]
    assert service["read_only"]
    assert ["ALL"] == service["cap_drop"]
    assert ["no-new-privileges:true"] == service["security_opt"]
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert service["restart"] in {"unless-stopped", "on-failure:10"}


def test_compose_accepts_the_file(services: dict[str, Any]) -> None:
    """What a reader of YAML takes for sound is sound to Compose too."""
    command = find_compose()
    accepted = run_compose(command, "--profile", "monitoring", "--profile", "training", "config")
    assert services.keys() == accepted.keys()


def test_the_override_needs_no_gpu() -> None:
    """No device is reserved and the CPU image is taken; settings still pass."""
    accepted = run_compose(
        find_compose(),
        *("--profile", "training", "--file", "docker-compose.yml"),
        *("--file", "docker-compose.cpu.yml", "config"),
        CAPSNET_THREADS="3",
    )
    for service in accepted.values():
        assert "reservations" not in service["deploy"]["resources"]
    assert "cpu" == accepted["capsnet"]["build"]["target"]
    environment = accepted["capsnet"]["environment"]
    assert ("cpu", "3") == (environment["CAPSNET_DEVICE"], environment["CAPSNET_THREADS"])
