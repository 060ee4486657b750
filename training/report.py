"""A report of a network's answers to pictures, one HTML file, and what to do next."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
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

BARELY_LEARNT = 0.8
"""Errors, as a share of those of a constant answer, from which a network has barely learnt."""
FEW, ENOUGH = 100, 500
"""Below so many training pictures of a class they are few; from so many on, details are learnt."""
READY = 0.02
"""Up to this share of wrong answers, on enough images, a network is ready to be used."""
FEW_SCORED = 100
"""An error on fewer images has a wide interval."""
MAX_MISTAKES, MAX_DRAWN = 24, 12
"""The largest numbers of mistakes and of right answers that are shown."""
_NOTHING = "Nothing stands out. Score pictures from where the network will be used."
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
) -> Iterator[str]:
    """Yield what helps, the surest first, as sentences.

    Args:
        labels: (N,) of the scored images.
        presence: (N, K), the answers to them.
        pictures: the number of training pictures of each class; empty where it is unknown.
        size_px: the longest side of the network's images.
        pretrained: whether its stem's weights are published ones.
    """
    worst, *others = recalls(labels, presence, class_names)
    images, right = len(labels), sum(recall.right for recall in (worst, *others))
    error, guess = 1 - right / images, 1 - np.bincount(labels).max() / images
    if error >= BARELY_LEARNT * guess:
        yield (
            f"That is hardly better than guessing ({100 * guess:.0f} %). Look at preview.png in "
            "the folder of the run: can you tell the classes apart at this size? Where colour does "
            "not tell the classes apart, --channels 1 helps; so may more epochs, --set epochs=..."
        )
    is_ready = images >= FEW_SCORED and error <= READY < guess
    if is_ready:
        yield (
            f"Ready to be used: {images - right:,} of {images:,} wrong. Watch pictures of other "
            "cameras, light and backgrounds, and of things that are none of the classes: it "
            "answers those with a class, too."
        )
    least, most = min(pictures.values(), default=0), max(pictures.values(), default=0)
    if 2 * least < most:
        rare = min(pictures, key=lambda name: pictures[name])
        yield (
            f"Add pictures of {rare} first: it has {least:,} training pictures, the largest class "
            f"has {most:,}."
        )
    elif error and not is_ready and 0 < least < FEW:
        stem = "" if pretrained else " Of photographs, --stem pretrained helps, too."
        yield (
            f"Add pictures of each class, of {worst.class_name} first: with {least:,} training "
            f"pictures of a class, more of them help most. A larger --size rarely helps so "
            f"few.{stem}"
        )
    elif error and not is_ready and least >= ENOUGH:
        yield f"Where details tell the classes apart, try a --size above {size_px}."
    if confused := most_confused(labels, presence, class_names):
        own, other, count = confused
        yield (
            f"{own} is taken for {other} most often ({count:,} times): look at these pictures. Are "
            "they in the right folder? What would tell them apart?"
        )
    if images < FEW_SCORED:
        yield (
            f"{images:,} pictures measure an error roughly: score new ones with `python -m "
            "training evaluate BUNDLE --data TESTFOLDER`."
        )


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
            advice=list(advice) or [_NOTHING],
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
