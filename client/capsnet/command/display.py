"""Answers for people: pictures where the terminal can show them, tables and bars."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from capsnet._generated import (
    DescribeAnswer,
    ModelsAnswer,
    PerturbAnswer,
    Prediction,
)
from capsnet.answers import Answer
from capsnet.errors import InvalidAnswer

STDOUT = Path("-")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@contextmanager
def showing() -> Iterator[None]:
    """Report an answer whose members contradict each other, such as a label without a length.

    Raises:
        InvalidAnswer: the answer cannot be shown.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidAnswer(f"the answer contradicts itself: {error!r}") from error


class SafeConsole(Console):
    """Texts of a server reach the terminal without control characters and halves of characters.

    The first could command the terminal; the second cannot be written.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments; those that control the terminal come from this program alone."""
        for one in super().render(renderable, options):
            yield one if one.control else one._replace(text=_CONTROL.sub("\ufffd", one.text))


console = SafeConsole(highlight=False, markup=False, emoji=False)
_CELLS = 32
"""Columns of a network's image in a terminal."""
_BAR_CELLS = 30
_MIN_PX = 256
_HALF = 0.5
"""Poses that explain less of the images say little: see `/models`."""


def write_json(value: Any) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(f"{json.dumps(value)}\n")


def write_image(image: Image.Image, path: Path) -> None:
    """A file by its suffix; `-` is a PNG on standard output.

    Raises:
        ValueError: Pillow writes no such files.
    """
    if path != STDOUT:
        image.save(path)
        return
    file = io.BytesIO()
    image.save(file, "PNG")
    sys.stdout.buffer.write(file.getvalue())
    sys.stdout.buffer.flush()


def show_images(console: Console, images: Sequence[Image.Image]) -> None:
    """Network images side by side, in a terminal."""
    enlarged = [enlarge(image) for image in images]
    gap = 16
    width = sum(image.width + gap for image in enlarged) - gap
    mode = "RGB" if any(image.mode == "RGB" for image in enlarged) else "L"
    joined = Image.new(mode, (width, max(image.height for image in enlarged)), 128)
    left = 0
    for image in enlarged:
        joined.paste(image, (left, 0))
        left += image.width + gap
    show_picture(console, joined, cells=_CELLS * len(images))


