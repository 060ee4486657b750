"""A report of a network's answers to pictures, one HTML file, and what to do next."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

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

MAX_MISTAKES = 24
"""The largest number of mistakes that are shown."""
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
    names, labels = manifest.class_names, answers.labels
    counts = manifest.training.get("pictures", {}).get("class_counts", ())
    class_counts = dict(zip(names, counts, strict=False))
    right, confidence = answers.first == labels, answers.presence.max(axis=1).astype(np.float64)
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
            mistakes=_draw_mistakes(runtime, scores),
            is_probability=manifest.presence == "probability",
            png_of=_png_of,
            bars=describe_bins(confidence, right),
            presence_gap=float(confidence.mean() - right.mean()),
        )
    with replacing(target) as file:
        file.write(text.encode())


def _draw_mistakes(runtime: Runtime, scores: Scores) -> list[dict[str, Any]]:
    """The most confident wrong answers, each drawn as its class and as the answer."""
    names, answers = runtime.bundle.manifest.class_names, scores.answers
    both = np.stack((answers.first, answers.labels), axis=1)  # (N, 2)
    presence = np.take_along_axis(answers.presence, both, axis=1)
    worst_first = np.argsort(presence[:, 1] - presence[:, 0], kind="stable")
    rows = worst_first[both[worst_first, 0] != both[worst_first, 1]][:MAX_MISTAKES]
    drawn: Any = [()] * len(rows)
    if len(rows) and "decode" in runtime.bundle.manifest.offers:
        drawn = decode_classes(runtime, answers.poses[rows], both[rows])
    return [
        {
            "image": as_floats(answers.images[row]),
            "drawn": [*zip((names[label] for label in both[row]), images, strict=False)],
            "answer": names[both[row, 0]],
            "label": names[both[row, 1]],
            "answer_presence": presence[row, 0],
            "label_presence": presence[row, 1],
            "place": "" if answers.places is None else answers.places[row],
        }
        for row, images in zip(rows, drawn, strict=True)
    ]


def _png_of(image: Floats) -> str:
    """An image (C, H, W), enlarged by whole pixels, as the content of a PNG file."""
    factor = max(1, round(_MIN_PX / image.shape[1]))
    return base64.b64encode(png(enlarge(image, factor))).decode()
