"""Sample images of a bundle: a folder of up to ten PNGs, described in `samples.json`.

A bundle may have such a folder, `samples`; its manifest says nothing of it.
"""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from model.bundle.disk import read_bytes, read_json
from model.bundle.entry import ENTRY, read_strictly

SAMPLES = "samples"
INDEX = "samples.json"
MAX_SAMPLES = 10
MAX_SAMPLE_BYTES = 1_000_000
"""The index, and each picture, may have this many bytes."""
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, config=ENTRY)
class Sample:
    """A sample image of a bundle."""

    file: Annotated[str, Field(pattern=r"^[^/\\]+$")]
    """The file's name in the folder, `00-cat.png`."""
    label: int | None
    """The label of the class; None where the image shows none of the classes, or several."""
    class_name: str
    """The name of what the image shows."""
    licence: str
    source: str
    """The image's author, or the data set that it is from."""
    png: Annotated[bytes, Field(exclude=True)] = field(default=b"", repr=False)


def read_samples(folder: Path, num_classes: int) -> tuple[Sample, ...]:
    """The samples of a network with so many classes, in the order of the index.

    An empty tuple where there is no index.

    Raises:
        ValueError: the index or a picture cannot be read, or is something else.
    """
    if not (folder / INDEX).exists():
        return ()
    values = read_json(folder / INDEX, MAX_SAMPLE_BYTES)
    several = Annotated[tuple[Sample, ...], Field(max_length=MAX_SAMPLES)]
    samples = read_strictly(several, values, INDEX)
    read = []
    for sample in samples:
        if sample.label is not None and not 0 <= sample.label < num_classes:
            raise ValueError(f"{sample.file}: {sample.label} is no label of the network")
        png = read_bytes(folder / sample.file, MAX_SAMPLE_BYTES)
        if not png.startswith(_PNG):
            raise ValueError(f"{sample.file} is no PNG")
        read.append(replace(sample, png=png))
    return tuple(read)
