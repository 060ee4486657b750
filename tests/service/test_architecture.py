from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAMS = "service.__main__, service.processes.supervisor, service.processes.worker"
NAMES = f"import json, sys, {PROGRAMS}; print(json.dumps(sorted(sys.modules)))"


@pytest.fixture(scope="module")
def imported(pytestconfig: pytest.Config) -> set[str]:
    """All modules that the service's programs import, in a process of their own."""
    ended = subprocess.run(
        [sys.executable, "-c", NAMES],
        cwd=pytestconfig.rootpath,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(ended.stdout))


def test_the_service_imports_what_it_serves_with(imported: set[str]) -> None:
    """The list is the real one: onnxruntime and the routes are on it."""
    assert {"onnxruntime", "service.api.routes", "model.runtime"} <= imported


@pytest.mark.parametrize("package", ["torch", "training", "model.capsnet", "onnx", "onnxscript"])
def test_the_service_never_imports_what_trains(package: str, imported: set[str]) -> None:
    """A machine that serves needs neither torch nor anything of training."""
    assert [] == [name for name in imported if name == package or name.startswith(f"{package}.")]
