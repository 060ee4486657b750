"""Views of one picture, with and without kept encodings; and what their time tells.

One kept connection to a service with one worker. Both services take turns. A picture is new where a
pixel of it differs from all earlier ones.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.load.catalogue import ours
from benchmarks.load.servers import running
from model import SHIPPED

LENSES = (
    *("/classify", "/reconstruct", "/sweep", "/rivals", "/routing", "/routing-off"),
    *("/equivariance", "/trajectory", "/occlusion", "/neighbours"),
)
"""The ten lenses of the page that take one picture."""
SLIDER = [f"/perturb?dim=0&delta={step / 40:.3f}" for step in range(-10, 10)]
"""A slider that is dragged for a second."""
SCENES = {
    "`/classify`, new picture": ("/classify",),
    "`/sweep` after `/classify`": ("/sweep",),
    "slider, 20 positions": tuple(SLIDER),
    "ten lenses of the page": LENSES,
}
_BYTES = {"kept": "1000000", "computed": "0"}

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    model: Annotated[str, typer.Option(help="A bundle that ships.")] = "mnist",
    rounds: Annotated[int, typer.Option(min=1, help="New pictures for each service.")] = 15,
) -> None:
    """Let both services take turns, and print the medians."""
    table = Table(
        "requests", "computed, ms", "kept, ms", "ratio", title=f"{model}, {rounds} rounds"
    )
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(serving(model, workers="1", encoding_cache_bytes=size))
            for name, size in _BYTES.items()
        }
        seconds: dict[tuple[str, str], list[float]] = {}
        for picture in new_pictures(rounds + 1):
            for name, asked in clients.items():
                for scene, paths in SCENES.items():
                    spent = ask(asked, paths, picture)
                    seconds.setdefault((scene, name), []).append(spent)
        for scene in SCENES:
            computed, kept = (1000 * median(seconds[scene, name][1:]) for name in reversed(_BYTES))
            table.add_row(scene, f"{computed:.1f}", f"{kept:.1f}", f"{computed / kept:.2f}")
    Console().print(table)


@contextmanager
def serving(model: str, **variables: str) -> Iterator[httpx.Client]:
    """A client of a service with one bundle, and these settings."""
    own = {
        "CAPSNET_MODELS": f'["{model}"]',
        "CAPSNET_DEFAULT_MODEL": model,
        **{f"CAPSNET_{name.upper()}": value for name, value in variables.items()},
    }
    with running(ours(SHIPPED / model, own)) as server:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client


def ask(client: httpx.Client, paths: tuple[str, ...], picture: bytes) -> float:
    """The seconds that some views of a picture take, one after the other."""
    began = time.perf_counter()
    for path in paths:
        answer = client.post(path, files={"file": picture})
        assert answer.is_success, answer.text
    return time.perf_counter() - began


def new_pictures(number: int) -> Iterator[bytes]:
    """Sevens that differ in a pixel."""
    seven = Image.open(Path("service/samples/7.png")).convert("L")
    for value in count(1):
        if value > number:
            return
        picture = seven.copy()
        picture.putpixel((14, 14), value)
        file = io.BytesIO()
        picture.save(file, "PNG")
        yield file.getvalue()


if __name__ == "__main__":
    app()
