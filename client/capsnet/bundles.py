"""Answer the calls of a client with a bundle in this process and the package `model`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from capsnet._generated import Limits, ModelSummary
from capsnet.calls import PNG, Call
from capsnet.client import CapsNet
from capsnet.errors import Problem
from capsnet.local import NoLocalService

if TYPE_CHECKING:
    from model.bundle import Manifest

T = TypeVar("T")
_LIMITS = Limits(images=256, body_bytes=1_000_000_000)


class LocalCapsNet(CapsNet):
    """The client's methods, answered by a bundle in this process.

    Args:
        bundle: its folder, or the name of one that ships.

    Raises:
        NoLocalService: the package is not installed, or this is no bundle.
    """

    def __init__(self, bundle: str) -> None:
        try:
            import model  # noqa: PLC0415  an installation of its own
            from model.bundle import BundleError  # noqa: PLC0415
            from model.runtime import DeviceError  # noqa: PLC0415
        except ImportError as error:
            raise NoLocalService(
                "a local bundle needs the service's package (capsnet-service) in this environment"
            ) from error
        try:
            self._runtime = model.load(bundle).runtime
        except (BundleError, DeviceError) as error:
            raise NoLocalService(str(error)) from error
        self.connections, self._limits = 1, _LIMITS

    def __repr__(self) -> str:
        return f"LocalCapsNet({str(self._folder)!r})"

    @property
    def url(self) -> str:
        """The bundle's folder."""
        return self._folder.as_uri()

    def close(self) -> None:
        """There are no connections."""

    @property
    def _folder(self) -> Path:
        return Path(self._runtime.bundle.path).resolve()

    def _send(self, call: Call[T]) -> T:
        from model.errors import Problem as Refusal  # noqa: PLC0415

        try:
            return call.read(self._answer(call))
        except Refusal as refusal:
            raise Problem.from_dict(refusal.to_dict()) from refusal

    def _answer(self, call: Call[Any]) -> bytes:
        """The content of the response that a service would give."""
        manifest = self._runtime.bundle.manifest
        match call.path.strip("/").split("/"):
            case ["models"]:
                return json.dumps(self._summarise(manifest)).encode()
            case ["models", name]:
                _check(name, manifest)
                return json.dumps(_describe(manifest)).encode()
            case [view]:
                _check(call.query.get("model"), manifest)
                return self._ask(view, call)
        raise Problem(404, title="Not found", detail=f"a local bundle has no {call.path}")

    def _ask(self, path: str, call: Call[Any]) -> bytes:
        from model.views import NAMES, find_view  # noqa: PLC0415
        from model.views.local import ask  # noqa: PLC0415

        name = path.replace("-", "_")
        if name not in NAMES:
            raise Problem(404, title="Not found", detail=f"a local bundle has no /{path}")
        query = {key: value for key, value in call.query.items() if key != "model"}
        parameters = {**query, **call.body.get("json", {})}
        contents = _contents(call.body)
        pictures = [_open(content) for content in contents]
        answer = ask(self._runtime, find_view(name), pictures, parameters, alone=len(contents) == 1)
        content: bytes = answer.png() if call.accept == PNG else answer.model_dump_json().encode()
        return content

    def _summarise(self, manifest: Manifest) -> dict[str, Any]:
        from model.views import all_views  # noqa: PLC0415

        derived = {
            "family_title": manifest.family_title or manifest.family,
            "default": True,
            "calibrated": manifest.confidence is not None,
            "explained": manifest.explained and {**manifest.explained.to_dict(), "figure": None},
            "notes": {
                view.name: notes for view in all_views() if (notes := view.notes_on(manifest))
            },
        }
        names = [field.name for field in fields(ModelSummary) if field.name not in derived]
        summary = {**{name: getattr(manifest, name) for name in names}, **derived}
        return {
            "provider": self._runtime.provider,
            "limits": asdict(_LIMITS),
            "models": [summary],
        }


def _check(name: str | None, manifest: Manifest) -> None:
    if name not in (None, manifest.name):
        raise Problem(
            404,
            type="urn:capsnet:problem:unknown-model",
            title="Model not found",
            detail=f"{name!r} is not loaded; loaded: {manifest.name}",
            parameter="model",
        )


def _describe(manifest: Manifest) -> dict[str, Any]:
    """The manifest, with its pose dimensions in words."""
    dimensions = [
        {**asdict(dimension), "effect": dimension.effect} for dimension in manifest.pose_dimensions
    ]
    return {**manifest.to_dict(), "pose_dimensions": dimensions}


def _open(content: bytes) -> Any:
    """A picture, or the problem that kept it from being read."""
    from model.errors import Problem as Refusal  # noqa: PLC0415
    from model.loaded import open_picture  # noqa: PLC0415

    try:
        return open_picture(content)
    except Refusal as refusal:
        return refusal


def _contents(body: Mapping[str, Any]) -> list[bytes]:
    """The image files of a call."""
    if "files" in body:
        return [content for _, (_, content) in body["files"]]
    return [body["content"]] if "content" in body else []
