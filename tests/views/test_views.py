"""Views as functions of a network of numpy: what they answer, and what they cost."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.errors import InvalidParameter
from model.outputs import Trace
from model.preprocess import Floats, Prepared
from model.views import NAMES, find_view
from model.views.net import run
from tests.views.numpy_net import MANIFEST, NumpyNet

TOP = np.array([[[0.8, 0.8, 0.4, 0.4], [0.8, 0.8, 0.4, 0.4], [0] * 4, [0] * 4]], np.float32)
NEEDED: dict[str, dict[str, Any]] = {
    "perturb": {"dim": 1, "delta": 0.25},
    "decode": {"pose": [0.5, 0.25], "label": 1},
    "occlusion": {"patch": 2},
    "sweep": {"dims": [0], "start": 0, "stop": 0.2, "step": 0.1},
}
ASKED = [name for name in NAMES if name not in ("segment", "neighbours", "describe")]
"""Those of a network without masks, training images and directions."""


def prepared(image: Floats) -> Prepared:
    """An image that needs no fitting."""
    return Prepared(image, "none", "light-on-dark", None)


def ask(name: str, *images: Floats, net: NumpyNet | None = None, **parameters: Any) -> Any:
    """The answer of a view, without an event loop."""
    view = find_view(name)
    query = view.query.model_validate({**NEEDED.get(name, {}), **parameters})
    return run(view.ask(net or NumpyNet(), query, *map(prepared, images)))


def test_a_pose_is_moved() -> None:
    """Only the dimension that was named, and only in the second picture."""
    answer = ask("perturb", TOP)
    assert (0, "top") == (answer.label, answer.class_name)
    np.testing.assert_allclose([0.8, 0.4], answer.pose)
    np.testing.assert_allclose([0.8, 0.65], answer.perturbed_pose)
    np.testing.assert_allclose(TOP, answer.reconstruction)
    assert pytest.approx(0.65) == float(answer.perturbed[0, 0, 3])


def test_a_reconstruction_of_the_other_class_misses_everything() -> None:
    """The error is the mean square of the image itself."""
    assert 0 == ask("reconstruct", TOP).error
    assert pytest.approx(float(np.square(TOP).mean())) == ask("reconstruct", TOP, target=1).error


def test_a_hidden_half_has_no_presence() -> None:
    """Each patch covers a quarter: those of the other half change nothing."""
    answer = ask("occlusion", TOP)
    assert pytest.approx(0.6) == answer.value
    np.testing.assert_allclose([[-0.4, -0.2], [0.0, 0.0]], answer.map[::3, ::3], atol=1e-6)


def test_votes_for_a_class_agree_with_its_pose() -> None:
    """The heat map is where the image is light."""
    answer = ask("routing", TOP)
    grid = answer.heat_maps.grid[-1, 0]
    assert grid[0, 0] > grid[0, 1] > grid[1, 0] == grid[1, 1] == 0


def test_votes_count_by_activations_where_capsules_have_them() -> None:
    """Those of matrix capsules; the lengths of others are in their votes already."""
    plain, halved = (
        ask("routing", TOP, net=HalfActive(replace(MANIFEST, presence=presence)))
        for presence in ("length", "activation")
    )
    np.testing.assert_allclose(plain.heat_maps.grid / 2, halved.heat_maps.grid)
    np.testing.assert_allclose(plain.iterations[0].agreement, halved.iterations[0].agreement)


def test_frames_lead_from_one_pose_to_the_other() -> None:
    """The first and the last are those of the pictures."""
    answer = ask("morph", TOP, TOP[..., ::-1].copy(), steps=3)
    np.testing.assert_allclose(TOP, answer.frames[0], atol=1e-6)
    np.testing.assert_allclose(TOP[..., ::-1], answer.frames[2], atol=1e-6)


class HalfActive(NumpyNet):
    """Its input capsules have an activation of one half."""

    async def trace(self, image: Floats) -> Trace[Floats]:
        """As the network that it extends."""
        classes = (await super().trace(image)).classes
        return Trace(classes._replace(input_presence=classes.input_presence / np.float32(2)))


def test_poses_are_drawn_side_by_side() -> None:
    """In the order of the query, as large as the scale says."""
    answer = ask("decode", pose=None, poses=[[0.5, 0.25], [1, 0], [0, 0]])
    drawn = Image.open(io.BytesIO(answer.png(2)))
    assert (3 * 4 * 2, 4 * 2) == drawn.size
    assert [64, 255, 0] == [drawn.getpixel((x, 7)) for x in (7, 8, 23)]


@pytest.mark.parametrize("name", ASKED)
def test_no_more_is_computed_than_the_cost_says(name: str) -> None:
    """Admission counts on it."""
    view, net = find_view(name), NumpyNet()
    images = [TOP] * view.pictures[0]
    query = view.query.model_validate(NEEDED.get(name, {}))
    ask(name, *images, net=net)
    assert net.rows <= view.count_rows(query.rows(MANIFEST), len(images))
    assert query.rows(MANIFEST) <= view.query.max_rows


@pytest.mark.parametrize(
    ("name", "parameters", "parameter"),
    [
        ("perturb", {"dim": 2}, "dim"),
        ("reconstruct", {"target": 2}, "target"),
        ("decode", {"pose": [0.5]}, "pose"),
        ("decode", {"label": 2}, "label"),
        ("sweep", {"dims": [2]}, "dims"),
        ("occlusion", {"patch": 5}, "patch"),
        ("classify", {"novelty": True}, "novelty"),
        ("segment", {"count": 3}, "count"),
    ],
)
def test_a_query_is_held_against_the_network(
    name: str, parameters: dict[str, Any], parameter: str
) -> None:
    """Before any picture is read."""
    query = find_view(name).query.model_validate({**NEEDED.get(name, {}), **parameters})
    with pytest.raises(InvalidParameter) as error:
        query.check(MANIFEST)
    assert parameter == error.value.parameter
