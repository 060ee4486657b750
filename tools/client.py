"""The part of the Python client that follows from the OpenAPI document: answers and methods.

`python -m tools.client` writes it; a test writes it anew and compares.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from model.views.answers import CapsuleAnswer, ModelAnswer
from service.app import create_app
from service.settings import Settings

Json = dict[str, Any]
GENERATED = Path(__file__).parent.parent / "client" / "capsnet" / "_generated.py"
NAMES = {
    "segment_image": "segment",
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
"""Methods that have a parameter which stands last."""
_IMAGE = (
    "a path, the bytes of a file, an open file, a Pillow image, or an array (H, W), (H, W, C) or "
    "(C, H, W), of 0 to 255 or of floats in [0, 1]."
)
_IMAGES_KIND = "ImageLike | Iterable[ImageLike]"
_IMAGES = f"{_IMAGE[:-1]}; or a list of these, answered by a list in the same order."
_HEAD = '''\
"""Answers and methods, written by `make generate` from the OpenAPI document.

The decorators of the methods send the requests; see `capsnet.methods`.
"""

# mypy: disable-error-code="empty-body"
# ruff: noqa: PIE790  decorators are the bodies

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
_BASES: dict[str, type[BaseModel]] = {"ModelAnswer": ModelAnswer, "CapsuleAnswer": CapsuleAnswer}
"""Parts that many answers have, each with those before it."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method."""

    name: str
    kind: str
    """Its type."""
    text: str
    schema: Json = field(default_factory=dict)
    required: bool = False
    place: str = "query"

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}{'' if self.required else ' | None = None'}"


@dataclass(frozen=True)
class Method:
    """One operation as a method."""

    name: str
    verb: str
    path: str
    text: str
    """Summary and description."""
    body: str
    """`image`, `pair`, `images`, `poses` or nothing."""
    parameters: tuple[Parameter, ...]
    answer: str
    """The type, or those of an outcome for each image."""
    member: str = ""
    """Of the answer: the list of outcomes."""
    whole: str = ""
    """The name of the answer that has this list."""
    drawn: bool = False
    """Whether there is a PNG in addition to the JSON."""


def read_document() -> Json:
    """The service's, with the route for reloads."""
    document: Json = create_app(
        Settings(admin_keys=(SecretStr("no-key-is-needed-here"),))  # type: ignore[call-arg]
    ).openapi()
    return document


def write_client(document: Json) -> str:
    """The module."""
    schemas, enums = document["components"]["schemas"], dict[str, str]()
    methods = list(read_methods(document, enums))
    shared = find_shared(methods)
    members = _answer_members(methods, schemas)
    views = [method for method in methods if method.drawn]
    others = [method for method in methods if not method.drawn]
    parts = [_HEAD.rstrip(), f"__all__ = {sorted([*_BASES, *members])!r}"]
    parts += [f"{name}: TypeAlias = {values}" for name, values in enums.items()]
    parts += _write_bases()
    parts += [_write_answer(name, schemas[name], own) for name, own in members.items()]
    text = "\n".join(["The views, which are also drawn.", "", *describe_parameters(shared)])
    parts.append(_write_class("ViewMethods", "", text, views, shared))
    parts.append(_write_class("Methods", "(ViewMethods)", "What clients can ask.", others, shared))
    return format_source("\n\n".join(parts), GENERATED)


