from __future__ import annotations

import io
import threading
from functools import partial
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.views.classify import ClassifyAnswer
from tests.service.views.answers import answer_of

classify = partial(answer_of, "/classify")


@pytest.mark.parametrize("images", [1, 5])
def test_many_predictions_are_formed_off_the_event_loop(
    client: TestClient, digits: list[bytes], monkeypatch: pytest.MonkeyPatch, images: int
) -> None:
    """Others are served meanwhile: 256 with poses take tens of milliseconds."""
    threads: set[str] = set()
    form = ClassifyAnswer.model_dump_json

    def record(*args: Any, **kwargs: Any) -> str:
        threads.add(threading.current_thread().name)
        return form(*args, **kwargs)

    monkeypatch.setattr(ClassifyAnswer, "model_dump_json", record)
    assert images == len(classify(client, *[digits[3]] * images, poses=True)["predictions"])
    (thread,) = threads
    assert (images > 4) == thread.startswith("slow_")


def test_a_photo_is_fitted_and_its_strokes_are_found(client: TestClient, photo: bytes) -> None:
    """The fit tells the polarity as it came and the box of the strokes in the photo."""
    (prediction,) = classify(client, photo)["predictions"]
    left, top, right, bottom = prediction["fit"].pop("box")
    assert {"fit": "digit", "polarity": "dark-on-light"} == prediction["fit"]
    assert 50 <= left < right <= 134
    assert 20 <= top < bottom <= 104


@pytest.mark.parametrize("fit", ["stretch", "digit"])
def test_the_fit_can_be_chosen(fit: str, client: TestClient, photo: bytes) -> None:
    """The answer does what was asked for, and says so."""
    (prediction,) = classify(client, photo, fit=fit)["predictions"]
    assert fit == prediction["fit"]["fit"]


def test_the_polarity_can_be_chosen(client: TestClient, digits: list[bytes]) -> None:
    """Taken the other way round, a digit is another picture."""
    right, wrong = (
        classify(client, digits[7], polarity=polarity)["predictions"][0]
        for polarity in ("light-on-dark", "dark-on-light")
    )
    assert "dark-on-light" == wrong["fit"]["polarity"]
    assert right["lengths"] != wrong["lengths"]


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


def test_all_bad_pictures_are_problems_in_their_places(
    client: TestClient, digits: list[bytes]
) -> None:
    """Several pictures are answered even where none can be read."""
    predictions = classify(client, b"text", digits[5][:100])["predictions"]
    assert [415, 422] == [one["problem"]["status"] for one in predictions]


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


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_blank_picture_is_no_error(level: int, client: TestClient) -> None:
    """An empty page is encoded as an empty image, with no box."""
    file = io.BytesIO()
    Image.new("L", (90, 60), level).save(file, "PNG")
    (prediction,) = classify(client, file.getvalue())["predictions"]
    assert prediction["fit"]["box"] is None
    assert 10 == len(prediction["lengths"])
