from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator

import pytest
from PIL import Image

from model.bundle import Manifest
from model.preprocess import Fit, Prepared
from model.runtime import Runtime
from service.errors import MalformedRequest, UnsupportedFormat
from service.pictures import ImageSpec
from service.pictures.pools import DecodePools


@pytest.fixture
def preparation() -> Iterator[DecodePools]:
    """With one process for small pictures, and one for large ones."""
    made = DecodePools(max_pixels=5_000_000, processes=2)
    yield made
    made.close()


@pytest.fixture
def manifest(runtime: Runtime) -> Manifest:
    return runtime.bundle.manifest


def frame_of(manifest: Manifest) -> ImageSpec:
    return ImageSpec(manifest.image_shape, manifest.preprocess)


@pytest.fixture
def enlarged(digits: list[bytes]) -> list[bytes]:
    """Digits as pictures of another size than the network's."""

    def enlarge(digit: bytes) -> bytes:
        file = io.BytesIO()
        Image.open(io.BytesIO(digit)).resize((56, 56)).save(file, "PNG")
        return file.getvalue()

    return [enlarge(digit) for digit in digits]


def test_problems_keep_their_places(
    preparation: DecodePools, manifest: Manifest, digits: list[bytes]
) -> None:
    """Each upload becomes an image or a problem of its own."""
    uploads = [digits[7], b"no picture", MalformedRequest("the picture is empty")]
    prepared = asyncio.run(preparation.decode(uploads, frame_of(manifest)))
    expected = [Prepared, UnsupportedFormat, MalformedRequest]
    assert expected == [type(one) for one in prepared]


@pytest.mark.parametrize("fit", ["auto", "none"])
def test_what_is_quick_needs_no_process(fit: Fit, manifest: Manifest, digits: list[bytes]) -> None:
    """A picture in the network's size that is taken as it is; the pool could not be started."""
    without = DecodePools(max_pixels=5_000_000, processes=2)
    frame = frame_of(manifest)._replace(fit=fit)
    prepared = asyncio.run(without.decode(digits, frame))
    assert 10 == len([one for one in prepared if isinstance(one, Prepared)])
    assert 0 == without.fork_server.pid


@pytest.mark.parametrize(("picture", "fit"), [("digits", "digit"), ("enlarged", "auto")])
def test_what_takes_longer_has_a_process(
    picture: str, fit: Fit, preparation: DecodePools, request: pytest.FixtureRequest
) -> None:
    """A picture whose strokes are looked for, or of another size."""
    (content, *_) = request.getfixturevalue(picture)
    asyncio.run(preparation.decode([content], ImageSpec((1, 28, 28), "digit", fit)))
    assert preparation.fork_server.pid


@pytest.mark.parametrize("picture_format", ["JPEG", "PNG"])
def test_the_box_is_in_pixels_of_the_file(
    picture_format: str, preparation: DecodePools, manifest: Manifest
) -> None:
    """A large picture is searched at a smaller size; the box of its strokes has its own pixels."""
    picture = Image.new("L", (2720, 1800), 230)
    picture.paste(20, (1600, 400, 1760, 1200))
    file = io.BytesIO()
    picture.save(file, picture_format)
    (prepared,) = asyncio.run(preparation.decode([file.getvalue()], frame_of(manifest)))
    assert isinstance(prepared, Prepared)
    assert prepared.box is not None
    assert pytest.approx((1600, 400, 1760, 1200), abs=12) == tuple(prepared.box)


def test_requests_take_turns(
    preparation: DecodePools, manifest: Manifest, enlarged: list[bytes]
) -> None:
    """Who sends many pictures has as many at work as there are processes."""
    done = []

    async def prepare(name: str, uploads: list[bytes]) -> None:
        await preparation.decode(uploads, frame_of(manifest))
        done.append(name)

    async def scenario() -> None:
        many = asyncio.create_task(prepare("many", 10 * enlarged))
        await asyncio.sleep(0)
        await asyncio.gather(many, prepare("one", enlarged[:1]))

    asyncio.run(scenario())
    assert ["one", "many"] == done


def test_many_quick_pictures_do_not_hold_up_the_event_loop(
    preparation: DecodePools, manifest: Manifest, digits: list[bytes]
) -> None:
    """Each takes a twentieth of a millisecond; others have their turn after every second one."""

    async def scenario() -> int:
        turns = 0
        job = asyncio.create_task(preparation.decode(5 * digits, frame_of(manifest)))
        while not job.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert 25 <= asyncio.run(scenario())


def test_many_headers_do_not_hold_up_the_event_loop(
    preparation: DecodePools, manifest: Manifest
) -> None:
    """A JPEG of many segments takes half a millisecond; others have their turn after four.

    That is so with several requests too.
    """
    stub = b"\xff\xd8" + b"\xff\xfe\0\2" * 499

    async def scenario() -> int:
        turns = 0
        checks = (preparation.weigh([stub] * 40, frame_of(manifest)) for _ in range(3))
        job = asyncio.gather(*checks)
        while not job.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert 30 <= asyncio.run(scenario())
