"""Logs of one line for each event, as text or JSON, with the id of the request."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from io import UnsupportedOperation
from threading import Event, RLock, Thread
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that the running task works for."""

ACCESS = logging.getLogger("service.access")
"""The logger of answered requests. Its events have their fields in `fields`."""

MAX_LINES = 10_000
"""This many lines may wait to be written."""
_PERIOD_S, _FLUSH_S = 0.1, 1.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def configure(
    log_format: LogFormat, *, access_log: bool = True, fields: Mapping[str, str] | None = None
) -> None:
    """Write all logs of this process to standard error.

    Without an access log, requests are logged only if they are refused for their key. Each event
    has the `fields` of this process.
    """
    ACCESS.setLevel(logging.INFO if access_log else logging.WARNING)
    handler = Lines(sys.stderr)
    if fields:
        handler.addFilter(partial(_add, fields))
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # What no format shows need not be found out for every event (Python's Logging HOWTO).
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined]  # from Python 3.12 on
    logging.captureWarnings(capture=True)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # one for each odd tag of a picture


class Lines(logging.Handler):
    """Writes events on a thread of its own, so that no request waits for a slow reader of the log.

    Lines of `_PERIOD_S` are written together, and those of answers are formatted then. Between two
    inferences, each would take several times as long, because the processor's caches are cold.
    Beyond `MAX_LINES` that wait, further ones are dropped, and their number is written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._dropped = stream, 0
        self._lines: deque[str | logging.LogRecord] = deque()
        self._some, self._urgent, self._written = Event(), Event(), Event()
        self._written.set()
        self._queueing = RLock()  # never held while a line is written
        Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record to be written."""
        if len(self._lines) >= MAX_LINES:
            self._dropped += 1
            return
        record.request_id = request_id.get()
        # Others may hold what changes, or what has to be freed.
        line = record if record.name == ACCESS.name else self._line(record)
        with self._queueing:
            self._written.clear()
            self._lines.append(line)
        if not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Wait until all is written, but not for long."""
        self._urgent.set()
        self._written.wait(_FLUSH_S)
        self._urgent.clear()

    def _write(self) -> None:
        while self._some.wait():
            self._urgent.wait(_PERIOD_S)
            self._some.clear()
            waiting = [self._lines.popleft() for _ in range(len(self._lines))]
            lines = [line if isinstance(line, str) else self._line(line) for line in waiting]
            if self._dropped:
                lines.append(f"{self._dropped} lines were dropped: nobody read them")
                self._dropped = 0
            with suppress(OSError, ValueError):  # it was closed
                self._put("".join(f"{line}\n" for line in lines if line))
            with self._queueing:
                if not self._lines:
                    self._written.set()

    def _line(self, record: logging.LogRecord) -> str:
        """The text of a record; empty if it cannot be formatted."""
        try:
            return self.format(record)
        except Exception:  # noqa: BLE001  as other handlers do
            self.handleError(record)
            return ""

    def _put(self, text: str) -> None:
        """Write without the stream's buffer, whose lock would delay the end of the process."""
        try:
            number = self._stream.fileno()
        except UnsupportedOperation:  # it is no file
            self._stream.write(text)
            return
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            rest = rest[os.write(number, rest) :]


def _add(fields: Mapping[str, str], record: logging.LogRecord) -> bool:
    record.fields = {**getattr(record, "fields", {}), **fields}
    return True


def _context(record: logging.LogRecord) -> dict[str, Any]:
    """The request's id and the event's fields, where there are any."""
    name = getattr(record, "request_id", None) or request_id.get()
    fields = getattr(record, "fields", {})
    return {"request_id": name, **fields} if name else fields


class TextFormatter(logging.Formatter):
    """A sentence, then the request's id and the event's fields as name=value."""

    _second = 0
    _time = ""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text."""
        context = "".join([f" {key}={value}" for key, value in _context(record).items()])
        head = f"{self._format_time(record)} {record.levelname} {record.name}"
        line = f"{head}: {record.getMessage()}{context}"
        if not line.isprintable():  # a client's words cannot forge a line
            line = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line

    def _format_time(self, record: logging.LogRecord) -> str:
        """The time of a record. The text of a second is made once."""
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._time = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._second))
        return f"{self._time},{int(record.msecs):03d}"


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, request_id and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        members = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_context(record),
        }
        if record.exc_info:
            members["trace"] = self.formatException(record.exc_info)
        return json.dumps(members)
