"""Each call to the service, described once: the clients only send it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from capsnet import answers
from capsnet.answers import read_png, structure
from capsnet.errors import InvalidAnswer
from capsnet.images import ImageLike, read_image

T = TypeVar("T")
Fit: TypeAlias = Literal["auto", "none", "stretch", "crop", "digit", "pair"]
Polarity: TypeAlias = Literal["auto", "light-on-dark", "dark-on-light"]
Transform: TypeAlias = Literal["shift-x", "shift-y", "turn", "scale"]
JSON, PNG = "application/json", "image/png"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and what its answer is read as."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    """As httpx takes it: `content`, `files` or `json`."""
    accept: str = JSON
    timeout_s: float | None = None

    def drawn(self, scale: int | None) -> Call[Image.Image]:
        """The same, answered with a picture."""
        query = {**self.query, **_given(scale=scale)}
        return replace(self, query=query, accept=PNG, read=read_png)  # type: ignore[arg-type, return-value]  # of another T


def classify(
    images: Sequence[bytes],
    *,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    poses: bool = False,
    novelty: bool = False,
    timeout_s: float | None = None,
) -> Call[list[answers.Prediction | answers.FailedPrediction]]:
    """Classify as many images as one request may hold."""
    query = _given(model=model, fit=fit, polarity=polarity)
    query |= _given(poses=poses or None, novelty=novelty or None)
    body: dict[str, Any] = _body(images[0])
    if len(images) > 1:
        body = {"files": [("file", (str(place), one)) for place, one in enumerate(images)]}
    return Call("POST", "/classify", _read_predictions, query, body, timeout_s=timeout_s)


def reconstruct(
    image: ImageLike,
    *,
    target: int | None = None,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    timeout_s: float | None = None,
) -> Call[answers.ReconstructAnswer]:
    """Reconstruct an image from the pose of one class capsule.

    Args:
        image: see `classify`.
        target: a label; by default the longest capsule's.
        model: a bundle's name; by default the service's.
        fit: how the image is made the network's size.
        polarity: whether strokes are light or dark.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(target=target, model=model, fit=fit, polarity=polarity)
    return _post("/reconstruct", answers.ReconstructAnswer, image, query, timeout_s)


def perturb(
    image: ImageLike,
    *,
    dim: int,
    delta: float,
    target: int | None = None,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    timeout_s: float | None = None,
) -> Call[answers.PerturbAnswer]:
    """Move one dimension of the pose and decode.

    Args:
        image: see `classify`.
        dim: which dimension, below D.
        delta: added to it, from -1 to 1; the paper shows -0.25 to 0.25.
        target: a label; by default the longest capsule's.
        model: a bundle's name; by default the service's.
        fit: how the image is made the network's size.
        polarity: whether strokes are light or dark.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(target=target, model=model, fit=fit, polarity=polarity)
    query |= {"dim": dim, "delta": delta}
    return _post("/perturb", answers.PerturbAnswer, image, query, timeout_s)


def sweep(
    image: ImageLike,
    *,
    dims: Sequence[int] | None = None,
    start: float | None = None,
    stop: float | None = None,
    step: float | None = None,
    target: int | None = None,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    timeout_s: float | None = None,
) -> Call[answers.SweepAnswer]:
    """Move dimensions of the pose step by step.

    Args:
        image: see `classify`.
        dims: which dimensions; by default all.
        start: first delta; by default -0.25.
        stop: last delta; by default 0.25.
        step: between deltas; by default 0.05.
        target: a label; by default the longest capsule's.
        model: a bundle's name; by default the service's.
        fit: how the image is made the network's size.
        polarity: whether strokes are light or dark.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(target=target, model=model, fit=fit, polarity=polarity)
    query |= _given(dims=dims and list(dims), start=start, stop=stop, step=step)
    return _post("/sweep", answers.SweepAnswer, image, query, timeout_s)


def decode(
    poses: ArrayLike,
    *,
    label: int,
    model: str | None = None,
    timeout_s: float | None = None,
) -> Call[answers.DecodeAnswer]:
    """Decode poses of a class into images.

    Args:
        poses: one (D,) or up to 256 (N, D), each number from -10 to 10.
        label: class of the poses.
        model: a bundle's name; by default the service's.
        timeout_s: deadline, instead of the client's.
    """
    values = np.asarray(poses, np.float64)
    name = "pose" if values.ndim == 1 else "poses"
    body = {"json": {name: values.tolist(), "label": int(label)}}
    read = partial(_read_json, answers.DecodeAnswer)
    return Call("POST", "/decode", read, _given(model=model), body, timeout_s=timeout_s)


def segment(
    image: ImageLike,
    *,
    count: int | Literal["auto"] | None = None,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    timeout_s: float | None = None,
) -> Call[answers.SegmentAnswer]:
    """Take overlapping digits apart.

    Args:
        image: see `classify`.
        count: of digits, by default 2; `auto` finds their number.
        model: a bundle for overlapping digits; by default the first that is loaded.
        fit: how the image is made the network's size.
        polarity: whether strokes are light or dark.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(count=count, model=model, fit=fit, polarity=polarity)
    return _post("/segment", answers.SegmentAnswer, image, query, timeout_s)


def routing(
    image: ImageLike,
    *,
    detail: bool = True,
    target: int | None = None,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    timeout_s: float | None = None,
) -> Call[answers.RoutingAnswer]:
    """Trace how capsules agreed, iteration by iteration.

    Args:
        image: see `classify`.
        detail: False leaves out arrays with a number for each input capsule.
        target: a label; by default the longest capsule's.
        model: a bundle's name; by default the service's.
        fit: how the image is made the network's size.
        polarity: whether strokes are light or dark.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(target=target, model=model, fit=fit, polarity=polarity)
    query |= {} if detail else {"detail": False}
    return _post("/routing", answers.RoutingAnswer, image, query, timeout_s)


