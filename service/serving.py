"""Which inspector answers, while bundles are exchanged under the load of requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.inspector import Inspector
from service.problems import Unavailable


@dataclass(eq=False)
class _Shift:
    """An inspector and the requests that it is answering."""

    inspector: Inspector
    requests: int = 0
    over: bool = False
    """Another inspector has taken its place."""

    @property
    def finished(self) -> bool:
        return self.over and not self.requests


class Serving:
    """The inspector in use.

    A request keeps the inspector that it began with, so that a pose is decoded by the network that
    encoded it. One whose place was taken is closed when the last of its requests has ended.
    """

    def __init__(self) -> None:
        self._shift: _Shift | None = None
        self._changed = threading.Lock()

    @contextmanager
    def inspector(self) -> Iterator[Inspector]:
        """The inspector for one request.

        Raises:
            Unavailable: there is none yet.
        """
        with self._changed:
            shift = self._shift
            if shift is None:
                raise Unavailable("the service is starting", retry_after_s=1)
            shift.requests += 1
        try:
            yield shift.inspector
        finally:
            with self._changed:
                shift.requests -= 1
                finished = shift.finished
            if finished:
                _retire(shift.inspector)

    def exchange(self, inspector: Inspector) -> None:
        """Give all requests from here on to another inspector."""
        with self._changed:
            old, self._shift = self._shift, _Shift(inspector)
            if old:
                old.over = True
        if old and old.finished:
            _retire(old.inspector)

    def close(self, timeout_s: float) -> bool:
        """Stop the inspector; whether it finished within the timeout."""
        return self._shift is None or self._shift.inspector.close(timeout_s)


def _retire(inspector: Inspector) -> None:
    """Close an idle inspector on a thread of its own: its engine may still compute for nobody."""
    threading.Thread(target=inspector.close, args=(None,), name="retiring", daemon=True).start()
