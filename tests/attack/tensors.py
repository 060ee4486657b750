"""Attacks on the routes of the open inference protocol, `/v2`."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from tests.attack.bodies import JSON, UNFIT
from tests.attack.cases import Site, attack
from tests.attack.wire import request

PATH = "/v2/models/mnist/infer"
LENGTH = "Inference-Header-Content-Length"
IMAGE = bytes(4 * 28 * 28)


def _one(**members: Any) -> dict[str, Any]:
    """One black image, its values announced as bytes, but for some members."""
    size = {"parameters": {"binary_data_size": len(IMAGE)}}
    return {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", **size, **members}


def _text(*inputs: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"inputs": list(inputs or [_one()]), **members}).encode()


def _ask(head: bytes, tensors: bytes = b"", length: int | str | None = None) -> bytes:
    """A request of JSON and what follows it; `length` is what it says of the JSON."""
    said = len(head) if length is None else length
    return request(PATH, head + tensors, headers=[f"{LENGTH}: {said}"], kind=JSON)


@attack("tensors whose JSON has a false length", allowed=UNFIT, short=True)
async def false_lengths(site: Site) -> None:
    """Header lengths that are too small, too large, negative, endless or none."""
    lengths = (0, 1, len(_text()) - 1, len(_text()) + 1, 10**9, "9" * 5_000, -1, "1e3", "", "x")
    await site.flood([_ask(_text(), IMAGE, length) for length in lengths])


@attack("tensors that inflate", allowed=UNFIT)
async def inflating_tensors(site: Site) -> None:
    """A body of 50 KB that becomes 50 MB, and streams that are cut or follow each other."""
    plain = _text() + IMAGE
    packed = [
        ("gzip", gzip.compress(bytes(50_000_000))),
        ("deflate", zlib.compress(bytes(50_000_000))),
        ("gzip", gzip.compress(bytes(19_000_000))),
        ("gzip", gzip.compress(plain)[:-9]),
        ("gzip", gzip.compress(plain) * 2_000),
    ]
    await site.flood(
        [
            request(PATH, body, headers=[f"Content-Encoding: {name}"], kind=JSON)
            for name, body in packed
        ],
        connections=8,
    )


@attack("tensors of false shapes and sizes", allowed=UNFIT, short=True)
async def false_shapes(site: Site) -> None:
    """Shapes of billions of rows or of thousands of axes; bytes that are too few or too many."""
    shapes = ([10**9, 1, 28, 28], [10**30, 1, 28, 28], [2**62] * 4, [-1, 1, 28, 28], [1] * 500_000)
    wrong = [_ask(_text(_one(shape=list(shape))), IMAGE) for shape in shapes]
    for size in (0, 1, len(IMAGE) - 4, 10**9, 10**30, -1):
        one = _one(parameters={"binary_data_size": size})
        wrong += [_ask(_text(one), IMAGE), _ask(_text(one), IMAGE * 2)]
    await site.flood(wrong)


@attack("nested tensors", allowed=UNFIT)
async def nested_tensors(site: Site) -> None:
    """Values that are deep, long or no numbers."""
    head = b'{"inputs":[{"name":"images","shape":[1,1,28,28],"datatype":"FP32","data":'
    bodies = [
        head + b"[" * 4_000_000,
        head + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}]}",
        head + b"[" + b"0," * 4_000_000 + b"0]}]}",
        head + b"[" + b"[]," * 2_000_000 + b"[]]}]}",
        head + b"[" + b"1e99999999," * 783 + b"0]}]}",
        head + b"9" * 4_000_000 + b"}]}",
        b'{"a":' * 1_000_000,
    ]
    await site.flood([request(PATH, body, kind=JSON) for body in bodies], connections=2)


@attack("a hundred thousand inputs", allowed=(200, *UNFIT))
async def many_inputs(site: Site) -> None:
    """Inputs, outputs and parameters without number; parameters are not read."""
    names = range(100_000)
    bodies = [
        _text(*[_one()] * 100_000),
        _text(*({"name": str(n), "shape": [1], "datatype": "FP32", "data": [0]} for n in names)),
        _text(outputs=[{"name": "poses"}] * 100_000),
        _text(outputs=[{"name": str(number)} for number in names]),
        _text(parameters={str(number): number for number in names}),
    ]
    await site.flood([_ask(body, IMAGE) for body in bodies], connections=2)


@attack("tensors of strings", allowed=UNFIT, short=True)
async def tensors_of_strings(site: Site) -> None:
    """One long string among short ones, strings without number, lists among numbers."""
    rows = {
        8: ["x" * 88_000, *["x"] * 6_271],
        256: ["x" * 100_000, *[""] * 200_703],
        255: ["x"] * 399_840,
        4: [[0] * 784, "x" * 1_000_000, [0] * 784, [0] * 784],
        2: [None, *[0] * 1_566, "x" * 1_000_000],
    }
    bodies = [
        _text({"name": "images", "shape": [count, 1, 28, 28], "datatype": "FP32", "data": data})
        for count, data in rows.items()
    ]
    await site.flood([request(PATH, body, kind=JSON) for body in bodies])
