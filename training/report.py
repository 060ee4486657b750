"""A report of a network's answers to pictures, one HTML file, and what to do next."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from model import open_bundle
from model.bundle.disk import replacing
from model.canvas import enlarge, png, showing
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.net import most_present
from training.answers import Labels, Recall, confusion, most_confused, recalls
from training.card import render
from training.command import DATA_DIR, BundleName, DataDir, SkipUnreadable, app, console
from training.confidence import describe_bins
from training.data.pairs import PUBLISHED_PAIRS, TEST_PAIRS
from training.device import open_runtime
from training.evaluate import Answers, ScoredSplit, Scores, evaluate, score_folder
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
    if target and scores.answers:
        write_report(open_runtime(opened), scores, target)
        console.print(f"wrote {target}")


def write_report(runtime: Runtime, scores: Scores, target: Path) -> None:
    """Write the report of a score on single images.

    Raises:
        ValueError: the score is of pairs.
    """
    if scores.answers is None:
        raise ValueError("a report is of single images, not of pairs")
    manifest, answers = runtime.bundle.manifest, scores.answers
    names, labels = manifest.class_names, answers.examples.labels
    counts = manifest.training.get("pictures", {}).get("class_counts", ())
    class_counts = dict(zip(names, counts, strict=False))
    first = _first(answers)
    wrong, right = _worst_first(answers), first == labels
    confidence = answers.presence[np.arange(len(first)), first].astype(np.float64)
    mistakes = wrong[:MAX_MISTAKES]
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
            headline=scores.headline(),
            advice=list(advice) or [_NOTHING],
            recalls=[_describe_recall(recall) for recall in scores.recalls],
            class_counts=class_counts,
            class_names=names,
            confusion=confusion(labels, first, len(names)).tolist(),
            wrong_count=len(wrong),
            mistakes=_draw(
                runtime,
                answers,
                mistakes,
                classes=np.stack((first[mistakes], labels[mistakes]), axis=1),
                caption="as {}".format,
            ),
            reconstructions=_reconstructions(runtime, answers),
            is_probability=manifest.presence == "probability",
            protocol=scores.protocol,
            notices=answers.notices,
            png_of=_png_of,
            bars=describe_bins(confidence, right),
            presence_gap=float(confidence.mean() - right.mean()),
        )
    with replacing(target) as file:
        file.write(text.encode())


def _describe_recall(recall: Recall) -> dict[str, Any]:
    high, low = (100 - bound for bound in interval(recall.images - recall.right, recall.images))
    percent = 100 * recall.right / recall.images
    return {**recall._asdict(), "percent": percent, "interval": (low, high)}


def _worst_first(answers: Answers) -> NDArray[np.int64]:
    """The rows of wrong answers, those first that are the most confident."""
    labels, first = answers.examples.labels, _first(answers)
    wrong = np.flatnonzero(first != labels)
    lead = answers.presence[wrong, first[wrong]] - answers.presence[wrong, labels[wrong]]
    return np.asarray(wrong[np.argsort(-lead, kind="stable")])


def _reconstructions(runtime: Runtime, answers: Answers) -> list[dict[str, Any]]:
    """Right answers of all classes, above what the network draws of them."""
    labels = answers.examples.labels
    right = np.flatnonzero(_first(answers) == labels)
    if "decode" not in runtime.bundle.manifest.offers or not len(right):
        return []
    by_class = [right[labels[right] == label] for label in np.unique(labels[right])]
    each = max(1, MAX_DRAWN // len(by_class))
    rows = np.concatenate([few[:each] for few in by_class])[:MAX_DRAWN]
    return _draw(runtime, answers, rows, classes=labels[rows, None], caption=lambda _: "drawn")


def _draw(
    runtime: Runtime,
    answers: Answers,
    rows: NDArray[np.int64],
    *,
    classes: NDArray[np.int64],
    caption: Callable[[str], str],
) -> list[dict[str, Any]]:
    """Some images, each with its reconstruction as some classes (N, L), for the template."""
    if not len(rows):
        return []
    names = runtime.bundle.manifest.class_names
    images, labels = scale(answers.examples.images[rows]), answers.examples.labels[rows]
    drawn = list[Floats]()
    if "decode" in runtime.bundle.manifest.offers:
        poses = runtime.encode(images).poses
        every = np.arange(len(images))
        drawn = [runtime.decode(poses[every, column], column) for column in classes.T]
    described = []
    for number, (row, label, answer) in enumerate(
        zip(rows.tolist(), labels.tolist(), _first(answers)[rows].tolist(), strict=True)
    ):
        parts = [{"image": images[number], "text": "picture"}]
        parts += [
            {"image": column[number], "text": caption(names[shown_as])}
            for column, shown_as in zip(drawn, classes[number], strict=False)
        ]
        described.append(
            {
                "parts": parts,
                "label": names[label],
                "answer": names[answer],
                "label_presence": answers.presence[row, label],
                "answer_presence": answers.presence[row, answer],
                "place": answers.places[row] if answers.places else "",
            }
        )
    return described


def _png_of(image: Floats) -> str:
    """An image (C, H, W), enlarged by whole pixels, as the content of a PNG file."""
    factor = max(1, round(_MIN_PX / image.shape[1]))
    return base64.b64encode(png(enlarge(image, factor))).decode()


def _first(answers: Answers) -> NDArray[np.int64]:
    """The most present class of each image (N,)."""
    return np.asarray(most_present(answers.presence, 1)[:, 0])
