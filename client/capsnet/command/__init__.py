"""The command `capsnet`: what a network says of pictures, in the terminal."""

from __future__ import annotations


def main() -> None:
    """Run the command; its exit codes are those of `capsnet.command.session`."""
    from capsnet.command.app import app  # noqa: PLC0415  importing the client needs no typer

    app(prog_name="capsnet")
