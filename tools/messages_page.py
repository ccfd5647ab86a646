"""Writes docs/reference/messages.md from the program itself: exit statuses, error codes, notices.

`make docs` writes it with the other pages of the reference; a test fails when it and the program differ.
"""

from __future__ import annotations

from headwater.errors import Exit, exit_status_of, messages

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


def render() -> str:
    """The whole page."""
    parts = ["# Messages\n", "Generated from the program by `make docs`; do not edit.\n"]
    parts += ["## Exit statuses\n", "The same for all commands.\n", status_table()]
    parts += ["## Error codes\n", errors_introduction(), error_table()]
    parts += ["## Notices\n", notices_introduction(), notice_table()]
    return "\n".join(parts)


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
        f"| {one.code} | {int(exit_status_of(one))} | {cell(one.what)} | {cell(one.advice)} |"
        for one in sorted(messages().values())
        if not one.is_notice
    ]
    return "\n".join(["| code | exit status | what | what to do |", "|---|---|---|---|", *rows, ""])


def notices_introduction() -> str:
    return (
        "Written to standard error, or to the log of a server, without ending the run; `publish --json` counts them.\n"
        "Notices about documents and copies name the rule of the standard instead (RS-…, AMB-…, DST-…).\n"
    )


def notice_table() -> str:
    rows = [
        f"| {one.code} | {cell(one.what)} | {cell(one.advice)} |"
        for one in sorted(messages().values())
        if one.is_notice
    ]
    return "\n".join(["| code | what | what to do |", "|---|---|---|", *rows, ""])


def cell(text: str) -> str:
    """A text as a cell of a table has it."""
    return text.replace("|", "\\|")