def enlarge(image: Image.Image) -> Image.Image:
    """A small image with larger pixels, which terminals would blur."""
    factor = max(1, _MIN_PX // image.width)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def show_picture(console: Console, picture: Image.Image, *, cells: int) -> None:
    """A picture, in a terminal that can be asked what it shows; a pipe gets none."""
    if not console.is_terminal or console.is_dumb_terminal or not sys.stdin.isatty():
        return
    if not os.get_terminal_size(sys.stdout.fileno()).columns:
        return  # one of no known size
    logging.getLogger("textual_image").setLevel(logging.ERROR)  # most have no known size in pixels
    from textual_image.renderable import Image as Renderable  # noqa: PLC0415  asks the terminal

    console.print(Renderable(enlarge(picture), width=min(cells, console.width), height="auto"))


def summarise(answer: Any) -> Text:
    """The class in a line."""
    rest = f" {answer.length:.3f} ({answer.model})"
    return Text.assemble((answer.class_name, "bold"), rest)


def show_lengths(console: Console, prediction: Prediction, class_names: Sequence[str]) -> None:
    """The lengths of all classes as bars."""
    table = Table.grid(padding=(0, 1))
    for label, (name, length) in enumerate(zip(class_names, prediction.lengths, strict=True)):
        style = "bold green" if label == prediction.label else ""
        table.add_row(
            name, Bar(1, 0, float(length), width=_BAR_CELLS), f"{length:.3f}", style=style
        )
    console.print(table)
    if prediction.labels:
        names = " or ".join(one.class_name for one in prediction.labels)
        console.print(f"{names}; probability {prediction.probability:.3f}")
    if prediction.novelty:
        words = "novel" if prediction.novelty.novel else "not novel"
        console.print(f"{words}: score {prediction.novelty.score:.3f}")


def show_models(console: Console, answer: ModelsAnswer) -> None:
    """The loaded bundles."""
    table = Table()
    table.add_column("bundle", no_wrap=True)
    for name in ("family", "data set", "image", "classes"):
        table.add_column(name)
    for one in answer.models:
        name = f"{one.name} (default)" if one.default else one.name
        size = f"{one.width}x{one.height}{'' if one.channels == 1 else ' colour'}"
        table.add_row(name, one.family, one.dataset, size, str(len(one.class_names)))
    console.print(table)
    for one in answer.models:
        if one.explained and one.explained.pose < _HALF:
            _show_notes(one.notes.get("reconstruct"))


def show_answer(answer: Answer, draw: Callable[[], Image.Image]) -> None:
    """The picture, then the numbers: single ones in lines, lists of one length in a table."""
    if console.is_terminal:
        show_picture(console, draw(), cells=console.width)
    _show_members(answer)


def _show_members(answer: Answer) -> None:
    columns: dict[int, list[tuple[str, list[str]]]] = {}
    for one in fields(answer):  # type: ignore[arg-type]  # all answers are dataclasses
        value = getattr(answer, one.name)
        if one.name == "notes":
            _show_notes(value)
        elif isinstance(value, list) and value and isinstance(value[0], Answer):
            _print_table(_rows_of(value))
        elif isinstance(value, Answer):
            continue
        elif isinstance(value, list | np.ndarray):
            if np.ndim(value) == 1 and not any(isinstance(cell, Image.Image) for cell in value):
                columns.setdefault(len(value), []).append((one.name, [*map(_text, value)]))
        elif value is not None and not isinstance(value, Image.Image | dict):
            console.print(f"{one.name.replace('_', ' ')}: {_text(value)}")
    for some in columns.values():
        _print_table(some)


def _show_notes(notes: Sequence[str] | None) -> None:
    for note in notes or ():
        console.print(note, style="yellow")


def _rows_of(parts: Sequence[Answer]) -> list[tuple[str, list[str]]]:
    """The columns of a table of parts that are alike: their single values."""
    names = [one.name for one in fields(parts[0])]  # type: ignore[arg-type]  # as above
    cells = {name: [getattr(part, name) for part in parts] for name in names}
    plain = (str, bool, int, float)
    return [
        (name, [*map(_text, values)])
        for name, values in cells.items()
        if all(isinstance(value, plain) for value in values)
    ]


def _print_table(columns: Sequence[tuple[str, list[str]]]) -> None:
    table = Table()
    for name, _ in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    console.print(table)


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float | np.floating) else str(value)


def _show_perturb(answer: PerturbAnswer, _draw: object) -> None:
    show_images(console, (answer.reconstruction, answer.perturbed))
    console.print(summarise(answer))
    if value := answer.value:
        drawn = "" if value.measured is None else f", drawn {value.measured:.3g}"
        told = f"read {value.read:.3g}, asked {value.asked:.3g}{drawn} {value.unit}".rstrip()
        console.print(f"{answer.direction}: {told}")
    _show_notes(answer.notes)


def show_description(answer: DescribeAnswer) -> None:
    """The sentence, and a table of the readings."""
    console.print(answer.sentence)
    described: list[Any] = [answer, *([answer.second] if answer.second else [])]
    for one in described:
        table = Table(title=f"{one.class_name}, length {one.length:.3f}", title_justify="left")
        for name in ("reading", "value", "mean error", "% of the class below"):
            table.add_column(name, justify="right")
        for value in one.readings:
            amount = f"{value.value:.3g} {value.unit}".rstrip()
            table.add_row(value.name, amount, f"{value.mean_error:.2g}", f"{value.percentile:.0f}")
        console.print(table)


SHOWS: dict[str, Callable[[Any, Callable[[], Image.Image]], None]] = {
    "perturb": _show_perturb,
}
"""Displays of answers that say more than their picture and their numbers."""
