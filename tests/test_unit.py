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


def test_systemd_waits_for_the_drain(options: dict[str, str]) -> None:
    """Longer than the service takes to stop by itself."""
    settings = Settings()
    assert int(options["TimeoutStopSec"]) > settings.drain_grace_s + settings.drain_timeout_s + 10
