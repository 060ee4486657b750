from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from training import __main__
from training.command import typed_command
from training.data.datasets import Examples
from training.recipes import PRESETS, Recipe
from training.state import CHECKPOINT, Checkpoint
from training.tasks import PREVIEW

Train = Callable[..., Result]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tiny: Recipe, bars: Examples) -> Train:
    """`train(run_dir, *options)` trains the preset `tiny` for a step, on bars for MNIST."""
    ten_classes = replace(tiny, network=replace(tiny.network, num_classes=10))
    monkeypatch.setitem(PRESETS, "tiny", ten_classes)
    monkeypatch.setattr("training.training_data.load", lambda *_: bars)
    monkeypatch.setattr(
        "training.training_data.split_last",
        lambda all_of, _: (all_of, Examples(all_of.images[:4], all_of.labels[:4])),
    )

    def run(run_dir: Path, *options: str) -> Result:
        arguments = ["train", "tiny", "--run-dir", str(run_dir), "--device=cpu", "--max-minutes=0"]
        monkeypatch.setattr("sys.argv", ["training", *arguments, *options])
        return CliRunner().invoke(__main__.app, [*arguments, *options])

    return run


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A folder of six coloured pictures of each of two kinds."""
    rng = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        for number in range(6):
            picture = Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8))
            picture.save(tmp_path / "pets" / kind / f"{number}.png")
    return tmp_path / "pets"


def saved(run_dir: Path) -> Checkpoint:
    """The run's checkpoint."""
    return Checkpoint.load(run_dir / CHECKPOINT)


def plain(result: Result) -> str:
    """What a command printed, without the box that errors are in."""
    return " ".join(re.sub(r"[│╭╮╰╯─]|\x1b\[[0-9;]*m", " ", result.output).split())


def test_what_restarts_by_itself_begins_and_then_goes_on(train: Train, tmp_path: Path) -> None:
    """The same command starts a run and, after a kill, continues it."""
    for step in (1, 2):
        assert 0 == train(tmp_path, "--resume-or-begin").exit_code
        assert step == saved(tmp_path).runs[-1].steps


@pytest.mark.parametrize("option", ["--weights", "--transfer"])
def test_what_restarts_by_itself_takes_other_weights_once(
    train: Train, tmp_path: Path, option: str
) -> None:
    """They are where the run began; what goes on has left them."""
    first, second = tmp_path / "first", tmp_path / "second"
    train(first)
    for step in (1, 2):
        result = train(second, "--resume-or-begin", "--seed", "2", option, str(first))
        assert 0 == result.exit_code
        assert step == saved(second).runs[-1].steps
    assert [1, 2] == [run.seed for run in saved(second).runs]


def test_a_folder_of_pictures_is_learnt(train: Train, tmp_path: Path, pets: Path) -> None:
    """The checkpoint has what export needs of it, and the recipe what suits photographs."""
    run_dir = tmp_path / "run"
    options = ("--data", str(pets), "--set", "affine=0.1")
    result = train(run_dir, *options)
    assert 0 == result.exit_code
    assert (
        "10 pictures of 2 classes to learn from, 2 held out, seen at 28x28 px: 800 steps of 8;"
        in (plain(result))
    )
    checkpoint = saved(run_dir)
    recipe, pictures = checkpoint.recipe, checkpoint.pictures
    assert ("pets", False, "reflect", 0.1, "best") == (
        recipe.dataset,
        recipe.flip,
        recipe.pad,
        recipe.affine,
        recipe.keep,
    )
    assert ((3, 28, 28), 2) == (recipe.network.image_shape, recipe.network.num_classes)
    assert pictures is not None
    assert (str(pets), ("cat", "dog")) == (pictures.folder, pictures.class_names)
    assert ((5, 5), 2) == (pictures.class_counts, len(pictures.held_out_pictures))
    assert 0 == train(run_dir, *options, "--resume").exit_code


