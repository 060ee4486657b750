"""Looks for known vulnerabilities in pinned packages: `audit.py constraints.txt`.

Findings are a failure. Only where the database cannot be asked this says so and lets them pass.
"""

import json
import subprocess
import sys
from http.client import HTTPException
from urllib.request import Request, urlopen

DATABASE = "https://api.osv.dev/v1/query"
KNOWN = {"package": {"ecosystem": "PyPI", "name": "jinja2"}, "version": "2.4.1"}
"""A version that has vulnerabilities: the database reports it."""
PATIENCE_S = 10


def main() -> None:
    """Audit the file, against another database if one is named."""
    file, database = (*sys.argv[1:], DATABASE)[:2]
    if why := unreachable(database):
        print(f"not audited: {database} cannot be asked ({why})")
        return
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--no-deps"]
    command += ["--disable-pip", f"--timeout={PATIENCE_S}", f"--requirement={file}"]
    command += ["--vulnerability-service=osv", f"--osv-url={database}"]
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603  our own command


def unreachable(database: str) -> str | None:
    """Why the database does not answer as it should, if so."""
    request = Request(database, json.dumps(KNOWN).encode(), {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            return None if json.load(answer).get("vulns") else "it knows of nothing"
    except (OSError, HTTPException, ValueError) as error:
        return str(error)


if __name__ == "__main__":
    main()
