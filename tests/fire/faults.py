"""Faults while callers ask: what they see, and how long until all is normal again."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from service.settings import Settings
from tests.attack.service import ADMIN_KEY, Service, started
from tests.e2e.workers import MODEL, change, no_descriptors, ready_workers, wait_for, workers
from tests.fire.callers import LOST, RIGHT, UNCONNECTED, WRONG, Callers
from tests.fire.load import Table
from tests.processes import PATIENCE_S, PLAIN, SOURCE, descendants, patch_workers

CALM = 100
"""Right answers in a row after which all is normal."""
LASTING_S = 5.0
"""How long a fault lasts that does not end by itself."""
FROZEN_S = 10.0
"""Twice the time after which a silent worker is replaced."""
_PRIVATE = 'mount -t tmpfs -o size=96m tmpfs "$TMPDIR" && exec "$0" -m service'
"""Gives a service a small temporary folder that nobody else has."""


@dataclass(frozen=True)
class Site:
    """A service with two workers and one bundle, which a fault may harm."""

    service: Service
    bundles: Path
    switches: Path
    """What is in this folder is wrong with the graphs: see `_HARMED`."""

    def workers(self) -> list[int]:
        """Process ids; none if the supervisor is gone."""
        with suppress(OSError):
            return workers(self.service)
        return []

    def decoders(self) -> list[int]:
        """Process ids of the fork servers of decoding processes, then of what they forked."""
        found = [one for one in descendants(self.service.pid) if "service.pool" in _command(one)]
        return sorted(found, key=lambda one: _parent(one) in found)

    def temporary(self) -> Path:
        """The folder of its temporary files, as the service sees it."""
        return Path(f"/proc/{self.service.pid}/root{self.service.folder}")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.service.target.port}"

    def ask(self, path: str, *, method: str = "GET", key: str = "", **more: Any) -> httpx.Response:
        """One request over a connection of its own."""
        headers = {"X-API-Key": key or self.service.target.key, **more.pop("headers", {})}
        asked = {"headers": headers, "timeout": PATIENCE_S, "verify": PLAIN, **more}
        return httpx.request(method, self.url + path, **asked)

    def reload(self) -> int:
        """Have the bundles read anew; the status of the answer."""
        return self.ask("/models/reload", method="POST", key=ADMIN_KEY).status_code

    def wait_until_ready(self) -> None:
        """Return when both workers are ready, and the supervisor has seen it."""
        key = self.service.target.key
        wait_for(lambda: ready_workers(self.url, key) == 2 == len(self.workers()))


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Args:
        title: what happens.
        harm: makes it happen, and returns when it is over.
        refused: outcomes that callers may see beside right answers.
        lost: most requests of each caller that may end without an answer.
        short: whether it is tried in `make test` too, on a service that others harmed before.
        ends: whether the service ends.
        command: starts the service.
        settings: of the service.
    """

    title: str
    harm: Callable[[Site], None]
    refused: tuple[str, ...]
    lost: int = 0
    short: bool = False
    ends: bool = False
    command: tuple[str, ...] = tuple(SOURCE)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """What callers saw of a fault."""

    title: str
    outcomes: Counter[str]
    normal_s: float | None
    """From the fault until the last answer that was not right; None if the service ended."""
    ready_s: float | None
    """From the fault until all workers were ready."""
    faults: list[str]


FAULTS: list[Fault] = []


def fault(
    title: str, *refused: str, **more: Any
) -> Callable[[Callable[[Site], None]], Callable[[Site], None]]:
    """Enter a fault in the list of all."""

    def enter(harm: Callable[[Site], None]) -> Callable[[Site], None]:
        FAULTS.append(Fault(title, harm, refused, **more))
        return harm

    return enter


