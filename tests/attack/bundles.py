"""Hostile bundles: a sound one, of which one file is replaced by another that is small and harms.

Each function changes a bundle's folder. `sign` makes its manifest list the files as they are.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from model.bundle import MANIFEST, NEIGHBOURS, NOVELTY
from model.bundle.samples import INDEX, SAMPLES
from tests.costly import webp

ENCODER = "encoder.onnx"
Change = Callable[[Path], None]
_DOMAIN = "hostile"


def sign(folder: Path, **entries: Any) -> None:
    """Have the manifest list the digests of the files as they are, and change some entries."""
    values = json.loads((folder / MANIFEST).read_text())
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in values["sha256"]
    }
    (folder / MANIFEST).write_text(json.dumps({**values, **entries, "sha256": digests}))


def chain_functions(folder: Path, functions: int = 20_000) -> None:
    """A megabyte of functions, each of which calls the next: they are inlined recursively."""
    _write_graph(folder, [_call(0)], [_function(at, functions, calls=1) for at in range(functions)])


def double_functions(folder: Path, functions: int = 26) -> None:
    """Functions that each call the next twice: 67 million nodes in a few kilobytes."""
    _write_graph(folder, [_call(0)], [_function(at, functions, calls=2) for at in range(functions)])


def take_memory(folder: Path, values: int = 2_000_000_000) -> None:
    """A graph that asks for 8 GB when it runs."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [values])
    nodes = [
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["sum"]),
        helper.make_node("Add", ["images", "sum"], ["presence"]),
    ]
    _write_graph(folder, nodes, [])


def add_pipe(folder: Path) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(folder / "pipe")


def inflate_manifest(folder: Path, size: int = 12_000_000) -> None:
    """A manifest whose metrics are 12 MB of JSON."""
    text = (folder / MANIFEST).read_text()
    filling = "{}," * (size // 3)
    (folder / MANIFEST).write_text(text.replace('"metrics": {', f'"metrics": {{"a": [{filling}0],'))


def nest_metrics(folder: Path, depth: int = 700) -> None:
    """Metrics that JSON's reader takes, and whose copy exceeds Python's stack."""
    sign(folder)
    text = (folder / MANIFEST).read_text()
    nested = '"metrics": {"a": ' + '{"a":' * depth + "0" + "}" * depth + ","
    (folder / MANIFEST).write_text(text.replace('"metrics": {', nested))


def add_surrogate(folder: Path) -> None:
    """A sample whose name is half of a character: valid JSON that UTF-8 cannot write."""
    (folder / SAMPLES).mkdir(exist_ok=True)
    png = b"\x89PNG\r\n\x1a\n"
    (folder / SAMPLES / "a.png").write_bytes(png)
    entry = {"file": "a.png", "label": 0, "class_name": "\ud800", "licence": "", "source": ""}
    (folder / SAMPLES / INDEX).write_text(json.dumps([entry]))


def corrupt_novelty(folder: Path) -> None:
    """Arrays whose compressed bytes were altered."""
    content = bytearray((folder / NOVELTY).read_bytes())
    for at in range(100, len(content) // 2, 7):
        content[at] ^= 0x55
    (folder / NOVELTY).write_bytes(content)
    sign(folder)


def inflate_neighbours(folder: Path, size: int = 200_000_000) -> None:
    """A megabyte that becomes 200 MB: a sheet of zeros."""
    with np.load(folder / NEIGHBOURS) as arrays:
        columns = {name: arrays[name] for name in arrays.files if name != "sheet"}
    with zipfile.ZipFile(
        folder / NEIGHBOURS, "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as archive:
        for name, array in columns.items():
            file = io.BytesIO()
            np.save(file, array)
            archive.writestr(f"{name}.npy", file.getvalue())
        with archive.open("sheet.npy", "w", force_zip64=True) as member:
            head = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
            np.lib.format.write_array_header_1_0(member, head)
            zeros = bytes(10_000_000)
            for _ in range(size // len(zeros)):
                member.write(zeros)
    sign(folder)


def announce_a_canvas(folder: Path) -> None:
    """A sheet of thumbnails whose few bytes are a WebP file of 268 megapixels."""
    with np.load(folder / NEIGHBOURS) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    columns["sheet"] = np.frombuffer(webp(16_383), np.uint8)
    with (folder / NEIGHBOURS).open("wb") as file:
        np.savez_compressed(file, **columns)
    sign(folder)


HOSTILE: dict[str, Change] = {
    change.__name__.replace("_", "-"): change
    for change in (
        chain_functions,
        double_functions,
        take_memory,
        add_pipe,
        inflate_manifest,
        nest_metrics,
        add_surrogate,
        corrupt_novelty,
        inflate_neighbours,
        announce_a_canvas,
    )
}
"""The changes by name. A service refuses each of these bundles, and nothing else happens."""


def _function(at: int, functions: int, *, calls: int) -> onnx.FunctionProto:
    """A function that calls the next one so many times; the last one negates."""
    names = ["x", *(f"v{number}" for number in range(calls - 1)), "y"]
    node = "Neg" if at + 1 == functions else f"f{at + 1}"
    domain = "" if node == "Neg" else _DOMAIN
    nodes = [helper.make_node(node, [a], [b], domain=domain) for a, b in pairwise(names)]
    return helper.make_function(_DOMAIN, f"f{at}", ["x"], ["y"], nodes, _opsets())


def _call(at: int) -> onnx.NodeProto:
    return helper.make_node(f"f{at}", ["images"], ["presence"], domain=_DOMAIN)


def _opsets() -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]


def _write_graph(
    folder: Path, nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto]
) -> None:
    """Write the encoder, and sign it."""
    shape = ("n", 1, 28, 28)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)
    presence = helper.make_tensor_value_info("presence", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "encoder", [images], [presence])
    network = helper.make_model(graph, opset_imports=_opsets(), functions=functions, ir_version=8)
    (folder / ENCODER).write_bytes(network.SerializeToString())
    sign(folder)
