"""Prints requirements of pyproject.toml, a line each: `requirements.py service gpu`.

`service` names the project's own dependencies, any other word an extra. Images are built in layers,
and this lets what is installed be a layer below the source.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
groups = {"service": project["dependencies"], **project["optional-dependencies"]}
for group in sys.argv[1:]:
    print(*groups[group], sep="\n")
