"""Commands and Python in README and docs, executed.

`curl`, `capsnet`, Python and JavaScript ask a real service. `make` tells what it would do; commands
of `python -m training` and `python -m research`, which may take hours, are read by the command line
with their presets, settings and rows. The tutorial on own pictures is followed from its first line
to its last, those on families, on views and on routing in test_families.py, test_add_view.py and
tests/research/test_own_routing.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from model.bundle import Bundle
from tests.processes import SOURCE, running
from training.__main__ import app
from training.recipes import PRESETS, override

ROOT = Path(__file__).parent.parent
OWN_PICTURES, ADD_FAMILY = "docs/tutorial/own-pictures.md", "docs/tutorial/add-family.md"
ADD_VIEW, OWN_ROUTING = "docs/tutorial/add-view.md", "docs/tutorial/own-routing.md"
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if page.name not in ("results.md", "log.md")
)
OTHERS = [page for page in PAGES if page not in (OWN_PICTURES, ADD_FAMILY, ADD_VIEW, OWN_ROUTING)]
NOT_RUN = {
    "docker compose": "needs Docker; tests/deploy reads the files",
    "kubectl ": "needs a cluster; tests/deploy renders what is applied",
    "BUNDLES_DIR=": "needs Docker; tests/deploy reads what Compose makes of it",
    "export PICTURES_DIR=": "is for the commands of Docker after it",
    "API_KEYS_FILE=": "is a line of `.env`, which tests/deploy reads",
    "LISTEN=": "as above",
    "docker build": "needs Docker",
    "docker push": "needs a registry",
    "sh tools/base_image.sh": "needs podman; .ci/image runs it",
    ". .venv/bin/activate": "changes the reader's shell",
    "pip install ./client": "needs a package index",
    "mv bundles/mnist": "is what tests/fire does",
    ".venv/bin/pre-commit install": "would change the repository's hooks",
    "python -m benchmarks.cuda": "needs a GPU",
    "python -m deploy.ray.score": "is what tests/deploy/ray does with `make test-slow`",
    "serve ": "as above",
    "uvicorn --factory": "is what tests/e2e/test_life.py does",
}
"""Why commands that begin so are not executed."""
TRAINING, RESEARCH = "python -m training ", "python -m research "
RUN = ("curl ", "capsnet ", "make ", TRAINING, RESEARCH)


def blocks(page: str, language: str) -> list[str]:
    """A page's blocks of code in a language."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(page: str, *beginnings: str) -> list[str]:
    """A page's commands that begin so, one by one, without comments."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    plain = [re.sub(r"\s+# .*$", "", line) for line in lines]
    return [line for line in plain if line.startswith(beginnings)]


def pages_with(*beginnings: str) -> list[str]:
    return [page for page in OTHERS if commands(page, *beginnings)]


def workplace(folder: Path) -> Path:
    """A folder where the repository's samples are where commands look for them."""
    (folder / "service").symlink_to(ROOT / "service")
    return folder


