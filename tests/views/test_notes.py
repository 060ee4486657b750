"""What limits an answer is in the answer, below its figure and on the list of models."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.bundle.health import MARGIN, Explained
from model.bundle.poses import NeighbourImages
from model.preprocess import Prepared
from model.views import find_view
from model.views.net import run
from tests.extras import CONFIDENCE
from tests.views.numpy_net import MANIFEST, NumpyNet

IMAGE = np.zeros((1, 4, 4), np.float32)
ABSENT = "only the class that an image shows"


def explaining(share: float, pca: float = 0.7) -> Explained:
    """What a pose of two numbers explains, next to PCA."""
    return Explained("images", 100, share, 0.2, {"2": pca}, 2)


def ask(name: str, **facts: Any) -> tuple[list[str], bytes]:
    """The notes of an answer, and its figure, of a network whose manifest has these facts."""
    view, net = find_view(name), NumpyNet(replace(MANIFEST, **facts))
    needed = {"decode": {"pose": [0.5, 0.25], "label": 1}, "perturb": {"dim": 1, "delta": 0.25}}
    query = view.query.model_validate(needed.get(name, {}))
    pictures = [Prepared(IMAGE, "none", "light-on-dark", None)] * view.pictures[0]
    answer = run(view.ask(net, query, *pictures))
    assert answer.dict().get("notes") == answer.notes
    draw = pickle.loads(pickle.dumps(answer.png))  # noqa: S301  its own bytes
    return answer.notes or [], draw()


def test_a_pose_that_explains_less_than_pca_explains_little() -> None:
    """By more than what other images would change."""
    shares = (0.4, 0.7 - MARGIN - 0.001, 0.7 - MARGIN + 0.001, 0.9)
    assert [True, True, False, False] == [explaining(share).is_low for share in shares]


@pytest.mark.parametrize(("threshold", "is_noted"), [(0.6, True), (0.4, False)])
def test_sets_that_are_the_top_label_alone_are_said_to_add_nothing(
    threshold: float, *, is_noted: bool
) -> None:
    """No second label reaches more than one half; without `coverage` nothing is said."""
    manifest = replace(MANIFEST, confidence=replace(CONFIDENCE, thresholds=((threshold,) * 3,)))
    view, picture = find_view("classify"), Prepared(IMAGE, "none", "light-on-dark", None)
    answers = [
        run(view.ask(NumpyNet(manifest), view.query.model_validate(query), picture))
        for query in ({"coverage": 0.9}, {})
    ]
    assert [is_noted, False] == [bool(answer.notes) for answer in answers]


def test_where_a_pose_explains_less_than_half_other_views_are_named() -> None:
    """Each view that draws poses says so, and what would help; `/models` has the same sentences."""
    weak = explaining(0.31, pca=0.3)
    (note,) = ask("reconstruct", explained=weak)[0]
    assert "explains only 31 % of the variance of images, so what it draws says little" in note
    assert "instead. To improve it, train with more images" in note
    for name, expected in (("perturb", [note]), ("sweep", [note]), ("occlusion", [])):
        assert expected == find_view(name).notes_on(replace(MANIFEST, explained=weak))
    shown = NeighbourImages("4 training images", "yours", "folder pets")
    for neighbours, expected in ((shown, []), (replace(shown, licence=""), [note])):
        offers = (*MANIFEST.offers, "neighbours")
        manifest = replace(MANIFEST, explained=weak, neighbours=neighbours, offers=offers)
        assert expected == find_view("neighbours").notes_on(manifest)


@pytest.mark.parametrize("name", ["sweep", "rivals"])
def test_a_figure_has_the_notes_below(name: str) -> None:
    """The figure above them is the same as without."""
    notes, figure = ask(name, explained=explaining(0.6))
    assert "only 60 % of the variance of images; PCA of the same class with" in notes[0]
    silent, plain = ask(name, explained=explaining(0.8))
    assert [] == silent
    large, small = (Image.open(io.BytesIO(png)).convert("RGB") for png in (figure, plain))
    assert large.width == small.width
    assert large.height > small.height
    assert large.crop((0, 0, *small.size)).tobytes() == small.tobytes()


def test_rivals_say_that_absent_classes_were_never_trained() -> None:
    """The recipe in the bundle tells; the figure says so too."""
    notes, figure = ask("rivals", training={"recipe": {}, "runs": []})
    assert ABSENT in notes[0]
    _, plain = ask("rivals", training={"recipe": {"task": "pairs"}, "runs": []})
    high, low = (Image.open(io.BytesIO(png)).height for png in (figure, plain))
    assert high > low
