"""Logs of one line for each event, as text or JSON, with the id of the request."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from io import UnsupportedOperation
from queue import Full, Queue
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


def configure(log_format: LogFormat, *, fields: Mapping[str, str] | None = None) -> None:
    """Write all logs of this process to standard error.

    Each event has the `fields` of this process.
    """
    ACCESS.setLevel(logging.INFO)
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
    """Has events written by a thread, so that no request waits for a slow reader of the log.

    The lines of `_PERIOD_S` are written together: between two inferences, each would take several
    times as long, because the processor's caches are cold. Beyond `MAX_LINES` that wait, further
    ones are dropped, and their number is written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting = Queue[str](MAX_LINES)
        self._dropped = 0
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the text of a record, which others may change later, or have to free."""
        try:
            self._waiting.put_nowait(self.format(record))
        except Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001  as in all handlers of Python
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all is written, but not for long."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(
                lambda: not self._waiting.unfinished_tasks, _FLUSH_S
            )

    def _write_all(self) -> None:
        while True:
            lines = [self._waiting.get()]
            time.sleep(_PERIOD_S)
            lines += [self._waiting.get() for _ in range(self._waiting.qsize())]
            dropped, self._dropped = self._dropped, 0
            note = f"{dropped} lines were dropped: nobody read them\n" if dropped else ""
            with suppress(OSError, ValueError):  # it was closed
                self._write("".join(f"{line}\n" for line in lines) + note)
            for _ in lines:
                self._waiting.task_done()

    def _write(self, text: str) -> None:
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
    name = request_id.get()
    fields = getattr(record, "fields", {})
    return {"request_id": name, **fields} if name else fields


class TextFormatter(logging.Formatter):
    """A sentence, then the request's id and the event's fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text."""
        context = "".join([f" {key}={value}" for key, value in _context(record).items()])
        head = f"{self.formatTime(record)} {record.levelname} {record.name}"
        line = f"{head}: {record.getMessage()}{context}"
        if not line.isprintable():  # a client's words cannot forge a line
            line = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


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
