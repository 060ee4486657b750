from __future__ import annotations

import io
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.preprocess import scale
from model.runtime import ClassTrace, Runtime
from tests.service.views.answers import answer_of, drawing_of

route = partial(answer_of, "/routing")


@pytest.fixture(scope="module")
def seven(runtime: Runtime, digits: list[bytes]) -> ClassTrace:
    """What the network itself says of the seven."""
    pixels = np.asarray(Image.open(io.BytesIO(digits[7])), np.uint8)
    trace = runtime.trace(scale(pixels[None, None]))
    return ClassTrace(*(values[0] for values in trace.classes))


def test_every_iteration_is_the_network_s_own(
    client: TestClient, digits: list[bytes], seven: ClassTrace
) -> None:
    """Couplings, logits and lengths are those of the routing graph."""
    answer = route(client, digits[7])
    assert 3 == len(answer["iterations"])
    for step, iteration in enumerate(answer["iterations"]):
        assert np.allclose(seven.couplings[step], iteration["couplings"], atol=1e-5)
        assert np.allclose(seven.logits[step], iteration["logits"], atol=1e-5)
        assert np.allclose(seven.presence[step], iteration["lengths"], atol=1e-5)
    assert np.allclose(
        seven.couplings[-1, answer["label"]], answer["votes"]["couplings"], atol=1e-5
    )


def test_the_last_iteration_is_classify_s_answer(client: TestClient, digits: list[bytes]) -> None:
    """Looking at the routing does not change its outcome."""
    answer = route(client, digits[7])
    (prediction,) = client.post("/classify", files={"file": digits[7]}).json()["predictions"]
    assert prediction["label"] == answer["label"]
    assert prediction["lengths"] == pytest.approx(answer["iterations"][-1]["lengths"], abs=1e-5)


def test_nothing_is_decided_at_first(client: TestClient, digits: list[bytes]) -> None:
    """The first couplings are equal: all logits are zero and the entropy is one."""
    first = route(client, digits[7])["iterations"][0]
    assert 1 == pytest.approx(first["entropy"], abs=1e-5)
    assert 0 == np.abs(first["logits"]).max()


def test_heat_maps_add_up_alike(client: TestClient, digits: list[bytes]) -> None:
    """A class's support is the same, summed over the grid or over the capsule types."""
    maps = route(client, digits[7])["heat_maps"]
    grid, types = np.array(maps["grid"]), np.array(maps["types"])
    assert ((3, 10, 6, 6), (3, 10, 2)) == (grid.shape, types.shape)
    assert np.allclose(grid.sum(axis=(2, 3)), types.sum(axis=2), atol=1e-4)


def test_detail_can_be_left_out(client: TestClient, digits: list[bytes]) -> None:
    """Without detail nothing has a number for each input capsule; the rest stays."""
    full, short = route(client, digits[7]), route(client, digits[7], detail=False)
    for iteration in full["iterations"]:
        del iteration["couplings"], iteration["logits"]
    del full["votes"]["points"], full["votes"]["couplings"]
    assert full == short


def test_another_class_can_be_looked_at(client: TestClient, digits: list[bytes]) -> None:
    """The target changes whose votes are shown, not what the network did."""
    own, other = route(client, digits[7]), route(client, digits[7], target=2)
    assert (2, "2") == (other["label"], other["class_name"])
    assert own["iterations"] == other["iterations"]
    assert own["votes"] != other["votes"] or own["label"] == 2


def test_an_unknown_class_is_refused(client: TestClient, digits: list[bytes]) -> None:
    """422 names the target."""
    answer = client.post("/routing", params={"target": 10}, files={"file": digits[7]})
    assert (422, "target") == (answer.status_code, answer.json()["parameter"])


def test_a_blank_picture_can_be_looked_at(client: TestClient) -> None:
    """Nothing to see is no error, in JSON or PNG."""
    file = io.BytesIO()
    Image.new("L", (28, 28)).save(file, "PNG")
    route(client, file.getvalue())
    drawing_of("/routing", client, file.getvalue())


def test_png_has_a_panel_for_each_iteration_and_one_for_the_votes(
    client: TestClient, digits: list[bytes]
) -> None:
    """The drawing is four panels wide."""
    narrow, wide = (drawing_of("/routing", client, digits[7], scale=size).width for size in (6, 8))
    assert 4 * 2 * 28 == wide - narrow
