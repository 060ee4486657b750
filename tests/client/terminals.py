"""A terminal that shows pictures by Kitty's graphics protocol, or answers no questions."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import subprocess
import sys
import termios

from PIL import Image

_KITTY = re.compile(rb"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\")


def run_in_terminal(url: str, *arguments: str, kitty: bool = False, columns: int = 100) -> bytes:
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
        if kitty and (said := _reply(part)):
            os.write(ours, said)
    os.close(ours)
    assert 0 == process.wait(60)
    return content


def _reply(sent: bytes) -> bytes:
    """Say that Kitty's graphics protocol is understood, and Sixel is not."""
    asked = [keys.split(b",") for keys, _ in _KITTY.findall(sent)]
    numbers = [key for keys in asked if b"a=q" in keys for key in keys if key[:2] == b"i="]
    told = b"".join(b"\x1b_G%s;OK\x1b\\" % number for number in numbers)
    return (b"\x1b[?62;22c" if b"\x1b[c" in sent else b"") + told


def read_kitty_picture(shown: bytes) -> Image.Image:
    """The picture that was sent, a PNG in chunks of base64."""
    chunks = [chunk for keys, chunk in _KITTY.findall(shown) if b"a=q" not in keys.split(b",")]
    return Image.open(io.BytesIO(base64.b64decode(b"".join(chunks))))
