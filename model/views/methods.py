"""A method for each view, made of the view when it is first asked for.

`methods.pyi`, which `make generate` writes, has their signatures for type checkers and editors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature
from types import MethodType
from typing import TYPE_CHECKING, Any

from model.views import NAMES, find_view

if TYPE_CHECKING:
    from model.views.view import View

_LAST = ("target", "fit", "polarity")
"""The parameters that most views share come last. `scale` belongs to `answer.png()`."""

_PICTURES = {0: (), 1: ("image",), 2: ("first", "second"), None: ("images",)}
"""The parameters of the pictures, by their number."""


class ViewMethods:
    """What one may ask of a network: the methods of `LoadedBundle`."""


class _ViewMethod:
    """A view as a method."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        method = _make_method(self._name)
        return method if instance is None else MethodType(method, instance)


for _name in NAMES:
    setattr(ViewMethods, _name, _ViewMethod(_name))


@cache
def _make_method(name: str) -> Callable[..., Any]:
    view = find_view(name)
    pictures, first = _PICTURES[view.pictures[1]], Parameter("self", Parameter.POSITIONAL_ONLY)
    signature = Signature([first, *_list_parameters(view, pictures)])

    def method(*given: Any, **options: Any) -> Any:
        arguments = signature.bind(*given, **options).arguments
        bundle = arguments.pop("self")
        images = [arguments.pop(picture) for picture in pictures]
        if view.pictures[1] is None:
            return bundle._classify(*images, arguments)  # noqa: SLF001  methods of the same object
        if view.body:
            from model.views.decode import name_poses  # noqa: PLC0415  with its view

            arguments |= name_poses(arguments.pop("poses"))
        return bundle._ask(view, images, arguments)  # noqa: SLF001

    method.__name__ = name
    method.__qualname__ = f"ViewMethods.{name}"
    method.__doc__ = inspect.cleandoc(view.compute.__doc__ or "")
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _list_parameters(view: View[Any, Any], pictures: tuple[str, ...]) -> list[Parameter]:
    """The pictures, the body and the required parameters by place, the others by name."""
    fields = view.query.model_fields
    hidden = {*_LAST, "scale", *(view.body.model_fields if view.body else ())}
    ordered = [name for name in fields if name not in hidden]
    ordered += [name for name in _LAST if name in fields]
    required = [name for name in ordered if fields[name].is_required()]
    placed = [*pictures, *(("poses", "label") if view.body else ()), *required]
    named = [name for name in ordered if name not in required]
    return [
        *(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in placed),
        *(Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in named),
    ]
