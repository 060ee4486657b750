from __future__ import annotations

import base64
import json
import tempfile
import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.http import uploads
from service.settings import Settings
from tests.serving import serve

Predictions = list[dict[str, Any]]
JSON = {"content-type": "application/json"}


def text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def predictions(client: TestClient, **request: Any) -> Predictions:
    answer = client.post("/classify", **request)
    assert 200 == answer.status_code, answer.text
    found: Predictions = answer.json()["predictions"]
    return found


def refusal(client: TestClient, **request: Any) -> tuple[int, str, str | None]:
    """Status, the end of the problem's type, and the parameter at fault."""
    answer = client.post("/classify", **request)
    problem = answer.json()
    return answer.status_code, problem["type"].rpartition(":")[2], problem.get("parameter")


@pytest.fixture(scope="module")
def expected(client: TestClient, digits: list[bytes]) -> Predictions:
    """What the service says of all ten digits, each sent alone."""
    return [
        predictions(client, content=digit, headers={"content-type": "image/png"})[0]
        for digit in digits
    ]


def test_digits_have_predictions_of_their_own(expected: Predictions) -> None:
    """No two digits get the same lengths, so that a mix-up would show in the tests below."""
    assert 10 == len({tuple(prediction["lengths"]) for prediction in expected})


@pytest.mark.parametrize("kind", ["image/png", "IMAGE/PNG", "image/jpeg", "image/png; a=b"])
def test_a_raw_body_may_call_itself_any_image(
    kind: str, client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """The bytes decide the format; the content type says only that this is a picture."""
    assert expected[7:8] == predictions(client, content=digits[7], headers={"content-type": kind})


def test_a_raw_body_may_be_an_octet_stream(
    client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """What curl --data-binary and others send without knowing the format is read."""
    headers = {"content-type": "application/octet-stream"}
    assert expected[7:8] == predictions(client, content=digits[7], headers=headers)


def test_a_multipart_file_is_read(
    client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """A form's file gives the prediction of the raw body."""
    assert expected[7:8] == predictions(client, files={"file": digits[7]})


def test_base64_is_read(client: TestClient, digits: list[bytes], expected: Predictions) -> None:
    """JSON with base64 gives the prediction of the raw body."""
    assert expected[7:8] == predictions(client, json={"image": text(digits[7])})


def test_a_data_url_is_read(client: TestClient, digits: list[bytes], expected: Predictions) -> None:
    """What a browser's canvas gives can be sent as it is."""
    url = f"data:image/png;base64,{text(digits[7])}"
    assert expected[7:8] == predictions(client, json={"image": url})


@pytest.mark.parametrize("way", ["files", "json"])
def test_several_pictures_are_answered_in_order(
    way: str, client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """One prediction for each picture, in its place; a batch moves no length visibly."""
    labels = (3, 1, 4, 1, 5)
    requests: dict[str, Any] = {
        "files": [("file", digits[label]) for label in labels],
        "json": {"images": [text(digits[label]) for label in labels]},
    }
    answers = predictions(client, **{way: requests[way]})
    for label, prediction in zip(labels, answers, strict=True):
        assert expected[label]["lengths"] == pytest.approx(prediction["lengths"], abs=1e-5)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"files": {"picture": b"x"}}, id="another name"),
        pytest.param({"files": [("file", b"x"), ("other", b"y")]}, id="another file besides"),
        pytest.param({"files": {"file": b"x"}, "data": {"fit": "none"}}, id="a text besides"),
        pytest.param({"files": {"file": (None, "seven.png")}}, id="text for a file"),
        pytest.param({"files": {"file": (None, "")}}, id="empty text for a file"),
    ],
)
def test_a_form_holds_files_of_one_name(request_: dict[str, Any], client: TestClient) -> None:
    """Another field, or text where the file should be, is refused and the field's name told."""
    assert (400, "malformed-request", "file") == refusal(client, **request_)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"headers": {"content-type": "image/png"}}, id="raw"),
        pytest.param({"files": {"file": b""}}, id="multipart"),
        pytest.param({"json": {"image": ""}}, id="JSON"),
        pytest.param({"json": {"image": "data:image/png;base64,"}}, id="data URL"),
        pytest.param({"headers": JSON}, id="no JSON at all"),
    ],
)
def test_an_empty_picture_is_refused(request_: dict[str, Any], client: TestClient) -> None:
    """A picture without a byte is a malformed request in every way of sending."""
    assert (400, "malformed-request", None) == refusal(client, **request_)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="cut"),
        pytest.param(b"image=x", id="a form"),
        pytest.param(b"\xff\xfe\xfd", id="not UTF-8"),
        pytest.param(b"[" * 100_000, id="nested deeply"),
    ],
)
def test_a_body_that_is_not_json_is_refused(body: bytes, client: TestClient) -> None:
    """What calls itself JSON has to be JSON, of a depth that can be read."""
    assert (400, "malformed-request", None) == refusal(client, content=body, headers=JSON)


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "image",
        [],
        ["iVBOR"],
        {},
        {"image": 7},
        {"image": ["iVBOR"]},
        {"images": []},
        {"images": "iVBOR"},
        {"picture": "iVBOR"},
        {"image": "iVBOR", "images": ["iVBOR"]},
        {"image": "iVBOR", "fit": "none"},
    ],
    ids=json.dumps,
)
def test_json_of_another_shape_is_refused(value: object, client: TestClient) -> None:
    """The two shapes are told; nothing besides them is silently ignored."""
    answer = client.post("/classify", content=json.dumps(value), headers=JSON)
    assert 400 == answer.status_code
    assert '{"image": "<base64>"} or {"images"' in answer.json()["detail"]


