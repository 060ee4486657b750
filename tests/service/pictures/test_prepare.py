from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from model.bundle import Manifest
from model.preprocess import Fit, Prepared
from model.runtime import Runtime
from service.errors import MalformedRequest, Problem, UnsupportedFormat
from service.pictures import Frame, Preparation


@pytest.fixture
def preparation() -> Iterator[Preparation]:
    """With one thread."""
    made = Preparation(max_pixels=5_000_000, threads=1)
    yield made
    made.close()


@pytest.fixture
def manifest(runtime: Runtime) -> Manifest:
    return runtime.bundle.manifest


def frame_of(manifest: Manifest) -> Frame:
    return Frame(manifest.image_shape, manifest.preprocess)


@pytest.fixture
def enlarged(digits: list[bytes]) -> list[bytes]:
    """Digits as pictures of another size than the network's."""

    def enlarge(digit: bytes) -> bytes:
        file = io.BytesIO()
        Image.open(io.BytesIO(digit)).resize((56, 56)).save(file, "PNG")
        return file.getvalue()

    return [enlarge(digit) for digit in digits]


def test_problems_keep_their_places(
    preparation: Preparation, manifest: Manifest, digits: list[bytes]
) -> None:
    """Each upload becomes an image or a problem of its own."""
    uploads = [digits[7], b"no picture", MalformedRequest("the picture is empty")]
    prepared = asyncio.run(preparation.prepare(uploads, frame_of(manifest)))
    expected = [Prepared, UnsupportedFormat, MalformedRequest]
    assert expected == [type(one) for one in prepared]


@pytest.fixture
def workers(preparation: Preparation, monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Grows by the thread that prepares a picture."""
    threads = []
    real = preparation._work

    def work(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*args)

    monkeypatch.setattr(preparation, "_work", work)
    return threads


def test_what_is_quick_keeps_the_event_loop(
    preparation: Preparation,
    manifest: Manifest,
    digits: list[bytes],
    workers: list[threading.Thread],
) -> None:
    """A picture in the network's size that is taken as it is."""
    for fit in ("auto", "none"):
        asyncio.run(preparation.prepare(digits[:1], frame_of(manifest)._replace(fit=fit)))
    assert [threading.current_thread()] * 2 == workers


@pytest.mark.parametrize(("picture", "fit"), [("digits", "digit"), ("enlarged", "auto")])
def test_what_takes_longer_has_a_thread(
    picture: str,
    fit: Fit,
    preparation: Preparation,
    workers: list[threading.Thread],
    request: pytest.FixtureRequest,
) -> None:
    """A picture whose strokes are looked for, or of another size."""
    (content, *_) = request.getfixturevalue(picture)
    asyncio.run(preparation.prepare([content], Frame((1, 28, 28), "digit", fit)))
    assert threading.current_thread() not in workers


@pytest.mark.parametrize("picture_format", ["JPEG", "PNG"])
def test_the_box_is_in_pixels_of_the_file(
    picture_format: str, preparation: Preparation, manifest: Manifest
) -> None:
    """A large picture is looked at smaller; where its strokes are is told in its own pixels."""
    picture = Image.new("L", (2720, 1800), 230)
    picture.paste(20, (1600, 400, 1760, 1200))
    file = io.BytesIO()
    picture.save(file, picture_format)
    (prepared,) = asyncio.run(preparation.prepare([file.getvalue()], frame_of(manifest)))
    assert isinstance(prepared, Prepared)
    assert prepared.box is not None
    assert pytest.approx((1600, 400, 1760, 1200), abs=12) == tuple(prepared.box)


def test_requests_take_turns(preparation: Preparation, manifest: Manifest) -> None:
    """Who sends many pictures has as many at work as there are threads, here one."""
    done = []
    begun, gate = threading.Event(), threading.Event()

    def work(content: bytes, *_: Any) -> None:
        begun.set()
        assert gate.wait(30)
        done.append(content)

    preparation._work = work  # type: ignore[assignment]

    async def scenario() -> None:
        frame = frame_of(manifest)
        many = asyncio.create_task(preparation.prepare([b"a1", b"a2", b"a3"], frame))
        await asyncio.to_thread(begun.wait, 30)
        one = asyncio.create_task(preparation.prepare([b"b"], frame))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(many, one)

    asyncio.run(scenario())
    assert [b"a1", b"b", b"a2", b"a3"] == done


def test_many_quick_pictures_do_not_hold_up_the_event_loop(
    preparation: Preparation, manifest: Manifest, digits: list[bytes]
) -> None:
    """Each takes a tenth of a millisecond, and hundreds may come at once."""
    threads = set()
    real = preparation._work

    def work(*args: Any) -> Prepared | Problem:
        threads.add(threading.current_thread())
        return real(*args)

    preparation._work = work  # type: ignore[method-assign]
    prepared = asyncio.run(preparation.prepare(2 * digits, frame_of(manifest)))
    assert 20 == len([one for one in prepared if isinstance(one, Prepared)])
    assert threading.main_thread() not in threads
