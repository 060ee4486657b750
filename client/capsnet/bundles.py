"""Answer the calls of a client with a bundle in this process and the package `model`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from capsnet._generated import Limits, ModelSummary
from capsnet.calls import PNG, Call
from capsnet.client import CapsNet
from capsnet.errors import NoLocalBundle, Problem
from capsnet.images import ImageLike, is_one, read_image
from capsnet.transport import form_batches, only

if TYPE_CHECKING:
    from model.bundle import Manifest

T = TypeVar("T")
_LIMITS = Limits(images=256, body_bytes=1_000_000_000)


class LocalCapsNet(CapsNet):
    """The client's methods, answered by a bundle in this process.

    Args:
        bundle: its folder, or the name of one that ships.

    Raises:
        NoLocalBundle: the package is not installed, or this is no bundle.
    """

    def __init__(self, bundle: str) -> None:
        try:
            import model  # noqa: PLC0415  an installation of its own
            from model.bundle import BundleError  # noqa: PLC0415
            from model.runtime import DeviceError  # noqa: PLC0415
        except ImportError as error:
            raise NoLocalBundle(
                "a local bundle needs the service's package (capsnet-service) in this environment"
            ) from error
        try:
            self._bundle = model.load(bundle)
        except (BundleError, DeviceError) as error:
            raise NoLocalBundle(str(error)) from error

    def __repr__(self) -> str:
        return f"LocalCapsNet({str(self._bundle.bundle.path)!r})"

    @property
    def url(self) -> str:
        """The bundle's folder."""
        return Path(self._bundle.bundle.path).resolve().as_uri()

    def close(self) -> None:
        """There are no connections."""

    def _send(self, call: Call[T]) -> T:
        manifest = self._bundle.bundle.manifest
        if call.name == "models":
            return call.read(json.dumps(self._summarise(manifest)).encode())
        if call.name == "model":
            _check_name(unquote(call.path.rpartition("/")[2]), manifest)
            return call.read(json.dumps(manifest.to_dict()).encode())
        with _refusals():
            answer = self._ask(call.name, call, *map(read_image, call.images))
            drawn = answer.png(call.query.get("scale")) if call.accept == PNG else None
        return call.read(drawn or answer.model_dump_json().encode())

    def _send_one_or_all(self, images: Any, call: Call[list[T]]) -> T | list[T]:
        if is_one(images):
            return only(self._classify(read_image(images), call))
        return list(self._send_each(images, call))

    def _send_each(self, images: Iterable[ImageLike], call: Call[list[T]]) -> Iterator[T]:
        for batch in form_batches(images, _LIMITS):
            yield from self._classify(batch, call)

    def _classify(self, images: bytes | list[bytes], call: Call[list[T]]) -> list[T]:
        with _refusals():
            answer = self._ask("classify", call, images)
        outcomes = answer if isinstance(answer, list) else [answer]
        members = {"predictions": [outcome.dict() for outcome in outcomes]}
        return call.read(json.dumps(members).encode())

    def _ask(self, name: str, call: Call[Any], *images: bytes | list[bytes]) -> Any:
        """The answer of the bundle's method of this name."""
        from model.views import NAMES  # noqa: PLC0415

        if name not in NAMES:
            raise Problem(404, title="Not found", detail=f"a local bundle has no {call.path}")
        parameters = {**call.query, **call.json}
        _check_name(parameters.pop("model", None), self._bundle.bundle.manifest)
        parameters.pop("scale", None)
        return getattr(self._bundle, name)(*images, **parameters)

    def _summarise(self, manifest: Manifest) -> dict[str, Any]:
        from model.bundle.directions import summarise_directions  # noqa: PLC0415
        from model.views import all_views  # noqa: PLC0415

        views = all_views()
        derived = {
            "directions": summarise_directions(manifest.directions),
            "family_title": manifest.family_title or manifest.family,
            "default": True,
            "calibrated": manifest.confidence is not None,
            "explained": manifest.explained and asdict(manifest.explained),
            "notes": {view.name: notes for view in views if (notes := view.notes_on(manifest))},
        }
        names = [field.name for field in fields(ModelSummary) if field.name not in derived]
        return {
            "provider": self._bundle.provider,
            "limits": asdict(_LIMITS),
            "models": [{**{name: getattr(manifest, name) for name in names}, **derived}],
        }


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise the problems of the model as this package's."""
    from model.errors import Problem as Refusal  # noqa: PLC0415

    try:
        yield
    except Refusal as refusal:
        raise Problem.from_dict(refusal.to_dict()) from refusal


def _check_name(name: str | None, manifest: Manifest) -> None:
    if name not in (None, manifest.name):
        raise Problem(
            404,
            type="urn:capsnet:problem:unknown-model",
            title="Model not found",
            detail=f"{name!r} is not loaded; loaded: {manifest.name}",
            parameter="model",
        )
