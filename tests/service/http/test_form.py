"""Forms, read from whole bodies."""

from __future__ import annotations

import pytest

from service.errors import MalformedRequest, TooLarge
from service.http.uploads import read_form

TYPE = "multipart/form-data; boundary=edge"


def form(*heads: bytes) -> bytes:
    """Parts with these headers, each with its number as content."""
    parts = (b"--edge\r\n%b\r\n\r\n%d\r\n" % (head, n) for n, head in enumerate(heads))
    return b"".join(parts) + b"--edge--\r\n"


def a_part(options: bytes) -> bytes:
    """The header of a part."""
    return b"Content-Disposition: form-data; " + options


def test_a_form_has_as_many_parts_as_it_may() -> None:
    """One more is too many."""
    body = form(*[a_part(b'name="file"; filename="a"')] * 3)
    assert [b"0", b"1", b"2"] == [one.content for one in read_form(TYPE, body, max_parts=3)]
    with pytest.raises(TooLarge, match="at most 2 parts"):
        read_form(TYPE, body, max_parts=2)


def test_a_file_without_a_name_of_its_own_is_a_file() -> None:
    """As browsers send a field in which none was chosen."""
    body = form(a_part(b'name="a"; filename=""'), a_part(b'name="b"'))
    assert [("a", True), ("b", False)] == [
        (one.name, one.is_file) for one in read_form(TYPE, body, max_parts=2)
    ]


def test_a_name_that_is_no_utf_8_is_read_all_the_same() -> None:
    """It is an unknown field, no fault of the service."""
    (part,) = read_form(TYPE, form(a_part(b'name="\xff"')), max_parts=1)
    assert "\N{REPLACEMENT CHARACTER}" == part.name


@pytest.mark.parametrize("head", [a_part(b'filename="a"'), b"Content-Type: image/png"])
def test_a_part_without_a_name_is_refused(head: bytes) -> None:
    """Nobody knows what it is for."""
    with pytest.raises(MalformedRequest, match="a part has no name"):
        read_form(TYPE, form(head), max_parts=1)


@pytest.mark.parametrize("end", [b"\r\n--edge--", b"\r\n--edge--\r\n"])
@pytest.mark.parametrize("kind", [b"", b"\r\nContent-Type: image/png"])
@pytest.mark.parametrize(
    "content", [b"", b"\r\n", b"--edge--", b"\r\n--edg", b"\n--edge--\r\n", bytes(range(256))]
)
def test_the_content_of_a_file_may_be_anything_but_the_boundary(
    content: bytes, kind: bytes, end: bytes
) -> None:
    """A form of one plain file is read in one pass, others part by part; both find the same."""
    plain = b"--edge\r\n" + a_part(b'name="file"; filename="7 (1).png"') + kind
    (file,) = read_form(TYPE, plain + b"\r\n\r\n" + content + end, max_parts=1)
    assert ("file", True, content) == (file.name, file.is_file, file.content)
    odd = b"--edge\r\nX: y\r\n" + plain.removeprefix(b"--edge\r\n")
    (file,) = read_form(TYPE, odd + b"\r\n\r\n" + content + end, max_parts=1)
    assert ("file", True, content) == (file.name, file.is_file, file.content)


@pytest.mark.parametrize("end", [b"", b"\r\n--edge", b"\r\n--edge-", b"\r\n--other--\r\n"])
def test_a_file_without_an_end_is_refused(end: bytes) -> None:
    """Part of it may be missing."""
    body = b"--edge\r\n" + a_part(b'name="file"; filename="a"') + b"\r\n\r\nx" + end
    with pytest.raises(MalformedRequest, match="the form cannot be read"):
        read_form(TYPE, body, max_parts=1)
