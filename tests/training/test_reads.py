"""Where test splits are read: every such place puts its read on record."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = {
    "benchmarks/load.py": 1,  # of another kind: it runs wrk
    "research/protocols.py": 1,  # research/run.py, which gets the images, records it
    "training/__main__.py": 1,  # `download` counts the images of both splits
    "training/evaluate.py": 1,
    "training/kinds.py": 1,  # of data sets that nothing is trained on
}
RECORDED = ("research/run.py", "training/evaluate.py")


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """Calls of a function by its bare name."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def is_training(call: ast.Call) -> bool:
    """Whether `load` is asked for the training split."""
    return len(call.args) > 1 and ast.unparse(call.args[1]) == "'train'"


def test_the_places_that_read_a_test_split_are_known() -> None:
    """A new one is counted here, and has to record what it reads."""
    found: Counter[str] = Counter()
    for folder in ("benchmarks", "examples", "research", "tools", "training"):
        for path in (ROOT / folder).rglob("*.py"):
            loads = calls(ast.parse(path.read_text()), "load")
            some = [one for one in loads if len(one.args) > 1 and not is_training(one)]
            found.update({path.relative_to(ROOT).as_posix(): len(some)} if some else {})
    assert found == PLACES
    for name in RECORDED:
        assert calls(ast.parse((ROOT / name).read_text()), "record_read")
