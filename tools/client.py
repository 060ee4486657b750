"""Python that follows from the OpenAPI document: the client's answers and methods, and a stub.

`python -m tools.client` writes both; a test writes them anew and compares. The stub types the
methods of a loaded bundle, one for each view, as the client has them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from model.views import NAMES as VIEW_NAMES
from model.views import find_view
from model.views.answers import CapsuleAnswer, ModelAnswer
from model.views.classify import PredictionAnswer
from service.app import create_app
from service.settings import Settings

Json = dict[str, Any]
Words = tuple[str, str]
"""The name of a parameter, and what it means."""
Shared = TypeVar("Shared", bound=Hashable)
ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "client" / "capsnet" / "_generated.py"
STUB = ROOT / "model" / "views" / "methods.pyi"
NAMES = {
    "overlay_images": "overlay",
    "show_sample": "sample",
    "list_samples": "samples",
    "show_sample_of": "sample_of",
    "list_models": "models",
    "show_model": "model",
    "reload_models": "reload",
}
"""Methods that are not called like their operation."""
LEFT_OUT = {
    "overlay_samples": "overlay(sample(3), sample(5)) does it",
    "livez": "for supervisors",
    "readyz": "for supervisors",
    "metrics": "for Prometheus",
}
"""Operations without a method, and why."""
_PLAIN = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict[str, Any]",
}
_LINE = 100
_MANY = 4
"""What so many methods, routes or commands have is described once."""
_IMAGE = (
    "A path, the bytes of a file, an open file, a Pillow image, or an array (H, W), (H, W, C) or "
    "(C, H, W), of 0 to 255 or of floats in [0, 1]."
)
_IMAGES_KIND = "ImageLike | Iterable[ImageLike]"
_IMAGES = f"{_IMAGE[:-1]}; or a list of these, answered by a list in the same order."
_HEAD = '''\
"""Answers and methods, written by `make generate` from the OpenAPI document.

The decorators of the methods send the requests; see `capsnet.methods`.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike
from PIL import Image

from capsnet.answers import Answer, Floats
from capsnet.errors import Problem
from capsnet.images import ImageLike
from capsnet.methods import each, one_or_all, route
'''
_STUB_HEAD = '''\
"""The signatures of the methods that `methods.py` makes, written by `make generate`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, overload

from numpy.typing import ArrayLike

from model.loaded import Picture
from model.preprocess import Fit, Polarity
'''
_STUB_CLASS = """
class ViewMethods:
{text}

    def _ask(
        self, view: View[Q, A], pictures: Sequence[Picture], parameters: Mapping[str, object]
    ) -> A: ...

    def _classify(
        self, images: Picture | Iterable[Picture], parameters: Mapping[str, object]
    ) -> PredictionAnswer | list[PredictionAnswer | FailedPrediction]: ...
"""
_BASES: tuple[type[BaseModel], ...] = (ModelAnswer, CapsuleAnswer)
"""The classes that answers inherit from, each after its own."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method."""

    name: str
    kind: str
    """Its type."""
    text: str
    required: bool = False
    place: str = "query"
    choices: str = ""
    """The type that `kind` stands for, where it is an alias."""

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}{'' if self.required else ' | None = None'}"


TIMEOUT = Parameter("timeout_s", "float", "Deadline in seconds, instead of the client's.")
"""A parameter of every method of the client."""


@dataclass(frozen=True)
class Method:
    """One operation as a method."""

    name: str
    verb: str
    path: str
    text: str
    """Summary and description."""
    parameters: tuple[Parameter, ...]
    answer: str
    """The type, or those of an outcome for each image."""
    member: str = ""
    """Of the answer: the list of outcomes."""
    drawn: bool = False
    """Whether there is a PNG in addition to the JSON."""

    @property
    def words(self) -> list[Words]:
        """Those of its parameters."""
        return [(one.name, one.text or one.name) for one in self.parameters]


def read_document() -> Json:
    """The service's, with default settings."""
    document: Json = create_app(Settings()).openapi()
    return document


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Method, path and operation of all."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def find_common(lists: Iterable[Iterable[Shared]]) -> list[Shared]:
    """What four lists or more have, in the order in which it is found."""
    used = Counter(chain.from_iterable(lists))
    return [item for item, count in used.items() if count >= _MANY]


