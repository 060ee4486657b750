from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.bundle import Bundle, BundleError
from model.loaded import fit_picture
from model.runtime import Runtime
from service.pictures import SAMPLES

Scorer = Callable[[pa.Table], pa.Table]
COMPACT = "mnist-compact"
DIGITS = [SAMPLES / f"{label}.png" for label in range(10)]


@pytest.fixture(scope="module")
def score() -> ModuleType:
    """What is tested."""
    return importlib.import_module("deploy.ray.score")


@pytest.fixture(scope="module")
def scorer(score: ModuleType) -> Scorer:
    """What an actor holds."""
    return score.Scorer(score.Wanted(COMPACT, poses=True, novelty=True))


def test_rows_are_what_the_bundle_says(score: ModuleType, scorer: Scorer) -> None:
    """Labels, presence and poses of each file, in order."""
    runtime = Runtime(Bundle.open(SAMPLES.parents[1] / "model" / "bundles" / COMPACT), device="cpu")
    images = [fit_picture(runtime.bundle.manifest, path).image for path in DIGITS]
    encoding = runtime.encode(np.stack(images))
    rows = scorer(pa.table({"path": list(map(str, DIGITS))}))
    assert score.Wanted(COMPACT, poses=True, novelty=True).schema == rows.schema
    assert list(range(10)) == rows["label"].to_pylist()
    assert encoding.presence == pytest.approx(np.array(rows["presence"].to_pylist()), abs=1e-5)
    assert encoding.poses == pytest.approx(np.array(rows["poses"].to_pylist()), abs=1e-5)
    assert all(0 <= score <= 1 for score in rows["novelty"].to_pylist())
    assert [None] * 10 == rows["error"].to_pylist()


def test_a_broken_picture_is_an_error_in_its_row(scorer: Scorer, tmp_path: Path) -> None:
    """Whatever is wrong with it; its neighbours are scored."""
    (tmp_path / "cut.png").write_bytes(DIGITS[7].read_bytes()[:150])
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "bomb.png").write_bytes(_bomb(DIGITS[7].read_bytes()))
    paths = [DIGITS[3], *sorted(tmp_path.iterdir()), tmp_path / "missing.png", DIGITS[5]]
    rows = scorer(pa.table({"path": list(map(str, paths))})).to_pylist()
    assert [3, None, None, None, None, 5] == [row["label"] for row in rows]
    errors = {Path(row["path"]).stem: row["error"] for row in rows if row["error"]}
    assert {"bomb", "cut", "text", "missing"} == errors.keys()
    assert "pixels" in errors["bomb"]
    assert "cannot be read" in errors["missing"]


def _bomb(png: bytes) -> bytes:
    """The same file, which announces 30,000 pixels a side."""
    return png[:16] + (30_000).to_bytes(4) * 2 + png[24:]


def test_bytes_are_scored_without_a_file(scorer: Scorer) -> None:
    """As Parquet has them; nothing there is an error too."""
    files = [DIGITS[4].read_bytes(), None, b"", DIGITS[2].read_bytes()]
    rows = scorer(pa.table({"path": list("abcd"), "bytes": files})).to_pylist()
    assert [4, None, None, 2] == [row["label"] for row in rows]
    assert list("abcd") == [row["path"] for row in rows]
    assert [False, True, True, False] == [bool(row["error"]) for row in rows]


def test_a_view_answers_for_each_picture(score: ModuleType) -> None:
    """As JSON, with a parameter for all, and one of each row."""
    scorer = score.Scorer(score.Wanted(COMPACT, view="perturb", parameters={"delta": "0.1"}))
    table = {"path": list(map(str, DIGITS[:3])), "dim": [2, 3, 99]}
    rows = scorer(pa.table(table)).to_pylist()
    answers = [json.loads(row["answer"]) for row in rows[:2]]
    assert [(2, 0.1), (3, 0.1)] == [(answer["dim"], answer["delta"]) for answer in answers]
    assert "dim is 0 to 15" in rows[2]["error"]


def test_nothing_to_score_is_said(score: ModuleType, tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(score.InputError, match="there is no picture in"):
        score.find_pictures(tmp_path)
    with pytest.raises(score.InputError, match=r"there is no \S+/away"):
        score.find_pictures(tmp_path / "away")
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"picture": [b""]}), table)
    with pytest.raises(score.InputError, match="has no column bytes and no column path"):
        score.find_pictures(table)


def test_an_output_has_the_rows_of_one_job(score: ModuleType, tmp_path: Path) -> None:
    """Two bundles, or two schemas, are not mixed in it."""
    score.claim(tmp_path, score.Wanted(COMPACT))
    score.claim(tmp_path, score.Wanted(COMPACT))
    for other in (score.Wanted("mnist-attention"), score.Wanted(COMPACT, poses=True)):
        with pytest.raises(score.InputError, match="rows of another job"):
            score.claim(tmp_path, other)
    with pytest.raises(BundleError):
        score.claim(tmp_path, score.Wanted("nothing"))
    with pytest.raises(score.InputError, match="one picture"):
        score.claim(tmp_path, score.Wanted(COMPACT, view="morph"))
    assert COMPACT == json.loads((tmp_path / "_job.json").read_text())["model"]
