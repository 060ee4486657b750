"""The figures of the docs, drawn by the service: `python -m tools.figures docs/pictures`."""

from __future__ import annotations

import sys
from pathlib import Path

from fastapi.testclient import TestClient

from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.pictures import SAMPLES
from service.settings import Settings
from tools.error_speed import draw_error_speed
from tools.novelty_figure import draw_novelty
from tools.slider import ROUTE, save_slider

FIGURES = {
    "routing-4.png": "/routing?model=mnist&scale=5",
    "sweep-4.png": "/sweep?model=mnist-attention&dims=2&dims=5&dims=10",
    "turned-4.png": "/equivariance?model=mnist&transform=turn&start=-60&stop=60",
}
"""What is asked about the sample of a 4."""


def save_all(folder: Path) -> None:
    """Ask for every figure and keep it."""
    settings = Settings(device="cpu", threads=1, models=("mnist", "mnist-attention"))
    picture = (SAMPLES / "4.png").read_bytes()
    with TestClient(create_app(settings, open_engine(load_runtimes(settings)))) as client:
        for name, route in FIGURES.items():
            answer = client.post(
                route, content=picture, headers={"Content-Type": "image/png", "Accept": "image/png"}
            )
            answer.raise_for_status()
            (folder / name).write_bytes(answer.content)
        answer = client.post(ROUTE, content=picture, headers={"Content-Type": "image/png"})
        answer.raise_for_status()
        save_slider(answer.json(), picture, folder / "slider-4.webp")
        draw_novelty(client, folder / "novelty.png")
    draw_error_speed(folder / "error-speed.png")


if __name__ == "__main__":
    save_all(Path(sys.argv[1]))
