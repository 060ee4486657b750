"""What a short loan of a GPU is used for: check, measure, and train networks one after the other.

    python3 -m training gpu-run results --minutes 9

Called again, it goes on where it was: what is done is skipped, what was stopped is resumed. A call
ends before its minutes are over. In its folder of results it leaves the record (speeds, budgets,
exact commands), the log and, of each run that it trained, metrics and the checkpoint (once it is
complete, weights alone), as files small enough to be carried away.
`cat results/*.tgz.* | tar xzi -C runs/gpu` unpacks them for `export`, for `train --weights`, and
for another call, which goes on from there.
"""

from __future__ import annotations

import io
import json
import math
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import typer

from model.bundle.atomic_file import replacing
from training.data.datasets import DATASETS, load
from training.data.pairs import EPOCH_PAIRS
from training.metrics import METRICS, VALIDATION_ERROR
from training.recipes import PRESETS
from training.speed import choose_fast, is_worse, round_up, set_budgets
from training.state import CHECKPOINT, Checkpoint

RUNS = (
    *(f"{preset}-attention-{seed}" for preset in ("mnist", "multimnist") for seed in (1, 2, 3)),
    "mnist-1",
)
CHECKS = {
    # Settings and fixtures of the whole suite want more than a bare machine has.
    "tests": "pytest -c /dev/null --rootdir . --import-mode=importlib --confcutdir tests/training "
    "-m cuda tests/training/test_on_cuda.py",
    "engine": "benchmarks.engine --rounds 2",
    "encoder": "benchmarks.cuda --rounds 3",
}
"""Modules that are run first, with their arguments. Whatever they find is written down."""
RECORD, LOG = "gpu-run.json", "gpu-run.log"
PART_BYTES = 16 * 2**20 - 2**16
"""Of a file in the results, at most: just under 16 MiB."""
WHOLE_BYTES = 3 * PART_BYTES
"""Of a checkpoint with the optimiser's state, at most."""
_SPEED_SHARE, _TRIAL_SHARE, _TRAINING_SHARE = 0.002, 0.02, 0.85
"""Of all minutes: to measure an option, to try one. Of those left then: to train; the others go
into starts and ends of processes."""
_RESERVE_S = 30.0
"""Kept at the end of a call to save and to pack; less in a call of under five minutes."""


class TimeIsUpError(Exception):
    """The call ends; the next one goes on."""


