"""The stub of a loaded bundle's methods: a method for each view, as the client has them.

`python -m tools.methods` writes them; a test writes them anew and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from model.views import NAMES, find_view
from tools.client import (
    Json,
    Method,
    Parameter,
    describe_parameters,
    document_method,
    find_shared,
    format_source,
    read_document,
    read_methods,
    write_docstring,
)

GENERATED = Path(__file__).parent.parent / "model" / "views" / "methods.pyi"
_HEAD = '''\
"""The signatures of the methods that `methods.py` makes, written by `make generate`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, overload

from numpy.typing import ArrayLike

from model.loaded import Picture
from model.preprocess import Fit, Polarity
'''
_CLASS = """
class ViewMethods:
{text}

    def _ask(
        self, view: View[Q, A], pictures: Sequence[Picture], parameters: Mapping[str, object]
    ) -> A: ...

    def _classify(
        self, images: Picture | Iterable[Picture], parameters: Mapping[str, object]
    ) -> PredictionAnswer | list[PredictionAnswer | FailedPrediction]: ...
"""


def write_methods(document: Json) -> str:
    """The module."""
    by_name = {
        method.name: replace(
            method, parameters=tuple(one for one in method.parameters if one.name != "model")
        )
        for method in read_methods(document, {})
    }
    methods = [by_name[name] for name in NAMES]
    answers = {name: [find_view(name).answer.__name__] for name in NAMES}
    answers["classify"] = ["FailedPrediction", "PredictionAnswer"]
    answers["equivariance"].append("Transform")
    answers["sweep"].append("By")
    lines = [_HEAD.rstrip()]
    lines += [
        f"from model.views.{name} import {', '.join(sorted(kinds))}"
        for name, kinds in sorted(answers.items())
    ]
    shared = [one for one in find_shared(methods) if one.name != "timeout_s"]
    words = "What one may ask of a network: the methods of `LoadedBundle`."
    text = write_docstring("\n".join([words, "", *describe_parameters(shared)]), 4)
    lines += ["from model.views.view import A, Q, View", "", _CLASS.format(text="\n".join(text))]
    for method in methods:
        write = _write_batched if method.body == "images" else _write
        lines += [*write(method, shared), ""]
    return format_source("\n".join(lines), GENERATED)


def _write(method: Method, shared: list[Parameter]) -> Iterator[str]:
    yield _signature(method, find_view(method.name).answer.__name__)
    yield from write_docstring(document_method(method, shared), 8)


def _write_batched(method: Method, shared: list[Parameter]) -> Iterator[str]:
    one, many = "PredictionAnswer", "list[PredictionAnswer | FailedPrediction]"
    for kind, answer in (("Picture", one), ("Iterable[Picture]", many)):
        yield "    @overload"
        head = _signature(method, answer).replace("Picture | Iterable[Picture]", kind)
        ignored = "  # type: ignore[overload-overlap]  # one path is no list of characters\n"
        yield head.replace("(", f"({ignored}", 1) if kind == "Picture" else head
        yield from write_docstring(document_method(method, shared), 8)


def _signature(method: Method, answer: str) -> str:
    required = [str(one) for one in method.parameters if one.required]
    optional = [str(one) for one in method.parameters if not one.required]
    inside = ", ".join(["self", *required, *(["*", *optional] if optional else [])])
    inside = re.sub(r"\bImageLike\b", "Picture", inside)
    return f"    def {method.name}({inside}) -> {answer}:"


if __name__ == "__main__":
    GENERATED.write_text(write_methods(read_document()))