def write_client(document: Json) -> str:
    """The client's module of answers and methods."""
    methods = read_methods(document)
    shared = find_common(method.words for method in methods)
    answers = _find_answers(methods, document["components"]["schemas"])
    choices = {one.kind: one.choices for it in methods for one in it.parameters if one.choices}
    parts = [_HEAD.rstrip(), f"__all__ = {sorted(answers)!r}"]
    parts += [f"{name}: TypeAlias = {values}" for name, values in choices.items()]
    parts += [_write_answer(name, schema) for name, schema in answers.items()]
    text = "\n".join(["The views, which are also drawn.", "", *describe_parameters(shared)])
    for title, words, drawn in (
        ("ViewMethods", text, True),
        ("Methods(ViewMethods)", "What clients can ask.", False),
    ):
        lines = [f"class {title}:", *write_docstring(words, 4), ""]
        for method in methods:
            if method.drawn == drawn:
                write = _write_batched if method.member else _write_method
                lines += write(method, document_method(method, shared))
        parts.append("\n".join(lines))
    return format_source("\n\n".join(parts), GENERATED)


def read_methods(document: Json) -> list[Method]:
    """The methods of a document's operations."""
    return [
        _read_method(*one, document["components"]["schemas"])
        for one in operations(document)
        if one[-1]["operationId"] not in LEFT_OUT
    ]


def _read_method(verb: str, path: str, operation: Json, schemas: Json) -> Method:
    name: str = operation["operationId"]
    content = operation["responses"]["200"].get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    drawn = bool(schema) and "image/png" in content
    parameters = list(_read_body(operation))
    parameters += [
        _read_parameter(one)
        for one in operation.get("parameters", ())
        if one["in"] != "header" and not (drawn and one["name"] == "scale")
    ]
    parameters.append(TIMEOUT)
    parameters.sort(key=lambda one: not one.required)
    answer, member = _type(schema) if schema else "Image.Image", ""
    if parameters and parameters[0].kind == _IMAGES_KIND:
        answer, member = _outcomes(schemas[answer])
    text = f"{operation['summary']}.\n\n{operation.get('description', '')}".strip()
    return Method(
        NAMES.get(name, name), verb.upper(), path, text, tuple(parameters), answer, member, drawn
    )


def _read_body(operation: Json) -> Iterator[Parameter]:
    """The parameters that a request body adds."""
    content = operation.get("requestBody", {}).get("content", {})
    if form := content.get("multipart/form-data"):
        file = form["schema"]["properties"]["file"]
        match file.get("minItems", 1), file.get("maxItems", 1):
            case 1, 1:
                yield Parameter("image", "ImageLike", _IMAGE, required=True, place="images")
            case 2, 2:
                for name in ("first", "second"):
                    text = f"The {name} image; see `image`."
                    yield Parameter(name, "ImageLike", text, required=True, place="images")
            case _:
                yield Parameter("images", _IMAGES_KIND, _IMAGES, required=True, place="body")
    elif content:
        members = content["application/json"]["schema"]["properties"]
        text = f"One (D,) or several (N, D): {members['pose']['anyOf'][0]['description']}"
        yield Parameter("poses", "ArrayLike", text, required=True, place="json")
        for name, one in members.items():
            if name not in ("pose", "poses"):
                text = one.get("description", "")
                yield Parameter(name, _type(one), text, required=True, place="json")


def _read_parameter(given: Json) -> Parameter:
    name, schema = given["name"], given["schema"]
    text = given.get("description", "")
    default = schema.get("default")
    if default is not None:
        shown = f"`{default!r}`".replace("'", '"')
        text = f"{text.rstrip('.')}; by default {shown}." if text else f"By default {shown}."
    kind, choices = _type(schema, sequence="Sequence"), ""
    if "enum" in schema:
        kind, choices = name.title().replace("_", ""), kind
    return Parameter(name, kind, text, given["required"], given["in"], choices)


