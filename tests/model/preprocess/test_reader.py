from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from model.preprocess import prepare
from model.preprocess.header import FORMATS
from model.preprocess.picture import to_grey
from model.preprocess.reader import decode
from service.errors import TooLarge, UnreadablePicture, UnsupportedFormat
from service.pictures import ImageSpec, is_quick
from tests.costly import exif_jpeg, exif_picture, exif_tiff, strips_tiff, tiff

AMPLE = 10_000_000
"""Pixels, more than any picture here has."""
SHAPE = (1, 28, 28)
"""Of a network's images."""


@pytest.fixture(scope="module")
def slope() -> NDArray[np.uint8]:
    """(24, 40) pixels that every format keeps well: smooth, and no two corners alike."""
    return (np.arange(24)[:, None] * 4 + np.arange(40) * 3).astype(np.uint8)


def encode(pixels: NDArray[np.uint8], picture_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, picture_format, **options)
    return file.getvalue()


@pytest.mark.parametrize("picture_format", sorted(set(FORMATS) - {"NPY"}))
def test_every_format_decodes(picture_format: str, slope: NDArray[np.uint8]) -> None:
    """The picture comes out as it went in, but for what JPEG and WebP lose."""
    picture, _ = decode(encode(slope, picture_format, quality=100), max_pixels=AMPLE)
    assert isinstance(picture, Image.Image)
    difference = np.asarray(picture.convert("L"), int) - slope
    assert np.abs(difference).max() <= 8


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_tiffs_of_16_bits_decode(compression: str, order: str, slope: NDArray[np.uint8]) -> None:
    """Whatever their compression and byte order; white is 65,535."""
    content = io.BytesIO()
    sixteen_bits = (slope.astype(f"{order}u2") * 257).tobytes()
    mode = "I;16" if order == "<" else "I;16B"
    Image.frombytes(mode, (40, 24), sixteen_bits).save(content, "TIFF", compression=compression)
    picture, _ = decode(content.getvalue(), max_pixels=AMPLE)
    image = prepare(picture, (1, 24, 40), rule="crop").image
    np.testing.assert_allclose(image[0], slope / 255, atol=1 / 255)


def test_a_tiff_of_several_pages_is_refused(slope: NDArray[np.uint8]) -> None:
    """Nobody knows which page is meant."""
    pages = [Image.fromarray(slope[::-1])]
    with pytest.raises(UnsupportedFormat, match="one page"):
        decode(encode(slope, "TIFF", save_all=True, append_images=pages), max_pixels=AMPLE)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(encode(np.zeros((9, 9), np.uint8), "TIFF")[:20], id="cut"),
        pytest.param(b"II*\0" + struct.pack("<I", 2**32 - 1), id="a directory beyond the file"),
        pytest.param(b"MM\0*" + struct.pack(">IHI", 8, 0, 0), id="an empty directory"),
        pytest.param(b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(999_999), id="many entries"),
    ],
)
def test_broken_tiffs_are_refused(content: bytes) -> None:
    """Before Pillow opens them."""
    with pytest.raises(UnreadablePicture):
        decode(content, max_pixels=AMPLE)