@pytest.mark.parametrize("name", ["meine Formen", "кошки", "MNIST"])
def test_a_run_is_named_as_its_folder_is_spelt(
    name: str, tmp_path: Path, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`export "runs/meine Formen-1"` finds it; only the names of data sets get a suffix."""
    monkeypatch.chdir(tmp_path)
    pets.rename(name)
    options = ["--data", name, "--device=cpu", "--max-minutes=0"]
    result = CliRunner().invoke(__main__.app, ["train", "pictures", *options])
    assert 0 == result.exit_code, result.output
    (run,) = (tmp_path / "runs").iterdir()
    assert {"MNIST": "mnist-folder-1"}.get(name, f"{name}-1") == run.name
    assert name == Path(saved(run).pictures.folder).name  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "epochs=0"), "epochs: Input should be greater than 0"),
        (("--set", "epochs=nan"), "epochs: Input should be a valid number"),
        (("--set", "colour=red"), "colour is no setting. The recipe has batch_size,"),
        (("--seed=-1",), "Invalid value for '--seed'"),
        (("--threads=-1",), "Invalid value for '--threads'"),
        (("--max-minutes=-1",), "Invalid value for '--max-minutes'"),
        (("--size=32",), "--size, --channels, --stem and --skip-unreadable are for"),
        (("--weights=a", "--transfer=b"), "exclude each other"),
        (("--data=.", "--stem=resnet.pth"), "'resnet.pth' is not one of 'pretrained', 'trained'"),
        (("--data=.", "--set", "channels=3"), "channels is set by the data set"),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(
    train: Train, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    """In words, before a folder is made for the run."""
    result = train(tmp_path / "run", *options)
    assert 2 == result.exit_code
    assert message in plain(result)
    assert not (tmp_path / "run").exists()


def test_a_run_tells_what_it_kept_and_what_to_do(tmp_path: Path, pets: Path) -> None:
    """Of noise hardly anything is learnt: the advice says what the error of guessing is."""
    run_dir = tmp_path / "run"
    options = ["--set", "epochs=5", "--data", str(pets), "--run-dir", str(run_dir)]
    sizes = ["--set", "stem=[[4,5,2,1],[8,3,2,1]]", "--set", "decoder_hidden=8,8"]
    sizes += ["--set", "decoder_channels=[]"]
    network = ["--set", "flip=false", "--set", "primary_dim=4"]
    arguments = ["train", "mnist-attention", *options, *sizes, *network, "--device=cpu"]
    result = CliRunner().invoke(__main__.app, arguments)
    text = plain(result)
    assert 0 == result.exit_code, text
    kept = re.search(r"kept the weights of step (\d+), the best .*: (\S+) % validation", text)
    assert kept
    assert int(kept[1]) == saved(run_dir).runs[-1].kept_step
    assert ("hardly better than guessing (50 %)" in text) == (float(kept[2]) >= 40)
    assert (run_dir / PREVIEW).is_file()


def test_files_that_cannot_be_read_are_skipped_where_asked(
    train: Train, tmp_path: Path, pets: Path
) -> None:
    """They are named; going on skips them again."""
    (pets / "cat" / "bad.png").write_bytes(b"no picture")
    (pets / "notes.txt").write_text("of last summer")
    run_dir, data = tmp_path / "run", ("--data", str(pets))
    refused = train(run_dir, *data)
    assert "unreadable: 1 file that" in str(refused.exception)
    result = train(run_dir, *data, "--skip-unreadable")
    assert 0 == result.exit_code
    assert "skipped 1 file that cannot be read as pictures: cat/bad.png" in plain(result)
    assert "not read, as no pictures of a class: 1 .txt (notes.txt)" in plain(result)
    assert 0 == train(run_dir, *data, "--resume").exit_code


def test_the_command_is_kept_so_that_it_runs_again(
    train: Train, tmp_path: Path, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the folders of this machine, from the same folder; others keep their last part."""
    (far := tmp_path / "a" / "b" / "c").mkdir(parents=True)
    monkeypatch.chdir(far)
    monkeypatch.setattr("sys.argv", ["training", "export", str(pets)])
    assert "python -m training export pets" == typed_command()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    run_dir, data = tmp_path / "run", f"--data={pets}"
    for options in ((), ("--resume",)):
        assert 0 == train(run_dir, data, "--channels", "1", "--skip-unreadable", *options).exit_code
    arguments = (
        "train tiny --run-dir ../run --device=cpu --max-minutes=0 --data=../pets --channels 1"
    )
    expected = f"python -m training {arguments} --skip-unreadable"
    assert [expected] == [run.command for run in saved(run_dir).runs]


def test_presets_are_listed() -> None:
    """With family, data set, epochs and parameters."""
    lines = CliRunner().invoke(__main__.app, ["presets"]).output.splitlines()
    assert any(re.match(r" *pictures +attention +--data FOLDER +30 ", line) for line in lines)
    assert ["mnist", "dynamic", "mnist", "100", "8,215,568"] in [line.split() for line in lines]
    assert len(PRESETS) == len(lines) - 1


def test_an_expected_failure_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not a traceback."""
    monkeypatch.setattr("sys.argv", ["training", "export", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        __main__.main()
    assert f"there is no checkpoint at {tmp_path / CHECKPOINT}\n" == capsys.readouterr().err
