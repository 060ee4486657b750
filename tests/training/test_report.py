"""A folder that training never saw, its score, and the report on it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from model.bundle import CARD, Bundle, write_manifest
from model.runtime import Runtime
from tests.training.published import say_training
from training.__main__ import app
from training.answers import Recall
from training.data.folder import load_unseen
from training.data.source import DatasetError
from training.evaluate import evaluate
from training.provenance import TEST_READS
from training.recipes import Recipe
from training.report import advise, write_report
from training.training_data import load_pictures


def tell(*recalls: Recall, **facts: int) -> str:
    """The advice for recalls, and for 50 training pictures of each class or other facts."""
    count = len(recalls)
    labels = np.repeat(np.arange(count), [recall.images for recall in recalls])
    answers = np.concatenate(
        [
            np.where(np.arange(recall.images) < recall.right, label, (label + 1) % count)
            for label, recall in enumerate(recalls)
        ]
    )
    names = [recall.class_name for recall in recalls]
    pictures = {name: facts.get(name, 50) for name in names}
    presence = np.eye(count, dtype=np.float32)[answers]
    return " ".join(advise(labels, presence, names, pictures=pictures, size_px=32))


@pytest.mark.parametrize(
    ("right", "images", "advised"),
    [
        ((0, 1), (1, 1), True),
        ((12, 13), (20, 20), False),
        ((12, 10), (20, 20), True),
        ((10, 14), (20, 20), True),
        ((0, 3), (1, 3), True),
    ],
)
def test_guessing_is_said_where_it_is_hardly_worse(
    right: tuple[int, int], images: tuple[int, int], *, advised: bool
) -> None:
    """Guessing is the most frequent label for all."""
    recalls = [Recall(name, *counts) for name, *counts in zip("ab", right, images, strict=True)]
    assert advised == ("hardly better than guessing" in tell(*recalls))


def test_few_pictures_need_more_of_them_not_more_pixels() -> None:
    """Of the worst class first; a larger size is for many pictures."""
    few = tell(Recall("cat", 8, 10), Recall("dog", 9, 10))
    assert "Add pictures of each class, of cat first" in few
    assert "A larger --size rarely helps so few" in few
    many = tell(Recall("cat", 8, 10), Recall("dog", 9, 10), cat=900, dog=800)
    assert "try a --size above 32" in many
    assert "Add pictures" not in many


def test_the_rarest_class_comes_first() -> None:
    """Where it has less than half as many pictures as the largest one."""
    told = tell(Recall("cat", 8, 10), Recall("dog", 9, 10), cat=900, dog=12)
    assert "Add pictures of dog first: it has 12 training pictures" in told


def test_a_network_with_few_errors_is_ready() -> None:
    """On enough pictures; what to watch is said, and no more pictures are asked for."""
    told = tell(Recall("cat", 124, 125), Recall("dog", 124, 124))
    assert told.startswith("Ready to be used: 1 of 249 wrong. Watch pictures of other cameras")
    assert "Add pictures" not in told
    assert "Ready" not in tell(Recall("cat", 24, 24), Recall("dog", 24, 24))
    assert "Ready" not in tell(Recall("cat", 115, 125), Recall("dog", 124, 124))


def fill(folder: Path, *, seed: int, count: int = 12) -> Path:
    """Grey noise of two digits, the second one lighter."""
    rng = np.random.default_rng(seed)
    for place, name in enumerate("01"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = rng.integers(0, 100, (28, 28), np.uint8) + np.uint8(100 * place)
            Image.fromarray(pixels).save(folder / name / f"{seed}-{number}.png")
    return folder


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder that the bundle learnt."""
    return fill(tmp_path / "shades", seed=0)


@pytest.fixture
def shades(bundle_path: Path, trained: Path, tmp_path: Path) -> Bundle:
    """A bundle that learnt the folder."""
    pictures = load_pictures(Recipe("tiny"), trained)[1].split
    assert pictures is not None
    bundle = say_training(bundle_path, tmp_path / "bundles" / "shades", dataset="shades")
    counts = (*pictures.class_counts, *[0] * 8)
    described = pictures.model_copy(update={"class_counts": counts}).model_dump(mode="json")
    training = {**bundle.manifest.training, "pictures": described}
    write_manifest(bundle.path, replace(bundle.manifest, dataset="shades", training=training))
    return Bundle.open(bundle.path)


def test_new_pictures_are_scored_and_recorded(shades: Bundle, tmp_path: Path) -> None:
    """The score of a folder's network is that of new pictures, with the recall of each class."""
    scores = evaluate(shades, tmp_path, folder=fill(tmp_path / "new", seed=1))
    metrics = Bundle.open(shades.path).manifest.metrics
    assert (24, scores.errors) == (metrics["test_images"], metrics["test_errors"])
    assert "24 pictures of a folder, none of which training saw" in metrics["protocol"]
    recalls = {name: (right, images) for name, right, images in metrics["recalls"]}
    assert {"0": 12, "1": 12} == {name: images for name, (_, images) in recalls.items()}
    assert 24 - scores.errors == sum(right for right, _ in recalls.values())
    shares = [right / images for right, images in recalls.values()]
    assert sorted(shares) == shares
    (read,) = map(json.loads, (shades.path.parent / TEST_READS).read_text().splitlines())
    assert scores.errors == read["errors"]
    card = (shades.path / CARD).read_text()
    assert "| class, the worst first | answered right | training pictures |" in card
    assert "of 24 test images" in card


