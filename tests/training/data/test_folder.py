from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.preprocess import scale_picture
from tests.costly import png, rle_bmp
from training.data.folder import FolderSplit, choose_size, load_folder, name_of
from training.data.pictures import printable, to_ascii_name
from training.data.source import DatasetError

RED, GREEN, GREY = (200, 10, 30), (10, 200, 30), (90, 90, 90)
Colour = int | tuple[int, ...]


def paint(
    folder: Path,
    name: str,
    colours: Iterable[Colour],
    *,
    mode: str = "RGB",
    size: tuple[int, int] = (40, 30),
    suffix: str = "png",
) -> None:
    """Pictures of a class, each of one colour."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for number, colour in enumerate(colours):
        picture = Image.new(mode, size, colour)
        picture.save(folder / name / f"{number:03}.{suffix}", lossless=True)


@pytest.fixture
def fruit(tmp_path: Path) -> Path:
    """Twenty apples and ten pears, 40 pixels wide and 30 high."""
    folder = tmp_path / "Our Fruit!"
    paint(folder, "pear", [GREEN] * 10)
    paint(folder, "apple", [(200, 10, shade) for shade in range(20)])
    return folder


def test_images_are_what_serving_makes_of_the_pictures(fruit: Path) -> None:
    """The same crop, in bytes."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (50, 90, 3), np.uint8)
    Image.fromarray(noise).save(fruit / "pear" / "noise.png")
    with Image.open(fruit / "pear" / "noise.png") as picture:
        expected = np.rint(scale_picture(picture, 3, 20, 24, middle=True) * 255).astype(np.uint8)
    loaded = load_folder(fruit, size=(20, 24))
    images = np.concatenate((loaded.training.images, loaded.validation.images))
    assert (31, 3, 20, 24) == images.shape
    assert (images == expected).all(axis=(1, 2, 3)).any()


@pytest.mark.parametrize(("pears", "held_out"), [(2, 1), (10, 2), (35, 4), (60, 6)])
def test_each_class_gives_its_share(fruit: Path, pears: int, held_out: int) -> None:
    """A tenth; of few pictures a fifth, up to four; one at least is not held out."""
    shutil.rmtree(fruit / "pear")
    paint(fruit, "pear", [GREEN] * pears)
    loaded = load_folder(fruit)
    assert [4, held_out] == np.bincount(loaded.validation.labels).tolist()
    assert [16, pears - held_out] == np.bincount(loaded.training.labels).tolist()


def apples(examples: Any) -> set[int]:
    """The shades by which apples are distinguished."""
    return set(examples.images[examples.labels == 0, 2, 0, 0].tolist())


def test_the_same_pictures_are_held_out_again(fruit: Path) -> None:
    """None is in both parts."""
    first, again = load_folder(fruit), load_folder(fruit)
    assert apples(first.validation) == apples(again.validation)
    assert set(range(20)) == apples(first.training) | apples(first.validation)
    assert not apples(first.training) & apples(first.validation)


def test_pictures_are_turned_upright(tmp_path: Path) -> None:
    """A picture on its side has the size that people see."""
    paint(tmp_path, "a", [RED] * 2, size=(20, 30))
    (tmp_path / "b").mkdir()
    for number in range(2):
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (30, 20), GREEN).save(tmp_path / "b" / f"{number}.jpg", exif=exif)
    assert (3, 30, 20) == load_folder(tmp_path).dataset.image_shape


@pytest.mark.parametrize(("mode", "grey"), [("L", 90), ("RGB", GREY), ("1", 1), ("LA", (90, 255))])
def test_grey_pictures_have_one_channel(tmp_path: Path, mode: str, grey: Colour) -> None:
    """Whether their format says so or their three channels are alike."""
    paint(tmp_path, "a", [grey] * 3, mode=mode)
    paint(tmp_path, "b", [90] * 3, mode="L")
    dataset, training, *_ = load_folder(tmp_path)
    assert (1, 30, 40) == dataset.image_shape
    assert {90} == set(training.images[training.labels == 1].ravel().tolist())


