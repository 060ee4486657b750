from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.pictures import SAMPLES
from service.settings import Settings
from tests.training import rehearsal
from tests.training.rehearsal import BARS, RECIPE, write_bars
from training import __main__, gpu_run
from training.data.datasets import DATASETS
from training.evaluate import evaluate
from training.export import publish
from training.gpu_run import CHECKS, LOG, RECORD, GpuRun
from training.metrics import METRICS
from training.recipes import PRESETS
from training.speed import MOST_EPOCHS
from training.state import CHECKPOINT, Checkpoint

ROOT = Path(__file__).parents[2]
REAL = (sys.executable, rehearsal.__file__)
RATES = {"batch_size=10 votes=float32": 100.0, "batch_size=20 votes=float32": 1000.0}
FAKE = f"""
import json, pathlib, sys, time
command, preset, *options = sys.argv[1:]
given = dict(one.removeprefix("--").partition("=")[::2] for one in options)
journal = pathlib.Path(__file__).with_name("journal")
if command == "speed":
    pathlib.Path(given["output"]).write_text(json.dumps({RATES}))
    sys.exit(preset == "mnist-baseline")
name = pathlib.Path(given["run-dir"]).name
with journal.open("a") as file:
    file.write(f"{{name}} begins\\n")
if name == "bars-9":
    time.sleep(600)
folder = pathlib.Path(given["run-dir"])
folder.mkdir(exist_ok=True)
error = 50 if "20" in name else 10
(folder / "metrics.jsonl").write_text(json.dumps({{"validation_error_percent": error}}))
with journal.open("a") as file:
    file.write(f"{{name}} ends\\n")
"""
"""What measures and trains in no time. The larger batch is faster and learns worse."""
WITHOUT_SERVICE = """
import runpy, sys
sys.modules.update(dict.fromkeys(["fastapi", "onnxruntime", "pydantic", "starlette"]))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
Make = Callable[..., GpuRun]


@pytest.fixture
def data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the bars, which are a published data set here."""
    monkeypatch.setitem(DATASETS, BARS.name, BARS)
    monkeypatch.setitem(PRESETS, RECIPE.name, RECIPE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    write_bars(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def make(data_dir: Path, tmp_path: Path) -> Make:
    """`make(...)` is a call that trains two runs of bars with what only seems to train."""
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)

    def make(results: str = "results", **changes: Any) -> GpuRun:
        return GpuRun(
            results=tmp_path / results,
            data_dir=data_dir,
            device="cpu",
            **{
                "folder": tmp_path / "runs",
                "minutes": 1,
                "total_minutes": 2,
                "runs": ("bars-1", "bars-2"),
                "stopped": lambda: False,
                "checks": {},
                "training": (sys.executable, str(fake)),
                **changes,
            },
        )

    return make


def journal(tmp_path: Path) -> list[str]:
    """What began and ended, in order."""
    return (tmp_path / "journal").read_text().splitlines()


def test_one_part_runs_after_the_other(make: Make, tmp_path: Path) -> None:
    """Both trials, then both runs; none begins before the last one has ended."""
    assert make().work()
    parts = ["trial-bars-10-float32", "trial-bars-20-float32", "bars-1", "bars-2"]
    assert [f"{part} {what}" for part in parts for what in ("begins", "ends")] == journal(tmp_path)


def test_what_is_done_is_not_done_again(make: Make, tmp_path: Path) -> None:
    """Another call has nothing left, and a new run alone begins."""
    assert make().work()
    before = journal(tmp_path)
    assert make("again").work()
    assert before == journal(tmp_path)
    assert make("more", runs=("bars-1", "bars-2", "bars-3")).work()
    assert ["bars-3 begins", "bars-3 ends"] == journal(tmp_path)[len(before) :]


def test_a_forgotten_record_does_not_block(make: Make, tmp_path: Path) -> None:
    """Runs that are gone are trained again; if all are, everything begins anew."""
    assert make().work()
    before = journal(tmp_path)
    shutil.rmtree(tmp_path / "runs" / "bars-2")
    assert make().work()
    assert ["bars-2 begins", "bars-2 ends"] == journal(tmp_path)[len(before) :]
    for folder in (tmp_path / "runs").glob("*bars-*/"):
        shutil.rmtree(folder)
    (tmp_path / "journal").unlink()
    assert make().work()
    assert before == journal(tmp_path)


def test_a_faster_option_that_learns_worse_is_not_taken(make: Make, tmp_path: Path) -> None:
    """The record has what was measured, what was tried and what follows."""
    assert make().work()
    record = json.loads((tmp_path / "results" / RECORD).read_text())
    assert {"bars": RATES} == record["rates"]
    assert {"trial-bars-10-float32": 10, "trial-bars-20-float32": 50} == record["errors"]
    assert {"bars": "batch_size=10 votes=float32"} == record["options"]
    assert 0.85 * 120 / 2 * 100 / 500 == pytest.approx(record["epochs"]["bars"], rel=0.1)
    assert "--set=batch_size=10" in record["commands"]["bars-2"]


def test_a_preset_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, make: Make, tmp_path: Path
) -> None:
    """Its runs are not trained, and the next call tries again."""
    mixed = {"runs": ("mnist-baseline-1", "bars-1")}
    monkeypatch.setitem(DATASETS, "mnist", BARS)
    assert not make(**mixed).work()
    assert not make(**mixed).work()
    assert ["bars-1 begins", "bars-1 ends"] == journal(tmp_path)[-2:]
    assert "failed: speed-mnist-baseline" in (tmp_path / "results" / LOG).read_text()