def read_methods(document: Json, enums: dict[str, str]) -> Iterator[Method]:
    """The methods of a document's operations; `enums` gets the types of their choices."""
    operations = {
        operation["operationId"]: (verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        if operation["operationId"] not in LEFT_OUT
    }
    used = Counter(
        one["name"] for *_, it in operations.values() for one in it.get("parameters", ())
    )
    for name, (verb, path, operation) in operations.items():
        yield _read_method(
            NAMES.get(name, name), verb, path, operation, used=used, enums=enums, document=document
        )


def _read_method(
    name: str,
    verb: str,
    path: str,
    operation: Json,
    *,
    used: Counter[str],
    enums: dict[str, str],
    document: Json,
) -> Method:
    content = operation["responses"]["200"].get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    drawn = bool(schema) and "image/png" in content
    # What one method has stands before what many have; parts of a path keep their order.
    given = sorted(
        operation.get("parameters", ()),
        key=lambda one: (
            used[one["name"]] if one["in"] != "path" and used[one["name"]] >= _MANY else 0
        ),
    )
    parameters = [
        _read_parameter(one, name, enums)
        for one in given
        if one["in"] != "header" and not (drawn and one["name"] == "scale")
    ]
    body, first = _read_body(operation)
    parameters = [*first, *parameters]
    parameters.sort(key=lambda one: not one.required)
    answer, member, whole = _type(schema) if schema else "Image.Image", "", ""
    if body == "images":
        whole = answer
        answer, member = _outcomes(schema, document["components"]["schemas"])
    text = f"{operation['summary']}.\n\n{operation.get('description', '')}".strip()
    text = re.sub(r"(?<=\S)\n(?=[^\s*|-])", " ", text)  # paragraphs are wrapped anew
    return Method(name, verb, path, text, body, tuple(parameters), answer, member, whole, drawn)


def _read_body(operation: Json) -> tuple[str, list[Parameter]]:
    """The kind of a request body, and the parameters that it adds."""
    content = operation.get("requestBody", {}).get("content", {})
    if form := content.get("multipart/form-data"):
        file = form["schema"]["properties"]["file"]
        least, most = file.get("minItems", 1), file.get("maxItems", 1)
        if most == 1:
            return "image", [Parameter("image", "ImageLike", _IMAGE, required=True, place="images")]
        if (least, most) == (2, 2):
            return "pair", [
                Parameter(name, "ImageLike", _IMAGE, required=True, place="images")
                for name in ("first", "second")
            ]
        if least == 1:
            return "images", [
                Parameter("images", _IMAGES_KIND, _IMAGES, required=True, place="body")
            ]
        raise ValueError(f"no method is written for {least} to {most} images")
    if not content:
        return "", []
    schema = content["application/json"]["schema"]
    if not {"pose", "poses"} <= schema["properties"].keys():
        raise ValueError("no method is written for such a body")
    text = f"one (D,) or several (N, D): {schema['properties']['pose']['anyOf'][0]['description']}"
    members = [
        Parameter(name, _type(one), _lower(one.get("description", "")), one, True, "json")
        for name, one in schema["properties"].items()
        if name not in ("pose", "poses")
    ]
    return "poses", [Parameter("poses", "ArrayLike", text, required=True, place="json"), *members]


def _read_parameter(given: Json, method: str, enums: dict[str, str]) -> Parameter:
    name, schema = given["name"], given["schema"]
    if keyword.iskeyword(name):
        raise ValueError(f"{name} of {method} is a word of Python's own")
    text = _lower(given.get("description", ""))
    default = schema.get("default")
    if default is not None:
        shown = f"`{default!r}`".replace("'", '"')
        text = f"{text.rstrip('.')}; by default {shown}." if text else f"by default {shown}."
    kind = _type(schema, sequence="Sequence")
    if "enum" in schema:
        alias = name.title().replace("_", "")
        if enums.setdefault(alias, kind) != kind:
            alias = f"{method.title().replace('_', '')}{alias}"
            enums[alias] = kind
        kind = alias
    return Parameter(name, kind, text, schema, given["required"], given["in"])


def _lower(text: str) -> str:
    """A sentence as it stands after a colon."""
    return text[0].lower() + text[1:] if re.match("[A-Z][a-z ]", text) else text


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


def _outcomes(schema: Json, schemas: Json) -> tuple[str, str]:
    """Types of what is said of each image, and the member that lists them."""
    for member, one in schemas[_type(schema)]["properties"].items():
        if one.get("type") == "array":
            return _type(one["items"]), member
    raise ValueError(f"{_type(schema)} has no list")


def _answer_members(methods: Iterable[Method], schemas: Json) -> dict[str, Json]:
    """The members of the answers and of their parts, by name; an outcome has those of its list."""
    members: dict[str, Json] = {}
    waiting = []
    for method in methods:
        kinds = [kind for kind in re.findall(r"\w+", method.answer) if kind in schemas]
        waiting += kinds
        if method.member:
            whole = schemas[method.whole]["properties"]
            shared = {name: one for name, one in whole.items() if name != method.member}
            members[kinds[0]] = {**shared, **schemas[kinds[0]]["properties"]}
    for name in waiting:
        members.setdefault(name, schemas[name]["properties"])
        inside = re.findall(r"#/components/schemas/(\w+)", str(schemas[name]))
        waiting += [one for one in inside if one not in waiting and one != "ProblemDetails"]
    return {name: members[name] for name in dict.fromkeys(waiting)}


def _write_bases() -> Iterator[str]:
    """The parts that many answers share, each with the members that those before it lack."""
    parent, inherited = "Answer", set[str]()
    for name, base in _BASES.items():
        schema = base.model_json_schema(mode="serialization")
        own = {key: one for key, one in schema["properties"].items() if key not in inherited}
        yield _write_dataclass(name, parent, schema, own)
        parent, inherited = name, inherited | own.keys()


def _write_answer(name: str, schema: Json, members: Json) -> str:
    parent, inherited = "Answer", set[str]()
    for base, kind in _BASES.items():
        shared = kind.model_json_schema(mode="serialization")["properties"]
        if all(key in members and _alike(one, members[key]) for key, one in shared.items()):
            parent, inherited = base, shared.keys()
    own = {key: one for key, one in members.items() if key not in inherited}
    return _write_dataclass(name, parent, schema, own)


def _alike(one: Json, other: Json) -> bool:
    return (_type(one), one.get("description")) == (_type(other), other.get("description"))


def _write_dataclass(name: str, parent: str, schema: Json, members: Json) -> str:
    lines = [f"class {name}({parent}):"]
    lines += write_docstring(schema.get("description", f"See `{name}`."), 4)
    for member, one in members.items():
        kind = _type(one)
        lines.append(f"    {member}: {kind}{' = None' if kind.endswith('None') else ''}")
        text = one.get("description", "")
        if text and not (kind == "Image.Image" and text.startswith("A PNG as data:")):
            lines += write_docstring(re.sub("[Nn]ull", "None", text), 4)
    return "\n".join(lines)


def write_docstring(text: str, indent: int) -> list[str]:
    """A docstring, its paragraphs and sections wrapped."""
    margin, lines = " " * indent, list[str]()
    for place, line in enumerate(f'"""{text}'.split("\n")):
        inside = re.match(" *", line)
        start = margin + (inside[0] if inside else "")
        further = start + ("    " if inside and inside[0] else "")
        wrapped = textwrap.wrap(
            line.strip(), _LINE - 3, initial_indent=start, subsequent_indent=further,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        if place == 0 and len(wrapped) > 1 and "\n" in text:
            raise ValueError(f"the first line is too long: {line}")
        lines += wrapped or [""]
    if "\n" in text:
        return [*lines, f'{margin}"""']
    lines[-1] += '"""'
    return lines


def find_shared(methods: Iterable[Method]) -> list[Parameter]:
    """The parameters that many methods have, with the same words; described once."""
    timeout = Parameter("timeout_s", "float", "deadline in seconds, instead of the client's.")
    known = {(one.name, one.text): one for method in methods for one in method.parameters}
    used = Counter((one.name, one.text) for method in methods for one in method.parameters)
    return [*(one for key, one in known.items() if used[key] >= _MANY), timeout]


def _write_class(
    name: str, bases: str, text: str, methods: Iterable[Method], shared: list[Parameter]
) -> str:
    lines = [f"class {name}{bases}:", *write_docstring(text, 4), ""]
    for method in methods:
        write = _write_batched if method.member else _write_method
        lines += write(method, document_method(method, shared))
    return "\n".join(lines)


def _write_method(method: Method, document: str) -> Iterator[str]:
    places = {
        place: [one.name for one in method.parameters if one.place == place]
        for place in ("images", "json")
    }
    given = [repr(method.verb), repr(method.path), method.answer]
    given += [f"{place}={names!r}" for place, names in places.items() if names]
    yield f"    @route({', '.join(given)})"
    yield _signature(method, method.name, method.answer)
    yield from write_docstring(document, 8)
    yield "        ...\n"


def _write_batched(method: Method, document: str) -> Iterator[str]:
    kinds = method.answer.replace(" | ", ", ")
    given = f"({method.path!r}, {method.member!r}, {kinds})"
    first = method.answer.split(" | ")[0]
    yield f"    @one_or_all{given}"
    yield _signature(method, method.name, f"{first} | list[{method.answer}]")
    yield from write_docstring(document, 8)
    yield "        ...\n"
    each = (
        f"{method.text.splitlines()[0]}\n\n"
        "Images are read while answers arrive. They are sent in several requests at a time, each "
        f"of a size that the service accepts. See `{method.name}` for the parameters."
    )
    yield f"    @each{given}"
    head = _signature(method, f"{method.name}_each", f"Iterator[{method.answer}]")
    yield head.replace(f"images: {_IMAGES_KIND}", "images: Iterable[ImageLike]")
    yield from write_docstring(each, 8)
    yield "        ...\n"


def _signature(method: Method, name: str, answer: str) -> str:
    required = [str(one) for one in method.parameters if one.required]
    optional = [str(one) for one in method.parameters if not one.required]
    given = ", ".join(["self", *required, "*", *optional, "timeout_s: float | None = None"])
    return f"    def {name}({given}) -> {answer}:"


def document_method(method: Method, shared: list[Parameter]) -> str:
    """The docstring of a method, with the parameters that it does not share."""
    texts = {(one.name, one.text) for one in shared}
    own = [one for one in method.parameters if (one.name, one.text) not in texts]
    return "\n".join([method.text, *(["", *describe_parameters(own)] if own else [])])


def describe_parameters(parameters: Iterable[Parameter]) -> list[str]:
    """The section `Args` of a docstring."""
    return ["Args:", *(f"    {one.name}: {one.text or one.name}" for one in parameters)]


def format_source(source: str, path: Path) -> str:
    """The source of a file as ruff formats it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)  # noqa: S603  our own
    if done.returncode:
        raise ValueError(f"what was written is no Python: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    GENERATED.write_text(write_client(read_document()))