def run(one: Fault, site: Site, *, calm: int = CALM, **more: Any) -> Seen:
    """Harm a service while callers ask, and judge what they saw; `more` is for `Callers`."""
    callers = Callers(site.service, MODEL, **more)
    with callers.calling():
        callers.wait(calm)
        before, began, ready_s = len(callers.calls), time.monotonic(), None
        try:
            one.harm(site)
            if not one.ends:
                site.wait_until_ready()
                ready_s = time.monotonic() - began
                callers.wait(calm)
            harmed = []
        except (AssertionError, TimeoutError, httpx.HTTPError) as error:
            harmed = [str(error) or type(error).__name__]
    calls = callers.calls[before:]
    seen = Counter(call.outcome for call in calls if not one.ends or call.sent < began)
    ends = [call.sent + call.seconds for call in calls if call.outcome != RIGHT]
    normal_s = None if one.ends else max([0.0, *(end - began for end in ends)])
    faults = [*_judge(one, seen, callers.count), *harmed]
    if not one.ends and not site.service.alive:
        faults.append("the service ended")
    return Seen(one.title, seen, normal_s, ready_s, faults)


def _judge(one: Fault, seen: Counter[str], callers: int) -> list[str]:
    faults = [f"{seen[WRONG]} wrong answers"] if seen[WRONG] else []
    if seen[LOST] > one.lost * callers:
        faults.append(f"{seen[LOST]} lost, at most {one.lost * callers}")
    known = {RIGHT, WRONG, LOST, *one.refused}
    return faults + [f"{seen[other]} x {other}" for other in sorted(seen.keys() - known)]


@contextmanager
def place(one: Fault) -> Iterator[Site]:
    """The service that is harmed."""
    with tempfile.TemporaryDirectory(prefix="harmed-") as name:
        folder = Path(name)
        bundles, switches = folder / "bundles", folder / "switches"
        shutil.copytree(Settings().bundles / MODEL, bundles / MODEL)
        (code := folder / "code").mkdir()
        switches.mkdir()
        os.mkfifo(pipe := folder / "pipe")
        reader = os.open(pipe, os.O_RDWR)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, resource.getpagesize())
        settings = {
            "PIPE": str(pipe),
            "CAPSNET_BUNDLES": str(bundles),
            "CAPSNET_DEFAULT_MODEL": MODEL,
            **patch_workers(code, _HARMED.format(switches=f"{switches}/")),
            **one.settings,
        }
        with started("grpc", command=one.command, **settings) as service:
            site = Site(service, bundles, switches)
            site.wait_until_ready()
            yield site
        os.close(reader)


_HARMED = """
plain_encode = Runtime.encode


def wrong(kind):  # whether a file exists needs no descriptor
    return os.path.exists({switches!r} + kind)


def encode(*arguments):
    if wrong("hang"):
        threading.Event().wait()
    found = plain_encode(*arguments)
    return found._replace(presence=found.presence * float("nan")) if wrong("nan") else found


Runtime.encode = encode
"""


# processes


@fault("a worker is killed", UNCONNECTED, lost=1, short=True)
def worker_killed(site: Site) -> None:
    """Who was answered by it is lost, one request of each caller at most."""
    os.kill(killed := site.workers()[0], signal.SIGKILL)
    wait_for(lambda: killed not in site.workers())


@fault(
    "a worker is stopped",
    UNCONNECTED,
    lost=2,
    short=True,
    settings={"CAPSNET_HEARTBEAT_TIMEOUT_S": "5"},
)
def worker_stopped(site: Site) -> None:
    """The kernel gives it its share of connections until it is killed."""
    os.kill(stopped := site.workers()[0], signal.SIGSTOP)
    wait_for(lambda: stopped not in site.workers())


@fault("the supervisor is killed", lost=1, ends=True, short=True)
def supervisor_killed(site: Site) -> None:
    """The workers answer what they accepted and end."""
    pids = descendants(site.service.pid)
    os.kill(site.service.pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))


@fault("the fork servers of the processes that decode are killed", "503", short=True)
def fork_servers_killed(site: Site) -> None:
    """Others are started."""
    for pid in site.decoders()[:2]:
        _kill(pid)


