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
MARGIN_S = 10
"""Before the supervisor kills what has not ended."""
SERVICES = ["capsnet", "training", "prometheus", "grafana"]
COMMANDS = [["docker", "compose"], ["docker-compose"]]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return services


def find_compose(*, newest: bool) -> list[str]:
    """Docker Compose; `newest` asks for 2.24, which knows !reset."""
    for command in COMMANDS:
        if not shutil.which(command[0]):
            continue
        result = subprocess.run(
            [*command, "version", "--short"], capture_output=True, text=True, check=False
        )
        version = tuple(map(int, re.findall(r"\d+", result.stdout)[:2]))
        if result.returncode == 0 and (version >= (2, 24) or not newest):
            return command
    pytest.skip("needs docker compose" + (" 2.24 or later" if newest else ""))


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


def seconds(duration: str) -> int:
    default = re.fullmatch(r"\$\{\w+:-(\d+)s\}", duration)
    assert default
    return int(default[1])


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


def test_every_variable_of_the_compose_files_is_in_the_example() -> None:
    """Nobody has to read the compose files to find what can be set."""
    files = [ROOT / "docker-compose.yml", ROOT / "docker-compose.cpu.yml"]
    used = {name for file in files for name in re.findall(r"\$\{(\w+)", file.read_text())}
    example = (ROOT / ".env.example").read_text()
    assert used == set(re.findall(r"^# (?!CAPSNET_)(\w+)=", example, re.MULTILINE))


def test_a_file_of_keys_that_is_mounted_is_used(services: dict[str, Any]) -> None:
    """One variable does both: a file that is mounted and not read would leave the service open."""
    capsnet = services["capsnet"]
    for kind in ("API", "ADMIN"):
        inside = f"/run/{kind.lower()}-keys"
        assert f"${{{kind}_KEYS_FILE:-/dev/null}}:{inside}:ro" in capsnet["volumes"]
        used = capsnet["environment"][f"CAPSNET_{kind}_KEYS_FILE"]
        assert f"${{{kind}_KEYS_FILE:+{inside}}}" == used


def test_ports_are_this_machine_s_until_somebody_opens_them(services: dict[str, Any]) -> None:
    """Without keys, the network reaches nothing."""
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert 3 == len(ports)
    assert all(port.startswith(("127.0.0.1:", "${LISTEN:-127.0.0.1}:")) for port in ports)


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


def test_a_stop_leaves_time_to_drain(services: dict[str, Any]) -> None:
    """Docker kills no earlier than the service would have ended by itself."""
    drain_s = Settings().drain_grace_s + Settings().drain_timeout_s
    assert drain_s + MARGIN_S < seconds(services["capsnet"]["stop_grace_period"])


@pytest.mark.parametrize("name", ["capsnet", "training"])
def test_a_gpu_is_reserved(name: str, services: dict[str, Any]) -> None:
    """As Docker's documentation says."""
    (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
    assert {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]} == device


def test_monitoring_and_training_are_opt_in(services: dict[str, Any]) -> None:
    """`docker compose up` starts the service alone."""
    assert ["capsnet"] == [name for name, one in services.items() if "profiles" not in one]


def test_compose_accepts_the_file(services: dict[str, Any]) -> None:
    """What a reader of YAML takes for sound is sound to Compose too."""
    command = find_compose(newest=False)
    accepted = run_compose(command, "--profile", "monitoring", "--profile", "training", "config")
    assert services.keys() == accepted.keys()


def test_pictures_are_where_the_page_trains_on_them(services: dict[str, Any]) -> None:
    """The folder of the host is in the working folder of the image, and cannot be changed."""
    dockerfile = (ROOT / "docker" / "training.Dockerfile").read_text()
    (workdir,) = re.findall(r"^WORKDIR (/capsnet)$", dockerfile, re.MULTILINE)
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    (folder,) = re.findall(r"training train pictures --data (\w+)$", page, re.MULTILINE)
    mounted = f"${{PICTURES_DIR:-/dev/null}}:{workdir}/{folder}:ro"
    assert mounted in services["training"]["volumes"]


def test_own_bundles_are_served_as_the_page_says() -> None:
    """From a folder of the host or from the volume that `export` fills, with the default model."""
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    lines = re.findall(r"^BUNDLES_DIR=(\S+) CAPSNET_DEFAULT_MODEL=(\w+) ", page, re.MULTILINE)
    assert [("./bundles", "shapes"), ("bundles", "shapes")] == lines
    command = find_compose(newest=False)
    for bundles, model in lines:
        environment = {"BUNDLES_DIR": bundles, "CAPSNET_DEFAULT_MODEL": model}
        accepted = run_compose(command, "config", **environment)["capsnet"]
        assert model == accepted["environment"]["CAPSNET_DEFAULT_MODEL"]
        (mount,) = [one for one in accepted["volumes"] if one["target"] == "/bundles"]
        kind = "bind" if bundles.startswith(".") else "volume"
        assert (kind, True) == (mount["type"], mount["read_only"])


def test_the_override_needs_no_gpu() -> None:
    """No device is reserved and the CPU image is taken; settings still pass."""
    accepted = run_compose(
        find_compose(newest=True),
        *("--profile", "training", "--file", "docker-compose.yml"),
        *("--file", "docker-compose.cpu.yml", "config"),
        CAPSNET_THREADS="3",
    )
    for service in accepted.values():
        assert "reservations" not in service["deploy"]["resources"]
    assert "cpu" == accepted["capsnet"]["build"]["target"]
    environment = accepted["capsnet"]["environment"]
    assert ("cpu", "3") == (environment["CAPSNET_DEVICE"], environment["CAPSNET_THREADS"])
