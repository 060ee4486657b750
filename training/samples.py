"""Write images into a bundle as samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from model.bundle.samples import INDEX, MAX_SAMPLES
from model.canvas import enlarge, png
from model.preprocess import scale
from training.data.datasets import Examples, first_rows
from training.data.pictures import to_ascii_name


def write_samples(
    examples: Examples, class_names: Sequence[str], folder: Path, *, licence: str, source: str
) -> None:
    """Write up to ten images as the network sees them, one class after the other, and an index."""
    folder.mkdir()
    index = []
    for number, row in enumerate(first_rows(examples.labels, MAX_SAMPLES)):
        label = int(examples.labels[row])
        name = to_ascii_name(class_names[label]) or f"class-{label}"
        file = f"{number:02}-{name}.png"
        (folder / file).write_bytes(png(enlarge(scale(examples.images[row]), 1)))
        index.append(
            {
                "file": file,
                "label": label,
                "class_name": class_names[label],
                "licence": licence,
                "source": source,
            }
        )
    (folder / INDEX).write_text(f"{json.dumps(index, indent=2, ensure_ascii=False)}\n")