@pytest.mark.parametrize(("kind", "text"), [(np.float32, "floats"), (np.int32, "at most 16 bits")])
def test_a_grey_tiff_without_a_known_white_is_refused(kind: Any, text: str) -> None:
    """Floats, and whole numbers of 32 bits, are not clipped without a word."""
    with pytest.raises(UnreadablePicture, match=text):
        decode(encode(np.ones((9, 9), kind), "TIFF"), max_pixels=AMPLE)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_tiff_whose_white_is_zero_is_read(kind: Any) -> None:
    """Whether it has 8 bits or 16: black where it is black."""
    white = np.iinfo(kind).max
    content = encode(np.array([[0, white]], kind), "TIFF")
    entry = struct.pack("<HHIHH", 262, 3, 1, 1, 0)
    assert entry in content
    inverted = content.replace(entry, struct.pack("<HHIHH", 262, 3, 1, 0, 0))
    for file, expected in ((content, [0, 1]), (inverted, [1, 0])):
        picture, _ = decode(file, max_pixels=AMPLE)
        assert expected == prepare(picture, (1, 1, 2), rule="crop").image.ravel().tolist()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(strips_tiff(), "strips", id="TIFF of strips"),
        pytest.param(
            tiff((258, 3, 240_000, 8), after=bytes(960_000)), "numbers", id="TIFF of bits"
        ),
        pytest.param(tiff((322, 4, 1, 16_000), (323, 4, 1, 16_000)), "tile", id="TIFF of a tile"),
        pytest.param(exif_tiff(), "200 entries", id="TIFF of EXIF"),
        pytest.param(exif_picture("PNG"), "200 entries", id="PNG of EXIF"),
        pytest.param(exif_picture("WEBP"), "200 entries", id="WebP of EXIF"),
        pytest.param(exif_jpeg(), "200 entries", id="JPEG of EXIF"),
    ],
)
def test_a_file_of_more_parts_than_pixels_is_refused(content: bytes, text: str) -> None:
    """Reading the parts would take longer than a photograph: a second for less than a megabyte."""
    assert len(content) < 1_000_000
    with pytest.raises(UnreadablePicture, match=text):
        decode(content, max_pixels=AMPLE)


@pytest.mark.parametrize("picture_format", ["ICO", "PPM", "PDF"])
def test_other_formats_are_refused(picture_format: str, slope: NDArray[np.uint8]) -> None:
    """What Pillow could read besides is refused, and the problem names what is read."""
    with pytest.raises(UnsupportedFormat, match="none of PNG, JPEG, WEBP, BMP, GIF, TIFF, NPY"):
        decode(encode(slope, picture_format), max_pixels=AMPLE)


@pytest.mark.parametrize("content", [b"", b"seven", b"<svg/>", bytes(1000)])
def test_what_is_no_picture_is_refused(content: bytes) -> None:
    """Bytes of another kind are an unsupported format, not a broken picture."""
    with pytest.raises(UnsupportedFormat):
        decode(content, max_pixels=AMPLE)


@pytest.mark.parametrize("picture_format", sorted(set(FORMATS) - {"NPY"}))
@pytest.mark.parametrize("kept", [0.3, 0.6, None])
def test_a_truncated_picture_is_refused(
    picture_format: str, kept: float | None, slope: NDArray[np.uint8]
) -> None:
    """A file that ends too early, even within its header, is refused as unreadable."""
    content = encode(slope, picture_format)
    end = 14 if kept is None else int(kept * len(content))
    with pytest.raises(UnreadablePicture):
        decode(content[:end], max_pixels=AMPLE)


def chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png_header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))


def png(width: int, height: int) -> bytes:
    end = chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + png_header(width, height) + end


def test_a_png_of_too_many_chunks_is_refused() -> None:
    """Pillow would read all of them."""
    content = png(1, 1)[:33] + 10_001 * chunk(b"tEXt", b"") + png(1, 1)[33:]
    with pytest.raises(UnreadablePicture, match="10,000 chunks"):
        decode(content, max_pixels=AMPLE)


def jpeg(width: int, height: int) -> bytes:
    content = encode(np.zeros((8, 8), np.uint8), "JPEG")
    size = content.index(b"\xff\xc0") + 5
    return content[:size] + struct.pack(">HH", height, width) + content[size + 4 :]


def webp(width: int, height: int) -> bytes:
    content = encode(np.zeros((8, 8), np.uint8), "WEBP", lossless=True)
    size = content.index(b"VP8L") + 9
    bits = int.from_bytes(content[size : size + 4], "little") >> 28 << 28
    bits |= (height - 1) << 14 | (width - 1)
    return content[:size] + bits.to_bytes(4, "little") + content[size + 4 :]


