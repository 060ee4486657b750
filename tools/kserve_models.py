"""Holds manifests against the models of KServe's SDK: `make kserve-check`.

The SDK needs other versions than the service, so this runs in an environment of its own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml
from kserve import models
from kubernetes.client import models as kubernetes_models

_PLAIN: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "float": (float, int),
    "int": (int,),
    "object": (object,),
    "str": (str,),
}
_QUANTITIES = ("ResourceQuantity", "V1beta1MetricQuantity")
"""Of Kubernetes; a number or a string, and no class of the SDK."""


def build(value: Any, kind: str, path: str) -> Any:
    """A value as the SDK has it.

    Raises:
        ValueError: a field that its class does not have, or a value of another type.
    """
    if kind in _QUANTITIES:
        kind = "str"
    if many := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        return [build(one, many[1], f"{path}[{i}]") for i, one in enumerate(_of(list, value, path))]
    if table := re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", kind):
        entries = _of(dict, value, path).items()
        return {name: build(one, table[1], f"{path}.{name}") for name, one in entries}
    if kind in _PLAIN:
        return _of(_PLAIN[kind], value, path)
    if not (found := getattr(models, kind, None) or getattr(kubernetes_models, kind, None)):
        raise ValueError(f"{path}: the SDK has no {kind}")
    names = {wire: name for name, wire in found.attribute_map.items()}
    if unknown := _of(dict, value, path).keys() - names:
        raise ValueError(f"{path}: {kind} has no {', '.join(sorted(unknown))}")
    types = {names[wire]: found.openapi_types[names[wire]] for wire in value}
    return found(
        **{
            names[wire]: build(one, types[names[wire]], f"{path}.{wire}")
            for wire, one in value.items()
        }
    )


def _of(kinds: type | tuple[type, ...], value: Any, path: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds == (int,)):
        raise ValueError(f"{path}: {value!r} is not {kinds}")
    return value


def main(paths: list[str]) -> None:
    """Check each file; the first fault ends this with an error."""
    for path in paths:
        for manifest in yaml.safe_load_all(Path(path).read_text()):
            build(manifest, f"V1beta1{manifest['kind']}", manifest["kind"])
        print(f"{path}: accepted by {models.__name__}")


if __name__ == "__main__":
    main(sys.argv[1:])
