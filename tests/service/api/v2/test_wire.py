"""What protobuf messages may become, by their bytes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from service.api.v2.messages import messages
from service.api.v2.wire import MAX_TEXT_BYTES, check_fields
from service.errors import MalformedRequest, Problem, TooLarge

KNOWN = messages()
REQUEST = KNOWN["ModelInferRequest"]


def refusal(content: bytes, kind: Any = REQUEST, max_fields: int = 100) -> Problem | None:
    """The problem with a message, if there is one."""
    try:
        check_fields(content, kind.DESCRIPTOR, max_fields=max_fields)
    except Problem as problem:
        return problem
    return None


def a_request(**contents: list[Any]) -> bytes:
    """A message with every kind of field."""
    tensor = KNOWN["InferInputTensor"](name="images", datatype="FP32", shape=[1, 1, 28, 28])
    tensor.parameters["level"].double_param = 0.5
    for name, values in contents.items():
        getattr(tensor.contents, name).extend(values)
    message = REQUEST(model_name="mnist", inputs=[tensor], raw_input_contents=[bytes(3136)])
    message.parameters["priority"].uint64_param = 2**63
    serialised: bytes = message.SerializeToString()
    return serialised


def test_good_messages_pass() -> None:
    """Of numbers, strings, bytes, maps and lists, long lists of floats among them."""
    assert refusal(a_request(fp32_contents=[0.5] * 100_000)) is None
    assert refusal(a_request(bytes_contents=[bytes(50_000)] * 50)) is None
    assert refusal(a_request(int64_contents=[7] * 100)) is None
    assert refusal(b"") is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x2a\0" * 101, "at most 100 fields"),
        (b"\x2a\xc8\x01" + b"\x18\1" * 100, "at most 100 fields"),
        (b"\x6a\0" * 101, "at most 100 fields"),
        (a_request(bytes_contents=[b""] * 100), "at most 100 fields"),
        (a_request(int64_contents=[-1] * 101), "int64_contents: a list has at most 100 values"),
        (a_request(fp64_contents=[1.0] * 200), "fp64_contents: a list has at most 100 values"),
        (REQUEST(id="x" * (MAX_TEXT_BYTES + 1)).SerializeToString(), "id: a string has at most"),
    ],
)
def test_what_becomes_more_than_its_bytes_is_refused(content: bytes, words: str) -> None:
    """Messages without content, packed lists, and strings of any length."""
    found = refusal(content)
    assert isinstance(found, TooLarge)
    assert words in found.detail


@pytest.mark.parametrize(
    "content", [b"\x0a", b"\x0a\5mnis", b"\x08", b"\xff" * 11, b"\x0b", b"\x0d\0", b"\x09\0\0"]
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    """Ends within a field, endless integers, groups."""
    assert isinstance(refusal(content), MalformedRequest)


def test_a_refusal_takes_no_memory() -> None:
    """Two megabytes of empty messages are not looked at one by one."""
    content = b"\x2a\0" * 1_000_000
    tracemalloc.start()
    try:
        assert isinstance(refusal(content), TooLarge)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 100_000 > peak
