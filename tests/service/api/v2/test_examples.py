from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.pictures import SAMPLES

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", ["tritonclient_http", "tritonclient_grpc"])
def test_an_example_reads_a_digit(name: str, service: httpx.Client, grpc_port: int) -> None:
    """Tensors over HTTP, the file over gRPC."""
    code = (ROOT / "examples" / f"{name}.py").read_text()
    port = service.base_url.port if name.endswith("http") else grpc_port
    command = ["-c", code.replace('"mnist"', '"mnist-compact"')]
    ended = subprocess.run(
        [sys.executable, *command, f"127.0.0.1:{port}", SAMPLES / "7.png"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "7\n") == (ended.returncode, ended.stdout), ended.stderr