@pytest.mark.parametrize("image", ["!", "iVBOR", "iVBO Rw0K", "é", "data:image/png;base64,!"])
def test_bad_base64_is_refused(image: str, client: TestClient) -> None:
    """Characters outside the alphabet and missing padding are told apart from bad pictures."""
    assert (400, "malformed-request", "image") == refusal(client, json={"image": image})


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "image", "multipart/mixed", ""]
)
def test_other_content_types_are_refused(
    kind: str, client: TestClient, digits: list[bytes]
) -> None:
    """A picture sent as something else is refused, with the three ways of sending."""
    sent = {"content": digits[7], "headers": {"content-type": kind}}
    assert (415, "unsupported-format", None) == refusal(client, **sent)


@pytest.mark.parametrize("count", [6, 7, 20])
def test_too_many_files_are_refused(count: int, client: TestClient, digits: list[bytes]) -> None:
    """One file too many is as bad as many."""
    files = [("file", digits[7])] * count
    assert (413, "too-large", None) == refusal(client, files=files)


def test_too_many_images_are_refused(client: TestClient, digits: list[bytes]) -> None:
    """JSON has the same limit as a form."""
    images = [text(digits[7])] * 6
    assert (413, "too-large", None) == refusal(client, json={"images": images})


def test_as_many_data_urls_as_pictures_are_taken(
    client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """The comma in each is not taken for another picture."""
    images = [f"data:image/png;base64,{text(digit)}" for digit in digits[:5]]
    found = predictions(client, json={"images": images})
    assert [one["label"] for one in expected[:5]] == [one["label"] for one in found]


@pytest.mark.parametrize("values", ['{"images": [%s]}', "[%s]", '{"image": [%s]}'])
def test_a_body_of_many_small_values_is_not_parsed(
    values: str, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of them would hold up everyone for seconds."""
    monkeypatch.delattr(uploads, "from_json")
    content = (values % ",".join(["{}"] * 11)).encode()
    answer = client.post("/classify", content=content, headers=JSON)
    monkeypatch.undo()
    assert 413 == answer.status_code
    assert "at most 5 images per request" == answer.json()["detail"]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_routes_of_one_picture_refuse_several(
    count: int, client: TestClient, digits: list[bytes]
) -> None:
    """Only /classify takes several pictures; which one would /reconstruct draw?"""
    answer = client.post("/reconstruct", files=[("file", digits[7])] * count)
    problem = answer.json()
    assert (422, "this route takes one image") == (
        answer.status_code,
        problem["detail"],
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"garbage", id="no boundary"),
        pytest.param(b"--x\r\ngarbage\r\n\r\n--x--\r\n", id="no header"),
        pytest.param(b"--x\r\nA: b\r\n\r\nc\r\n--x--\r\n", id="no name"),
        pytest.param(b"--x--\r\n", id="no part"),
        pytest.param(
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nc', id="cut"
        ),
    ],
)
def test_a_broken_form_is_refused(body: bytes, client: TestClient) -> None:
    """Multipart that cannot be parsed is a malformed request."""
    headers = {"content-type": "multipart/form-data; boundary=x"}
    status, slug, _ = refusal(client, content=body, headers=headers)
    assert (400, "malformed-request") == (status, slug)


def test_a_form_whose_end_is_missing_is_refused(client: TestClient, digits: list[bytes]) -> None:
    """What arrived of it is not taken for all."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    body = head + digits[7] + b"\r\n" + head + digits[7][:50]
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert (400, "malformed-request", None) == refusal(client, content=body, headers=headers)


def test_a_large_form_needs_no_file(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are kept in memory: where no file can be written, they are read all the same."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with serve(settings, max_body_bytes=3_000_000) as client:
        refused = refusal(client, files={"file": bytes(2_000_000)})
    assert (415, "unsupported-format", None) == refused


def test_a_form_without_a_boundary_is_refused(client: TestClient) -> None:
    """The content type has to say where parts begin."""
    headers = {"content-type": "multipart/form-data"}
    sent = {"content": b"--x--", "headers": headers}
    assert (400, "malformed-request", None) == refusal(client, **sent)


@pytest.mark.parametrize(("size", "here"), [(100, True), (120_000, False)])
def test_a_large_json_body_is_parsed_off_the_event_loop(
    size: int, client: TestClient, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """Twenty megabytes take a tenth of a second, in which nobody else would be answered."""
    threads = []
    real = uploads.from_json

    def parse(body: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return real(body)

    monkeypatch.setattr(uploads, "from_json", parse)
    refusal(client, json={"image": text(bytes(size))})
    (thread,) = threads
    assert here == ("portal" in thread)


def test_long_base64_is_decoded_in_pieces_and_put_together(client: TestClient) -> None:
    """Other threads run in between; the bytes are the same."""
    picture = bytes(range(256)) * 2000
    assert picture == uploads.decode_base64(text(picture))
    assert (400, "malformed-request", "image") == refusal(
        client, json={"image": text(bytes(120_000)) + "!"}
    )
