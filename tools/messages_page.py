"""Writes docs/reference/messages.md from the program itself: exit statuses, error codes, notices.

`python -m tools.reference` writes it with the other pages of the reference; a test fails when they differ.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr

from headwater.cli.output import complain, tell
from headwater.cli.server_log import ServerLog
from headwater.errors import Exit, HeadwaterError, KnownMessage, exit_status_of, messages
from headwater.http.responses import error as answer
from headwater.progress import Notice

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
search this page, or add it to the address (`#hw-syn-22`).

```text
error: the backup folder is inside the copy
  where: copies/a/backup
  code: HW-SYN-22
  do: Name a folder outside it: `--backup-dir DIR`.
```

When you have removed the cause, run the same command again. It continues where it stopped, and nothing is lost.
"""
NOTICES = """A notice goes to standard error or the server's log, and ends nothing. Other notices name a rule of the
standard (RS-…, AMB-…, DST-…).
"""
FORMS = ("error", "note", "log", "answer")
"""How examples are printed: an error and a notice of a command, a line in a server's log, the body of an answer."""

TIME = "2026-11-12T10:00:00Z"
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
    """One code, which is its own anchor: what happened, why, what to do, and an example, which does not repeat that.

    `told`: where a long advice stands already.
    """
    status = f" (status {int(exit_status_of(one))})" if one.exit_status is not None else ""
    why = f" {one.why}" if one.why else ""
    advice = re.sub(r"\bdocs/([\w/-]+)\.md", linked, _AGAIN.sub("", one.advice))
    advice = re.sub(r"\bHW-[A-Z]+-\d\d\b", lambda found: f"[{found[0]}](#{found[0].lower()})", advice)
    printed = example(one)
    if len(advice) > 60 and told.setdefault(advice, one.code) != one.code:
        advice = f"See [{told[advice]}](#{told[advice].lower()})."
    else:
        printed = printed.replace(one.advice, "…")
    return f"### {one.code}\n\n**{one.what}**{status}{why}\n\n{advice}\n\n```text\n{printed}```\n"


def example(one: KnownMessage) -> str:
    """The example of a message as a terminal prints it, after a comment that says how it comes about."""
    form = next(name for name in FORMS if name in one.example)
    said = {name: re.sub(r"[{}]", "", text.replace("{do}", one.advice)) for name, text in one.example.items()}
    sentence, where, rule = said[form], said.get("where"), said.get("rule")
    fault = HeadwaterError(sentence, where=where, rule=rule, advice=said.get("advice"), code=one.code)
    when = said.get("when", "the body of the HTTP answer" if form == "answer" else "")
    with redirect_stderr(io.StringIO()) as printed:
        if when:
            printed.write(f"# {when}\n")
        if one.who == "interrupted":
            printed.write(f"{sentence}\n  do: {one.advice}\n")
        elif form == "error":
            complain(fault)
        elif form == "note":
            tell(Notice(rule or one.code, sentence, where))
        elif form == "log":
            ServerLog(as_json=False).progress(Notice(one.code, sentence, where))
        else:
            printed.write(f"{bytes(answer(fault).body).decode()}\n")
    return re.sub(r"^20\S+Z(?= )", TIME, printed.getvalue(), flags=re.MULTILINE)


def linked(found: re.Match[str]) -> str:
    """A page that an advice names, as a link."""
    path = found[1].removeprefix("reference/")
    title = path.rpartition("/")[2].replace("-", " ").capitalize().replace("rdf", "RDF")
    return f"[{title}]({'../' if '/' in path else ''}{path}.md)"
