"""A child that says what it is told to: `python -m ... DESCRIPTOR WORD BUNDLES`."""

from __future__ import annotations

import json
import socket
import sys


def main() -> None:
    """Load `BUNDLES`, join and leave as a worker does; "fail" cannot load, "die" says nothing."""
    _, descriptor, word, bundles = sys.argv
    if word == "die":
        sys.exit(3)
    with socket.socket(fileno=int(descriptor)) as connection:
        stream = connection.makefile("rwb")

        def say(**message: object) -> None:
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()

        if word == "fail":
            say(failed="no bundle")
            sys.exit(1)
        say(loaded=bundles, models=[])
        say(ready=False)
        for line in stream:
            if "leave" in json.loads(line):
                break
            say(ready=True)


if __name__ == "__main__":
    main()
