"""The reference of `model.load`, from docstrings and the manifests of the bundles that ship."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise

import model
from model.loaded import LoadedBundle
from model.runtime import ClassTrace, Encoding, LayerTrace, Trace
from model.views.methods import ViewMethods
from tools.docs_client import describe_function, describe_methods, prose
from tools.docs_table import table

_ARRAYS = (
    "`encode` and `trace` return named tuples of numpy arrays. Views return answers, which have "
    "the members of the [client's](client.md#answers), with arrays for images."
)
_RECORDS = (Encoding, Trace, ClassTrace, LayerTrace)


def describe_model() -> Iterator[str]:
    """Markdown of `model.load`, what it returns, and the shapes of the bundles that ship."""
    yield from ("### `load`", "", *describe_function(model.load))
    yield from ("### `LoadedBundle`", "", *describe_methods(LoadedBundle, ViewMethods))
    yield from (
        "### Arrays",
        "",
        _ARRAYS,
        "",
    )
    for record in _RECORDS:
        yield from (f"#### `{record.__name__}`", "", *prose(record))
        yield from table(("field", "type", "content"), list(_fields(record)))
    yield from ("### Sizes of the bundles that ship", "")
    head = ("bundle", "C, H, W", "K", "D", "I", "R", "`trace.hidden`: T, T', rows, columns, R")
    yield from table(head, list(_sizes()))


def _fields(record: type) -> Iterator[tuple[str, ...]]:
    """Name, type and docstring of each field of a named tuple."""
    (declared,) = ast.parse(inspect.getsource(record)).body
    assert isinstance(declared, ast.ClassDef)
    for field, after in pairwise([*declared.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign):
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) else ""
            name, kind = ast.unparse(field.target), ast.unparse(field.annotation)
            plain = "Floats" if kind == "A" else kind.replace("[A]", "")  # here of numpy arrays
            yield f"`{name}`", f"`{plain}`", str(text)


def _sizes() -> Iterator[tuple[str, ...]]:
    for folder in sorted(model.SHIPPED.glob("*/")):
        manifest = model.open_bundle(folder.name).manifest
        last = manifest.layers[-1]
        hidden = [
            f"`{layer.name}`: {layer.types}, {after.types}, {after.rows}, {after.columns}, "
            f"{layer.iterations}"
            for layer, after in pairwise(manifest.layers)
        ]
        sizes = (manifest.num_classes, manifest.class_dim, last.capsules, last.iterations)
        image = ", ".join(map(str, manifest.image_shape))
        yield f"`{folder.name}`", image, *map(str, sizes), "; ".join(hidden)
