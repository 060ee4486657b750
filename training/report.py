"""A report of a network's answers to pictures, one HTML file, and what to do next."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from model import open_bundle
from model.bundle.disk import replacing
from model.canvas import enlarge, png, showing
from model.preprocess import Floats
from model.runtime import Runtime
from training.answers import (
    Labels,
    as_floats,
    confusion,
    decode_classes,
    most_confused,
    recalls,
)
from training.card import render
from training.command import DATA_DIR, BundleName, DataDir, SkipUnreadable, app, console
from training.confidence import describe_bins
from training.data.pairs import PUBLISHED_PAIRS, TEST_PAIRS
from training.device import open_runtime
from training.evaluate import ScoredSplit, Scores, evaluate, score_folder
from training.statistics import interval

MAX_MISTAKES, MAX_DRAWN = 24, 12
"""The largest numbers of mistakes and of right answers that are shown."""
_MIN_PX = 96
"""Images are enlarged by whole pixels until they are about this high."""


def advise(
    labels: Labels,
    presence: Floats,
    class_names: Sequence[str],
    *,
    pictures: Mapping[str, int],
    size_px: int,
    pretrained: bool = False,
) -> list[str]:
    """Say what helps, the surest first, as sentences.

    Args:
        labels: (N,) of the scored images.
        presence: (N, K), the answers to them.
        pictures: the number of training pictures of each class; empty where it is unknown.
        size_px: the longest side of the network's images.
        pretrained: whether its stem's weights are published ones.
    """
    by_class = recalls(labels, presence, class_names)
    images, right = len(labels), sum(recall.right for recall in by_class)
    text = render(
        "advice.txt",
        images=images,
        wrong=images - right,
        error=1 - right / images,
        guess=1 - np.bincount(labels).max() / images,
        worst=by_class[0],
        least=min(pictures.values(), default=0),
        most=max(pictures.values(), default=0),
        rarest=min(pictures, key=lambda name: pictures[name], default=""),
        confused=most_confused(labels, presence, class_names),
        size_px=size_px,
        pretrained=pretrained,
    )
    return text.splitlines()


@app.command("evaluate")
def report(
    bundle: BundleName,
    *,
    data_dir: DataDir = DATA_DIR,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of new pictures by class to score. With --validation, it is the folder of "
            "the training images.",
        ),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    validation: Annotated[
        bool,
        typer.Option(
            "--validation",
            help="Score held-out training images instead; --data names their folder.",
        ),
    ] = False,
    report_file: Annotated[
        Path | None,
        typer.Option("--report", help="HTML file to write; with --data, report.html by default."),
    ] = None,
    pairs: Annotated[
        int,
        typer.Option(min=PUBLISHED_PAIRS, help="For networks for pairs: test pairs at each shift."),
    ] = TEST_PAIRS,
) -> None:
    """Score a bundle on the test split, record that it was read, and print the scores.

    With --data, score a folder of pictures that training never saw, and write a report.
    """
    opened = open_bundle(bundle)
    split: ScoredSplit = "validation" if validation else "test"
    if "imported" in opened.manifest.training:
        if data is None:
            raise typer.BadParameter("an imported network needs --data, a folder to score")
        scores = score_folder(open_runtime(opened), data, skip_unreadable=skip_unreadable)
    else:
        scores = evaluate(
            opened,
            data_dir,
            split=split,
            folder=data,
            skip_unreadable=skip_unreadable,
            pairs=pairs,
        )
    console.print(f"{opened.manifest.name}: {scores.headline()}")
    for line in scores.details():
        console.print(line)
    target = report_file or (Path("report.html") if data and not validation else None)
    if target and not scores.answers.are_pairs:
        write_report(open_runtime(opened), scores, target)
        console.print(f"wrote {target}")


def write_report(runtime: Runtime, scores: Scores, target: Path) -> None:
    """Write the report of a score on single images."""
    manifest, answers = runtime.bundle.manifest, scores.answers
    names, labels, first = manifest.class_names, answers.labels, answers.first
    counts = manifest.training.get("pictures", {}).get("class_counts", ())
    class_counts = dict(zip(names, counts, strict=False))
    right = first == labels
    confidence, label_presence = (
        np.take_along_axis(answers.presence, classes[:, None], axis=1)[:, 0].astype(np.float64)
        for classes in (first, labels)
    )
    worst_first = np.argsort(label_presence - confidence, kind="stable")
    mistakes = worst_first[~right[worst_first]][:MAX_MISTAKES]
    advice = advise(
        labels,
        answers.presence,
        names,
        pictures=class_counts,
        size_px=max(manifest.height, manifest.width),
        pretrained=bool(manifest.training.get("recipe", {}).get("pretrained")),
    )
    with showing(manifest.shown_channels):
        text = render(
            "report.html",
            name=manifest.name,
            scores=scores,
            advice=advice,
            interval=interval,
            class_counts=class_counts,
            class_names=names,
            confusion=confusion(labels, answers.presence).tolist(),
            wrong_count=int((~right).sum()),
            mistakes=_draw(runtime, scores, mistakes, first, labels),
            reconstructions=_reconstructions(runtime, scores),
            is_probability=manifest.presence == "probability",
            png_of=_png_of,
            bars=describe_bins(confidence, right),
            presence_gap=float(confidence.mean() - right.mean()),
        )
    with replacing(target) as file:
        file.write(text.encode())


def _reconstructions(runtime: Runtime, scores: Scores) -> list[dict[str, Any]]:
    """Right answers of all classes, above what the network draws of them."""
    labels = scores.answers.labels
    right = np.flatnonzero(scores.answers.first == labels)
    if "decode" not in runtime.bundle.manifest.offers or not len(right):
        return []
    by_class = [right[labels[right] == label] for label in np.unique(labels[right])]
    each = max(1, MAX_DRAWN // len(by_class))
    rows = np.concatenate([few[:each] for few in by_class])[:MAX_DRAWN]
    return _draw(runtime, scores, rows, labels)


def _draw(
    runtime: Runtime, scores: Scores, rows: NDArray[np.int64], *classes: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Some images, each with its reconstructions as some classes (N,), for the template."""
    names, answers = runtime.bundle.manifest.class_names, scores.answers.at(rows)
    shown_as = np.stack(classes, axis=1)[rows]
    decoded: Any = [()] * len(rows)
    if len(rows) and "decode" in runtime.bundle.manifest.offers:
        decoded = decode_classes(runtime, answers.poses, shown_as)
    return [
        {
            "image": as_floats(answers.images)[number],
            "drawn": [*zip((names[label] for label in shown_as[number]), drawn, strict=False)],
            "label": names[answers.labels[number]],
            "answer": names[answers.first[number]],
            "label_presence": answers.presence[number, answers.labels[number]],
            "answer_presence": answers.presence[number, answers.first[number]],
            "place": scores.places[rows[number]] if scores.places else "",
        }
        for number, drawn in enumerate(decoded)
    ]


def _png_of(image: Floats) -> str:
    """An image (C, H, W), enlarged by whole pixels, as the content of a PNG file."""
    factor = max(1, round(_MIN_PX / image.shape[1]))
    return base64.b64encode(png(enlarge(image, factor))).decode()