def _type(schema: Json, *, sequence: str = "list") -> str:
    """The Python type of an answer's schema, or, with `Sequence`, of a parameter's."""
    is_answer = sequence == "list"
    match schema:
        case {"$ref": reference}:
            name = str(reference).rpartition("/")[2]
            kind = "Problem" if name == "ProblemDetails" else name
        case {"anyOf": kinds}:
            names = [_type(one, sequence=sequence) for one in kinds]
            kind = " | ".join(sorted(names, key="None".__eq__))
        case {"enum": values} if not is_answer:
            kind = f"Literal[{', '.join(map(repr, values))}]"
        case {"const": value} if not is_answer:
            kind = f"Literal[{value!r}]"
        case {"contentMediaType": "image/png"}:
            kind = "Image.Image"
        case {"prefixItems": items}:
            kind = f"tuple[{', '.join(map(_type, items))}]"
        case {"type": "array", "items": items}:
            inner = _type(items, sequence=sequence)
            is_numeric = is_answer and inner in ("float", "Floats")
            kind = "Floats" if is_numeric else f"{sequence}[{inner}]"
        case _:
            kind = _PLAIN.get(schema.get("type", ""), "Any")
    return kind


def _outcomes(schema: Json) -> tuple[str, str]:
    """Types of what an answer says of each image, and the member that lists them."""
    lists = {name: one for name, one in schema["properties"].items() if one.get("type") == "array"}
    ((member, outcomes),) = lists.items()
    return _type(outcomes["items"]), member


def _find_answers(methods: Iterable[Method], schemas: Json) -> dict[str, Json]:
    """The schemas of the answers and of their parts, by name; first those that others inherit."""
    schemas = schemas | {
        kind.__name__: kind.model_json_schema(mode="serialization") for kind in _BASES
    }
    schemas["Prediction"] = PredictionAnswer.model_json_schema(mode="serialization")
    waiting = [kind.__name__ for kind in _BASES]
    for method in methods:
        waiting += [kind for kind in re.findall(r"\w+", method.answer) if kind in schemas]
    for name in waiting:
        inside = re.findall(r"/(?:schemas|\$defs)/(\w+)", str(schemas[name]["properties"]))
        waiting += [one for one in inside if one not in waiting and one != "ProblemDetails"]
    return {name: schemas[name] for name in dict.fromkeys(waiting)}


def _write_answer(name: str, schema: Json) -> str:
    parent, members = "Answer", schema["properties"]
    own = members
    for base in _BASES:
        shared = base.model_json_schema(mode="serialization")["properties"]
        alike = (_described(one) == _described(members.get(key, {})) for key, one in shared.items())
        if base.__name__ != name and all(alike):
            parent = base.__name__
            own = {key: one for key, one in members.items() if key not in shared}
    lines = [f"class {name}({parent}):"]
    lines += write_docstring(schema.get("description", f"See `{name}`."), 4)
    for member, one in own.items():
        kind, text = _described(one)
        lines.append(f"    {member}: {kind}{' = None' if kind.endswith('None') else ''}")
        if text and not (kind == "Image.Image" and text.startswith("A PNG as data:")):
            lines += write_docstring(re.sub("[Nn]ull", "None", text), 4)
    return "\n".join(lines)


def _described(schema: Json) -> tuple[str, str]:
    """The type of a member and its words."""
    return _type(schema), schema.get("description", "")


