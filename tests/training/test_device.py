from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tests.processes import PATIENCE_S
from tests.training.tiny_training import TINY, draw_noise
from training.device import DeviceError, Processes, choose_device, has_bfloat16
from training.metrics import METRICS
from training.state import CHECKPOINT, LOCK, Checkpoint, Plan, TrainingError
from training.tasks import PREVIEW
from training.trainer import Trainer

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
FREES_MEMORY = """
import resource
from training.device import keep_freed_memory
assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    bytearray(b"1") * 50_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int | None]]:
    """Numbers of the GPUs that were made current, of which there seem to be some."""
    numbers: list[int | None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: numbers.append(device.index))
    monkeypatch.setattr(torch, "zeros", lambda *_size, **_options: None)
    cudnn = torch.backends.cudnn  # choosing a GPU changes its settings
    monkeypatch.setattr(cudnn, "benchmark", cudnn.benchmark)
    before = cudnn.conv.fp32_precision
    yield numbers
    cudnn.conv.fp32_precision = before


@pytest.mark.parametrize("name", ["auto", "cuda"])
@pytest.mark.parametrize(("rank", "expected"), [(None, 0), ("1", 1)])
def test_each_process_takes_a_gpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    current: list[int | None],
    name: str,
    rank: str | None,
    expected: int,
) -> None:
    """A name without a number means the one of the process's rank, the first where it is alone."""
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert torch.device("cuda", expected) == choose_device(name)
    assert [expected] == current


def test_a_gpu_with_a_number_is_taken(current: list[int | None]) -> None:
    """Whatever the process's rank."""
    assert torch.device("cuda", 3) == choose_device("cuda:3")
    assert [3] == current


@pytest.mark.usefixtures("current")
def test_a_gpu_does_not_round_convolutions() -> None:
    """Those in float32 are not done in TF32, which the setting of today says without a warning."""
    choose_device("cuda")
    assert "ieee" == torch.backends.cudnn.conv.fp32_precision


@pytest.mark.parametrize("name", ["abacus", "cuda:99"])
def test_a_device_that_does_not_work(name: str) -> None:
    """The error names it."""
    with pytest.raises(DeviceError, match=name):
        choose_device(name)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_freed_memory_is_used_again() -> None:
    """Eight blocks of 50 MB, one after the other, touch new pages for one of them alone."""
    page_faults = int(
        subprocess.run(
            [sys.executable, "-c", FREES_MEMORY], capture_output=True, text=True, check=True
        ).stdout
    )
    assert 3 * 50_000_000 / os.sysconf("SC_PAGESIZE") > page_faults


class Run(NamedTuple):
    """Two processes that trained together until one of them was sent SIGTERM."""

    returncode: int
    output: str
    directory: Path


def torchrun(directory: Path, *options: str) -> list[str]:
    """What trains in two processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program = [str(Path(__file__).with_name("tiny_training.py")), "train", TINY.name, "--final"]
    return [*launcher, *program, "--device=cpu", f"--run-dir={directory}", *options]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose second process gets the signal to stop at its first line."""
    directory = tmp_path_factory.mktemp("together")
    output = ""
    with subprocess.Popen(
        torchrun(directory), stdout=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if line.startswith("step 100/"):
                os.kill(int(re.findall(r"rank 1 is (\d+)", output)[0]), signal.SIGTERM)
    return Run(process.returncode, output, directory)


def test_two_processes_take_the_steps_of_one(stopped: Run, tmp_path: Path) -> None:
    """After as many steps the weights are those of one process that saw the whole batches."""
    saved = Checkpoint.load(stopped.directory / CHECKPOINT)
    alone = Trainer(Plan(TINY, 1, draw_noise(), None, tmp_path), device=CPU)
    for _ in range(saved.run.steps):
        alone.step()
    torch.testing.assert_close(
        dict(alone.network.state_dict()), saved.network, rtol=1e-3, atol=1e-3
    )


def test_losses_are_those_of_the_whole_batch(stopped: Run, tmp_path: Path) -> None:
    """The line of the first hundred steps has the means over both processes."""
    alone = Trainer(Plan(TINY, 1, draw_noise(), None, tmp_path), device=CPU)
    steps = [alone.step() for _ in range(100)]
    line = json.loads((stopped.directory / METRICS).read_text().splitlines()[0])
    for name in ("margin", "reconstruction"):
        mean = torch.stack([losses[name] for losses in steps]).mean().item()
        assert mean == pytest.approx(line[f"{name}_loss"], rel=1e-3)


def test_a_signal_to_one_process_ends_all(stopped: Run) -> None:
    """Both end well, and one of them tells about it and leaves the files of one run."""
    assert (0, 1) == (stopped.returncode, stopped.output.count("--resume goes on"))
    left = {path.name for path in stopped.directory.iterdir()} - {LOCK}
    assert {CHECKPOINT, METRICS, PREVIEW} == left
    lines = (stopped.directory / METRICS).read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert sorted(set(steps)) == steps


def test_two_processes_resume(stopped: Run) -> None:
    """They go on where they were, if only for a step."""
    before = Checkpoint.load(stopped.directory / CHECKPOINT).run.steps
    subprocess.run(
        torchrun(stopped.directory, "--resume", "--max-minutes=0"),
        check=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    assert before + 1 == Checkpoint.load(stopped.directory / CHECKPOINT).run.steps


def test_shares_are_the_batch() -> None:
    """Together the processes have every row once."""
    rows = torch.arange(7)
    shares = [Processes(rank, 3).share(rows) for rank in range(3)]
    assert rows.tolist() == torch.cat(shares).tolist()


def test_more_processes_than_images_are_refused(tmp_path: Path) -> None:
    """A process without an image has nothing to take a mean of."""
    with pytest.raises(TrainingError, match="8 processes cannot share 7 images"):
        Trainer(Plan(TINY, 1, draw_noise(), None, tmp_path), device=CPU, processes=Processes(0, 8))


@pytest.mark.parametrize(
    ("device", "known", "expected"),
    [
        ("cpu", {"avx512_bf16": True}, True),
        ("cpu", {"amx_bf16": True, "avx512_bf16": False}, True),
        ("cpu", {"sve_bf16": True}, True),
        ("cpu", {"avx2": True}, False),
        ("cpu", None, False),
        ("cuda", {}, True),
    ],
)
def test_a_device_says_whether_it_has_bfloat16(
    monkeypatch: pytest.MonkeyPatch, device: str, known: dict[str, bool] | None, *, expected: bool
) -> None:
    """Torch before 2.12 does not tell of CPUs."""
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    if known is not None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert expected == has_bfloat16(torch.device(device))
