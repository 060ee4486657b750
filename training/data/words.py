"""Names in the letters that addresses, headers and file names of all systems take."""

from __future__ import annotations

import re
import unicodedata

_PAIRS = """
аa бb вv гg дd еe жzh зz иi йy кk лl мm нn оo пp рr сs тt уu фf хkh цts чch шsh щshch ъ ыy ь эe юyu яya
ёyo єye іi їyi ґg ўu
αa βv γg δd εe ζz ηi θth ιi κk λl μm νn ξx οo πp ρr σs ςs τt υy φf χch ψps ωo
ßss æae œoe øo łl đd ðd þth ıi
"""  # noqa: E501, RUF001  a letter, and the Latin letters for it
_LETTERS = {pair[0]: pair[1:] for pair in _PAIRS.split()}
"""Latin letters for others, as passports and road signs write them."""
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a terminal's cursor, starts a line or reorders text."""


def to_ascii_name(text: str) -> str:
    """Return a text in lower-case letters a to z and digits, with `-` between words.

    Cyrillic and Greek letters are transliterated, and accents are dropped: "Meine Äpfel" is
    `meine-apfel`, "Мои фигуры" is `moi-figury`. Letters of other scripts are left out, so that the
    result may be empty.
    """
    letters = unicodedata.normalize("NFC", text).lower()
    latin = "".join(_LETTERS.get(letter, letter) for letter in letters)
    plain = (one for one in unicodedata.normalize("NFKD", latin) if not unicodedata.combining(one))
    # Without its accent, a Greek letter is one of the table.
    return "-".join(re.findall("[a-z0-9]+", "".join(_LETTERS.get(one, one) for one in plain)))


def printable(text: str) -> str:
    r"""Return a text whose control characters are written as escapes, such as `\x1b`.

    A name of a file may hold any, and a terminal would obey them.
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)