def ask(page: str, url: str, folder: Path) -> None:
    """Run a page's `curl` and `capsnet` commands against another address; a refusal fails."""
    if not shutil.which("curl"):
        pytest.skip("needs curl")
    asked = [line.replace("localhost:8000", url) for line in commands(page, "curl ", "capsnet ")]
    script = [
        'curl() { command curl --fail-with-body "$@"; echo; }',
        f'capsnet() {{ {sys.executable} -m capsnet "$@"; }}',
        f"export CAPSNET_URL=http://{url}",
        *asked,
    ]
    for picture in subprocess.run(
        ["bash", "-e", "-c", "\n".join(script)],  # noqa: S607  the reader's own shell
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n"):
        assert "urn:capsnet:problem" not in picture
    drawn = re.findall(r"-o (\S+\.png)", " ".join(asked))
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


@pytest.fixture(scope="module")
def url(shipped: httpx.Client) -> str:
    """The service with all bundles that ship, where docs say localhost:8000."""
    return str(shipped.base_url).removeprefix("http://")


@pytest.mark.parametrize("page", pages_with("curl ", "capsnet "))
def test_commands_are_answered(page: str, url: str, tmp_path: Path) -> None:
    """What a reader copies works, in the order of the page, and draws pictures."""
    ask(page, url, workplace(tmp_path))


@pytest.mark.parametrize("page", [page for page in OTHERS if blocks(page, "python")])
def test_python_runs(page: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader copies works."""
    monkeypatch.chdir(workplace(tmp_path))
    source = "\n".join(blocks(page, "python")).replace("localhost:8000", url)
    exec(compile(source, page, "exec"), {})  # noqa: S102  our own page


@pytest.mark.parametrize("page", [page for page in OTHERS if blocks(page, "javascript")])
def test_javascript_runs(page: str, url: str, tmp_path: Path) -> None:
    """What a reader copies works in Node."""
    if not shutil.which("node"):
        pytest.skip("needs Node")
    source = "\n".join(blocks(page, "javascript")).replace("localhost:8000", url)
    subprocess.run(
        ["node", "--input-type=module"],  # noqa: S607  the reader's own
        input=source,
        text=True,
        cwd=workplace(tmp_path),
        check=True,
    )


@pytest.mark.parametrize("page", pages_with("make "))
def test_make_knows_its_targets(page: str) -> None:
    """Every target and variable is read; nothing is made."""
    for command in commands(page, "make "):
        program, *arguments = shlex.split(command)
        result = subprocess.run(
            [program, "--dry-run", *arguments], cwd=ROOT, capture_output=True, check=False
        )
        assert 0 == result.returncode, result.stderr


def test_make_takes_no_host_of_the_environment() -> None:
    """Environments of compilers export HOST=x86_64-conda-linux-gnu."""
    for words, host in (([], "127.0.0.1"), (["HOST=0.0.0.0"], "0.0.0.0")):  # noqa: S104
        shown = subprocess.run(
            ["make", "--dry-run", "serve", *words],  # noqa: S607  the reader's own
            cwd=ROOT,
            env={**os.environ, "HOST": "x86_64-conda-linux-gnu"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"CAPSNET_HOST={host} " in shown


@pytest.mark.parametrize("page", pages_with(TRAINING))
def test_training_understands_its_commands(page: str) -> None:
    """Commands, options, presets and settings exist, and values are of their kind."""
    for line in commands(page, TRAINING):
        command, arguments = get_command(app), shlex.split(line.removeprefix(TRAINING))
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        with command.make_context(command.name, arguments) as context:
            if preset := context.params.get("preset"):
                override(PRESETS[preset], context.params["settings"] or ())


def test_every_command_is_run_or_said_why_not() -> None:
    """No command is left out in silence, and no reason outlives its command."""
    found = [line for page in OTHERS for line in commands(page, "") if line]
    unknown = [line for line in found if not line.startswith((*RUN, *NOT_RUN))]
    idle = [start for start in NOT_RUN if not any(line.startswith(start) for line in found)]
    assert ([], []) == (unknown, idle)


def read(page: str) -> str:
    return (ROOT / page).read_text()


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tutorial's pictures were drawn, learnt and exported."""
    folder = tmp_path_factory.mktemp("shapes")
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.chdir(folder)
        (source,) = blocks(OWN_PICTURES, "python")
        exec(compile(source, OWN_PICTURES, "exec"), {})  # noqa: S102  our own page
        train, export, score, *_ = (
            shlex.split(line.removeprefix(TRAINING)) for line in commands(OWN_PICTURES, TRAINING)
        )
        # 45 steps in place of 900; `make test-slow` trains for as long as people do
        CliRunner().invoke(app, [*train, "--set", "epochs=10"], catch_exceptions=False)
        exported = CliRunner().invoke(app, export, catch_exceptions=False)
        (folder / "export.txt").write_text(exported.output)
        shutil.copytree("bundles", "exported")
        scored = CliRunner().invoke(app, score, catch_exceptions=False)
        (folder / "score.txt").write_text(scored.output)
    return folder


def test_own_pictures_are_learnt(shapes: Path) -> None:
    """The tutorial's commands end with a bundle of its classes, which knows them, and samples."""
    bundle = shapes / "exported" / "shapes"
    manifest = Bundle.open(bundle).manifest
    assert (("ring", "square"), (1, 32, 32)) == (manifest.class_names, manifest.image_shape)
    assert 8 == manifest.metrics["validation_images"]
    assert manifest.metrics["validation_errors"] <= 1
    assert "of 8 held-out images" in (bundle / "CARD.md").read_text()
    assert 8 == len(Bundle.open(bundle).samples)
    assert (shapes / "runs" / "shapes-1" / "preview.png").is_file()


def test_own_pictures_are_tested_on_new_ones(shapes: Path) -> None:
    """The score of those that training never saw is on the card, and there is a report."""
    metrics = Bundle.open(shapes / "bundles" / "shapes").manifest.metrics
    assert 70 == metrics["test_images"]
    assert "10 of the 80 new shapes" in read(OWN_PICTURES)
    assert metrics["test_errors"] <= 8
    assert {"ring", "square"} == {name for name, *_ in metrics["recalls"]}
    assert "wrote report.html" in (shapes / "score.txt").read_text()
    assert "Worst mistakes" in (shapes / "report.html").read_text()


def test_own_pictures_are_served(shapes: Path) -> None:
    """The service starts with the tutorial's settings and answers its requests."""
    (serve,) = commands(OWN_PICTURES, "CAPSNET_")
    settings = dict(re.findall(r"(CAPSNET_\w+)=(\S+)", serve))
    assert serve.endswith("python -m service")
    settings["CAPSNET_BUNDLES"] = str(shapes / settings["CAPSNET_BUNDLES"])
    cpu = {"CAPSNET_DEVICE": "cpu", "CAPSNET_WORKERS": "1"}
    with running(lambda _: SOURCE, {**settings, **cpu}) as (_, client):
        ask(OWN_PICTURES, str(client.base_url).removeprefix("http://"), shapes)
        picture = (shapes / "shapes" / "ring" / "0.png").read_bytes()
        near = client.post("/neighbours", files={"file": picture}).json()
        assert ("yours", False) == (near["licence"], near["drawn"])
    assert "/neighbours shows your own pictures (" in (shapes / "export.txt").read_text()
