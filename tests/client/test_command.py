"""The command against the real service."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from capsnet import CapsNet
from capsnet.command.app import app
from capsnet.command.session import Exit
from capsnet.command.several import quote_formula
from service.pictures import SAMPLES
from tests.client.conftest import Serve, answer, problem
from tests.client.terminals import read_kitty_picture, run_in_terminal
from tests.processes import free_port

FOUR, SEVEN = str(SAMPLES / "4.png"), str(SAMPLES / "7.png")
Run = Callable[..., Result]
COMMANDS = {
    "classify": ["classify", SEVEN],
    "reconstruct": ["reconstruct", FOUR],
    "perturb": ["perturb", FOUR, "--dim", "3", "--delta", "0.2"],
    "sweep": ["sweep", FOUR, "--dims", "3", "--dims", "5"],
    "segment": ["segment", FOUR],
    "routing": ["routing", FOUR],
    "equivariance": ["equivariance", FOUR, "--transform", "shift-x", "--steps", "3"],
    "routing-off": ["routing-off", FOUR],
    "occlusion": ["occlusion", FOUR, "--patch", "14"],
    "rivals": ["rivals", FOUR, "--count", "3"],
    "morph": ["morph", FOUR, FOUR, "--steps", "3"],
    "neighbours": ["neighbours", FOUR, "--count", "2"],
    "models": ["models"],
}
LOCAL = ["--local", "mnist-compact"]
DRAWING = [name for name in COMMANDS if name not in ("classify", "models")]


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("classify", "7.png")` asks the real service."""
    monkeypatch.setenv("CAPSNET_URL", url)

    def invoke(*arguments: str, content: bytes | None = None) -> Result:
        return CliRunner().invoke(app, arguments, input=content)

    return invoke


INCONSISTENT = {
    "label": 99,
    "lengths": [0.5],
    "length": 0.5,
    "class_name": "\ud800",
    "model": "mnist",
    "version": "1",
    "fit": {"fit": "none"},
}