def equivariance(
    image: ImageLike,
    *,
    transform: Transform | None = None,
    start: float | None = None,
    stop: float | None = None,
    steps: int | None = None,
    target: int | None = None,
    model: str | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    timeout_s: float | None = None,
) -> Call[answers.EquivarianceAnswer]:
    """Move the image step by step and encode each.

    Args:
        image: see `classify`.
        transform: what is done to the image; by default it is rotated (`turn`).
        start: pixels, degrees or a factor; by default -6, -60 or 0.6.
        stop: by default 6, 60 or 1.4.
        steps: images, both ends included; by default 13.
        target: a label; by default the longest capsule's.
        model: a bundle's name; by default the service's.
        fit: how the image is made the network's size.
        polarity: whether strokes are light or dark.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(target=target, model=model, fit=fit, polarity=polarity)
    query |= _given(transform=transform, start=start, stop=stop, steps=steps)
    return _post("/equivariance", answers.EquivarianceAnswer, image, query, timeout_s)


def overlay(
    first: ImageLike,
    second: ImageLike,
    *,
    dx: int | None = None,
    dy: int | None = None,
    fit: Fit | None = None,
    polarity: Polarity | None = None,
    scale: int | None = None,
    timeout_s: float | None = None,
) -> Call[Image.Image]:
    """Overlay two images of digits, for `segment`.

    Args:
        first: see `classify`.
        second: see `classify`.
        dx: pixels by which the second lies right of the first; by default 4.
        dy: pixels by which it lies below; by default 4.
        fit: how the images are made the network's size.
        polarity: whether strokes are light or dark.
        scale: each pixel becomes scale x scale.
        timeout_s: deadline, instead of the client's.
    """
    query = _given(dx=dx, dy=dy, fit=fit, polarity=polarity, scale=scale)
    body = {"files": [("file", ("image", read_image(one))) for one in (first, second)]}
    return Call("POST", "/overlay", read_png, query, body, accept=PNG, timeout_s=timeout_s)


def sample(
    label: int,
    *,
    dataset: Literal["mnist", "fashion-mnist"] | None = None,
    timeout_s: float | None = None,
) -> Call[Image.Image]:
    """Get a sample image of a class.

    Args:
        label: 0 to 9.
        dataset: by default MNIST.
        timeout_s: deadline, instead of the client's.
    """
    path, query = f"/samples/{int(label)}.png", _given(dataset=dataset)
    return Call("GET", path, read_png, query, accept=PNG, timeout_s=timeout_s)


def samples(name: str, *, timeout_s: float | None = None) -> Call[answers.SamplesAnswer]:
    """List the sample images of a bundle, with their licences.

    Args:
        name: of a loaded bundle.
        timeout_s: deadline, instead of the client's.
    """
    path, read = f"/models/{quote(name, safe='')}/samples", answers.SamplesAnswer
    return Call("GET", path, partial(_read_json, read), timeout_s=timeout_s)


def sample_of(name: str, file: str, *, timeout_s: float | None = None) -> Call[Image.Image]:
    """Get a sample image of a bundle.

    Args:
        name: of a loaded bundle.
        file: as `samples` lists it.
        timeout_s: deadline, instead of the client's.
    """
    path = f"/models/{quote(name, safe='')}/samples/{quote(file, safe='')}"
    return Call("GET", path, read_png, accept=PNG, timeout_s=timeout_s)


def models(*, timeout_s: float | None = None) -> Call[answers.ModelsAnswer]:
    """List the loaded bundles, and what one request may hold.

    Args:
        timeout_s: deadline, instead of the client's.
    """
    return Call("GET", "/models", partial(_read_json, answers.ModelsAnswer), timeout_s=timeout_s)


def model(name: str, *, timeout_s: float | None = None) -> Call[dict[str, Any]]:
    """Show a bundle's manifest, its pose dimensions in words.

    Args:
        name: of a loaded bundle.
        timeout_s: deadline, instead of the client's.
    """
    path = f"/models/{quote(name, safe='')}"
    return Call("GET", path, partial(_read_json, dict[str, Any]), timeout_s=timeout_s)


def reload(*, timeout_s: float | None = None) -> Call[answers.ModelsAnswer]:
    """Have the service load its bundles anew; needs an admin key.

    Args:
        timeout_s: deadline, instead of the client's.
    """
    read = partial(_read_json, answers.ModelsAnswer)
    return Call("POST", "/models/reload", read, timeout_s=timeout_s)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _body(image: bytes) -> dict[str, Any]:
    return {"content": image, "headers": {"Content-Type": "application/octet-stream"}}


def _post(
    path: str, kind: type[T], image: ImageLike, query: dict[str, Any], timeout_s: float | None
) -> Call[T]:
    read = partial(_read_json, kind)
    return Call("POST", path, read, query, _body(read_image(image)), timeout_s=timeout_s)


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise InvalidAnswer("the answer is not JSON") from error


def _read_json(kind: type[T], content: bytes) -> T:
    return structure(kind, _parse(content))


def _read_predictions(content: bytes) -> list[answers.Prediction | answers.FailedPrediction]:
    members = _parse(content)
    try:
        about = {"model": members["model"], "version": members["version"]}
        predictions = [{**about, **one} for one in members["predictions"]]
    except (KeyError, TypeError) as error:
        raise InvalidAnswer("these are no predictions of a CapsNet service") from error
    return [
        structure(answers.FailedPrediction, one)
        if "problem" in one
        else structure(answers.Prediction, one)
        for one in predictions
    ]
