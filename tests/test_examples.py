"""Examples are run against the real service, and type-checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.pictures import SAMPLES

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
RUN_BY = {".py": sys.executable, ".mjs": "node", ".sh": "sh"}
WRONG_CALL = """
from capsnet import CapsNet

CapsNet().perturb("4.png", dim="three")
CapsNet().classify(["4.png"]).label
"""


@pytest.fixture(scope="module")
def url(shipped: httpx.Client) -> str:
    """The service with all bundles that ship."""
    return str(shipped.base_url)


def start(example: Path, *arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    program = RUN_BY[example.suffix]
    if not shutil.which(program):
        pytest.skip(f"needs {program}")
    return subprocess.run(
        [program, str(example), *arguments],
        env={**os.environ, "CAPSNET_URL": url},
        check=False,
        capture_output=True,
        text=True,
    )


def run(example: Path, url: str, *arguments: str) -> str:
    """What an example prints; it must not fail."""
    answer = start(example, *arguments, url=url)
    answer.check_returncode()
    return answer.stdout


@pytest.mark.parametrize(
    "example", sorted(EXAMPLES.glob("classify_*")), ids=lambda example: example.name
)
def test_every_way_to_ask_gives_the_same_answer(example: Path, url: str) -> None:
    """The same picture is the same digit in every example."""
    assert "7" == run(example, url, str(SAMPLES / "7.png")).strip()


def test_the_shell_sees_that_nothing_answered() -> None:
    """A script that goes on with an empty class would be wrong in silence."""
    free = "http://127.0.0.1:1"
    with pytest.raises(subprocess.CalledProcessError):
        run(EXAMPLES / "classify_curl.sh", free, str(SAMPLES / "7.png"))


def test_a_wrong_label_is_found(url: str, tmp_path: Path) -> None:
    """A 3 among the fives; a file that is no picture is named and passed over."""
    for label in range(10):
        (tmp_path / str(label)).mkdir()
        shutil.copy(SAMPLES / f"{label}.png", tmp_path / str(label))
    shutil.copy(SAMPLES / "3.png", tmp_path / "5" / "odd.png")
    (tmp_path / "5" / "notes.txt").write_text("no picture")
    (line,) = run(EXAMPLES / "wrong_labels.py", url, str(tmp_path)).splitlines()
    assert line.startswith(f"{tmp_path / '5' / 'odd.png'}: 3 (0.")


def test_the_notebook_runs() -> None:
    """From its first cell to its last, with a bundle that it serves itself."""
    options = ["-p", "no:cacheprovider", "-p", "nbmake", "--nbmake", "--nbmake-timeout=300"]
    command = [sys.executable, "-m", "pytest", *options, str(EXAMPLES / "look-inside.ipynb")]
    subprocess.run(command, cwd=ROOT, check=True)


def test_examples_are_typed_and_a_wrong_call_is_found(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Parameters and answers of the client have types, not `Any`; tritonclient has none."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG_CALL)
    files = [str(path) for path in EXAMPLES.glob("*.py") if "tritonclient" not in path.name]
    options = ["--strict", "--config-file=", f"--cache-dir={pytestconfig.cache.mkdir('mypy')}"]
    command = [sys.executable, "-m", "mypy", *options, *files, str(wrong)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    *errors, last = found.splitlines()
    assert all(f"/{wrong.name}:" in error for error in errors), found
    assert 'incompatible type "str"; expected "int | None"' in found
    assert "no attribute" in found
    assert last.startswith("Found 3 errors in 1 file"), found
