"""The files that an image copies are all that its program imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "service": ["service.processes.supervisor", "service.processes.worker", "service.healthcheck"],
    "training": [
        "training.__main__",
        "training.export",
        "training.evaluate",
        "training.analysis.bundle",
    ],
}
EXTRAS = {
    "cpu": ["service", "cpu"],
    "gpu": ["service", "gpu"],
    "training": ["training", "cpu"],
    "docs": ["docs"],
}
"""What each image is to hold, as tools/lock.sh has it."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_import_finds_its_module(name: str, tmp_path: Path) -> None:
    """Without the editable installation, which would supply what is missing."""
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text()
    for sources, target in re.findall(r"^COPY ((?:[\w*./-]+ )+)/app/(\S*)$", text, re.MULTILINE):
        folder = tmp_path / target
        for source in sources.split():
            for found in ROOT.glob(source):
                if found.is_dir():
                    shutil.copytree(found, folder, dirs_exist_ok=True)
                else:
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.copy(found, folder)
    path = os.pathsep.join([str(tmp_path), sysconfig.get_paths()["purelib"]])
    imports = "import " + ", ".join(PROGRAMS[name])
    done = subprocess.run(
        [sys.executable, "-S", "-c", imports],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_documentation_is_built_from_what_is_copied(site: Path) -> None:
    """`mkdocs build` missed no page and found no broken link in the files of the image's stage."""
    assert (site / "tutorial" / "first-digit.html").is_file()


@pytest.mark.parametrize("target", EXTRAS)
def test_what_images_install_is_pinned_by_digest(target: str) -> None:
    """All of it, in the versions that everything here was run with; the list names no address."""
    text = (ROOT / f"docker/requirements-{target}.txt").read_text().replace(" \\\n    ", " ")
    entry = re.compile(r"(\S+==\S+)( ; [^-]+)?( --hash=sha256:[0-9a-f]{64})+")
    entries = [entry.fullmatch(line) for line in text.splitlines()]
    assert None not in entries
    pinned = {_normal(one[1]) for one in entries if one}
    constraints = map(_normal, (ROOT / "constraints.txt").read_text().split())
    assert set() == pinned - set(constraints)
    command = [sys.executable, "tools/requirements.py", *EXTRAS[target]]
    wanted = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    names = {_normal(re.split(r"[\[<>=; ]", one)[0]) for one in wanted}
    assert set() == names - {one.partition("==")[0] for one in pinned}


@pytest.mark.parametrize("name", PROGRAMS)
def test_images_install_nothing_else(name: str) -> None:
    """Every call of pip asks for digests, and takes wheels alone: nothing is run to build them."""
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text().replace("\\\n", " ")
    calls = re.findall(r"pip install.*", text)
    assert calls
    for call in calls:
        assert {"--require-hashes", "--only-binary"} <= set(call.split())


def _normal(requirement: str) -> str:
    """`Name_of.package==version` as `name-of-package==version`."""
    name, *version = requirement.partition("==")
    return "".join([re.sub(r"[-_.]+", "-", name).lower(), *version])