def bmp(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header


def gif(width: int, height: int, *, canvas: tuple[int, int] | None = None) -> bytes:
    screen = struct.pack("<HHBBB", *(canvas or (width, height)), 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0)
    return b"GIF89a" + screen + frame + b"\x02\x02\x44\x01\x00;"


def gif_beyond_its_canvas(width: int, height: int) -> bytes:
    return gif(width, height, canvas=(1, 1))


@pytest.mark.parametrize(
    ("width", "height"),
    [
        pytest.param(1001, 1000, id="just above the limit"),
        pytest.param(11_000, 11_000, id="where Pillow would warn"),
        pytest.param(16_383, 16_383, id="where Pillow would refuse"),
    ],
)
@pytest.mark.parametrize("announce", [png, jpeg, webp, bmp, gif, gif_beyond_its_canvas])
def test_a_huge_canvas_is_refused_unread(
    announce: Any, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes that announce a huge picture are refused for their size, before decoding."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # as in the processes that decode
    content = announce(width, height)
    assert len(content) < 1000
    with pytest.raises(TooLarge, match=f"1,000,000 pixels, this one has {width} x {height}"):
        decode(content, max_pixels=1_000_000)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about damaged EXIF data
@pytest.mark.parametrize("picture_format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        pytest.param(b"Exif\0\0", id="empty"),
        pytest.param(b"Exif\0\0XX\0*\0\0\0\x08", id="neither little nor big endian"),
        pytest.param(b"Exif\0\0MM\0*\0\0", id="cut in its header"),
        pytest.param(b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01\x12", id="cut in its directory"),
    ],
)
def test_a_picture_with_damaged_exif_is_read(
    picture_format: str, exif: bytes, slope: NDArray[np.uint8]
) -> None:
    """EXIF data that cannot be read turns nothing and hinders nothing."""
    picture, _ = decode(encode(slope, picture_format, exif=exif), max_pixels=AMPLE)
    assert SHAPE == prepare(picture, SHAPE).image.shape


LARGE: dict[str, tuple[str, Any, Any]] = {
    "1": ("PNG", 255, 0),
    "L": ("PNG", 200, 0),
    "P": ("PNG", 1, 0),
    "RGB": ("WEBP", (200, 200, 200), (0, 0, 0)),
    "LA": ("PNG", (200, 255), (0, 255)),
    "RGBA": ("PNG", (200, 200, 200, 255), (0, 0, 0, 255)),
    "I;16": ("PNG", 200 * 257, 0),
}
"""For each mode a format, a light and a dark colour."""


@pytest.mark.parametrize("mode", LARGE)
def test_a_large_picture_is_made_smaller(mode: str) -> None:
    """Whatever its mode, it keeps its shape, and a stroke stays where it was."""
    picture_format, light, dark = LARGE[mode]
    drawn = Image.new(mode, (2600, 1601), light)
    if mode == "P":
        drawn.putpalette([0, 0, 0, 200, 200, 200])
    drawn.paste(dark, (650, 400, 1300, 1200))
    picture, shrink = decode(encode_image(drawn, picture_format), max_pixels=5_000_000)
    assert (650, 401) == picture.size
    assert 4 == shrink
    grey = to_grey(picture)
    assert 0.02 > grey[101:299, 164:324].max()
    assert 0.7 < grey[:99].min()
    assert 0.7 < grey[301:].min()


def encode_image(picture: Image.Image, picture_format: str) -> bytes:
    file = io.BytesIO()
    picture.save(file, picture_format, lossless=True)
    return file.getvalue()


def test_a_plain_png_of_the_network_s_size_is_quick(slope: NDArray[np.uint8]) -> None:
    """It is taken pixel by pixel; where another fit or size is asked for, it is not."""
    content = encode(slope, "PNG")
    assert is_quick(content, ImageSpec((1, 24, 40), "digit"))
    assert not is_quick(content, ImageSpec((1, 40, 24), "digit"))
    assert not is_quick(content, ImageSpec((1, 24, 40), "digit", "digit"))
