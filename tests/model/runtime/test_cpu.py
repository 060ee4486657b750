from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from model.bundle import BundleError
from model.runtime import Runtime, cpu
from model.runtime.cpu import CpuDevice, FasterSession, cpu_quota
from model.runtime.sessions import Array, PlainSession

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


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        pytest.param("250000\n", 3, id="two and a half"),
        pytest.param("-1\n", 8, id="no quota"),
    ],
)
def test_older_cgroups_are_read_too(quota: str, expected: int, cgroups: Write) -> None:
    """Version 1 keeps quota and period in two files."""
    files = {"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": "100000\n"}
    assert expected == cpu_quota(cgroups(files))


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/a.slice/b.service\n", {"a.slice/cpu.max": "150000 100000"}),
        (
            "4:cpuset:/\n3:cpu,cpuacct:/b.service\n",
            {
                "cpu/b.service/cpu.cfs_quota_us": "150000",
                "cpu/b.service/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "-1",
            },
        ),
    ],
)
def test_a_unit_s_quota_counts(groups: str, files: dict[str, str], cgroups: Write) -> None:
    """Systemd's units are groups within groups, each of which may have a quota."""
    folder = cgroups(files | {"own": groups})
    assert 2 == cpu_quota(folder, folder / "own")


class Timed:
    """A session that takes `row_s` for each row, by a clock of its own."""

    provider = "none"
    now = 0.0
    """Seconds, of all of them."""

    def __init__(self, row_s: float) -> None:
        self.row_s = row_s
        self.runs = 0

    def run(self, **inputs: Array) -> list[Array]:
        """Let the time pass."""
        self.runs += 1
        Timed.now += self.row_s * len(inputs["images"])
        return [inputs["images"]]

    def padding(self, rows: int) -> int:
        """None."""
        return 0 * rows


def test_the_faster_session_runs_and_the_other_is_tried_again() -> None:
    """When the faster one becomes slow the other takes over; one bad run changes nothing."""
    one, all_threads = Timed(0.005), Timed(0.003)
    session = FasterSession([one, all_threads], clock=lambda: Timed.now)

    def share_of_all_threads(runs: int = 200) -> float:
        before = all_threads.runs
        for _ in range(runs):
            session.run(images=np.zeros((2, 1)))
        return (all_threads.runs - before) / runs

    assert 0.95 < share_of_all_threads() < 1
    assert 0.003 == pytest.approx(session.row_s)
    all_threads.row_s = 1.0
    session.run(images=np.zeros((2, 1)))
    all_threads.row_s = 0.003
    assert 0.95 < share_of_all_threads() < 1
    all_threads.row_s = 0.007
    assert share_of_all_threads() < 0.06
    all_threads.row_s = 0.003
    assert share_of_all_threads() > 0.4


def test_without_a_cgroup_all_cpus_may_be_used(cgroups: Write) -> None:
    """Outside of Linux containers the files do not exist."""
    assert 8 == cpu_quota(cgroups({}))


@pytest.mark.parametrize(("quick_s", "expected"), [(0.0, 3), (float("inf"), 1)])
def test_only_slow_inferences_are_divided_among_threads(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, quick_s: float, expected: int
) -> None:
    """How long one row takes decides, when a graph is loaded."""
    monkeypatch.setattr(cpu, "QUICK_S", quick_s)
    session = CpuDevice(threads=3).open(runtime.bundle.graph("encoder"))
    assert isinstance(session, PlainSession)
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
        CpuDevice(threads=3).open(runtime.bundle.graph("encoder"))


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
        CpuDevice(threads=1).open(tmp_path / "loop.onnx")


def threads_of(session: PlainSession) -> int:
    return int(session.session.get_session_options().intra_op_num_threads)