@pytest.mark.parametrize(
    ("arguments", "bodies"),
    [
        (["classify", SEVEN], [{"predictions": [INCONSISTENT]}, {"class_names": ["a", "b"]}]),
        (["models"], [{"models": 3, "provider": "", "limits": {}}]),
    ],
)
def test_an_inconsistent_answer_is_a_sentence(
    arguments: list[str], bodies: list[object], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a server answers, the command ends with its exit code and no traceback."""
    script = serve(*(answer(200, json.dumps(body).encode()) for body in bodies))
    monkeypatch.setenv("CAPSNET_URL", script.url)
    result = CliRunner().invoke(app, arguments)
    assert Exit.NO_ANSWER == result.exit_code, result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("  =1", "'  =1"),
        ("\uff1d1", "'\uff1d1"),
        ("7", "7"),
        (-1.5, -1.5),
    ],
)
def test_no_cell_of_a_table_starts_a_formula(text: object, cell: object) -> None:
    """Names of classes are a server's, and a spreadsheet would run them."""
    assert cell == quote_formula(text)


@pytest.mark.parametrize("name", COMMANDS)
def test_answers_are_shown(name: str, run: Run) -> None:
    """In words and tables; nothing on standard error."""
    result = run(*COMMANDS[name])
    assert (Exit.OK, "") == (result.exit_code, result.stderr)
    assert {"models": "mnist-compact", "classify": "7", "segment": "ink"}.get(name, "4") in (
        result.stdout
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_one_line_and_nothing_else(name: str, run: Run) -> None:
    """For scripts; it is the service's answer."""
    result = run(*COMMANDS[name], "--json")
    (line,) = result.stdout.splitlines()
    assert {"version", "limits"} & json.loads(line).keys()


@pytest.mark.parametrize("name", DRAWING)
def test_pictures_are_written(name: str, run: Run, tmp_path: Path) -> None:
    """To a file by its suffix, or as a PNG to standard output, and then nothing else."""
    for suffix in ("png", "webp"):
        assert "" == run(*COMMANDS[name], "-o", str(tmp_path / f"a.{suffix}")).stdout
        assert suffix.upper() == opened((tmp_path / f"a.{suffix}").read_bytes()).format
    piped = opened(run(*COMMANDS[name], "-o", "-").stdout_bytes)
    assert opened((tmp_path / "a.png").read_bytes()).tobytes() == piped.tobytes()


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten digits in folders, and a file that is no picture."""
    for label in range(10):
        (tmp_path / "digits" / f"is {label}").mkdir(parents=True)
        target = tmp_path / "digits" / f"is {label}" / "[a].png"
        target.write_bytes((SAMPLES / f"{label}.png").read_bytes())
    (tmp_path / "digits" / "notes.txt").write_text("no picture")
    monkeypatch.chdir(tmp_path)
    return Path("digits")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_folder_gives_a_table(run: Run, folder: Path) -> None:
    """A line for each picture in it, by name; or one line of JSON."""
    lines = [line for line in run("classify", str(folder)).stdout.splitlines() if ".png" in line]
    assert list(range(10)) == [int(line.split("│")[2]) for line in lines]
    (line,) = run("classify", str(folder), "--json").stdout.splitlines()
    assert list(range(10)) == [one["label"] for one in json.loads(line)]


def test_a_folder_gives_a_file_of_answers(run: Run, folder: Path, tmp_path: Path) -> None:
    """CSV for spreadsheets, JSON lines for programs, and nothing on standard output."""
    for suffix in ("csv", "jsonl"):
        target = str(tmp_path / f"a.{suffix}")
        assert "" == run("classify", str(folder), "--novelty", "-o", target).stdout
    rows = read_csv(tmp_path / "a.csv")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [str(label) for label in range(10)] == [row["label"] for row in rows]
    assert list(range(10)) == [line["label"] for line in lines]
    assert [line["file"] for line in lines] == [row["file"] for row in rows]
    scores = [line["novelty"]["score"] for line in lines]
    assert scores == pytest.approx([float(row["novelty"]) for row in rows], abs=1e-5)  # two batches


def test_a_folder_gives_a_table_of_readings(run: Run, folder: Path, tmp_path: Path) -> None:
    """One line for each picture, with a column for each reading and its unit."""
    (folder / "wrong.png").write_text("no picture")
    table = tmp_path / "readings.csv"
    result = run("describe", str(folder), "-o", str(table), *LOCAL)
    assert Exit.REFUSED == result.exit_code
    assert "1 of " in result.stderr
    rows = read_csv(table)
    wrong = [row for row in rows if row["error"]]
    assert ["wrong.png"] == [Path(row["file"]).name for row in wrong]
    described = [row for row in rows if not row["error"]]
    assert described
    for row in described:
        assert 0 < float(row["thickness (px)"]) < 10
        assert row["sentence"].startswith(("a ", "an "))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["classify", FOUR, "--model", "nobody"], Exit.REFUSED, "'nobody' is not loaded"),
        (["perturb", FOUR, "--dim", "99", "--delta", "0.2"], Exit.REFUSED, "dim is 0 to 15"),
        (["classify", __file__], Exit.REFUSED, "none of PNG"),
        (["classify", "nowhere.png"], Exit.USAGE, "nowhere.png"),
        (["classify", FOUR, "-o", "a.txt"], Exit.USAGE, "a.txt"),
        (["classify", FOUR, "-o", "a.csv", "--json"], Exit.USAGE, "exclude"),
        (["reconstruct", FOUR, "-o", "a.nothing"], Exit.USAGE, "extension"),
        (["classify", FOUR, "--timeout", "0"], Exit.USAGE, "--timeout"),
        (["models", "--url", "http://localhost:port"], Exit.USAGE, "Invalid port: 'port'"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: Exit, text: str, run: Run) -> None:
    """On standard error, with an exit code for its kind, and no traceback."""
    result = run(*arguments)
    assert (code, "") == (result.exit_code, result.stdout)
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_a_refused_connection_says_how_to_start_a_service(run: Run) -> None:
    """And what else there is."""
    result = run("models", "--url", f"localhost:{free_port()}")
    assert Exit.UNREACHABLE == result.exit_code
    assert {"make", "serve", "--url", "--local"} <= set(result.stderr.replace("`", "").split())


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        pytest.param(
            problem(429, "busy", "Retry-After: 9"), Exit.REFUSED, {"what is wrong"}, id="busy"
        ),
        pytest.param(
            problem(401, "unauthorized"),
            Exit.REFUSED,
            {"--key", "CAPSNET_CLIENT_KEY"},
            id="no key",
        ),
        pytest.param(problem(504, "too-late"), Exit.NO_ANSWER, set(), id="a deadline exceeded"),
        pytest.param(b"", Exit.NO_ANSWER, set(), id="a broken answer"),
    ],
)
def test_what_a_service_refuses_has_its_exit_code(
    said: bytes, code: Exit, words: set[str], run: Run, serve: Serve
) -> None:
    """With its problem, or with the option and the variable that would help."""
    result = run("models", "--url", serve(said).url, "--timeout", "1")
    assert code == result.exit_code
    assert all(word in result.stderr for word in words)


def test_the_list_says_which_poses_say_little(capsnet: CapsNet, serve: Serve) -> None:
    """In the sentence of `/models`."""
    models = capsnet.models().to_dict()
    models["models"][0]["explained"] |= {"pose": 0.31}
    models["models"][0]["notes"] = {"reconstruct": ["A pose explains only 31 %."]}
    server = serve(answer(200, json.dumps(models).encode()))
    result = CliRunner().invoke(app, ["models", "--url", server.url])
    assert result.output.endswith("A pose explains only 31 %.\n")


def test_a_server_does_not_command_the_terminal(capsnet: CapsNet, serve: Serve) -> None:
    """Its texts are shown without escapes, and are no markup."""
    hostile = "\x1b]0;title\x07\x9b2J[link=x]here[/]"
    models = capsnet.models().to_dict()
    models["models"][0]["name"] = hostile
    listed = answer(200, json.dumps(models).encode())
    refused = answer(400, json.dumps({"title": hostile, "detail": hostile}).encode())
    for server in (serve(listed), serve(refused)):
        result = CliRunner().invoke(app, ["models", "--url", server.url])
        assert "[link=x]here[/]" in result.output.replace("\n", "")
        assert not {"\x1b", "\x07", "\x9b"} & set(result.output)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["clasify", SEVEN], "classify"),
        (["classify", SEVEN, "--modle", "mnist"], "--model"),
        (["classify", SEVEN, "--local", "mnits"], "Did you mean 'mnist'?"),
        (["classify", SEVEN, "--model", "mnist-compakt"], "Did you mean 'mnist-compact'?"),
    ],
)
def test_typos_are_answered_with_a_suggestion(
    arguments: list[str], suggestion: str, run: Run
) -> None:
    """Of commands, options, bundles on this machine, and networks of the service."""
    result = run(*arguments)
    assert Exit.OK != result.exit_code
    assert suggestion in result.stderr.replace("\n", "")


def test_a_bundle_is_asked_without_a_server() -> None:
    """By its folder, with nothing that listens before or after."""
    bundle = str(SAMPLES.parents[1] / "model" / "bundles" / "mnist-compact")
    result = CliRunner().invoke(app, ["classify", SEVEN, "--json", "--local", bundle])
    assert Exit.OK == result.exit_code, result.output
    assert (7, "mnist-compact") == tuple(
        json.loads(result.stdout)[name] for name in ("label", "model")
    )


@pytest.mark.parametrize(
    ("bundle", "words"), [("nobody", {"mnist", "mnist-compact"}), (str(SAMPLES), {str(SAMPLES)})]
)
def test_what_is_no_bundle_is_said(bundle: str, words: set[str]) -> None:
    """With the service's own reason, and the names of those that ship."""
    result = CliRunner().invoke(app, ["models", "--local", bundle])
    assert Exit.UNREACHABLE == result.exit_code
    said = result.stderr.replace("\n", "")
    assert bundle in said
    assert all(word in said for word in words)
    assert "make serve" not in result.stderr


def test_a_terminal_with_graphics_gets_the_picture(url: str, tmp_path: Path) -> None:
    """Before, and after as `-o` writes it."""
    shown = run_in_terminal(url, *COMMANDS["perturb"], kitty=True)
    picture = read_kitty_picture(shown)
    picture = picture.crop((picture.width * 33 // 64, 0, picture.width, picture.height))
    run_in_terminal(url, *COMMANDS["perturb"], "-o", str(tmp_path / "drawn.png"))
    with Image.open(tmp_path / "drawn.png") as drawn:
        both = [
            np.asarray(one.convert("L").resize((28, 28), Image.Resampling.BOX), np.float32)
            for one in (picture, drawn)
        ]
    assert np.abs(both[0] - both[1]).mean() < 8


@pytest.mark.parametrize("name", ["classify", "sweep"])
def test_a_terminal_shows_pictures(name: str, url: str) -> None:
    """Half blocks in two colours without Sixel or Kitty's protocol, and no warning about cells."""
    shown = run_in_terminal(url, *COMMANDS[name]).decode()
    assert shown.count("▀") > 200
    assert "Failed" not in shown