def test_whatever_a_check_finds_trainings_begin(make: Make, tmp_path: Path) -> None:
    """A module that is not there is written down, once."""
    checks = {"engine": "no_such_module"}
    assert make(checks=checks).work()
    assert make(checks=checks).work()
    assert 1 == (tmp_path / "results" / LOG).read_text().count("engine ended with 1: ")


def test_a_check_may_not_take_all_the_time(make: Make) -> None:
    """It is ended after a tenth of all minutes."""
    assert make(checks={"engine": "http.server 0"}, total_minutes=0.005).work()


@pytest.mark.parametrize("minutes", [0, 0.03])
def test_a_call_ends_when_its_time_is_up(make: Make, tmp_path: Path, minutes: float) -> None:
    """Before it begins a part, or by telling the part to end; it leaves record and log."""
    assert make(runs=("bars-9",), minutes=minutes).work()
    assert {RECORD, LOG} == {path.name for path in (tmp_path / "results").iterdir()}
    assert (tmp_path / "results" / LOG).read_text().endswith("the time is up: call again\n")


def test_a_signal_ends_a_call(make: Make, tmp_path: Path) -> None:
    """As the end of its time does."""
    assert make(runs=("bars-9",), stopped=(tmp_path / "journal").exists).work()
    assert (tmp_path / "results" / LOG).read_text().endswith("the time is up: call again\n")


def test_weights_are_carried_away_in_parts(
    monkeypatch: pytest.MonkeyPatch, make: Make, tmp_path: Path
) -> None:
    """A run that is stopped and resumed comes back to be exported, scored and served."""
    monkeypatch.setitem(MOST_EPOCHS, "single", 12.0)
    monkeypatch.setattr(gpu_run, "PART_BYTES", 20_000)
    log = tmp_path / "runs" / "bars-1" / METRICS
    for share in ("_SPEED_SHARE", "_TRIAL_SHARE"):
        monkeypatch.setattr(gpu_run, share, 1e-5)
    real = {"training": REAL, "runs": ("bars-1",), "minutes": 600, "total_minutes": 600}

    assert make("first", stopped=lambda: log.exists() and log.stat().st_size > 0, **real).work()
    begun = unpack(tmp_path / "first", tmp_path / "begun")
    assert make("second", **real).work()
    done = unpack(tmp_path / "second", tmp_path / "done")

    assert 12 * 500 / done.recipe.batch_size == done.run.steps > begun.run.steps > 0
    assert begun.run.id == done.run.id
    assert begun.optimiser  # so that the run goes on exactly
    assert not done.optimiser
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert sorted(set(steps)) == steps
    files = [path for path in (tmp_path / "second").iterdir() if ".tgz." in path.name]
    assert len(files) > 1
    assert all(path.stat().st_size <= 20_000 for path in files)

    bundles, data_dir = tmp_path / "bundles", tmp_path / "data"
    bundle = publish(tmp_path / "done" / "bars-1", bundles, name=None, data_dir=data_dir)
    assert 20 > evaluate(bundle, data_dir, split="test").errors
    settings = Settings(bundles=bundles, default_model="bars", device="cpu", threads=1)
    picture = (SAMPLES / "1.png").read_bytes()
    with TestClient(create_app(settings, open_engine(load_runtimes(settings)))) as client:
        answer = client.post("/classify", files={"file": ("1.png", picture, "image/png")})
    assert (200, "bars") == (answer.status_code, answer.json()["model"])


def unpack(results: Path, target: Path) -> Checkpoint:
    """What came back of the run of bars, as the documentation says to unpack it."""
    target.mkdir()
    command = f"cat {results}/*.tgz.* | tar xzi -C {target}"
    subprocess.run(["sh", "-c", command], check=True)  # noqa: S607  the shell on the path
    assert {CHECKPOINT, METRICS} == {path.name for path in (target / "bars-1").iterdir()}
    return Checkpoint.load(target / "bars-1" / CHECKPOINT)


def test_a_bare_gpu_machine_can_run_the_tests() -> None:
    """Those of training are found where nothing of the service is installed."""
    checked = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVICE, *CHECKS["tests"].split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == checked.returncode, checked.stdout


def test_only_runs_of_presets_are_trained(tmp_path: Path) -> None:
    """The message shows how a run is called."""
    result = CliRunner().invoke(__main__.app, ["gpu-run", str(tmp_path), "mnist"])
    assert 2 == result.exit_code
    assert "mnist-1 is" in result.output
    assert [] == list(tmp_path.iterdir())
