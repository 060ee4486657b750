"""What type checkers and editors know of the clients; `mypy` checks it, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, assert_type

from PIL import Image

from capsnet import (
    AsyncCapsNet,
    CapsNet,
    DecodeAnswer,
    FailedPrediction,
    ModelsAnswer,
    PerturbAnswer,
    Prediction,
)

Outcome = Prediction | FailedPrediction


def waits(capsnet: CapsNet, path: Path) -> None:
    """Methods return answers; a drawing is a picture."""
    assert_type(capsnet.perturb(path, 0.1, dim=3, fit="crop"), PerturbAnswer)
    assert_type(capsnet.decode([0.1] * 16, label=4), DecodeAnswer)
    assert_type(capsnet.models(), ModelsAnswer)
    assert_type(capsnet.model("mnist"), dict[str, Any])
    assert_type(capsnet.sample(7), Image.Image)
    assert_type(capsnet.draw().perturb(path, 0.1, dim=3), Image.Image)
    assert_type(capsnet.perturb(path, 0.1, direction="slant").perturbed, Image.Image)


async def is_awaited(capsnet: AsyncCapsNet, path: Path) -> None:
    """The same, awaited."""
    assert_type(await capsnet.perturb(path, dim=3, delta=0.1), PerturbAnswer)
    assert_type(await capsnet.model("mnist"), dict[str, Any])
    assert_type(await capsnet.draw(scale=4).show_health("mnist"), Image.Image)


async def takes_one_image_or_several(
    capsnet: CapsNet, other: AsyncCapsNet, path: Path, paths: list[Path]
) -> None:
    """The answer for one image is a prediction; several have an outcome each."""
    assert_type(capsnet.classify(path, novelty=True), Prediction)
    assert_type(capsnet.classify(paths, model="mnist"), list[Outcome])
    assert_type(capsnet.classify_each(paths, timeout_s=3.0), Iterator[Outcome])
    assert_type(await other.classify(path), Prediction)
    assert_type(await other.classify(images=paths), list[Outcome])
    assert_type(other.classify_each(paths), AsyncIterator[Outcome])


def refuses(capsnet: CapsNet, path: Path) -> None:
    """A wrong call; the checker also refuses a comment that ignores nothing."""
    capsnet.perturb(path, dim=3)  # type: ignore[call-arg]  # delta is required
    capsnet.perturb(path, "3")  # type: ignore[arg-type]
    capsnet.perturb(path, 0.1, colour="red")  # type: ignore[call-arg]
    capsnet.classify(path, novelty="yes")  # type: ignore[call-overload]
    capsnet.draw().classify(path)  # type: ignore[attr-defined]  # no picture
