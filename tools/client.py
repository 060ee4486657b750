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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

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
    "list_figures": "figures",
    "show_figure": "figure",
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
    "perturb_sweep": "the method was always called sweep",
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
_IMAGES = f"{_IMAGE[:-1]}; or a list of these, answered by a list in the same order."
_HEAD = '''\
"""Answers and methods, written by `make generate` from the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, overload

from numpy.typing import ArrayLike
from PIL import Image

from capsnet.answers import Answer, Floats
from capsnet.calls import (
    Build, Call, call, former, outcomes, part, picture, with_images, with_poses)
from capsnet.errors import Problem
from capsnet.images import ImageLike, read_image, read_on_thread

T = TypeVar("T")
'''


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
    drawn: bool = False
    """Whether there is a PNG in addition to the JSON."""


def read_document() -> Json:
    """The service's, with the route for reloads."""
    document: Json = create_app(
        Settings(admin_keys=(SecretStr("no-key-is-needed-here"),))
    ).openapi()
    return document


def write_client(document: Json) -> str:
    """The module."""
    schemas, enums = document["components"]["schemas"], dict[str, str]()
    methods, renamed = list(read_methods(document, enums)), read_former(document)
    types = _answer_types(methods, schemas)
    parts = [_HEAD, f"__all__ = {sorted(types)!r}"]
    parts += [f"{name}: TypeAlias = {values}" for name, values in enums.items()]
    parts.append(
        f"LIMITS: dict[str, dict[str, tuple[float, float]]] = {_limits(methods)!r}\n"
        '"""Least and most of parameters, by method."""'
    )
    parts += [_write_answer(name, schemas[name], beside) for name, beside in types.items()]
    parts += [
        _write_class("CapsNetMethods", methods, renamed, sync=True),
        _write_class("AsyncCapsNetMethods", methods, renamed, sync=False),
        _write_class("DrawingsMethods", methods, renamed, sync=True, drawn=True),
        _write_class("AsyncDrawingsMethods", methods, renamed, sync=False, drawn=True),
    ]
    return format_source("\n\n".join(parts), GENERATED)


