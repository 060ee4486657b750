"""Each command: what it takes, what it asks, what it shows."""

from __future__ import annotations

import inspect
import io
import sys
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Any, TypeAlias

import typer
from PIL import Image
from rich.console import Console

from capsnet._generated import (
    Fit,
    PerturbAnswer,
    Polarity,
    ReconstructAnswer,
    RoutingAnswer,
    SegmentAnswer,
    SweepAnswer,
)
from capsnet.answers import Answer
from capsnet.client import CapsNet
from capsnet.command import display, several
from capsnet.command.display import STDOUT
from capsnet.command.session import (
    Exit,
    Local,
    Option,
    Url,
    asking,
    connected,
    described,
    reporting,
)
from capsnet.errors import Problem
from capsnet.transport import DEFAULT_URL

_EPILOG = (
    "Exit codes: 0 answered; 1 refused, or an image of several could not be read; 2 wrong usage; "
    "3 no service; 4 no answer in time, or a broken one."
)
app = typer.Typer(
    help="Look inside capsule networks.",
    no_args_is_help=True,
    epilog=_EPILOG,
    rich_markup_mode=None,
)
console = Console(highlight=False)

Picture = Annotated[Path, typer.Argument(help="A picture; -: stdin.")]
Pictures = Annotated[list[Path], typer.Argument(help="Pictures, or folders of them; -: stdin.")]
Model = Annotated[str | None, typer.Option("--model", "-m", help="A bundle; see `models`.")]
Target = Annotated[int | None, typer.Option(help="A label; default: the longest capsule's.")]
FitOption = Annotated[Fit, typer.Option(help="How a picture is made the network's size.")]
PolarityOption = Annotated[Polarity, typer.Option(help="Whether strokes are light or dark.")]
Dim = Annotated[int, typer.Option(min=0, help="Dimension of the pose.")]
Delta = Annotated[float, typer.Option(min=-1, max=1, help="Added to it.")]
Dims = Annotated[list[int] | None, typer.Option("--dim", help="Repeatable; default: all.")]
Detail = Annotated[bool, typer.Option(help="All couplings, in JSON.")]
Scale = Annotated[int | None, typer.Option(help="Of -o: each pixel becomes SCALE x SCALE.")]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON, for scripts.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the picture; -: a PNG to stdout.")
]
Answers = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write answers.csv or answers.jsonl.")
]
REQUIRED = inspect.Parameter.empty
Draw: TypeAlias = Callable[[], Image.Image]
"""Gives what the service draws of the answer."""
_OF_PICTURE: dict[str, Option] = {
    "model": (Model, None),
    "fit": (FitOption, "auto"),
    "polarity": (PolarityOption, "auto"),
    "scale": (Scale, None),
    "as_json": (AsJson, False),
    "output": (Output, None),
}


def looking(
    options: Mapping[str, Option],
) -> Callable[[Callable[[Any, Draw], None]], Callable[..., None]]:
    """Make a command of what shows an answer about a picture.

    The client's method of the same name gives the answer; these are options of that method.
    """

    def decorate(show: Callable[[Any, Draw], None]) -> Callable[..., None]:
        def command(
            client: CapsNet,
            *,
            picture: Path,
            scale: int | None,
            as_json: bool,
            output: Path | None,
            **given: Any,
        ) -> None:
            _check_either(as_json=as_json, output=output)
            content = _read(picture)
            draw = partial(getattr(client.draw(scale), show.__name__), content, **given)
            if output:
                display.write_image(draw(), output)
                return
            answer: Answer = getattr(client, show.__name__)(content, **given)
            if as_json:
                display.write_json(answer.to_dict())
            else:
                show(answer, draw)

        first = {"client": (CapsNet, REQUIRED), "picture": (Picture, REQUIRED)}
        return asking(described(command, show, first, options, _OF_PICTURE))

    return decorate


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
    as_json: AsJson = False,
    output: Answers = None,
) -> None:
    """Say what pictures show: of one in detail, of several or folders in a table."""
    options: dict[str, Any] = {"model": model, "fit": fit, "polarity": polarity}
    options |= {"poses": poses, "novelty": novelty}
    _check_either(as_json=as_json, output=output)
    if output is None and len(pictures) == 1 and not pictures[0].is_dir():
        _classify_one(client, pictures[0], options, as_json=as_json)
        return
    files = several.find_pictures(pictures)
    outcomes = client.classify_each(map(_read, files), **options)
    answers = zip(files, several.followed(outcomes, len(files)), strict=True)
    if output:
        failed = several.write_answers(output, answers)
    elif as_json:
        failed = several.write_list(answers)
    else:
        failed = several.show_table(console, answers)
    if failed:
        raise typer.Exit(Exit.REFUSED)


