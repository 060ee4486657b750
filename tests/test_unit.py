"""The systemd unit that ships."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import Settings

UNIT = Path(__file__).parents[1] / "deploy" / "capsnet.service"


@pytest.fixture(scope="module")
def options() -> dict[str, str]:
    """The unit's options; none is given twice."""
    pairs = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Every option is known and has a value that it may have."""
    program = shutil.which("systemd-analyze")
    if not program:
        pytest.skip("needs systemd-analyze (Debian's package systemd)")
    text = UNIT.read_text().replace("/opt/capsnet/.venv/bin/python", sys.executable)
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    result = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in result.stderr.splitlines() if UNIT.name in line]
    assert (0, []) == (result.returncode, complaints), result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("KillMode", "mixed"),
    ],
)
def test_a_fault_in_the_service_stays_there(
    option: str, value: str, options: dict[str, str]
) -> None:
    """It can neither gain rights nor write to the host's files."""
    assert value == options[option]


def test_memory_is_bounded(options: dict[str, str]) -> None:
    """Four workers fit, with what clients may make them hold and decode; a host has more."""
    quota, most = options["CPUQuota"], options["MemoryMax"]
    workers = int(quota.removesuffix("%")) // 100
    settings = Settings()
    decoding = settings.decode_processes // 2 * 16 * settings.max_pixels
    least = workers * (330 * 2**20 + settings.max_waiting_bytes + decoding)
    assert least < int(most.removesuffix("G")) * 2**30 <= 5 * 2**30


def test_systemd_waits_for_the_drain(options: dict[str, str]) -> None:
    """Longer than the service takes to stop by itself."""
    settings = Settings()
    assert int(options["TimeoutStopSec"]) > settings.drain_grace_s + settings.drain_timeout_s + 10
