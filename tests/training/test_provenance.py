from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from model.bundle import Bundle, BundleError, Manifest
from tests.processes import PATIENCE_S
from training import provenance
from training.provenance import (
    TEST_READS,
    Run,
    reads_of,
    record_read,
    update_manifest,
)

PAIRS = Run(
    id="a1",
    preset="pairs",
    dataset="mnist",
    task="pairs",
    seed=1,
    held_out=5000,
    steps=100,
    images=6400,
    seconds=60,
    devices=("CPU",),
)
READ = provenance.TestRead(
    run="a1",
    version="0123456789ab",
    dataset="mnist",
    split="test",
    images=10_000,
    errors=29,
    protocol="one view of each image",
    date="2026-01-31",
)


def test_reads_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """Processes wait for each other."""
    program = (
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from tests.training.test_provenance import READ, record_read\n"
        "for _ in range(20): record_read(Path(sys.argv[1]), READ)"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [0, 0] == [process.wait(timeout=PATIENCE_S) for process in processes]
    assert 40 == len(reads_of(tmp_path, [PAIRS]))


@pytest.mark.parametrize("line", ["{", "[]", '{"run": "a1"}', "3"])
def test_a_broken_record_is_named(tmp_path: Path, line: str) -> None:
    """A line that cannot be read is not passed over: it may be a read."""
    record_read(tmp_path, READ)
    with (tmp_path / TEST_READS).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(BundleError, match=f"{TEST_READS}, line 2"):
        reads_of(tmp_path, [PAIRS])


def test_no_change_is_lost(bundle: Bundle) -> None:
    """Each starts from what others wrote since the bundle was opened."""

    def add(number: int) -> None:
        def change(manifest: Manifest) -> Manifest:
            return replace(manifest, metrics={**manifest.metrics, str(number): number})

        update_manifest(bundle, change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert set(map(str, range(8))) == Bundle.open(bundle.path).manifest.metrics.keys()
