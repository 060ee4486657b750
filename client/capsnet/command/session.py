"""What all commands share: the service they ask, and how they end.

Exit codes: 0, everything was answered; 1, the service refused a request, or an image of several
could not be read; 2, wrong usage; 3, no service could be reached; 4, no answer in time, or one that
is broken; 130, interrupted.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias

import typer
from rich.markup import escape

from capsnet.bundles import LocalCapsNet
from capsnet.client import CapsNet
from capsnet.command.display import SafeConsole
from capsnet.errors import CapsNetError, NoLocalBundle, Problem, Unreachable
from capsnet.transport import DEFAULT_URL

Option: TypeAlias = tuple[Any, Any]
"""What typer makes an option of, and its default."""
REQUIRED = inspect.Parameter.empty
errors = SafeConsole(stderr=True, highlight=False, soft_wrap=True)


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    NO_ANSWER = 4


Url = Annotated[str, typer.Option(envvar="CAPSNET_URL", help="The service.", metavar="URL")]
Local = Annotated[
    str | None,
    typer.Option(
        help="Ask this bundle instead of a service: a folder, or the name of a shipped bundle. "
        "Needs the service's package.",
        metavar="BUNDLE",
    ),
]
Key = Annotated[
    str | None, typer.Option(envvar="CAPSNET_CLIENT_KEY", help="API key.", show_envvar=True)
]
Timeout = Annotated[float, typer.Option(min=0.001, help="Deadline of each request, in seconds.")]
_SHARED: dict[str, Option] = {
    "url": (Url, DEFAULT_URL),
    "local": (Local, None),
    "key": (Key, None),
    "timeout": (Timeout, 30.0),
}


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its client, the options for it, and its exit code."""

    def run(*, url: str, local: str | None, key: str | None, timeout: float, **given: Any) -> None:
        with reporting():
            asked = LocalCapsNet(local) if local else CapsNet(url, api_key=key, timeout_s=timeout)
            with asked as client:
                command(client, **given)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    options = {one.name: (one.annotation, one.default) for one in own}
    return described(run, command.__name__, command.__doc__, options, _SHARED)


def described(
    run: Callable[..., None], name: str, text: str | None, *options: Mapping[str, Option]
) -> Callable[..., None]:
    """Have typer see a name, a text, and options by name."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for some in options
        for name, (kind, default) in some.items()
    ]
    run.__name__, run.__doc__ = name, text
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


@contextmanager
def reporting() -> Iterator[None]:
    """Say what went wrong on standard error, and exit with its code."""
    logging.getLogger("stamina").setLevel(logging.ERROR)  # waiting for a busy service is no error
    try:
        yield
    except Problem as problem:
        late = problem.status == HTTPStatus.GATEWAY_TIMEOUT
        hint = _KEY_HINT if problem.status == HTTPStatus.UNAUTHORIZED else ""
        fail(f"{problem}{hint}", Exit.NO_ANSWER if late else Exit.REFUSED)
    except Unreachable as error:
        hint = "" if isinstance(error, NoLocalBundle) else _HINT
        fail(f"{error}{hint}", Exit.UNREACHABLE)
    except CapsNetError as error:
        fail(str(error), Exit.NO_ANSWER)
    except BrokenPipeError:
        raise  # what reads this has enough
    except (OSError, ValueError) as error:
        fail(str(error), Exit.USAGE)


def fail(text: str, code: Exit) -> None:
    """Exit with a line on standard error.

    Raises:
        typer.Exit: always.
    """
    errors.print(f"[red]capsnet:[/] {escape(text)}")
    raise typer.Exit(code)


_KEY_HINT = "\nGive a key with --key or CAPSNET_CLIENT_KEY."
_HINT = """
Start a service with `make serve` in its repository, name another one with --url or CAPSNET_URL, or
use --local BUNDLE where the service's package is installed."""
