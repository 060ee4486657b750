"""The names of uvicorn that this service extends are there, in the version that is pinned."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess, Process

from service.http.protocol import Http1
from service.processes import server, supervisor

OURS = [
    (Http1, HttpToolsProtocol),
    (server.Server, Server),
    (supervisor.Process, Process),
    (supervisor.Supervisor, Multiprocess),
]
ADDED = {
    Http1: {"_parse", "_feed", "_start_timer", "_stop_timer", "_start_write_timer", "_expire"}
    | {"_stop_write_timer", "_head", "_check_lengths", "_refuse", "_close", "_give_up"}
    | {"_count", "_drop"},
    server.Server: {
        "is_ready",
        "listen",
        "_listen",
        "_accept",
        "_accept_some",
        "_resume",
        "_begin",
        "_make_protocol",
        "_leave",
    },
    supervisor.Process: {"tick", "poll", "read"},
    supervisor.Supervisor: {"serve", "_watch", "_kill_if_hung", "_record_end", "_fail", "_start"}
    | {"_is_told_again"},
}
"""Methods that are not uvicorn's."""


@pytest.mark.parametrize(("ours", "theirs"), OURS, ids=lambda one: one.__name__)
def test_what_is_overridden_exists(ours: type, theirs: type) -> None:
    """Else uvicorn would never call it."""
    methods = {name for name in vars(ours) if not name.startswith("__") and name in dir(ours)}
    functions = {name for name in methods if not isinstance(vars(ours)[name], str | bool | int)}
    assert set() == functions - ADDED[ours] - set(dir(theirs))


@pytest.mark.parametrize(
    ("theirs", "names"),
    [
        (HttpToolsProtocol, {"_unset_keepalive_if_required", "pipeline", "cycle", "flow"}),
        (Server, {"lifespan", "server_state", "config", "servers"}),
        (Process, {"parent_conn", "child_conn", "process", "always_pong"}),
        (Multiprocess, {"processes", "processes_num", "sockets", "signal_queue", "should_exit"}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_is_used_exists(theirs: type, names: set[str]) -> None:
    """Attributes that no interface promises."""
    source = inspect.getsource(theirs)
    assert set() == {name for name in names if not re.search(rf"\b{name}\b", source)}


def test_signals_that_end_or_reload_are_uvicorn_s() -> None:
    """It calls `handle_` with their names."""
    assert {"INT", "TERM", "HUP", "TTIN", "TTOU"} <= set(SIGNALS.values())


def test_the_version_is_bounded(pytestconfig: pytest.Config) -> None:
    """Another version may rename what is extended."""
    text = (Path(pytestconfig.rootpath) / "pyproject.toml").read_text()
    found = re.search(r'"uvicorn([^"]+)"', text)
    assert found
    allowed = SpecifierSet(found[1])
    assert version("uvicorn") in allowed
    assert not {"0.34.0", "0.40.0", "0.99.0"} & set(allowed.filter(["0.34.0", "0.40.0", "0.99.0"]))
