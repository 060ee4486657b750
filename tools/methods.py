"""The stub of a loaded bundle's methods: a method for each view, as the client has them.

`python -m tools.methods` writes them; a test writes them anew and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from model.views import NAMES, find_view
from tools.client import (
    Json,
    Method,
    describe_parameters,
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
_CLASS = '''
class ViewMethods:
    """What one may ask of a network: the methods of `LoadedBundle`."""

    def _ask(
        self, view: View[Q, A], pictures: Sequence[Picture], parameters: Mapping[str, object]
    ) -> A: ...

    def _classify(
        self, images: Picture | Iterable[Picture], parameters: Mapping[str, object]
    ) -> PredictionAnswer | list[PredictionAnswer | FailedPrediction]: ...
'''


def write_methods(document: Json) -> str:
    """The module."""
    by_name = {method.name: method for method in read_methods(document, {})}
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
    lines += ["from model.views.view import A, Q, View", "", _CLASS]
    for method in methods:
        lines += _write_batched(method) if method.body == "images" else _write(method)
        lines.append("")
    return format_source("\n".join(lines), GENERATED)


def _write(method: Method) -> Iterator[str]:
    yield _signature(method, find_view(method.name).answer.__name__)
    yield from write_docstring(_document(method), 8)


def _write_batched(method: Method) -> Iterator[str]:
    one, many = "PredictionAnswer", "list[PredictionAnswer | FailedPrediction]"
    for kind, answer in (("Picture", one), ("Iterable[Picture]", many)):
        yield "    @overload"
        head = _signature(method, answer).replace("Picture | Iterable[Picture]", kind)
        ignored = "  # type: ignore[overload-overlap]  # one path is no list of characters\n"
        yield head.replace("(", f"({ignored}", 1) if kind == "Picture" else head
        yield from write_docstring(_document(method), 8)


def _signature(method: Method, answer: str) -> str:
    given = [parameter for parameter in method.parameters if parameter.name != "model"]
    required = [str(parameter) for parameter in given if parameter.required]
    optional = [str(parameter) for parameter in given if not parameter.required]
    inside = ", ".join(["self", *required, *(["*", *optional] if optional else [])])
    inside = re.sub(r"\bImageLike\b", "Picture", inside)
    return f"    def {method.name}({inside}) -> {answer}:"


def _document(method: Method) -> str:
    return "\n".join(
        [
            method.text,
            "",
            *describe_parameters(
                parameter for parameter in method.parameters if parameter.name != "model"
            ),
        ]
    )


if __name__ == "__main__":
    GENERATED.write_text(write_methods(read_document()))
