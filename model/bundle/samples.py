"""Sample images of a bundle: a folder of up to ten PNGs, described in `samples.json`.

A bundle may have such a folder, `samples`; its manifest says nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.bundle.bounded import read_json, read_png

SAMPLES = "samples"
INDEX = "samples.json"
MAX_SAMPLES = 10
MAX_SAMPLE_BYTES = 1_000_000
"""The index, and each picture, may have this many bytes."""


@dataclass(frozen=True)
class Sample:
    """A sample image of a bundle."""

    file: str
    """The file's name in the folder, `00-cat.png`."""
    label: int | None
    """The label of the class; None where the image shows none of the classes, or several."""
    class_name: str
    """The name of what the image shows."""
    licence: str
    source: str
    """The image's author, or the data set that it is from."""
    png: bytes = field(repr=False)


def read_samples(folder: Path, num_classes: int) -> tuple[Sample, ...]:
    """The samples of a network with so many classes, in the order of the index.

    An empty tuple where there is no index.

    Raises:
        ValueError: the index or a picture cannot be read, or is something else.
    """
    try:
        values = read_json(folder / INDEX, MAX_SAMPLE_BYTES)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise ValueError(f"{INDEX} cannot be read: {error}") from error
    if not isinstance(values, list) or len(values) > MAX_SAMPLES:
        raise ValueError(f"{INDEX} is no list of at most {MAX_SAMPLES} samples")
    return tuple(_read_sample(folder, entry, num_classes) for entry in values)


def _read_sample(folder: Path, values: Any, num_classes: int) -> Sample:
    texts = ("file", "class_name", "licence", "source")
    if not isinstance(values, dict) or values.keys() != {*texts, "label"}:
        raise ValueError(f"{INDEX}: a sample has {', '.join(sorted({*texts, 'label'}))}")
    file, label = values["file"], values["label"]
    if not all(isinstance(values[key], str) for key in texts) or Path(file).name != file:
        raise ValueError(f"{INDEX}: {file!r} is no file of the folder, or has no words")
    if label is not None and (type(label) is not int or not 0 <= label < num_classes):
        raise ValueError(f"{INDEX}: {file}: {label!r} is no label of the network")
    return Sample(**values, png=read_png(folder / file, MAX_SAMPLE_BYTES))
