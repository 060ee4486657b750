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
    describe_parameters,
    document_method,
    find_shared,
    format_source,
    read_document,
    read_methods,
    signature,
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
    known = {method.name: method for method in read_methods(document)}
    methods = [_without_model(known[name]) for name in NAMES]
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
        for line in _signatures(method):
            lines += [line, *write_docstring(document_method(method, shared), 8), ""]
    return format_source(re.sub(r"\bImageLike\b", "Picture", "\n".join(lines)), GENERATED)


def _without_model(method: Method) -> Method:
    parameters = tuple(one for one in method.parameters if one.name != "model")
    return replace(method, parameters=parameters)


def _signatures(method: Method) -> Iterator[str]:
    """The first lines of a method: one, or, where it takes one picture or several, two."""
    if not method.member:
        yield signature(method, find_view(method.name).answer.__name__, ())
        return
    head = signature(method, "PredictionAnswer", ())
    ignored = "(  # type: ignore[overload-overlap]  # one path is no list of characters\n"
    yield f"    @overload\n{head}".replace(" | Iterable[ImageLike]", "").replace("(", ignored, 1)
    head = signature(method, "list[PredictionAnswer | FailedPrediction]", ())
    yield f"    @overload\n{head}".replace("ImageLike | ", "")


if __name__ == "__main__":
    GENERATED.write_text(write_methods(read_document()))