def read_methods(document: Json, enums: dict[str, str]) -> Iterator[Method]:
    """The methods of a document's operations; `enums` gets the types of their choices."""
    operations = {
        operation["operationId"]: (verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        if operation["operationId"] not in LEFT_OUT and not operation.get("deprecated")
    }
    used = Counter(
        one["name"] for *_, it in operations.values() for one in it.get("parameters", ())
    )
    for name, (verb, path, operation) in operations.items():
        yield _read_method(
            NAMES.get(name, name), verb, path, operation, used=used, enums=enums, document=document
        )


def read_former(document: Json) -> dict[str, str]:
    """The methods of the last release that have another name now, by their former name."""
    return {
        operation["operationId"]: NAMES.get(operation["x-replaced-by"], operation["x-replaced-by"])
        for verbs in document["paths"].values()
        for operation in verbs.values()
        if operation.get("deprecated") and operation["operationId"] not in LEFT_OUT
    }


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
    answer, member = "Image.Image", ""
    if schema:
        answer = _type(schema)
    if body == "images":
        answer, member = _outcomes(schema, document["components"]["schemas"])
    text = f"{operation['summary']}.\n\n{operation.get('description', '')}".strip()
    text = re.sub(r"(?<=\S)\n(?=[^\s*|-])", " ", text)  # paragraphs are wrapped anew
    return Method(name, verb, path, text, body, tuple(parameters), answer, member, drawn)


def _read_body(operation: Json) -> tuple[str, list[Parameter]]:
    """The kind of a request body, and the parameters that it adds."""
    content = operation.get("requestBody", {}).get("content", {})
    if form := content.get("multipart/form-data"):
        file = form["schema"]["properties"]["file"]
        least, most = file.get("minItems", 1), file.get("maxItems", 1)
        if most == 1:
            return "image", [Parameter("image", "ImageLike", _IMAGE, required=True, place="body")]
        if (least, most) == (2, 2):
            return "pair", [
                Parameter(name, "ImageLike", _IMAGE, required=True, place="body")
                for name in ("first", "second")
            ]
        if least == 1:
            return "images", [Parameter("images", "Any", _IMAGES, required=True, place="body")]
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
    return "poses", [Parameter("poses", "ArrayLike", text, required=True, place="body"), *members]


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


def _answer_types(methods: Iterable[Method], schemas: Json) -> dict[str, Json]:
    """Names of the answers and of their parts; those of a list have the other members too."""
    types: dict[str, Json] = {}
    waiting = []
    for method in methods:
        kinds = [kind for kind in re.findall(r"\w+", method.answer) if kind in schemas]
        waiting += kinds
        if method.member:
            whole = next(one for one in schemas.values() if _lists(one, method.member, kinds))
            beside = {k: v for k, v in whole["properties"].items() if k != method.member}
            types[kinds[0]] = beside
    for name in waiting:
        types.setdefault(name, {})
        inside = re.findall(r"#/components/schemas/(\w+)", str(schemas[name]))
        waiting += [one for one in inside if one not in waiting and one != "ProblemDetails"]
    return {name: types[name] for name in dict.fromkeys(waiting)}


def _lists(schema: Json, member: str, kinds: list[str]) -> bool:
    return all(kind in str(schema.get("properties", {}).get(member, "")) for kind in kinds)


def _write_answer(name: str, schema: Json, beside: Json) -> str:
    lines = ["@dataclass(frozen=True, eq=False, kw_only=True)", f"class {name}(Answer):"]
    lines += write_docstring(schema.get("description", f"See `{name}`."), 4)
    required = {*beside, *schema.get("required", ())}
    for member, one in {**beside, **schema["properties"]}.items():
        kind = _type(one)
        default = "" if member in required else f" = {one.get('default')!r}"
        lines.append(f"    {member}: {kind}{' = None' if kind.endswith('None') else default}")
        text = one.get("description", "")
        if text and not (kind == "Image.Image" and text.startswith("A PNG as data:")):
            lines += write_docstring(re.sub("[Nn]ull", "None", text), 4)
    return "\n".join(lines)


def _limits(methods: Iterable[Method]) -> dict[str, dict[str, tuple[float, float]]]:
    limits = {
        method.name: {
            one.name: (number["minimum"], number["maximum"])
            for one in method.parameters
            for number in (one.schema.get("items", one.schema),)
            if {"minimum", "maximum"} <= number.keys() and one.place != "path"
        }
        for method in methods
    }
    return {name: one for name, one in limits.items() if one}


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


def _write_class(
    name: str,
    methods: Iterable[Method],
    renamed: Mapping[str, str],
    *,
    sync: bool,
    drawn: bool = False,
) -> str:
    chosen = [one for one in methods if one.drawn or not drawn]
    what = "Pictures" if drawn else "What follows from the OpenAPI document"
    base = name.removesuffix("Methods")
    result, kind = ("Image.Image", "Any") if drawn else ("T", "T")
    lines = [
        f"class {name}:",
        f'    """{what}: the methods of `{base}`."""',
        "",
        f"    {'' if sync else 'async '}def _send(self, call: Call[{kind}]) -> {result}:",
        "        raise NotImplementedError",
        "",
    ]
    if not drawn:
        awaited, iterator = ("", "Iterator") if sync else ("async ", "AsyncIterator")
        lines += [
            f"    {awaited}def _send_one_or_all(",
            "        self, images: Any, build: Build[T]) -> T | list[T]:",
            "        raise NotImplementedError",
            "",
            "    def _send_each(",
            f"        self, images: Iterable[ImageLike], build: Build[T]) -> {iterator}[T]:",
            "        raise NotImplementedError",
            "",
        ]
    for method in chosen:
        if method.body == "images":
            lines += _write_batched(method, sync=sync)
        else:
            lines += _write_method(method, sync=sync, drawn=drawn)
        lines.append("")
    return "\n".join([*lines, *write_former(renamed)])


def write_former(renamed: Mapping[str, str]) -> Iterator[str]:
    """The former names of methods, in their class."""
    return (f"    {name} = former({name!r}, {now})" for name, now in renamed.items())


def _write_method(method: Method, *, sync: bool, drawn: bool) -> list[str]:
    answer = "Image.Image" if drawn else method.answer
    send = f"return {'' if sync else 'await '}self._send("
    read = "read_image" if sync else "await read_on_thread"
    body = {
        "image": f"with_images({read}(image))",
        "pair": f"with_images({read}(first), {read}(second))",
        "poses": f"with_poses(poses, {', '.join(f'{one}={one}' for one in _json(method))})",
        "": "None",
    }[method.body]
    path = repr(method.path)
    if "{" in path:
        path = "f" + re.sub(r"\{(\w+)\}", r"{part(\1)}", path)
    make, kind = ("call", f"{method.answer}, ")
    if method.answer == "Image.Image":
        make, kind = "picture", ""
    made = f"{make}({method.verb!r}, {path}, {kind}{_query(method)}, {body}, timeout_s=timeout_s)"
    return [
        _signature(method, method.name, answer, prefix="" if sync else "async "),
        *write_docstring(_document(method), 8),
        f"        {send}{made})",
    ]


def _write_batched(method: Method, *, sync: bool) -> list[str]:
    prefix, iterator = ("", "Iterator") if sync else ("async ", "AsyncIterator")
    one = method.answer.split(" | ")[0]
    kinds = method.answer.replace(" | ", ", ")
    some = "Iterable[ImageLike]"

    def head(name: str, images: str, answer: str, prefix: str = prefix) -> str:
        return _signature(method, name, answer, prefix=prefix).replace("Any", images, 1)

    only = "# type: ignore[overload-overlap]  # one path is no list of characters"
    first = head(method.name, "ImageLike", one)
    first = first.replace("(", f"(  {only}\n", 1) + " ..."
    build = (
        f"outcomes({method.path!r}, {method.member!r}, ({kinds}), {_query(method)}, "
        "timeout_s=timeout_s)"
    )
    document = _document(method)
    each = (
        f"{method.text.splitlines()[0]}\n\n"
        "Images are read while answers arrive. They are sent in several requests at a time, each "
        f"of a size that the service accepts.\n\n{document[document.index('Args:') :]}"
    ).replace(_IMAGES, f"any number, each as for `{method.name}`.")
    return [
        "    @overload", first, "",
        "    @overload", head(method.name, some, f"list[{method.answer}]") + " ...", "",
        _signature(method, method.name, "Any", prefix=prefix), *write_docstring(document, 8),
        f"        return {'' if sync else 'await '}self._send_one_or_all(images, {build})",
        "",
        head(f"{method.name}_each", some, f"{iterator}[{method.answer}]", ""),
        *write_docstring(each, 8),
        f"        return self._send_each(images, {build})",
    ]  # fmt: skip


def _options(method: Method) -> list[Parameter]:
    return [one for one in method.parameters if one.place == "query"]


def _json(method: Method) -> list[str]:
    return [one.name for one in method.parameters if one.place == "json"]


def _query(method: Method) -> str:
    return "{" + ", ".join(f"{one.name!r}: {one.name}" for one in _options(method)) + "}"


def _signature(method: Method, name: str, answer: str, *, prefix: str) -> str:
    required = [str(one) for one in method.parameters if one.required]
    optional = [str(one) for one in method.parameters if not one.required]
    given = ", ".join(["self", *required, "*", *optional, "timeout_s: float | None = None"])
    return f"    {prefix}def {name}({given}) -> {answer}:"


def _document(method: Method) -> str:
    lines = [method.text, "", *describe_parameters(method.parameters)]
    lines.append("    timeout_s: deadline in seconds, instead of the client's.")
    return "\n".join(lines)


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
