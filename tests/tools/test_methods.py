from __future__ import annotations

import ast
import inspect

import pytest

from model.views import NAMES
from model.views.methods import ViewMethods
from tools.client import read_document
from tools.methods import GENERATED, write_methods


def test_the_methods_of_a_bundle_are_those_of_the_views() -> None:
    """`make generate` would change nothing."""
    assert GENERATED.read_text() == write_methods(read_document())


@pytest.mark.parametrize("name", NAMES)
def test_a_method_takes_what_its_stub_says(name: str) -> None:
    """The methods are made of the views at run time."""
    (stub,) = (
        part for part in ast.parse(GENERATED.read_text()).body if isinstance(part, ast.ClassDef)
    )
    *_, written = (
        part for part in stub.body if isinstance(part, ast.FunctionDef) and part.name == name
    )
    by_name = [argument.arg for argument in written.args.kwonlyargs]
    made = inspect.signature(getattr(ViewMethods, name)).parameters.values()
    assert [argument.arg for argument in written.args.args] == [
        parameter.name for parameter in made if parameter.kind is not parameter.KEYWORD_ONLY
    ]
    assert by_name == [
        parameter.name for parameter in made if parameter.kind is parameter.KEYWORD_ONLY
    ]