def test_pictures_that_training_saw_are_left_out(
    shades: Bundle, trained: Path, tmp_path: Path
) -> None:
    """Whatever their names: those that were trained on, and those that chose the weights."""
    new = fill(tmp_path / "new", seed=1, count=3)
    for file in trained.glob("0/*.png"):
        (new / "1" / f"copy-{file.name}").write_bytes(file.read_bytes())
    pictures, notices = load_unseen(shades.manifest, new)
    assert pictures.places is not None
    assert 6 == len(pictures.places)
    assert not [place for place in pictures.places if "copy" in place]
    counts = [int(re.findall(r"left out (\d+)", notice)[0]) for notice in notices]
    assert [10, 2] == sorted(counts, reverse=True)
    assert "pictures that training learnt from: 1/copy-" in " ".join(notices)


def test_a_folder_that_training_saw_is_refused(
    shades: Bundle, trained: Path, tmp_path: Path
) -> None:
    """Nothing is left to score, and nothing is recorded."""
    with pytest.raises(DatasetError, match="training saw all 24 pictures"):
        evaluate(shades, tmp_path, folder=trained)
    assert not (shades.path.parent / TEST_READS).exists()


def test_a_folder_of_other_classes_is_refused(shades: Bundle, tmp_path: Path) -> None:
    """The message names both."""
    (fill(tmp_path / "new", seed=1) / "1").rename(tmp_path / "new" / "one")
    with pytest.raises(DatasetError, match=r"one in .*: no class of mnist, whose classes are 0, 1"):
        load_unseen(shades.manifest, tmp_path / "new")


class Page(HTMLParser):
    """The titles, addresses and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.tags, self.text = list[str](), list[str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a tag and what it refers to."""
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.text += f" {data.strip()}"


def test_a_report_is_one_file(shades: Bundle, tmp_path: Path) -> None:
    """All sections, the pictures inlined, the files of mistakes named; nothing is loaded."""
    new, target = fill(tmp_path / "new <1>", seed=1), tmp_path / "report.html"
    options = ["evaluate", str(shades.path), "--data", str(new), "--report", str(target)]
    result = CliRunner().invoke(app, options)
    assert (0, True) == (result.exit_code, "wrote " in result.output)
    text = target.read_text()
    page = Page(text)
    for title in ("What to do next", "Recall", "Confusion", "Worst mistakes", "Reliability"):
        assert title in page.text
    scores = evaluate(shades, tmp_path, folder=new)
    assert scores.headline() in page.text
    assert len(page.links) >= 2 * scores.errors
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not {"script", "link", "iframe"} & set(page.tags)
    wrong = np.flatnonzero(scores.answers.first != scores.answers.labels)
    presence, places = scores.answers.presence[wrong], scores.answers.places
    assert places is not None
    of_label = np.take_along_axis(presence, scores.answers.labels[wrong, None], axis=1)[:, 0]
    order = wrong[np.argsort(of_label - presence.max(axis=1), kind="stable")]
    named = [page.text.index(places[row]) for row in order]
    assert 0 < len(named) <= 24
    assert sorted(named) == named


def test_a_report_escapes_the_words_of_others(shades: Bundle, tmp_path: Path) -> None:
    """Names of classes and files, notices, and what a downloaded manifest says."""
    mark = "<script>alert(1)</script>"
    scores = evaluate(shades, tmp_path, folder=fill(tmp_path / "new", seed=1))
    names = tuple(f"{mark}{digit}" for digit in range(10))
    hostile = replace(
        scores,
        protocol=mark,
        recalls=tuple(recall._replace(class_name=mark) for recall in scores.recalls),
        answers=replace(scores.answers, places=np.full(24, mark)),
        notices=(mark,),
    )
    manifest = replace(shades.manifest, class_names=names)
    target = tmp_path / "report.html"
    write_report(Runtime(Bundle(shades.path, manifest)), hostile, target)
    assert "script" not in Page(target.read_text()).tags
    assert mark in Page(target.read_text()).text


def test_held_out_pictures_are_found_where_the_folder_is_now(
    shades: Bundle, trained: Path, tmp_path: Path
) -> None:
    """They are missed where it was. A folder's only scores are kept, with a name of their own."""
    moved = trained.rename(tmp_path / "moved")
    with pytest.raises(DatasetError):
        evaluate(shades, tmp_path, split="validation")
    evaluate(shades, tmp_path, split="validation", folder=moved)
    assert 4 == Bundle.open(shades.path).manifest.metrics["validation_images"]
    assert "of 4 held-out images" in (shades.path / CARD).read_text()
    with pytest.raises(DatasetError, match="no test split"):
        evaluate(shades, tmp_path)
