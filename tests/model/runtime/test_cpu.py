from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from model.bundle import BundleError
from model.runtime import Runtime, cpu
from model.runtime.cpu import Session, cpu_quota, open_graph

Write = Callable[..., Path]


@pytest.fixture
def cgroups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """`cgroups({file: text})` is a folder with these files, on a machine of eight CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("200000 100000\n", 2, id="two CPUs"),
        pytest.param("150000 100000\n", 2, id="one and a half"),
        pytest.param("10000 100000\n", 1, id="a tenth"),
        pytest.param("6400000 100000\n", 8, id="more than there are"),
        pytest.param("max 100000\n", 8, id="no quota"),
        pytest.param("", 8, id="empty"),
    ],
)
def test_the_quota_is_the_container_s(text: str, expected: int, cgroups: Write) -> None:
    """The quota is rounded up; without one, all CPUs of the machine may be used."""
    assert expected == cpu_quota(cgroups({"cpu.max": text}))


def test_a_unit_s_quota_counts(cgroups: Write) -> None:
    """Systemd's units are groups within groups, each of which may have a quota."""
    folder = cgroups({"a.slice/cpu.max": "150000 100000", "own": "0::/a.slice/b.service\n"})
    assert 2 == cpu_quota(folder, folder / "own")


@pytest.mark.parametrize(("quick_s", "expected"), [(0.0, 3), (float("inf"), 1)])
def test_only_slow_inferences_are_divided_among_threads(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, quick_s: float, expected: int
) -> None:
    """How long one row takes decides, when a graph is loaded."""
    monkeypatch.setattr(cpu, "QUICK_S", quick_s)
    session = open_graph(runtime.bundle.graph("encoder"), threads=3)
    assert expected == threads_of(session)


def test_a_graph_that_cannot_be_run_is_named(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bundle is left out, and the others are served."""

    class Broken:
        def get_inputs(self) -> list[object]:
            return []

        def run(self, *_: object) -> None:
            raise RuntimeError("a shape does not fit")

    monkeypatch.setattr(cpu, "open_session", lambda *_, **__: Broken())
    with pytest.raises(BundleError, match=r"encoder\.onnx: .* cannot run it: a shape"):
        open_graph(runtime.bundle.graph("encoder"), threads=3)


@pytest.mark.parametrize(
    ("node", "kind", "reason"),
    [
        ("Loop", TensorProto.FLOAT, "terminate flag"),
        ("Identity", TensorProto.DOUBLE, "tensor"),
    ],
)
def test_a_graph_that_is_no_network_is_refused(
    node: str, kind: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that loops forever, and one of other numbers: loading goes on to the next bundle."""
    monkeypatch.setattr(cpu, "MAX_ROW_S", 0.5)
    given, result = (helper.make_tensor_value_info(name, kind, [1]) for name in ("x", "y"))
    state = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("on", "still")]
    number = helper.make_tensor_value_info("number", TensorProto.INT64, [])
    steps = [
        helper.make_node("Identity", ["on"], ["still"]),
        helper.make_node("Identity", ["a"], ["b"]),
    ]
    before, after = (helper.make_tensor_value_info(name, kind, [1]) for name in ("a", "b"))
    body = helper.make_graph(steps, "body", [number, state[0], before], [state[1], after])
    inputs, attributes = (["", "true", "x"], {"body": body}) if node == "Loop" else (["x"], {})
    graph = helper.make_graph(
        [helper.make_node(node, inputs, ["y"], **attributes)],
        "hostile",
        [given],
        [result],
        [helper.make_tensor("true", TensorProto.BOOL, [], [True])],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "loop.onnx")
    with pytest.raises(BundleError, match=reason):
        open_graph(tmp_path / "loop.onnx", threads=1)


def threads_of(session: Session) -> int:
    return int(session.session.get_session_options().intra_op_num_threads)
