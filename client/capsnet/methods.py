"""How a declared method becomes one of each client.

A method is declared once, with its parameters, its answer and its words, and without a body. The
decorator sends the request. `CapsNet` returns the answer, `AsyncCapsNet` an awaitable of it, and
`Drawings` and `AsyncDrawings` a picture instead of it. The protocols say that to type checkers and
editors; at run time a method is a plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
)
from functools import wraps
from string import Formatter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload
from urllib.parse import quote

from PIL import Image

from capsnet.calls import JSON, PNG, Call, read_answer, read_outcomes
from capsnet.images import ImageLike

if TYPE_CHECKING:
    from capsnet.client import AsyncCapsNet, AsyncDrawings, CapsNet, Drawings

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Failed = TypeVar("Failed")


class Method(Protocol[P, T_co]):
    """A method that sends one request."""

    @overload
    def __get__(self, client: CapsNet, kind: Any = None) -> Callable[P, T_co]: ...
    @overload
    def __get__(
        self, client: AsyncCapsNet, kind: Any = None
    ) -> Callable[P, Coroutine[Any, Any, T_co]]: ...
    @overload
    def __get__(self, client: Drawings, kind: Any = None) -> Callable[P, Image.Image]: ...
    @overload
    def __get__(
        self, client: AsyncDrawings, kind: Any = None
    ) -> Callable[P, Coroutine[Any, Any, Image.Image]]: ...
    @overload
    def __get__(self, client: None, kind: Any = None) -> Callable[Concatenate[Any, P], T_co]: ...


class OneOrAll(Protocol[P, T, Failed]):
    """A bound method that takes one image or several."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # one path is no list of characters
        self, images: ImageLike, *args: P.args, **options: P.kwargs
    ) -> T: ...
    @overload
    def __call__(
        self, images: Iterable[ImageLike], *args: P.args, **options: P.kwargs
    ) -> list[T | Failed]: ...


class AwaitedOneOrAll(Protocol[P, T, Failed]):
    """The same, to be awaited."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # as above
        self, images: ImageLike, *args: P.args, **options: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self, images: Iterable[ImageLike], *args: P.args, **options: P.kwargs
    ) -> Coroutine[Any, Any, list[T | Failed]]: ...


class OneOrAllMethod(Protocol[P, T, Failed]):
    """A method that takes one image or several."""

    @overload
    def __get__(self, client: CapsNet, kind: Any = None) -> OneOrAll[P, T, Failed]: ...
    @overload
    def __get__(self, client: AsyncCapsNet, kind: Any = None) -> AwaitedOneOrAll[P, T, Failed]: ...
    @overload
    def __get__(self, client: None, kind: Any = None) -> Callable[..., Any]: ...


class EachMethod(Protocol[P, T_co]):
    """A method that takes any number of images, and yields an outcome for each."""

    @overload
    def __get__(self, client: CapsNet, kind: Any = None) -> Callable[P, Iterator[T_co]]: ...
    @overload
    def __get__(
        self, client: AsyncCapsNet, kind: Any = None
    ) -> Callable[P, AsyncIterator[T_co]]: ...
    @overload
    def __get__(self, client: None, kind: Any = None) -> Callable[..., Any]: ...


def route(
    verb: str,
    path: str,
    answer: type[T],
    *,
    images: Collection[str] = (),
    json: Collection[str] = (),
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:
    """Give a declared method its body, which sends one request.

    Args:
        verb: of the request.
        path: of the route; `{name}` stands for a parameter of the method.
        answer: the kind of the answer.
        images: the parameters that are sent as image files.
        json: the parameters that are sent as JSON; the others are in the query.
    """

    def decorate(declared: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        signature, read = inspect.signature(declared), read_answer(answer)
        accept = PNG if answer is Image.Image else JSON

        @wraps(declared)
        def method(self: Any, *args: Any, **options: Any) -> Any:
            values = _bind(signature, (self, *args), options)
            call = Call(
                declared.__name__,
                verb,
                _fill(path, values),
                read,
                images=[values.pop(name) for name in images],
                json={name: values.pop(name) for name in json},
                accept=accept,
                timeout_s=values.pop("timeout_s", None),
                query=values,
            )
            return self._send(call)

        return cast("Method[P, T]", method)

    return decorate


def one_or_all(
    path: str, member: str, kind: type[T], failed: type[Failed]
) -> Callable[[Callable[Concatenate[Any, Any, P], Any]], OneOrAllMethod[P, T, Failed]]:
    """Give a declared method its body, which sends one image, or several in some requests.

    Args:
        path: of the route.
        member: of the answer: the list that has an outcome for each image.
        kind: of an outcome.
        failed: of the outcome of an image that could not be read.
    """
    read = read_outcomes(member, kind, failed)
    return lambda declared: _batched(declared, path, read, "_send_one_or_all")


def each(
    path: str, member: str, kind: type[T], failed: type[Failed]
) -> Callable[[Callable[Concatenate[Any, P], Any]], EachMethod[P, T | Failed]]:
    """Give a declared method its body, which yields outcomes; parameters as in `one_or_all`."""
    read = read_outcomes(member, kind, failed)
    return lambda declared: _batched(declared, path, read, "_send_each")


def _batched(
    declared: Callable[..., Any], path: str, read: Callable[[bytes], list[T]], send: str
) -> Any:
    """Give a declared method of many images its body; `send` is the client's method it calls."""
    signature = inspect.signature(declared)

    @wraps(declared)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        values = _bind(signature, (self, *args), options)
        images, timeout_s = values.pop("images"), values.pop("timeout_s", None)
        call = Call(declared.__name__, "POST", path, read, query=values, timeout_s=timeout_s)
        return getattr(self, send)(images, call)

    return method


def _bind(
    signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments by name, without `self` and those that are None.

    Raises:
        TypeError: one is missing or unknown.
    """
    _, *bound = signature.bind(*args, **options).arguments.items()
    return {name: value for name, value in bound if value is not None}


def _fill(path: str, values: dict[str, Any]) -> str:
    """Move the parameters of a path from the arguments into it."""
    names = [name for _, name, _, _ in Formatter().parse(path) if name]
    return path.format_map({name: quote(str(values.pop(name)), safe="") for name in names})