@app.command()
@looking({"target": (Target, None)})
def reconstruct(answer: ReconstructAnswer, _draw: Draw) -> None:
    """Show what the network sees: its input, and the reconstruction."""
    display.show_images(console, (answer.input, answer.reconstruction))
    console.print(_summary(answer), f"error {answer.error:.4f}")


@app.command()
@looking({"dim": (Dim, REQUIRED), "delta": (Delta, REQUIRED), "target": (Target, None)})
def perturb(answer: PerturbAnswer, _draw: Draw) -> None:
    """Move one dimension of the pose: the reconstruction before and after."""
    display.show_images(console, (answer.reconstruction, answer.perturbed))
    console.print(_summary(answer))
    if answer.meaning and answer.meaning.effect:
        console.print(f"increasing dimension {answer.dim}: {answer.meaning.effect}")


@app.command()
@looking(
    {
        "dims": (Dims, None),
        "start": (Annotated[float, typer.Option("--from", help="First delta.")], -0.25),
        "stop": (Annotated[float, typer.Option("--to", help="Last delta.")], 0.25),
        "step": (Annotated[float, typer.Option(help="Between deltas.")], 0.05),
        "target": (Target, None),
    }
)
def sweep(answer: SweepAnswer, _draw: Draw) -> None:
    """Move dimensions of the pose step by step: a row for each."""
    console.print(_summary(answer))
    display.show_sweep(console, answer)


@app.command()
@looking({"count": (Annotated[str, typer.Option(help="Number of digits, or auto.")], "2")})
def segment(answer: SegmentAnswer, draw: Draw) -> None:
    """Take overlapping digits apart."""
    if console.is_terminal:
        images = [draw(), *(one.reconstruction for one in answer.segments)]
        display.show_images(console, images)
    display.show_segments(console, answer)


@app.command()
@looking({"target": (Target, None), "detail": (Detail, False)})
def routing(answer: RoutingAnswer, draw: Draw) -> None:
    """Show how capsules agreed, iteration by iteration."""
    if console.is_terminal:
        display.show_picture(console, draw(), cells=console.width)
    display.show_routing(console, answer)


@app.command()
@asking
def models(client: CapsNet, as_json: AsJson = False) -> None:
    """List the loaded bundles."""
    answer = client.models()
    if as_json:
        display.write_json(answer.to_dict())
    else:
        display.show_models(console, answer)


@app.command("open")
def open_playground(url: Url = DEFAULT_URL, local: Local = None) -> None:
    """Open the playground in a browser; with --local it is served until Ctrl-C."""
    with reporting(), connected(url=url, local=local) as client:
        with suppress(Problem):  # the page itself asks for a key
            client.models()
        console.print(client.url)
        webbrowser.open(client.url)
        if local:
            with suppress(KeyboardInterrupt):
                Event().wait()


def _classify_one(
    client: CapsNet, picture: Path, options: dict[str, Any], *, as_json: bool
) -> None:
    content = _read(picture)
    prediction = client.classify(content, **options)
    if as_json:
        display.write_json(prediction.to_dict())
        return
    names = client.model(prediction.model)["class_names"]
    display.show_picture(console, Image.open(io.BytesIO(content)), cells=32)
    console.print(_summary(prediction))
    display.show_lengths(console, prediction, names)


def _check_either(*, as_json: bool, output: Path | None) -> None:
    if as_json and output:
        raise typer.BadParameter("--json and --output exclude each other")


def _read(path: Path) -> bytes:
    return sys.stdin.buffer.read() if path == STDOUT else path.read_bytes()


def _summary(answer: Any) -> str:
    return f"[bold]{answer.class_name}[/] {answer.length:.3f} ({answer.model})"
