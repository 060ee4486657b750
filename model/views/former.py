"""Methods under the names of the last release.

The client has its own `former`, because it is installed without `model`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

M = TypeVar("M", bound=Callable[..., Any])


def former(name: str, method: M) -> M:
    """Return the method under its former name, with a `DeprecationWarning` at each call."""
    text = f"{name} is a former name of {method.__name__}, which works for one release more"

    @wraps(method)
    def renamed(*given: Any, **options: Any) -> Any:
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return method(*given, **options)

    renamed.__deprecated__ = text  # type: ignore[attr-defined]
    return cast("M", renamed)
