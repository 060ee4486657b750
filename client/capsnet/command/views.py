"""A command for each method that answers with numbers and a picture, made from its signature."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from numpy.typing import ArrayLike

from capsnet._generated import ViewMethods
from capsnet.answers import Answer
from capsnet.client import CapsNet
from capsnet.command import display
from capsnet.command.display import STDOUT
from capsnet.command.session import REQUIRED, Option, asking, described
from capsnet.images import ImageLike

Picture = Annotated[Path, typer.Argument(help="A picture; -: stdin.")]
Numbers = Annotated[Path, typer.Argument(help="A file of JSON; -: stdin.")]
Model = Annotated[str | None, typer.Option("--model", "-m", help="A bundle; see `models`.")]
Scale = Annotated[int | None, typer.Option(help="With -o: each pixel becomes SCALE x SCALE.")]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON, for scripts.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the picture; -: a PNG to stdout.")
]
_SHARED: dict[str, Option] = {
    "scale": (Scale, None),
    "as_json": (AsJson, False),
    "output": (Output, None),
}


def add_views(app: typer.Typer) -> None:
    """Add a command for each method."""
    for name, method in vars(ViewMethods).items():
        if not name.startswith("_"):
            app.command(name.replace("_", "-"))(_view_command(name, method))


def read(path: Path) -> bytes:
    """A file, or standard input."""
    return sys.stdin.buffer.read() if path == STDOUT else path.read_bytes()


def check_either(*, as_json: bool, output: Path | None) -> None:
    """Refuse both.

    Raises:
        typer.BadParameter: both are given.
    """
    if as_json and output:
        raise typer.BadParameter("--json and --output exclude each other")


def _view_command(name: str, method: Callable[..., Any]) -> Callable[..., None]:
    show = display.SHOWS.get(name, display.show_answer)
    kinds = get_type_hints(method)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    files = {one.name: kinds[one.name] for one in parameters if _is_file(kinds[one.name])}
    options = {
        one.name: _option(one, kinds[one.name], method)
        for one in parameters
        if one.name not in files and one.name != "timeout_s"
    }

    def command(
        client: CapsNet, *, scale: int | None, as_json: bool, output: Path | None, **given: Any
    ) -> None:
        check_either(as_json=as_json, output=output)
        contents = [_read_as(kind, given.pop(file)) for file, kind in files.items()]
        draw = partial(getattr(client.draw(scale), name), *contents, **given)
        if output:
            display.write_image(draw(), output)
            return
        answer: Answer = getattr(client, name)(*contents, **given)
        if as_json:
            display.write_json(answer.to_dict())
        else:
            with display.showing():
                show(answer, draw)

    arguments: dict[str, Option] = {
        file: (Picture if kind == ImageLike else Numbers, REQUIRED) for file, kind in files.items()
    }
    text = (inspect.getdoc(method) or "").partition("\n\nArgs:")[0]
    first: dict[str, Option] = {"client": (CapsNet, REQUIRED)}
    return asking(described(command, name, text, first, arguments, options, _SHARED))


def _is_file(kind: Any) -> bool:
    return kind in (ImageLike, ArrayLike)


def _read_as(kind: Any, path: Path) -> Any:
    content = read(path)
    return content if kind == ImageLike else json.loads(content)


def _option(parameter: inspect.Parameter, kind: Any, method: Any) -> Option:
    """What typer makes an option of: the parameter's type and text."""
    name = parameter.name
    if name == "model":
        return Model, None
    text, plain = describe(method, name), _plain(kind)
    option = typer.Option(help=text)
    is_required = parameter.default is REQUIRED
    return Annotated[plain if is_required else plain | None, option], parameter.default


def describe(method: Any, parameter: str) -> str:
    """The words of a parameter: of its method, or of all methods that share it."""
    lines = f"{_args(ViewMethods)}\n{_args(method)}"
    texts = dict(re.findall(r"^ {4}(\w+): ((?:.+\n?)(?: {8}.+\n?)*)", lines, re.MULTILINE))
    return " ".join(texts[parameter].split())


def _args(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").partition("Args:\n")[2]


def _plain(kind: Any) -> Any:
    """The type as typer knows it: no None, lists, and text where there are several."""
    kinds = [one for one in get_args(kind) if one is not NoneType]
    if get_origin(kind) is Literal or not kinds:
        return kind
    if get_origin(kind) in (list, Sequence):
        return list[kinds[0]]  # type: ignore[valid-type]
    return _plain(kinds[0]) if len(kinds) == 1 else str
