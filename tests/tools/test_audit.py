from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / "tools" / "audit.py"


def finding(version: str) -> dict[str, Any]:
    """A vulnerability in OSV's words."""
    package = {"name": "jinja2", "ecosystem": "PyPI"}
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9.0"}]}]
    affected = [{"package": package, "ranges": ranges, "versions": [version]}]
    return {"id": "PYSEC-0-0", "summary": "unsafe", "affected": affected, "modified": "2024-01-01"}


class Database(BaseHTTPRequestHandler):
    """Knows that jinja2 2.4.1 is vulnerable."""

    def do_POST(self) -> None:
        """Answer a query."""
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        version = query["version"]
        found = {"vulns": [finding(version)]} if version == "2.4.1" else {}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of a database of vulnerabilities."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def audit(folder: Path, pin: str, database: str) -> subprocess.CompletedProcess[str]:
    file = folder / "constraints.txt"
    file.write_text(f"# pins\n{pin}\n")
    return subprocess.run(
        [sys.executable, AUDIT, file, database],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("version", "code"), [("2.4.1", 1), ("3.1.6", 0)])
def test_a_finding_is_a_failure(version: str, code: int, database: str, tmp_path: Path) -> None:
    """A pin with a known vulnerability fails and is named; a sound one passes."""
    result = audit(tmp_path, f"jinja2=={version}", database)
    assert code == result.returncode, result.stderr
    assert (code == 1) == ("PYSEC-0-0" in result.stdout)


def test_without_the_database_it_passes_and_says_so(tmp_path: Path) -> None:
    """Offline there is one line, and no failure."""
    result = audit(tmp_path, "jinja2==2.4.1", "http://127.0.0.1:9/")
    assert 0 == result.returncode
    assert ["not audited"] == [line.partition(":")[0] for line in result.stdout.splitlines()]
