from __future__ import annotations

from functools import partial

from fastapi.testclient import TestClient

from tests.service.views.answers import answer_of

classify = partial(answer_of, "/classify")


def test_a_photo_is_fitted_and_its_strokes_are_found(client: TestClient, photo: bytes) -> None:
    """The fit tells the polarity as it came and the box of the strokes in the photo."""
    (prediction,) = classify(client, photo)["predictions"]
    left, top, right, bottom = prediction["fit"].pop("box")
    assert {"fit": "digit", "polarity": "dark-on-light"} == prediction["fit"]
    assert 50 <= left < right <= 134
    assert 20 <= top < bottom <= 104


def test_a_bad_picture_is_a_problem_in_its_place(client: TestClient, digits: list[bytes]) -> None:
    """The pictures before and after it are answered as if it were not there."""
    good = classify(client, digits[1], digits[2])["predictions"]
    sent = (digits[1], digits[5][:100], b"", digits[2])
    first, *problems, last = classify(client, *sent)["predictions"]
    assert good == [first, last]
    assert [["problem"], ["problem"]] == [list(one) for one in problems]
    expected = [(422, "urn:capsnet:problem:unreadable-picture")]
    expected += [(400, "urn:capsnet:problem:malformed-request")]
    assert expected == [(one["problem"]["status"], one["problem"]["type"]) for one in problems]


def test_a_bad_picture_alone_is_the_answer(client: TestClient, digits: list[bytes]) -> None:
    """With one picture there is nothing else to answer, so the status says it."""
    answer = client.post("/classify", files={"file": digits[5][:100]})
    assert 422 == answer.status_code
    assert "urn:capsnet:problem:unreadable-picture" == answer.json()["type"]


def test_fit_none_refuses_the_misfits_among_several(
    client: TestClient, digits: list[bytes], photo: bytes
) -> None:
    """A picture of another size is a problem in its place, which names the parameter."""
    good, misfit = classify(client, digits[1], photo, fit="none")["predictions"]
    assert "none" == good["fit"]["fit"]
    assert (422, "fit") == (misfit["problem"]["status"], misfit["problem"]["parameter"])
