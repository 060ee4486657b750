from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from model.bundle import Bundle, BundleError
from model.bundle.samples import INDEX, MAX_SAMPLES, Sample
from service.pictures import SAMPLES

SEVEN = {"file": "7.png", "label": 7, "class_name": "7", "licence": "mine", "source": "drawn"}


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    """A bundle with a folder of one picture."""
    copy = Path(shutil.copytree(bundle_path, tmp_path / "copy"))
    (copy / "samples").mkdir()
    shutil.copy(SAMPLES / "7.png", copy / "samples")
    return copy


def write(bundle: Path, index: Any) -> None:
    (bundle / "samples" / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize("label", [7, None], ids=["of a class", "of none"])
def test_a_bundle_brings_its_samples(label: int | None, copy: Path) -> None:
    """Each with what its index tells, and its file as it is."""
    write(copy, [{**SEVEN, "label": label}])
    png = (SAMPLES / "7.png").read_bytes()
    expected = Sample("7.png", label, "7", licence="mine", source="drawn", png=png)
    assert (expected,) == Bundle.open(copy).samples


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "Input should be a valid array"),
        ((MAX_SAMPLES + 1) * [SEVEN], "at most 10 items"),
        (["7.png"], "0: Input should be"),
        ([{**SEVEN, "author": "me"}], "0.author: Unexpected keyword"),
        ([{**SEVEN, "licence": None}], "0.licence: Input should be a valid string"),
        ([{**SEVEN, "file": "../CARD.md"}], "0.file: String should match"),
        ([{**SEVEN, "label": 10}], "7.png: 10 is no label of the network"),
        ([{**SEVEN, "label": True}], "0.label: Input should be a valid integer"),
        ([{**SEVEN, "file": "8.png"}], "8.png cannot be read: No such file"),
        ([{**SEVEN, "file": INDEX}], "samples.json is no PNG"),
    ],
)
def test_a_damaged_folder_is_named(index: Any, message: str, copy: Path) -> None:
    """The bundle is refused in a sentence that says what is wrong with which sample."""
    write(copy, index)
    with pytest.raises(BundleError, match=message):
        Bundle.open(copy)
