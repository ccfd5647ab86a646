"""Writes docs/reference/messages.md from the program itself: exit statuses, error codes, notices.

`python -m tools.reference` writes it with the other pages of the reference; a test fails when they differ.
"""

from __future__ import annotations

import re

from headwater.errors import Exit, KnownMessage, exit_status_of, messages

STATUSES = {
    Exit.DONE: "Done; the copy is in sync.",
    Exit.FINDINGS: "Not in sync, or findings.",
    Exit.USAGE: "Usage error: the command or the configuration is invalid.",
    Exit.SOURCE: "Fault of the source: unreachable, not ResourceSync, or broken documents.",
    Exit.TRANSFERS_FAILED: "Done, but transfers failed, or deletions wait for your consent.",
    Exit.UNDETERMINED: "Undetermined: the source changed meanwhile, or there is nothing to compare with.",
    Exit.STORE: "Fault on your side: disk full, no permission, locked, or written by a newer version.",
    Exit.BUG: "A bug in Headwater.",
    Exit.INTERRUPTED: "Interrupted (Ctrl-C). The same command continues.",
}
OTHER_STATUSES = {
    143: "Ended by SIGTERM; safe. Servers and `--follow` end with 0.",
    141: "The reader of the output has ended.",
}
KINDS = {
    "usage": "Usage errors (status 2)",
    "source": "Faults of the source (status 3)",
    "undetermined": "Undetermined (status 5)",
    "store": "Faults on your side (status 6)",
    "interrupted": "Interrupted (status 130)",
    "bug": "Bugs (status 70)",
    "notice": "Notices",
}
"""Sections of the page, by who must act."""

INTRODUCTION = """# Messages

Generated from the program by `make docs`; do not edit.

Headwater writes each error to standard error. Scripts may rely on codes and statuses: they are stable. To find a code,
search this page, or add it to the address (`#hw-syn-07`).

```text
error: the folder is a copy of another source
  where: copies/a
  code: HW-SYN-07
  do: Name another folder for this source, or the source of this folder.
```

When you have removed the cause, run the same command again. It continues where it stopped, and nothing is lost.
"""
NOTICES = """A notice goes to standard error or the server's log, and ends nothing. Other notices name a rule of the
standard (RS-…, AMB-…, DST-…).
"""
_AGAIN = re.compile(r"(?:,|\.|,? and) (?:[Tt]hen )?run the same command again(?=[.:])(?:: nothing (?:is|was) lost)?")


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Exit statuses\n", status_table()]
    told: dict[str, str] = {}
    for who, title in KINDS.items():
        parts += [f"## {title}\n", *([NOTICES] if who == "notice" else [])]
        parts += [section(one, told) for _, one in sorted(messages().items()) if one.who == who]
    return "\n".join(parts)


def status_table() -> str:
    assert set(STATUSES) == set(Exit)
    rows = [f"| {int(status)} | {text} |" for status, text in sorted((STATUSES | OTHER_STATUSES).items())]
    return "\n".join(["| status | all commands |", "|---|---|", *rows, ""])


def section(one: KnownMessage, told: dict[str, str]) -> str:
    """One code, which is its own anchor: what happened, why, what to do; `told`: where a long advice stands already."""
    status = f" (status {int(exit_status_of(one))})" if one.exit_status is not None else ""
    why = f" {one.why}" if one.why else ""
    advice = re.sub(r"\bdocs/([\w/-]+)\.md", linked, _AGAIN.sub("", one.advice))
    advice = re.sub(r"\bHW-[A-Z]+-\d\d\b", lambda found: f"[{found[0]}](#{found[0].lower()})", advice)
    if len(advice) > 60 and told.setdefault(advice, one.code) != one.code:
        advice = f"See [{told[advice]}](#{told[advice].lower()})."
    return f"### {one.code}\n\n**{one.what}**{status}{why}\n\n{advice}\n"


def linked(found: re.Match[str]) -> str:
    """A page that an advice names, as a link."""
    path = found[1].removeprefix("reference/")
    title = path.rpartition("/")[2].replace("-", " ").capitalize().replace("rdf", "RDF")
    return f"[{title}]({'../' if '/' in path else ''}{path}.md)"