def test_a_few_grey_scans_among_coloured_pictures_are_taken_as_coloured(fruit: Path) -> None:
    """Up to a fifth of each class, which a notice names; of more the owner decides."""
    for number in range(2):
        Image.new("L", (40, 30), 90).save(fruit / "pear" / f"{number:03}.png")
    loaded = load_folder(fruit)
    assert (3, 30, 40) == loaded.dataset.image_shape
    named = "2 grey (pear/000.png and pear/001.png) pictures among coloured ones: taken as coloured"
    assert named in loaded.notices
    Image.new("L", (40, 30), 90).save(fruit / "pear" / "002.png")
    with pytest.raises(
        DatasetError, match=r"3 grey \(.*\) and 27 coloured pictures are mixed\n.*3 "
    ):
        load_folder(fruit)


def test_one_refusal_names_everything(fruit: Path) -> None:
    """Unreadable files, classes of which too little is left, grey among colour; and what helps."""
    bad = spoil(fruit)
    paint(fruit, "quince", [90] * 2, mode="L")
    paint(fruit, "grape", [RED])
    with pytest.raises(DatasetError) as refused:
        load_folder(fruit)
    first, *lines, advice = str(refused.value).splitlines()
    assert first.endswith("cannot be learnt from:")
    assert "unreadable: 6 files that cannot be read as pictures:" == lines[0]
    assert [f"  {place}" for place in bad] == lines[1:7]
    assert lines[7].startswith("too few pictures to learn from some and hold out others: grape.")
    assert "2 grey (quince/000.png and quince/001.png) and 30 coloured pictures are mixed" in lines
    assert advice.startswith("To go on, add --skip-unreadable --channels 3")
    with pytest.raises(DatasetError, match=r"others: grape\. Add some, or move") as refused:
        load_folder(fruit, split=FolderSplit(skip_unreadable=True), channels=1)
    assert 2 == len(str(refused.value).splitlines())


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_may_be_chosen(fruit: Path, channels: int) -> None:
    """Then all pictures are made grey, or coloured."""
    paint(fruit, "quince", [90] * 2, mode="L")
    dataset, training, *_ = load_folder(fruit, channels=channels)
    assert (channels, 30, 40) == dataset.image_shape
    assert {90} == set(training.images[training.labels == 2].ravel().tolist())


def save_arrays(folder: Path, name: str, shape: tuple[int, ...], dtype: str = "float32") -> None:
    """Three arrays of a class, whose values are their place in the last axis."""
    (folder / name).mkdir(parents=True)
    for number in range(3):
        values = np.broadcast_to(np.linspace(0, 1, shape[-1]), shape)
        most = {"u": 65535}.get(np.dtype(dtype).kind, 1)
        np.save(folder / name / f"{number}.npy", (values * most).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_arrays_of_many_channels_are_read(tmp_path: Path, dtype: str) -> None:
    """(H, W, C) becomes (C, H, W) in bytes."""
    for name in "ab":
        save_arrays(tmp_path, name, (20, 30, 6), dtype)
    loaded = load_folder(tmp_path)
    assert (6, 20, 30) == loaded.dataset.image_shape
    expected = [0, 51, 102, 153, 204, 255]
    np.testing.assert_allclose(expected, loaded.training.images[0, :, 7, 9], atol=1)


def test_other_files_are_named(fruit: Path) -> None:
    """Notes, and pictures of unknown formats or in no class; hidden files are passed over."""
    for name in ("notes.txt", "apple/1.heic", "apple/2.HEIC", "apple/.000.png", ".git/000.png"):
        (fruit / name).parent.mkdir(exist_ok=True)
        (fruit / name).write_bytes(b"none of your business")
    loaded = load_folder(fruit)
    assert ("apple", "pear") == loaded.dataset.class_names
    named = "2 .heic, 1 .txt (apple/1.heic, apple/2.HEIC and notes.txt)"
    assert f"not read, as no pictures of a class: {named}" in loaded.notices


def test_data_sets_are_not_taken_for_classes(tmp_path: Path) -> None:
    """Classes in `train` and `test` lie a level too deep; the message says how to go on."""
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            paint(tmp_path / part, name, [RED] * 3)
    message = r"test and train in .* are no classes: cat and dog in them are. Say --data .*/train"
    with pytest.raises(DatasetError, match=message):
        load_folder(tmp_path)


@pytest.mark.parametrize(("names", "found"), [([], "none"), (["apple"], "only one, apple")])
def test_one_class_is_too_few(tmp_path: Path, names: list[str], found: str) -> None:
    """The message says what is there."""
    for name in names:
        paint(tmp_path, name, [RED])
    with pytest.raises(DatasetError, match=f"at least two classes, and has {found}"):
        load_folder(tmp_path)


def spoil(fruit: Path) -> list[str]:
    """Five files that are no pictures and one that is cut; their places."""
    for number in range(5):
        (fruit / "pear" / f"bad-{number}.png").write_bytes(b"no picture")
    cut = fruit / "apple" / "000.png"
    cut.write_bytes(cut.read_bytes()[:60])
    return ["apple/000.png", *(f"pear/bad-{number}.png" for number in range(5))]


def test_unreadable_files_may_be_skipped(fruit: Path) -> None:
    """They are named, and a class of which too little is left is an error."""
    bad = spoil(fruit)
    loaded = load_folder(fruit, split=FolderSplit(skip_unreadable=True))
    assert 29 == len(loaded.training.labels) + len(loaded.validation.labels)
    assert loaded.split
    assert 29 == len(loaded.split.learnt) + len(loaded.split.held_out_pictures)
    (notice,) = [one for one in loaded.notices if one.startswith("skipped 6 files")]
    assert bad == [line.strip() for line in notice.splitlines()[1:]]
    paint(fruit, "quince", [GREEN] * 2)
    (fruit / "quince" / "000.png").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"too few pictures .*: quince\."):
        load_folder(fruit, split=FolderSplit(skip_unreadable=True))


