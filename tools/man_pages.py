"""Writes the man pages from the commands of the program: `python -m tools.man_pages [FOLDER]`, and `make man`.

They say what `--help` says: `headwater(1)`, and a page for each command, `headwater-sync(1)`. By default they go to
`build/man/man1`, where `man -M build/man headwater-sync` finds them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from headwater.cli import COMMANDS, SUMMARIES, program
from headwater.version import __version__
from tools.commands_page import command_paths, context_of, description, options_of

FOLDER = Path(__file__).resolve().parent.parent / "build" / "man" / "man1"


def pages() -> dict[str, str]:
    """The pages by the names of their files."""
    paths = [(), *(path for name in COMMANDS for path in command_paths(name))]
    return {f"{'-'.join(('headwater', *path))}.1": page(path) for path in paths}


def page(path: tuple[str, ...]) -> str:
    """The page of a command, or of the program."""
    context = context_of(path)
    command = context.command
    name = "-".join(("headwater", *path))
    first, *rest = description(context)
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [
        f'.TH "{roff(name.upper())}" 1 "" "headwater {__version__}" "Headwater"',
        f".SH NAME\n{roff(name)} \\- {roff(first.rstrip('.'))}",
        f".SH SYNOPSIS\n.B {roff(' '.join(('headwater', *path)))}\n{roff(usage)}",
    ]
    told = [one for one in rest if not one.startswith("Exit statuses")]
    if told:
        parts.append(".SH DESCRIPTION\n" + "\n.PP\n".join(map(roff, told)))
    parts.append(".SH OPTIONS")
    for _, heading, written, text in options_of(context):
        parts += [f".SS {roff(heading)}"] if heading else []
        parts.append(f".TP\n.B {roff(written)}\n{roff(text)}")
    if isinstance(command, click.Group):
        parts.append(".SH COMMANDS")
        for one in COMMANDS if command is program else command.commands:
            text = SUMMARIES[one] if command is program else command.commands[one].get_short_help_str(200)
            parts.append(f".TP\n.BR {roff(f'{name}-{one}')} (1)\n{roff(text)}")
    for one in rest:
        head, _, statuses = one.partition(": ")
        if one.startswith("Exit statuses"):
            parts.append(f".SH {roff(head.upper())}")
            for status in re.split(r"; (?=\d)", statuses.rstrip(".")):
                number, _, meaning = status.partition(" ")
                parts.append(f".TP\n.B {number}\n{roff(meaning)}")
    above = "-".join(("headwater", *path[:-1]))
    parts.append(
        f".SH SEE ALSO\n.BR {roff(above)} (1)" if path else ".SH SEE ALSO\nEach command has a page of its own."
    )
    return "\n".join([*parts, ""])


def roff(text: str) -> str:
    """A text as roff takes it, code in bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("–", "\\(en").replace("…", "...")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text).replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
