"""A report of a network's answers to pictures: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.atomic_file import replacing
from model.canvas import enlarge, png, showing
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.presence import most_present
from training.advice import advise
from training.answers import confusion, most_confused
from training.evaluate import Answers, Scores
from training.statistics import interval

MAX_MISTAKES, MAX_DRAWN = 24, 12
"""The largest numbers of mistakes and of right answers that are shown."""
_BINS = 10
_MIN_PX = 96
"""Images are enlarged by whole pixels until they are about this high."""


def write_report(runtime: Runtime, scores: Scores, target: Path) -> None:
    """Write the report of a score on single images.

    Raises:
        ValueError: the score is of pairs.
    """
    if scores.answers is None:
        raise ValueError("a report is of single images, not of pairs")
    manifest, answers = runtime.bundle.manifest, scores.answers
    with showing(manifest.shown_channels):
        sections = {
            "What to do next": _advice(manifest, scores, answers),
            "Recall of each class": _recalls(manifest, scores),
            "Confusion": _confusion(manifest, answers),
            "Worst mistakes": _mistakes(runtime, answers),
            "Reliability": _reliability(manifest, answers),
            "Reconstructions": _reconstructions(runtime, answers),
            "How this was measured": _protocol(scores, answers),
        }
    body = "\n".join(
        f"<section><h2>{title}</h2>\n{text}</section>" for title, text in sections.items() if text
    )
    text = _PAGE.substitute(
        title=escape(manifest.name), headline=escape(scores.headline()), body=body, style=_STYLE
    )
    with replacing(target) as file:
        file.write(text.encode())


def _advice(manifest: Manifest, scores: Scores, answers: Answers) -> str:
    labels, names = answers.examples.labels, manifest.class_names
    counts = manifest.training.get("pictures", {}).get("class_counts", ())
    sentences = advise(
        labels,
        scores.recalls,
        pictures=dict(zip(names, counts, strict=True)) if counts else {},
        size_px=max(manifest.height, manifest.width),
        confused=most_confused(labels, answers.presence, names),
    )
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    if not items:
        return "<p>Nothing stands out. Score pictures from where the network will be used.</p>"
    return f"<ol>{items}</ol>"


def _recalls(manifest: Manifest, scores: Scores) -> str:
    """Bars with 95 % intervals, the lowest first."""
    counts = manifest.training.get("pictures", {}).get("class_counts", ())
    trained = dict(zip(manifest.class_names, counts, strict=False))
    rows = []
    for name, right, images in scores.recalls:
        high, low = (100 - bound for bound in interval(images - right, images))
        share = 100 * right / images
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th><td class="bar">'
            f'<div style="width:{share:.1f}%"></div></td><td>{share:.0f} %</td>'
            f"<td>{right:,} of {images:,}</td><td>{low:.0f} to {high:.0f} %</td>"
            f"<td>{trained.get(name, '')}</td></tr>"
        )
    head = "<tr><th>class</th><th></th><th>recall</th><th>right</th><th>95 % interval</th>"
    head += "<th>training pictures</th></tr>" if trained else "<th></th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _confusion(manifest: Manifest, answers: Answers) -> str:
    """Counts by true class and answer; the darker, the larger the share of the true class."""
    names = manifest.class_names
    counts = confusion(answers.examples.labels, _first(answers), len(names))
    rows = []
    for label, (name, row) in enumerate(zip(names, counts.tolist(), strict=True)):
        cells = "".join(
            f'<td class="{"right" if label == other else "wrong"}" '
            f'style="--share:{100 * count / max(1, sum(row)):.0f}%">{count or ""}</td>'
            for other, count in enumerate(row)
        )
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    head = "".join(f'<th class="answer"><span>{escape(name)}</span></th>' for name in names)
    return (
        "<p>Rows are true classes, columns are answers.</p>"
        f'<div class="wide"><table class="confusion"><tr><th></th>{head}</tr>{"".join(rows)}'
        "</table></div>"
    )


def _mistakes(runtime: Runtime, answers: Answers) -> str:
    """The wrong answers with the highest presence, next to what the network draws of them."""
    labels, first = answers.examples.labels, _first(answers)
    wrong = np.flatnonzero(first != labels)
    if not len(wrong):
        return "<p>None: all answers are right.</p>"
    lead = answers.presence[wrong, first[wrong]] - answers.presence[wrong, labels[wrong]]
    shown = wrong[np.argsort(-lead, kind="stable")][:MAX_MISTAKES]
    classes = np.stack((first[shown], labels[shown]), axis=1)
    figures = _draw(runtime, answers, shown, classes, lambda name: f"as {name}")
    return (
        f"<p>The {len(shown):,} most confident of {len(wrong):,} wrong answers, with the presence "
        "of the answer and of the true class.</p>"
        f'<div class="pictures">{"".join(figures)}</div>'
    )


def _reconstructions(runtime: Runtime, answers: Answers) -> str:
    """Right answers of all classes, above what the network draws of them."""
    if "decode" not in runtime.bundle.manifest.offers:
        return ""
    labels = answers.examples.labels
    right = np.flatnonzero(_first(answers) == labels)
    if not len(right):
        return ""
    own = [right[labels[right] == label] for label in np.unique(labels[right])]
    each = max(1, MAX_DRAWN // len(own))
    rows = np.concatenate([few[:each] for few in own])[:MAX_DRAWN]
    figures = _draw(runtime, answers, rows, labels[rows, None], lambda _: "drawn")
    return (
        "<p>Pictures with right answers, and what the network draws of the pose of the class. "
        "What the drawing lacks, the pose does not contain.</p>"
        f'<div class="pictures">{"".join(figures)}</div>'
    )


def _draw(
    runtime: Runtime,
    answers: Answers,
    rows: NDArray[np.int64],
    classes: NDArray[np.int64],
    caption: Callable[[str], str],
) -> Iterator[str]:
    """Figures of some images, each with its reconstruction as some classes (N, L)."""
    names = runtime.bundle.manifest.class_names
    images, labels = scale(answers.examples.images[rows]), answers.examples.labels[rows]
    decoded: Floats | None = None
    if "decode" in runtime.bundle.manifest.offers:
        poses = runtime.encode(images).poses
        rows_of = np.arange(len(images))
        decoded = np.stack([runtime.decode(poses[rows_of, own], own) for own in classes.T])
    first = _first(answers)[rows]
    for place, (row, image) in enumerate(zip(rows.tolist(), images, strict=True)):
        parts = [(image, "picture")]
        if decoded is not None:
            parts += [
                (drawn[place], caption(names[label]))
                for drawn, label in zip(decoded, classes[place], strict=True)
            ]
        shown = "".join(_picture(part, text) for part, text in parts)
        label, answer = int(labels[place]), int(first[place])
        text = f"<b>{escape(names[label])}</b>"
        if label != answer:
            text += (
                f" {answers.presence[row, label]:.2f}, answered "
                f'<b class="mistake">{escape(names[answer])}</b> '
                f"{answers.presence[row, answer]:.2f}"
            )
        if answers.places:
            text += f"<br><small>{escape(answers.places[row])}</small>"
        yield f"<figure><div>{shown}</div><figcaption>{text}</figcaption></figure>"


def _picture(image: Floats, text: str) -> str:
    """An image (C, H, W), inlined."""
    _, height, width = image.shape
    factor = max(1, round(_MIN_PX / height))
    data = base64.b64encode(png(enlarge(image, factor))).decode()
    return (
        f'<span><img src="data:image/png;base64,{data}" width="{width * factor}" '
        f'height="{height * factor}" alt="{escape(text)}"><small>{escape(text)}</small></span>'
    )


def _reliability(manifest: Manifest, answers: Answers) -> str:
    """How often answers of some presence are right, as an SVG."""
    first = _first(answers)
    presence = answers.presence[np.arange(len(first)), first]
    right = first == answers.examples.labels
    bins = np.minimum((presence * _BINS).astype(int), _BINS - 1)
    bars, size = [], 260
    for place in range(_BINS):
        own = bins == place
        if not own.any():
            continue
        share, mean = float(right[own].mean()), float(presence[own].mean())
        step, height = size / _BINS, share * size
        bars.append(
            f'<rect x="{place * step + 1:.1f}" y="{size - height:.1f}" width="{step - 2:.1f}" '
            f'height="{height:.1f}"><title>{int(right[own].sum()):,} of {int(own.sum()):,} right '
            f"at a mean presence of {mean:.2f}</title></rect>"
            f'<text x="{(place + 0.5) * step:.1f}" y="{size - height - 4:.1f}">{int(own.sum()):,}'
            "</text>"
        )
    gap = float(np.mean(presence) - np.mean(right))
    meaning = "a probability" if manifest.presence == "probability" else "no probability"
    return (
        f'<svg viewBox="-34 -18 312 318" width="390" role="img" aria-label="Share of right answers '
        f'by presence"><line x1="0" y1="{size}" x2="{size}" y2="0"/>{"".join(bars)}'
        f'<path d="M0 0V{size}H{size}"/><text x="{size / 2}" y="{size + 32}">presence of the answer'
        f'</text><text x="0" y="{size + 15}">0</text><text x="{size}" y="{size + 15}">1</text>'
        f'<text x="-12" y="{size}">0</text><text x="-12" y="6">1</text>'
        f'<text transform="translate(-22 {size / 2}) rotate(-90)">share right</text></svg>'
        f"<p>Bars show the share of right answers by presence, numbers how many answers. On the "
        f"line, presence would be the share of right answers. Presence is {meaning}: on average "
        f"it is {abs(gap):.2f} {'above' if gap > 0 else 'below'} that share. Choose the presence "
        "below which you do not trust an answer from the bars.</p>"
    )


def _protocol(scores: Scores, answers: Answers) -> str:
    protocol = f"{scores.protocol[:1].upper()}{scores.protocol[1:]}."
    items = "".join(f"<li>{escape(notice)}</li>" for notice in answers.notices)
    return f"<p>{escape(protocol)}</p>" + (f"<ul>{items}</ul>" if items else "")


def _first(answers: Answers) -> NDArray[np.int64]:
    """The most present class of each image (N,)."""
    return np.asarray(most_present(answers.presence, 1)[:, 0])


_STYLE = """
:root { color-scheme: light dark; --accent: light-dark(#bc4c00, #ffa657);
  --bar: light-dark(#3b6ea5, #6ea8dc); --line: light-dark(#d0d7de, #444c56) }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
.headline { font-size: 1.25rem; margin-top: .25rem }
table { border-collapse: collapse } td, th { padding: .2rem .6rem; text-align: right }
th[scope=row] { text-align: left; font-weight: 600; white-space: nowrap }
.bar { width: 16rem; padding: 0 } .bar div { background: var(--bar); height: 1rem }
.wide { overflow-x: auto } .confusion td { border: 1px solid var(--line); min-width: 2rem }
.confusion .right { background: color-mix(in srgb, var(--bar) var(--share), transparent) }
.confusion .wrong { background: color-mix(in srgb, var(--accent) var(--share), transparent) }
.answer { vertical-align: bottom } .answer span { writing-mode: vertical-rl; rotate: 180deg }
.pictures { display: grid; gap: 1.25rem;
  grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)) }
figure { margin: 0 } figure div { display: flex; gap: .25rem }
figure span { display: grid; text-align: center } img { image-rendering: pixelated }
small { color: light-dark(#57606a, #9da7b1) } figcaption { max-width: 20rem }
.mistake { color: var(--accent) }
svg rect { fill: var(--bar) } svg text { font-size: 12px; fill: currentColor; text-anchor: middle }
svg path, svg line { stroke: currentColor; fill: none } svg line { stroke-dasharray: 4 }
"""
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title: report</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
<p class="headline">$headline</p>
$body
</body>
</html>
""")
