from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("module", ["model.runtime", "service.__main__", "training.export"])
def test_nothing_is_kept_or_sent(module: str, tmp_path: Path) -> None:
    """Importing what imports onnxruntime makes it no identifier and no store of events."""
    unwanted = {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        env={**environment, "HOME": str(tmp_path)},
        check=True,
        timeout=120,
    )
    assert [] == list(tmp_path.rglob("*onnxruntime*"))
