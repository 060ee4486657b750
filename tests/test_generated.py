"""What is generated follows from the OpenAPI document and the views, which stay the source."""

from __future__ import annotations

import inspect

import pytest

from capsnet import AsyncCapsNet, AsyncDrawings, CapsNet, Drawings
from capsnet._generated import ViewMethods
from tools import client


def test_the_client_is_that_of_the_document() -> None:
    """`make generate` would change nothing."""
    assert client.GENERATED.read_text() == client.write_client(client.read_document())


def test_operations_without_a_method_exist() -> None:
    """Each is left out for a reason, not by mistake."""
    verbs = client.read_document()["paths"].values()
    names = {operation["operationId"] for one in verbs for operation in one.values()}
    assert client.LEFT_OUT.keys() <= names


@pytest.mark.parametrize("kind", [CapsNet, AsyncCapsNet, Drawings, AsyncDrawings])
def test_methods_say_what_they_take(kind: type) -> None:
    """By names and types, without `**options`; each parameter has its words."""
    found = inspect.getmembers(kind, inspect.isfunction)
    public = {name: one for name, one in found if not name.startswith("_")}
    assert "perturb" in public
    for name, method in public.items():
        parameters = inspect.signature(method).parameters
        given = [one for one in parameters if one != "self"]
        assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values()), name
        words = f"{inspect.getdoc(method)}{inspect.getdoc(ViewMethods)}"
        assert [] == [
            one for one in given if f"    {one}: " not in words and not name.endswith("_each")
        ]


def test_the_methods_of_a_bundle_are_those_of_the_views() -> None:
    """`make generate` would change nothing."""
    document = client.read_document()
    assert client.STUB.read_text() == client.write_methods(document)