def write_docstring(text: str, indent: int) -> list[str]:
    """A docstring, its paragraphs and sections wrapped."""
    margin, lines = " " * indent, list[str]()
    for line in f'"""{text}'.split("\n"):
        inside = re.match(" *", line)
        start = margin + (inside[0] if inside else "")
        further = start + ("    " if inside and inside[0] else "")
        wrapped = textwrap.wrap(
            line.strip(), _LINE - 3, initial_indent=start, subsequent_indent=further,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += wrapped or [""]
    if "\n" in text:
        return [*lines, f'{margin}"""']
    lines[-1] += '"""'
    return lines


def _write_method(method: Method, document: str) -> Iterator[str]:
    given = [repr(method.verb), repr(method.path), method.answer]
    for place in ("images", "json"):
        names = [one.name for one in method.parameters if one.place == place]
        given += [f"{place}={names!r}"] if names else []
    yield f"    @route({', '.join(given)})"
    yield signature(method, method.answer)
    yield from [*write_docstring(document, 8), ""]


def _write_batched(method: Method, document: str) -> Iterator[str]:
    kinds = method.answer.replace(" | ", ", ")
    given = f"({method.path!r}, {method.member!r}, {kinds})"
    first = method.answer.split(" | ")[0]
    yield f"    @one_or_all{given}"
    yield signature(method, f"{first} | list[{method.answer}]")
    yield from [*write_docstring(document, 8), ""]
    each = (
        f"{method.text.splitlines()[0]}\n\n"
        "Images are read while answers arrive. They are sent in several requests at a time, each "
        f"of a size that the service accepts. See `{method.name}` for the parameters."
    )
    yield f"    @each{given}"
    head = signature(replace(method, name=f"{method.name}_each"), f"Iterator[{method.answer}]")
    yield head.replace(f"images: {_IMAGES_KIND}", "images: Iterable[ImageLike]")
    yield from [*write_docstring(each, 8), ""]


def signature(method: Method, answer: str) -> str:
    """The first line of a method that gives this answer."""
    required = [str(one) for one in method.parameters if one.required]
    optional = [str(one) for one in method.parameters if not one.required]
    given = ", ".join(["self", *required, *(["*", *optional] if optional else [])])
    return f"    def {method.name}({given}) -> {answer}:"


def document_method(method: Method, shared: list[Words]) -> str:
    """The docstring of a method, with the parameters that it does not share."""
    own = [words for words in method.words if words not in shared]
    return "\n".join([method.text, *(["", *describe_parameters(own)] if own else [])])


def describe_parameters(parameters: Iterable[Words]) -> list[str]:
    """The section `Args` of a docstring."""
    return ["Args:", *(f"    {name}: {text}" for name, text in parameters)]


def format_source(source: str, path: Path) -> str:
    """The source of a file as ruff formats it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    return subprocess.check_output(command, input=source, text=True)  # noqa: S603  our own


def write_methods(document: Json) -> str:
    """The stub of the methods of `LoadedBundle`: one for each view, as the client has them."""
    known = {method.name: method for method in read_methods(document)}
    methods = [_of_a_bundle(known[name]) for name in VIEW_NAMES]
    answers = {name: [find_view(name).answer.__name__] for name in VIEW_NAMES}
    answers["classify"] = ["FailedPrediction", "PredictionAnswer"]
    answers["equivariance"].append("Transform")
    answers["sweep"].append("By")
    lines = [_STUB_HEAD.rstrip()]
    lines += [
        f"from model.views.{name} import {', '.join(sorted(kinds))}"
        for name, kinds in sorted(answers.items())
    ]
    shared = find_common(method.words for method in methods)
    words = "What one may ask of a network: the methods of `LoadedBundle`."
    text = write_docstring("\n".join([words, "", *describe_parameters(shared)]), 4)
    lines += [
        "from model.views.view import A, Q, View",
        "",
        _STUB_CLASS.format(text="\n".join(text)),
    ]
    for method in methods:
        for line in _stub_signatures(method):
            lines += [line, *write_docstring(document_method(method, shared), 8), ""]
    return format_source(re.sub(r"\bImageLike\b", "Picture", "\n".join(lines)), STUB)


def _of_a_bundle(method: Method) -> Method:
    """Without what only a service takes."""
    own = (one for one in method.parameters if one.name not in ("model", TIMEOUT.name))
    return replace(method, parameters=tuple(own))


def _stub_signatures(method: Method) -> Iterator[str]:
    """The first lines of a method: one, or, where it takes one picture or several, two."""
    if not method.member:
        yield signature(method, find_view(method.name).answer.__name__)
        return
    head = signature(method, "PredictionAnswer")
    ignored = "(  # type: ignore[overload-overlap]  # one path is no list of characters\n"
    yield f"    @overload\n{head}".replace(" | Iterable[ImageLike]", "").replace("(", ignored, 1)
    head = signature(method, "list[PredictionAnswer | FailedPrediction]")
    yield f"    @overload\n{head}".replace("ImageLike | ", "")


if __name__ == "__main__":
    GENERATED.write_text(write_client(read_document()))
    STUB.write_text(write_methods(read_document()))
