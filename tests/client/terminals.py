"""Terminals that show pictures: they say so when asked, and keep what they are shown."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable

from PIL import Image

_KITTY = re.compile(rb"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\")
_SIXEL = re.compile(rb"\x1bP[\d;]*q(.*?)\x1b\\", re.DOTALL)

Reply = Callable[[bytes], bytes]
"""What a terminal answers to what it is sent."""


def silent(_sent: bytes) -> bytes:
    """Answer no questions."""
    return b""


def sixel(sent: bytes) -> bytes:
    """Say that Sixel is shown, as attribute 4 of the device."""
    return b"\x1b[?62;4;22c" if b"\x1b[c" in sent else b""


def kitty(sent: bytes) -> bytes:
    """Say that Kitty's graphics protocol is understood, and Sixel is not."""
    asked = [keys for keys, _ in _KITTY.findall(sent) if b"a=q" in keys.split(b",")]
    numbers = [key for keys in asked for key in keys.split(b",") if key[:2] == b"i="]
    told = b"".join(b"\x1b_G%s;OK\x1b\\" % number for number in numbers)
    return (b"\x1b[?62;22c" if b"\x1b[c" in sent else b"") + told


def run_in(reply: Reply, url: str, *arguments: str, columns: int = 100) -> bytes:
    """What a command writes to a terminal of ten pixels a column and twenty a row."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (60 if columns else 0, columns))
    environment = {**os.environ, "CAPSNET_URL": url, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "capsnet", *arguments],
        stdin=its,
        stdout=its,
        stderr=its,
        env=environment,
    )
    os.close(its)
    content = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        content += part
        if said := reply(part):
            os.write(ours, said)
    os.close(ours)
    assert 0 == process.wait(60)
    return content


def kitty_pictures(shown: bytes) -> list[Image.Image]:
    """The pictures that were sent by Kitty's protocol, as PNG in chunks of base64."""
    pictures, chunks = [], b""
    for keys, payload in _KITTY.findall(shown):
        if b"a=q" in keys.split(b","):
            continue
        chunks += payload
        if b"m=1" not in keys.split(b",") and chunks:
            pictures.append(Image.open(io.BytesIO(base64.b64decode(chunks))))
            chunks = b""
    return pictures


def sixel_pictures(shown: bytes) -> list[Image.Image]:
    """The pictures that were sent as Sixel: six rows at a time, colour by colour."""
    return [_draw_sixels(body.decode()) for body in _SIXEL.findall(shown)]


def _draw_sixels(body: str) -> Image.Image:
    colours: dict[int, tuple[int, ...]] = {}
    pixels: dict[tuple[int, int], tuple[int, ...]] = {}
    x, y, colour, repeat = 0, 0, 0, 1
    for token in re.findall(r'"[\d;]*|#[\d;]+|![\d]+|[$\-]|[?-~]', body):
        kind, numbers = token[0], [int(one) for one in re.findall(r"\d+", token)]
        if kind == "#":
            colour = numbers[0]
            if len(numbers) == 5:
                colours[colour] = tuple(round(2.55 * share) for share in numbers[2:])
        elif kind == "!":
            repeat = numbers[0]
        elif kind in "$-":
            x, y = 0, y + (6 if kind == "-" else 0)
        elif kind != '"':
            bits = ord(kind) - ord("?")
            for step in range(repeat):
                pixels |= {
                    (x + step, y + row): colours[colour] for row in range(6) if bits >> row & 1
                }
            x, repeat = x + repeat, 1
    width, height = (1 + max(place[axis] for place in pixels) for axis in (0, 1))
    picture = Image.new("RGB", (width, height))
    for place, value in pixels.items():
        picture.putpixel(place, value)  # type: ignore[arg-type]
    return picture