def test_what_the_service_refuses_is_unreadable(fruit: Path) -> None:
    """A network must not learn from pictures that it can never be asked about."""
    page = Image.new("RGB", (40, 30))
    Image.new("F", (40, 30)).save(fruit / "pear" / "floats.tif")
    page.save(fruit / "pear" / "pages.tif", save_all=True, append_images=[page])
    page.save(fruit / "pear" / "zstd.tif", compression="zstd")
    (fruit / "pear" / "rle.bmp").write_bytes(rle_bmp(255, 1))
    (fruit / "pear" / "bare.png").write_bytes(png(28, 28, colour=3))
    with pytest.raises(DatasetError, match="unreadable: 5 files") as refused:
        load_folder(fruit)
    named = [line.strip() for line in str(refused.value).splitlines()[2:7]]
    places = ("bare.png", "floats.tif", "pages.tif", "rle.bmp", "zstd.tif")
    assert [f"pear/{place}" for place in places] == named


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([(96, 64)] * 3, (64, 96), id="they keep it"),
        pytest.param([(640, 480)] * 3, (72, 96), id="a camera's"),
        pytest.param([(1000, 100)] * 3, (48, 96), id="the ends of a panorama are cropped"),
        pytest.param([(30, 90)] * 3, (60, 30), id="those of a narrow picture too"),
        pytest.param([(50, 40), (30, 60), (90, 80)], (40, 40), id="the median of short sides"),
        pytest.param([(500, 400), (640, 480)], (96, 96), id="photographs"),
    ],
)
def test_the_pictures_decide_on_the_size(
    sizes: list[tuple[int, int]], expected: tuple[int, int]
) -> None:
    """Height and width, of pictures of these widths and heights."""
    assert expected == choose_size(sizes)


def test_the_owner_is_told_what_is_cropped(tmp_path: Path) -> None:
    """If half of the pictures lose more than a third."""
    for name in "ab":
        paint(tmp_path, name, [RED] * 2, size=(300, 30))
    (notice,) = [one for one in load_folder(tmp_path).notices if "cropped" in one]
    assert "to 60x30 px, and half of them lose 80 %" in notice
    assert not [one for one in load_folder(tmp_path, size=(30, 300)).notices if "cropped" in one]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Meine Formen", "meine-formen"),
        ("Äpfel & Öl_2", "apfel-ol-2"),
        ("Мои фигуры", "moi-figury"),
        ("объекты", "obekty"),
        ("Ελληνικά ζώα", "ellinika-zoa"),
        ("Straße Łódź", "strasse-lodz"),
        ("図形", "tuxing"),
        ("!", ""),
    ],
)
def test_names_are_transliterated(text: str, name: str) -> None:
    """Composed and decomposed letters have the same name; without one a folder is `pictures`."""
    for form in ("NFC", "NFD"):
        assert name == to_ascii_name(unicodedata.normalize(form, text))
    assert (name or "pictures") == name_of(Path(text))


def test_control_characters_are_written_as_escapes() -> None:
    """All others stay, accents and emoji among them."""
    assert "Meine Äpfel 🍎.png" == printable("Meine Äpfel 🍎.png")
    assert r"\x1b[2Jcat\n\u202e.png" == printable("\x1b[2Jcat\n\u202e.png")
