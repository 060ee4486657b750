"""Names of folders and classes in letters that a bundle's name may have."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from model.bundle.manifest import NAME
from training.data.folder import name_of
from training.data.words import printable, to_ascii_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Meine Formen", "meine-formen"),
        ("Äpfel & Öl_2", "apfel-ol-2"),
        ("Мои фигуры", "moi-figury"),
        ("Подъезд, объём", "podezd-obyom"),
        ("Їжак", "yizhak"),
        ("Ελληνικά ζώα", "ellinika-zoa"),
        ("Straße Łódź", "strasse-lodz"),
        ("Ящик", "yashchik"),
    ],
)
def test_names_are_transliterated(text: str, name: str) -> None:
    """Composed and decomposed letters have the same name, which a bundle may have."""
    for form in ("NFC", "NFD"):
        assert name == to_ascii_name(unicodedata.normalize(form, text))
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("text", ["図形", "...", ""])
def test_other_scripts_leave_nothing(text: str) -> None:
    """A folder of such a name is `pictures`."""
    assert "" == to_ascii_name(text)


def test_a_folder_of_another_script_has_a_name(tmp_path: Path) -> None:
    """Its bundle can still be exported."""
    assert "pictures" == name_of(tmp_path / "図形")
    assert "moi-figury" == name_of(tmp_path / "Мои фигуры")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Meine Äpfel 🍎.png", "Meine Äpfel 🍎.png"),
        ("\x1b[2Jcat\n.png", r"\x1b[2Jcat\n.png"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff.png", r"\udcff.png"),
    ],
)
def test_control_characters_are_written_as_escapes(name: str, expected: str) -> None:
    """All others stay, accents and emoji among them."""
    assert expected == printable(name)
