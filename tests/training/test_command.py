from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from training import __main__
from training.data.datasets import Examples
from training.recipes import PRESETS, Recipe
from training.state import CHECKPOINT, Checkpoint, Plan
from training.tasks import PREVIEW

Train = Callable[..., Result]
needs_data = pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")


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
        assert step == saved(tmp_path).run.steps


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
        assert step == saved(second).run.steps
    assert [1, 2] == [run.seed for run in saved(second).runs]


def test_other_settings_are_in_the_recipe(train: Train, tmp_path: Path) -> None:
    """The recipe that is saved has them, so that going on without them is refused."""
    settings = ("--set", "epochs=0.5", "--set", "routing_iterations=1")
    assert 0 == train(tmp_path, *settings).exit_code
    recipe = saved(tmp_path).recipe
    assert (0.5, 1) == (recipe.epochs, vars(recipe.network)["routing_iterations"])
    assert 0 != train(tmp_path, "--resume").exit_code


def test_a_final_run_holds_nothing_out(train: Train, tmp_path: Path) -> None:
    """It learns from all examples."""
    for name, options, expected in (("a", (), (4, 24)), ("b", ("--final",), (0, 28))):
        train(tmp_path / name, *options)
        checkpoint = saved(tmp_path / name)
        assert expected == (checkpoint.run.held_out, checkpoint.examples)


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
    assert (str(pets), ("cat", "dog"), 12) == (
        pictures.folder,
        pictures.class_names,
        pictures.count,
    )
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
    ("options", "expected"),
    [
        (("--size=32", "--channels=1"), (1, 32, 32)),
        (("--size=28",), (3, 28, 28)),
        (("--set", "height=30"), (3, 30, 28)),
    ],
)
def test_the_size_of_pictures_may_be_forced(
    train: Train, tmp_path: Path, pets: Path, options: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    """Or that of the network, which is the same."""
    run_dir = tmp_path / "run"
    assert 0 == train(run_dir, "--data", str(pets), *options).exit_code
    assert expected == saved(run_dir).recipe.network.image_shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "epochs=0"), "epochs=0: Input should be greater than 0"),
        (("--set", "epochs=nan"), "epochs='nan': Input should be a valid number"),
        (("--set", "colour=red"), "colour is no setting. The recipe has batch_size,"),
        (("--seed=-1",), "Invalid value for '--seed'"),
        (("--threads=-1",), "Invalid value for '--threads'"),
        (("--max-minutes=-1",), "Invalid value for '--max-minutes'"),
        (("--size=32",), "--size, --channels, --stem and --skip-unreadable are for"),
        (("--weights=a", "--transfer=b"), "exclude each other"),
        (("--data=.", "--stem=resnet.pth"), "--stem is pretrained or trained, not resnet.pth"),
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
    assert int(kept[1]) == saved(run_dir).run.kept_step
    assert ("hardly better than guessing (50 %)" in text) == (float(kept[2]) >= 40)
    assert (run_dir / PREVIEW).is_file()


@pytest.mark.parametrize("option", ["--weights", "--transfer"])
def test_pictures_that_weights_have_learnt_from_are_not_held_out(
    train: Train, tmp_path: Path, pets: Path, option: str
) -> None:
    """After the folder has grown; the run goes on and is read again with the same split."""
    first, second = tmp_path / "first", tmp_path / "second"
    for kind in ("cow", "hen", "pig"):
        (pets / kind).mkdir()
        for number in range(6):
            pixels = np.random.default_rng(number).integers(0, 256, (28, 28, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(pets / kind / f"{kind}-{number}.png")
    data = ("--data", str(pets))
    assert 0 == train(first, *data).exit_code
    for kind in ("cat", "cow", "dog", "hen", "pig"):
        for number in range(30):
            pixels = np.random.default_rng(number).integers(0, 256, (28, 28, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(pets / kind / f"later-{number}.png")
    assert 0 == train(second, *data, "--seed=2", option, str(first)).exit_code
    before, after = saved(first).pictures, saved(second).pictures
    assert before
    assert after
    held_out = after.held_out_pictures.split()
    assert not set(before.learnt) & set(held_out)
    assert set(before.learnt) < set(after.learnt)
    assert 20 == len(held_out)
    assert 0 == train(second, *data, "--seed=2", "--resume").exit_code
    assert after.is_same(saved(second).pictures)
    assert 2 == saved(second).run.steps


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


def test_the_command_is_kept_as_it_was_typed(train: Train, tmp_path: Path, pets: Path) -> None:
    """Without the folders of this machine, and as it began the run, for the card."""
    run_dir, data = tmp_path / "run", f"--data={pets}"
    for options in ((), ("--resume",)):
        assert 0 == train(run_dir, data, "--channels", "1", "--skip-unreadable", *options).exit_code
    arguments = "train tiny --run-dir run --device=cpu --max-minutes=0 --data=pets --channels 1"
    expected = f"python -m training {arguments} --skip-unreadable"
    assert [expected] == [run.command for run in saved(run_dir).runs]


def test_pictures_need_a_folder(tmp_path: Path) -> None:
    """Nothing is downloaded and no run begins in place of it."""
    run_dir = tmp_path / "run"
    arguments = ["train", "pictures", "--run-dir", str(run_dir), "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(__main__.app, arguments)
    assert "with a subfolder for each class: say where it is" in str(result.exception)
    assert not run_dir.exists()


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


def test_two_processes_do_not_share_a_folder(
    train: Train, tmp_path: Path, bars: Examples, tiny: Recipe
) -> None:
    """The second one gets an error before it writes anything."""
    with Plan(tiny, 1, bars, None, tmp_path).locked():
        assert "another process trains" in str(train(tmp_path).exception)
    assert not (tmp_path / "metrics.jsonl").exists()
    assert 0 == train(tmp_path).exit_code


@pytest.mark.data
@needs_data
def test_a_preset_learns_its_data_set(tmp_path: Path) -> None:
    """A step of a shipped preset, on the published images."""
    arguments = ["train", "mnist-compact", "--run-dir", str(tmp_path), "--max-minutes=0"]
    assert 0 == CliRunner().invoke(__main__.app, [*arguments, "--device=cpu"]).exit_code
    assert (5000, 55_000) == (saved(tmp_path).run.held_out, saved(tmp_path).examples)
