from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator

import pytest
from PIL import Image

from model.bundle import Manifest
from model.preprocess import Prepared
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


def test_problems_keep_their_places(
    preparation: DecodePools, manifest: Manifest, digits: list[bytes]
) -> None:
    """Each upload becomes an image or a problem of its own."""
    uploads = [digits[7], b"no picture", MalformedRequest("the picture is empty")]
    prepared = asyncio.run(preparation.decode(uploads, frame_of(manifest)))
    expected = [Prepared, UnsupportedFormat, MalformedRequest]
    assert expected == [type(one) for one in prepared]


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
