"""Logs: one line an event, as text for people or as JSON for machines, with the request's id."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from io import UnsupportedOperation
from queue import Full, Queue
from threading import Thread
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request that the running task works for."""

ACCESS = logging.getLogger("service.access")
"""One event for each answered request; its fields are in `fields`."""

MOST_LINES = 10_000
"""That wait to be written."""
_FLUSH_S = 1.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(context)s"


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
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # What no format shows need not be found out for every event (Python's Logging HOWTO).
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined]  # from Python 3.12 on
    logging.captureWarnings(capture=True)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # one for each odd tag of a picture


class Lines(logging.Handler):
    """Writes events from a thread of its own, so that nobody waits for who reads the log.

    Beyond `MOST_LINES` that wait, further ones are dropped, and their number is written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._dropped = stream, 0
        self._lines: Queue[str] = Queue(MOST_LINES)
        Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        try:
            self._lines.put_nowait(self.format(record))
        except Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001  as other handlers do
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all is written, but not for long."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _FLUSH_S)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if self._dropped:
                line += f"\n{self._dropped} lines were dropped: nobody read them"
                self._dropped = 0
            with suppress(OSError, ValueError):  # it was closed
                self._put(line + "\n")
            self._lines.task_done()

    def _put(self, text: str) -> None:
        """Write, past the stream's buffer: its lock would hold up the end of the process."""
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
    name, fields = request_id.get(), getattr(record, "fields", {})
    return {"request_id": name, **fields} if name else fields


class TextFormatter(logging.Formatter):
    """A sentence, then the request's id and the event's fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        record.context = "".join(f" {key}={value}" for key, value in _context(record).items())
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        """A line: a bundle's or a client's words cannot begin another, or command a terminal."""
        line = super().formatMessage(record)
        return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)


class JsonFormatter(logging.Formatter):
    """A JSON object a line: time, level, logger, message, request_id and the event's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
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