@fault(
    f"the machine is frozen for {FROZEN_S:g} s",
    "408",
    "504",
    short=True,
    settings={"CAPSNET_HEARTBEAT_TIMEOUT_S": "5"},
)
def frozen(site: Site) -> None:
    """No process runs, and then all go on: none is ended for its silence.

    A request whose time passed in the meantime is answered with 408 or 504.
    """
    pids = [site.service.pid, *descendants(site.service.pid)]
    before = site.workers()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(FROZEN_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(2)
    assert before == site.workers(), "workers were replaced"


# graphs


@fault("a graph answers NaN for 5 s", "500", short=True)
def graph_is_nan(site: Site) -> None:
    """NaN is no answer."""
    with _wrong(site, "nan"):
        time.sleep(LASTING_S)


@fault(
    "a graph hangs in both workers",
    *("503", "504", UNCONNECTED),
    lost=8,
    settings={"CAPSNET_INFERENCE_TIMEOUT_S": "5", "CAPSNET_REQUEST_TIMEOUT_S": "10"},
)
def graph_hangs(site: Site) -> None:
    """The workers are replaced."""
    before = site.workers()
    with _wrong(site, "hang"):
        time.sleep(1)
    wait_for(lambda: not set(before) & set(site.workers()))


# bundles and reloads


@fault("a bundle on disk is broken, and a worker is killed", UNCONNECTED, lost=1, short=True)
def bundle_broken(site: Site) -> None:
    """Its replacement loads the copy that the others serve."""
    with _away(site.bundles / MODEL / "encoder.onnx"):
        worker_killed(site)
        site.wait_until_ready()


@fault("three reloads in turn", short=True)
def reloads(site: Site) -> None:
    """None costs an answer."""
    for _ in range(3):
        note = change(site.bundles)
        _expect(site.reload(), 200)
        found = [site.ask(f"/models/{MODEL}").json()["training"].get("note") for _ in range(6)]
        assert {note} == set(found), "a worker has the old bundles"


# what the machine lacks

_SMALL_TMP = ("unshare", "--map-root-user", "--mount", "sh", "-c", _PRIVATE, sys.executable)


@fault("the disk of the temporary files is full for 5 s", command=_SMALL_TMP)
def disk_full(site: Site) -> None:
    """Answering needs none."""
    with _full(site):
        time.sleep(LASTING_S)


@fault("the disk is full during a reload", command=_SMALL_TMP)
def disk_full_at_reload(site: Site) -> None:
    """The reload is refused, and the next one is not."""
    with _full(site):
        _expect(site.reload(), 409)
    _expect(site.reload(), 200)


@fault("one worker has no free descriptor for 5 s", "503", short=True)
def descriptors_gone(site: Site) -> None:
    """The other takes the connections."""
    before = site.workers()
    with no_descriptors(before[0]):
        time.sleep(LASTING_S)
    assert before == site.workers(), "workers were replaced"


@fault(
    "nobody reads the log",
    short=True,
    command=("sh", "-c", 'exec "$0" -m service 2>"$PIPE"', sys.executable),
)
def log_unread(_: Site) -> None:
    """Lines are dropped; answers do not wait."""
    time.sleep(LASTING_S)


@contextmanager
def _away(path: Path) -> Iterator[Path]:
    """Moves a file aside; gives where it is."""
    aside = path.rename(path.with_name("aside"))
    try:
        yield aside
    finally:
        aside.rename(path)


@contextmanager
def _wrong(site: Site, kind: str) -> Iterator[None]:
    (site.switches / kind).touch()
    yield
    (site.switches / kind).unlink()


@contextmanager
def _full(site: Site) -> Iterator[None]:
    filler = site.temporary() / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def _expect(status: int, expected: int) -> None:
    assert expected == status, f"the reload said {status}, not {expected}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def table() -> Table:
    """What callers saw of each fault."""
    columns = ["fault", "right", "refused", "lost", "not connected", "right again after", "ready"]
    found = Table("Faults, eight callers, half of them over gRPC", columns)
    for one in FAULTS:
        with place(one) as site:
            seen = run(one, site)
        told = {RIGHT, WRONG, LOST, UNCONNECTED}
        refused = {key: count for key, count in seen.outcomes.items() if key not in told}
        after, ready = (
            "-" if value is None else f"{value:.1f} s" for value in (seen.normal_s, seen.ready_s)
        )
        found.add(
            one.title,
            seen.outcomes[RIGHT],
            ", ".join(f"{count} x {key}" for key, count in sorted(refused.items())) or 0,
            seen.outcomes[LOST],
            seen.outcomes[UNCONNECTED],
            after,
            ready,
            faults=seen.faults,
        )
        print(f"{one.title}: {'; '.join(seen.faults) or 'as promised'}", flush=True)
    return found
