"""Each command: what it takes, what it asks, what it shows."""

from __future__ import annotations

import io
import webbrowser
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image

from capsnet._generated import Fit, Polarity
from capsnet.client import CapsNet
from capsnet.command import display, several
from capsnet.command.display import console
from capsnet.command.session import Exit, Url, asking, errors, reporting
from capsnet.command.views import AsJson, Model, add_views, check_either, read
from capsnet.errors import Problem
from capsnet.transport import DEFAULT_URL

_EPILOG = (
    "Exit codes: 0 answered; 1 refused, or one image of several could not be read; 2 wrong usage "
    "or no such file; 3 no service; 4 no answer in time, or a broken one."
)
app = typer.Typer(
    help="Look inside capsule networks.",
    no_args_is_help=True,
    epilog=_EPILOG,
    rich_markup_mode=None,
)
Pictures = Annotated[list[Path], typer.Argument(help="Pictures, or folders of them; -: stdin.")]
FitOption = Annotated[Fit, typer.Option(help="Resize method.")]
PolarityOption = Annotated[Polarity, typer.Option(help="Whether strokes are light or dark.")]
Answers = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write answers.csv or answers.jsonl.")
]


def show_version(*, wanted: bool) -> None:
    """Show the version of the client.

    Raises:
        typer.Exit: it was asked for.
    """
    if wanted:
        typer.echo(f"capsnet {version('capsnet-client')}")
        raise typer.Exit


@app.callback()
def main(
    *,
    wanted: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Look inside capsule networks."""
    del wanted


@app.command()
@asking
def classify(
    client: CapsNet,
    *,
    pictures: Pictures,
    model: Model = None,
    fit: FitOption = "auto",
    polarity: PolarityOption = "auto",
    poses: Annotated[bool, typer.Option(help="Add the poses to JSON.")] = False,
    novelty: Annotated[bool, typer.Option(help="Add the novelty score.")] = False,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Add a set of labels that contains the true one with this coverage, such as 0.95."
        ),
    ] = None,
    as_json: AsJson = False,
    output: Answers = None,
) -> None:
    """Classify pictures: one in detail, several or folders in a table."""
    options: dict[str, Any] = {"model": model, "fit": fit, "polarity": polarity}
    options |= {"poses": poses, "novelty": novelty}
    options |= {} if coverage is None else {"coverage": coverage}
    check_either(as_json=as_json, output=output)
    if output is None and len(pictures) == 1 and not pictures[0].is_dir():
        _classify_one(client, pictures[0], options, as_json=as_json)
        return
    files = several.find_pictures(pictures)
    outcomes, failed = client.classify_each(map(read, files), **options), list[Path]()
    answers = several.followed(files, outcomes, failed)
    if output:
        several.write_answers(output, answers)
    elif as_json:
        display.write_json([{"file": str(file), **one.to_dict()} for file, one in answers])
    else:
        several.show_table(console, answers)
    if failed:
        raise typer.Exit(Exit.REFUSED)


@app.command()
@asking
def describe(
    client: CapsNet,
    *,
    pictures: Pictures,
    target: Annotated[int | None, typer.Option(help="A label; by default the answer's.")] = None,
    model: Model = None,
    fit: FitOption = "auto",
    polarity: PolarityOption = "auto",
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a table, readings.csv.")
    ] = None,
) -> None:
    """Describe pictures in words and units: one in detail, several or folders in a table (CSV)."""
    options: dict[str, Any] = {"target": target, "model": model, "fit": fit, "polarity": polarity}
    check_either(as_json=as_json, output=output)
    files = several.find_pictures(pictures)
    if output is None and (as_json or len(files) == 1):
        for file in files:
            answer = client.describe(read(file), **options)
            if as_json:
                display.write_json(answer.to_dict())
            else:
                display.show_description(answer)
        return
    outcomes, failed = several.describe_each(client, files, options), list[Path]()
    several.write_readings(output, several.followed(files, outcomes, failed))
    if failed:
        errors.print(f"[red]capsnet:[/] {len(failed)} of {len(files)} pictures have no description")
        raise typer.Exit(Exit.REFUSED)


add_views(app)


@app.command()
@asking
def models(client: CapsNet, as_json: AsJson = False) -> None:
    """List the loaded bundles."""
    answer = client.models()
    if as_json:
        display.write_json(answer.to_dict())
    else:
        with display.showing():
            display.show_models(console, answer)


@app.command("open")
def open_playground(url: Url = DEFAULT_URL) -> None:
    """Open the page in a browser."""
    with reporting(), CapsNet(url) as client:
        with suppress(Problem):  # the page itself asks for a key
            client.models()
        console.print(client.url)
        webbrowser.open(client.url)


def _classify_one(
    client: CapsNet, picture: Path, options: dict[str, Any], *, as_json: bool
) -> None:
    content = read(picture)
    prediction = client.classify(content, **options)
    if as_json:
        display.write_json(prediction.to_dict())
        return
    manifest = client.model(prediction.model)
    display.show_picture(console, Image.open(io.BytesIO(content)), cells=32)
    with display.showing():
        console.print(display.summarise(prediction))
        display.show_lengths(console, prediction, manifest["class_names"])
