"""The figures of the docs, drawn by the service: `python -m tools.figures docs/pictures`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from fastapi.testclient import TestClient
from PIL import Image

from model.canvas import png
from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.pictures import SAMPLES
from service.settings import Settings
from tools.slider import ROUTE, save_slider

FIGURES = {
    "routing-4.png": "/routing?model=mnist&scale=5",
    "sweep-4.png": "/sweep?model=mnist&dims=2&dims=6&dims=15",
    "occlusion-4.png": "/occlusion?model=mnist-attention",
    "neighbours-4.png": "/neighbours?model=mnist-compact",
    "turned-4.png": "/equivariance?model=mnist&transform=turn&start=-60&stop=60",
}
"""What is asked about the sample of a 4."""
PAIR = "/overlay?first=3&second=5"
OF_PAIR = {
    "routing-off-35.png": "/routing-off?model=multimnist-attention",
    "rivals-35.png": "/rivals?model=multimnist-attention",
}
"""What is asked about a 3 and a 5 in one image."""


def save_all(folder: Path) -> None:
    """Ask for every figure and keep it."""
    models = ("mnist", "mnist-attention", "mnist-compact", "multimnist-attention")
    settings = Settings(device="cpu", threads=1, models=models)  # type: ignore[call-arg]
    picture = (SAMPLES / "4.png").read_bytes()
    headers = {"Content-Type": "image/png", "Accept": "image/png"}
    with TestClient(
        create_app(settings, open_engine(load_runtimes(settings))), base_url="http://localhost"
    ) as client:
        pair = client.get(PAIR).raise_for_status().content
        for content, figures in ((picture, FIGURES), (pair, OF_PAIR)):
            for name, route in figures.items():
                answer = client.post(route, content=content, headers=headers).raise_for_status()
                (folder / name).write_bytes(answer.content)
        turned = Image.open(io.BytesIO(picture)).rotate(25, Image.Resampling.BICUBIC)
        files = [("file", picture), ("file", png(turned))]
        answer = client.post(
            "/morph?model=mnist-attention", files=files, headers={"Accept": "image/png"}
        )
        (folder / "morph-4.png").write_bytes(answer.raise_for_status().content)
        answer = client.post(ROUTE, content=picture, headers={"Content-Type": "image/png"})
        answer.raise_for_status()
        save_slider(answer.json(), picture, folder / "slider-4.webp")


if __name__ == "__main__":
    save_all(Path(sys.argv[1]))
