"""Writes docs/reference.md from the program itself: commands and options, exit statuses, error codes, notices.

`make docs` writes it; a test fails when the page and the program differ.
"""

from __future__ import annotations

import ast
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click

import headwater
from headwater.cli import COMMANDS
from headwater.errors import Exit, HeadwaterError
from headwater.notices import NOTICES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
STATUSES = {
    Exit.DONE: "Done; the copy is in sync.",
    Exit.FINDINGS: "Not in sync, or findings.",
    Exit.USAGE: "Usage error: the command line or the configuration is invalid.",
    Exit.SOURCE: "Fault of the source: unreachable, not ResourceSync, broken or hostile documents.",
    Exit.TRANSFERS_FAILED: "Done, but some transfers failed or were held back; they are remembered and retried.",
    Exit.UNDETERMINED: "Undetermined: the source changed while it was read, or there is nothing to compare with.",
    Exit.STORE: "Fault of our own store: disk full, no permission, locked, written by a newer version.",
    Exit.BUG: "A bug in Headwater; the lines on standard error say how to report it.",
    Exit.INTERRUPTED: "Interrupted (Ctrl-C). The same command continues where this one stopped.",
}
OTHER_STATUSES = {
    143: "Ended by SIGTERM, as safe as Ctrl-C; servers and `--follow` end with 0 then.",
    141: "The program that reads the output has ended.",
}


def main() -> None:
    PAGE.write_text(render(), "utf-8")


def render() -> str:
    """The whole page."""
    parts = ["# Reference\n", "Generated from the program by `make docs`; do not edit.\n"]
    parts += ["## Commands\n", *(command_section(path) for name in COMMANDS for path in command_paths(name))]
    parts += ["## Exit statuses\n", "The same for all commands.\n", status_table()]
    parts += ["## Error codes\n", errors_introduction(), error_table()]
    parts += ["## Notices\n", notices_introduction(), notice_table()]
    return "\n".join(parts)


def command_paths(name: str) -> list[tuple[str, ...]]:
    """A command, and those of a group after it."""
    command = import_module(COMMANDS[name][0]).command
    return [(name,), *((name, one) for one in command.commands)] if isinstance(command, click.Group) else [(name,)]


def command_section(path: tuple[str, ...]) -> str:
    name = " ".join(path)
    command = [sys.executable, "-m", "headwater", *path, "--help"]
    environment = {**os.environ, "COLUMNS": "102"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return f"### headwater {name}\n\n```text\n{said}```\n"


def status_table() -> str:
    assert set(STATUSES) == set(Exit)
    rows = [f"| {int(status)} | {text} |" for status, text in sorted((STATUSES | OTHER_STATUSES).items())]
    return "\n".join(["| status | meaning |", "|---|---|", *rows, ""])


def errors_introduction() -> str:
    return (
        "Every error is written to standard error with what happened, where, the code (and the rule of the standard,\n"
        "if there is one), and what to do. Codes are stable: scripts may rely on them.\n"
    )


def error_table() -> str:
    rows = [
        f"| {kind.code} | {int(kind.exit_status)} | {first_sentence(kind)} | {kind.advice} |"
        for kind in sorted(error_kinds(), key=lambda kind: (kind.code, kind.__name__))
    ]
    return "\n".join(["| code | exit status | what | what to do |", "|---|---|---|---|", *rows, ""])


def notices_introduction() -> str:
    return (
        "Written to standard error, or to the log of a server, without ending the run; `publish --json` counts them.\n"
        "Notices about documents and copies name the rule of the standard instead (RS-…, AMB-…, DST-…).\n"
    )


def notice_table() -> str:
    rows = [f"| {one.code} | {one.meaning} | {one.advice} |" for one in sorted(NOTICES.values())]
    return "\n".join(["| code | what | what to do |", "|---|---|---|", *rows, ""])


def first_sentence(kind: type[HeadwaterError]) -> str:
    text = " ".join((kind.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".").replace("|", "\\|") + "."


def error_kinds() -> set[type[HeadwaterError]]:
    """Every error class that states a code of its own, in any module of the package, but for branches: classes that
    only group others and are never raised themselves."""
    for module in pkgutil.walk_packages(headwater.__path__, "headwater."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    kinds: set[type[HeadwaterError]] = set()
    waiting = [HeadwaterError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "code" in vars(kind):
            kinds.add(kind)
    kinds = {kind for kind in kinds if kind.__module__.startswith("headwater.")}
    raised = raised_names()
    return {kind for kind in kinds if kind.__name__ in raised or not kind.__subclasses__()}


def raised_names() -> set[str]:
    """The names that something of the package calls, or hands on to be called."""
    names: set[str] = set()
    for path in Path(headwater.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names.add(node.func.id)
            elif isinstance(node, ast.Dict):
                names |= {value.id for value in node.values if isinstance(value, ast.Name)}
    return names


if __name__ == "__main__":
    main()
