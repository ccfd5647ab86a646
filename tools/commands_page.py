"""Writes docs/reference/commands.md from the program itself: each command with its options.

`make docs` writes it with the other pages of the reference; a test fails when it and the program differ.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import click

from headwater.cli import COMMANDS, command_named, program

WIDTH = 100


def render() -> str:
    """The whole page."""
    parts = ["# Commands\n", "Generated from the program by `make docs`; do not edit.\n"]
    return "\n".join([*parts, *(command_section(path) for name in COMMANDS for path in command_paths(name))])


def command_paths(name: str) -> list[tuple[str, ...]]:
    """A command, and those of a group after it."""
    command = command_named(name)
    return [(name,), *((name, one) for one in command.commands)] if isinstance(command, click.Group) else [(name,)]


def command_section(path: tuple[str, ...]) -> str:
    with redirect_stdout(io.StringIO()) as said:
        program.main([*path, "--help"], "headwater", standalone_mode=False, terminal_width=WIDTH)
    return f"## headwater {' '.join(path)}\n\n```text\n{said.getvalue()}```\n"