@dataclass(kw_only=True)
class Record:
    """What all calls together have found and done, by part, by preset or by run."""

    seconds: float = 0.0
    commands: dict[str, str] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)
    """The last line that each part printed."""
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    """Images (or pairs) a second of each preset, by option."""
    errors: dict[str, float] = field(default_factory=dict)
    """Of trials, in percent of held-out images."""
    options: dict[str, str] = field(default_factory=dict)
    """Batch size and precision that each preset is trained with."""
    epochs: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class GpuRun:
    """One call: does in order what the record does not call done, until its time is up.

    Raises:
        training.data.source.DatasetError: a data set is not the published one.
        training.data.source.DownloadError: it cannot be had.
    """

    results: Path
    folder: Path
    """Where runs, record and log are kept from call to call."""
    data_dir: Path
    device: str
    minutes: float
    """Of this call."""
    total_minutes: float
    """Of all calls together, from which budgets are set."""
    runs: Sequence[str]
    """In order, each PRESET-SEED."""
    stopped: Callable[[], bool]
    settings: Sequence[str] = ()
    """Other values of the recipes' fields, KEY=VALUE."""
    checks: Mapping[str, str] = field(default_factory=lambda: CHECKS)
    training: Sequence[str] = (sys.executable, "-m", "training")
    """The program that measures and trains."""

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        self._reserve_s = min(_RESERVE_S, 6 * self.minutes)
        for folder in (self.results, self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.record = self._read()
        self._before_s = self.record.seconds
        self._failed: list[str] = []
        self._epoch = {name: self._count(name) for name in map(preset_of, self.runs)}

    def work(self) -> bool:
        """Do what is left to do; whether nothing failed that the next call would try again."""
        try:
            for name, module in self.checks.items():
                self._do(name, (sys.executable, "-m", *module.split()))
            for preset in self._epoch:
                self._choose(preset)
            self._set_budgets()
            for run in self.runs:
                self._train(run)
        except TimeIsUpError:
            self._tell("the time is up: call again")
        else:
            self._tell(f"failed: {', '.join(self._failed)}" if self._failed else "all is done")
        finally:
            self._write()
        return not self._failed

    def _read(self) -> Record:
        """The record of earlier calls; a new one if no training of those is left."""
        path = self.folder / RECORD
        if not path.exists():
            return Record()
        record = Record(**json.loads(path.read_text()))
        trained = [part for part, command in record.commands.items() if "--run-dir" in command]
        if trained and not any((self.folder / part).exists() for part in trained):
            self._tell(f"{path} is of trainings that are gone: all begins anew")
            return Record()
        return record

    def _count(self, preset: str) -> int:
        """Images (or pairs) of an epoch."""
        recipe = PRESETS[preset]
        examples = load(DATASETS[recipe.dataset], "train", self.data_dir)
        return EPOCH_PAIRS if recipe.task == "pairs" else len(examples.labels)

    def _choose(self, preset: str) -> None:
        """Measure a preset's options; if another is faster, try it beside the recipe's own."""
        record, total_s = self.record, 60 * self.total_minutes
        if preset in record.options:
            return
        file = self.folder / f"speed-{preset}.json"
        limits = (f"--seconds={_SPEED_SHARE * total_s}", f"--output={file}")
        if not self._do(f"speed-{preset}", self._command("speed", preset, *limits)):
            return
        rates = record.rates[preset] = json.loads(file.read_text())
        own, fast = next(iter(rates)), choose_fast(rates)
        for option in (own, fast) if fast != own else ():
            run = trial_of(preset, option)
            epochs = round_up(_TRIAL_SHARE * total_s * rates[option] / self._epoch[preset])
            done = self._do(run, self._train_command(run, preset, option, epochs))
            record.errors[run] = last_error(self.folder / run) if done else 100.0
        errors = [record.errors.get(trial_of(preset, option), 0.0) for option in (fast, own)]
        record.options[preset] = own if is_worse(*errors) else fast
        self._tell(f"{preset} is trained with {record.options[preset]}")

    def _set_budgets(self) -> None:
        """Set the epochs of presets that have an option but none yet."""
        record = self.record
        new = record.options.keys() - record.epochs.keys()
        counts = Counter(name for name in map(preset_of, self.runs) if name in new)
        rates = {name: record.rates[name][record.options[name]] for name in counts}
        speeds = {name: rate / self._epoch[name] for name, rate in rates.items()}
        left_s = 60 * self.total_minutes - self._seconds()
        record.epochs |= set_budgets(counts, speeds, seconds=_TRAINING_SHARE * left_s)

    def _train(self, run: str) -> None:
        """Train a run, if it is not done, and leave in the results what came of it."""
        preset, folder = preset_of(run), self.folder / run
        if not folder.exists():
            self.record.done.pop(run, None)
        if run in self.record.done or preset not in self.record.epochs:
            return
        option, epochs = self.record.options[preset], self.record.epochs[preset]
        final = ("--final", f"--seed={run.rpartition('-')[2]}")
        try:
            self._do(run, self._train_command(run, preset, option, epochs, *final))
        finally:
            if (folder / CHECKPOINT).exists():
                pack(folder, self.results)

    def _train_command(
        self, run: str, preset: str, option: str, epochs: float, *more: str
    ) -> list[str]:
        where = (f"--run-dir={self.folder / run}", f"--data-dir={self.data_dir}")
        chosen = [f"--set={one}" for one in (*option.split(), f"epochs={epochs}")]
        return self._command("train", preset, *chosen, *where, "--resume-or-begin", *more)

    def _command(self, name: str, preset: str, *more: str) -> list[str]:
        changed = (f"--set={one}" for one in self.settings)
        return [*self.training, name, preset, f"--device={self.device}", *changed, *more]

    def _do(self, part: str, command: Sequence[str]) -> bool:
        """Run a part's command unless it is done; whether it succeeded.

        Checks end after a tenth of all minutes, and are done whatever they found.

        Raises:
            TimeIsUpError: it was told to save and stop, or not begun.
        """
        record, log = self.record, self.folder / LOG
        end = time.monotonic() + 6 * self.total_minutes if part in self.checks else math.inf
        if part in record.done:
            return True
        if self._is_over():
            raise TimeIsUpError
        record.commands[part] = shlex.join(command)
        self._tell(f"{part}: {record.commands[part]}")
        with (
            log.open("ab") as out,
            subprocess.Popen(command, stdout=out, stderr=out) as process,  # noqa: S603  our own
        ):
            while process.poll() is None and time.monotonic() < end and not self._is_over():
                time.sleep(0.1)
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(self._reserve_s / 2)
                except subprocess.TimeoutExpired:
                    process.kill()
                if self._is_over():
                    raise TimeIsUpError
        last = log.read_text(errors="replace").splitlines()[-1]
        self._tell(f"{part} ended with {process.returncode}: {last}")
        if process.returncode == 0 or part in self.checks:
            record.done[part] = last
        else:
            self._failed.append(part)
        self._write()
        return process.returncode == 0

    def _seconds(self) -> float:
        """Of all calls so far."""
        return self._before_s + time.monotonic() - self._start

    def _is_over(self) -> bool:
        left_s = 60 * self.minutes - (time.monotonic() - self._start)
        return self.stopped() or left_s < self._reserve_s

    def _write(self) -> None:
        """Keep the record, and leave it and the log in the results."""
        self.record.seconds = round(self._seconds(), 1)
        with replacing(self.folder / RECORD) as file:
            file.write(f"{json.dumps(asdict(self.record), indent=1)}\n".encode())
        for name in (RECORD, LOG):
            shutil.copy(self.folder / name, self.results / name)

    def _tell(self, line: str) -> None:
        typer.echo(line)
        with (self.folder / LOG).open("a") as log:
            log.write(f"{line}\n")


def preset_of(run: str) -> str:
    """`mnist` of `mnist-1`."""
    return run.rpartition("-")[0]


def trial_of(preset: str, option: str) -> str:
    """The run in which an option is tried: `trial-mnist-512-bfloat16`."""
    return "-".join(("trial", preset, *(part.partition("=")[2] for part in option.split())))


def last_error(folder: Path) -> float:
    """The last error on held-out images that a run measured, in percent."""
    lines = map(json.loads, (folder / METRICS).read_text().splitlines())
    *_, last = (float(line[VALIDATION_ERROR]) for line in lines if VALIDATION_ERROR in line)
    return last


def pack(folder: Path, results: Path) -> None:
    """Leave a run's metrics and checkpoint in the results, in as many files as it takes.

    A run that is not complete goes on exactly where its checkpoint is small enough to be left as it
    is. Others are cut.
    """
    with tempfile.TemporaryDirectory() as scratch, io.BytesIO() as content:
        kept = folder / CHECKPOINT
        saved = Checkpoint.load(kept)
        if not saved.optimiser or kept.stat().st_size > WHOLE_BYTES:
            kept = Path(scratch) / CHECKPOINT
            saved.cut().save(kept)
        with tarfile.open(fileobj=content, mode="w:gz", compresslevel=6) as tar:
            for file in (kept, folder / METRICS):
                tar.add(file, f"{folder.name}/{file.name}")
        packed = content.getvalue()
    for old in results.glob(f"{folder.name}.tgz.*"):
        old.unlink()
    for number, start in enumerate(range(0, len(packed), PART_BYTES)):
        part = results / f"{folder.name}.tgz.{number:03}"
        part.write_bytes(packed[start : start + PART_BYTES])
