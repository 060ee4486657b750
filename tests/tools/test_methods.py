from __future__ import annotations

from tools.client import read_document
from tools.methods import GENERATED, write_methods


def test_the_methods_of_a_bundle_are_those_of_the_views() -> None:
    """`make generate` would change nothing."""
    assert GENERATED.read_text() == write_methods(read_document())
