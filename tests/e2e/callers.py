"""Callers who send digits one after the other and check every label."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

import httpx

from service.pictures import SAMPLES
from tests.processes import PLAIN

DIGITS = [(SAMPLES / f"{label}.png").read_bytes() for label in range(10)]
_REQUESTS = 10
"""Sent over one connection; then the caller makes another."""
_PAUSE_S = 0.02
"""Between two requests of a caller: other tests need the processor too."""
_TIMEOUT_S = 60.0


@dataclass
class Callers:
    """Some threads, each with one connection at a time.

    Args:
        url: of the service.
        callers: threads.
        route: what they ask; its answer has a label.
    """

    url: str
    callers: int = 4
    route: str = "/classify"
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """Answers that are not those to the picture that was sent."""
    refused: Counter[int] = field(default_factory=Counter)
    """Statuses other than 200."""
    lost: list[float] = field(default_factory=list)
    """When each request that got no answer was sent, in seconds of `time.monotonic`."""
    slowest_s: float = 0.0

    def __enter__(self) -> Self:
        """Begin to call."""
        self._over, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._call) for _ in range(self.callers)]
        for thread in self._threads:
            thread.start()
        self.wait(self.callers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Let the last answers come, and say what was seen."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)
        print(self)

    def __str__(self) -> str:
        return (
            f"right {self.right}, wrong {len(self.wrong)}, refused {dict(self.refused)}, "
            f"lost {len(self.lost)}, slowest {self.slowest_s:.1f} s"
        )

    def wait(self, answers: int = 50) -> None:
        """Return when so many more have been answered right."""
        aim, deadline = self.right + answers, time.monotonic() + 120
        while self.right < aim:
            assert time.monotonic() < deadline, str(self)
            time.sleep(0.05)

    def _call(self) -> None:
        labels = count(threading.get_ident() % 10)
        while not self._over.is_set():
            with httpx.Client(base_url=self.url, timeout=_TIMEOUT_S, verify=PLAIN) as client:
                for label in (next(labels) % 10 for _ in range(_REQUESTS)):
                    if not self._ask(client, label) or self._over.wait(_PAUSE_S):
                        break

    def _ask(self, client: httpx.Client, label: int) -> bool:
        """Send a digit; whether it was answered."""
        sent = time.monotonic()
        try:
            answer = client.post(self.route, files={"file": DIGITS[label]})
        except httpx.TransportError:
            with self._lock:
                self.lost.append(sent)
            return False
        with self._lock:
            self.slowest_s = max(self.slowest_s, time.monotonic() - sent)
            if answer.status_code != httpx.codes.OK:
                self.refused[answer.status_code] += 1
                return True
            found = answer.json()["predictions"][0]["label"]
            if found == label:
                self.right += 1
            else:
                self.wrong.append(f"{label} was called {found}")
        return True
