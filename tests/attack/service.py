"""The service that is attacked: real, with two workers, its log in a file, its memory counted."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.attack.wire import SEVEN, Target, exchange, request
from tests.costly import png
from tests.processes import SOURCE, descendants, free_port, nginx, running

Door = Literal["open", "keys", "nginx", "grpc"]
"""The service without keys, with keys, and that behind nginx or gRPC."""
KEY, ADMIN_KEY = "a-key-of-an-ordinary-client", "a-key-of-an-administrator"
ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "CAPSNET_WORKERS": "2",
    "CAPSNET_DEVICE": "cpu",
}
_API = {"CAPSNET_API_KEYS": f'["{KEY}"]'}
_ADMIN = {"CAPSNET_ADMIN_KEYS": f'["{ADMIN_KEY}"]'}
_KEYS: dict[Door, dict[str, str]] = {"open": {}}
_TRACE = re.compile(rb"^Traceback.*?\n(?=\S)(?!Traceback)[^\n]*", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Service:
    """A service that runs."""

    pid: int
    target: Target
    folder: Path
    """Its temporary files."""
    bundles: Path
    """Its bundles: links to those that ship, and what an attack adds."""
    log: Path
    grpc_address: str = ""
    """Where it listens for gRPC too."""

    @property
    def alive(self) -> bool:
        """Whether its first process still runs."""
        with suppress(OSError):
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z"
        return False

    def memory_mib(self) -> float:
        """Proportional set size of all its processes; shared pages count once."""
        return sum(map(_pss_kib, [self.pid, *descendants(self.pid)])) / 1024

    def tracebacks(self, since: int) -> list[str]:
        """Last lines of those in its log, from a byte on."""
        found = _TRACE.findall(self.log.read_bytes()[since:])
        return [one.splitlines()[-1].decode(errors="replace") for one in found]


@contextmanager
def started(
    door: Door, *, command: Sequence[str] = SOURCE, **environment: str
) -> Iterator[Service]:
    """Start a service as that door wants it, and stop it at the end.

    Args:
        door: where it is attacked.
        command: starts it.
        environment: further settings.
    """
    keys = _KEYS.get(door, _API | _ADMIN)
    key = "" if door in _KEYS else KEY
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attacked-")))
        log = stack.enter_context((folder / "log").open("wb"))
        (temporary := folder / "tmp").mkdir()
        (bundles := folder / "bundles").mkdir()
        for manifest in (ROOT / "model" / "bundles").glob("*/manifest.json"):
            (bundles / manifest.parent.name).symlink_to(manifest.parent)
        (proxy := folder / "nginx").mkdir()
        settings = {**_SETTINGS, **keys, **environment, "TMPDIR": str(temporary)}
        settings.setdefault("CAPSNET_BUNDLES", str(bundles))
        grpc_port = free_port() if door == "grpc" else 0
        settings["CAPSNET_GRPC_PORT"] = str(grpc_port)
        process, client = stack.enter_context(
            running(lambda _: [*command], settings, stdout=log, stderr=log)
        )
        port = client.base_url.port
        assert port
        if door == "nginx":
            port = stack.enter_context(nginx(proxy, upstream=port)).base_url.port
            assert port
        target, address = Target(port, key), f"127.0.0.1:{grpc_port}"
        yield Service(process.pid, target, temporary, bundles, folder / "log", address)


async def warm_up(target: Target) -> None:
    """Use all that is loaded or allocated at first use, in both workers."""
    drawn = ["Accept: image/png"]
    for path in ("/classify", "/routing", "/sweep", "/equivariance", "/segment"):
        headers = [] if path == "/classify" else drawn
        data = request(path, SEVEN, headers=headers, key=target.key)
        await asyncio.gather(*(exchange(target, data) for _ in range(6)))
    large = request("/classify", png(3_400, 3_400), key=target.key)
    await asyncio.gather(*(exchange(target, large) for _ in range(4)))


def _pss_kib(pid: int) -> int:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0])
    return 0
