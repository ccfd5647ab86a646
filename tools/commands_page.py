"""Writes docs/reference/commands.md from the program itself: each command with its options.

`make docs` writes it with the other pages of the reference; a test fails when it and the program differ. Options that
several commands share are told once, in a section of their own: `GROUPS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

import click

from headwater.cli import COMMANDS, command_named, program
from headwater.cli.shared_options import SectionedCommand


class Group(NamedTuple):
    """Options that several commands share, as one command has them; a command with less than half tells them itself."""

    title: str
    path: tuple[str, ...]
    options: str
    """The names of their parameters."""


GROUPS = (
    Group("Most commands", ("status",), "as_json _click_default_help"),
    Group(
        "Access to a source",
        ("sync",),
        "concurrency rate bwlimit stall_seconds deadline_seconds token user headers cert key ca proxy",
    ),
    Group(
        "Publishing",
        ("serve",),
        "dataset set_name describedby include exclude hidden settle_seconds max_delete hashes dump change_dump patch"
        " archive lenient profile",
    ),
    Group(
        "Records",
        ("ingest", "events"),
        "to token ca proxy set_name config state catalog url_prefix resource_root load keep_loading dry_run",
    ),
    Group("Serving", ("serve",), "host port base_url catalog quiet log_format"),
    Group("RDF files", ("rdf", "canonical"), "syntax base output blank_nodes genid"),
)
"""In the order in which they are told; a command's option is left to the first that has the very same."""

HOW_TO = {
    "sync": "copy-a-source",
    "audit": "prove-a-copy",
    "export": "prove-a-copy",
    "restore": "prove-a-copy",
    "explore": "check-that-harvesters-can-read-you",
    "inspect": "check-that-harvesters-can-read-you",
    "publish": "publish-behind-a-web-server",
    "serve": "run-and-monitor-a-source",
    "hub": "push-changes-through-a-hub",
    "ingest": "publish-records-from-a-program",
    "status": "follow-many-sources",
    "why": "something-went-wrong",
    "allow-deletions": "handle-deletions-and-failures",
    "retry": "handle-deletions-and-failures",
    "forget": "handle-deletions-and-failures",
    "catalog": "back-up-restore-and-move",
    "versions": "offer-dumps-versions-and-archives",
    "rdf": "publish-an-rdf-dataset",
}
"""The page of instructions that a command's section leads to."""
SAID_OF_ALL = ("0 done", "2 usage", "6 fault of our own store")
"""Exit statuses that the page of messages explains for all commands."""
NATURAL_BOUNDS = ("x>=0", "x>=1", "x>0", "0<=x<=65535")
"""Bounds that go without saying."""

INTRODUCTION = """\
# Commands

Generated from the program by `make docs`; do not edit. `headwater COMMAND --help` shows the same, and
so does `man` (`make man`). `headwater --help` says in a line what each command does.

Commands: {commands}.

A command lists those of its exit statuses that mean more than [for all commands](messages.md#exit-statuses).

## Values

| value | how to write it |
|---|---|
| `SECONDS`, a duration | `60`, `90min`, `24h`, `7d` |
| `SIZE` | bytes, or `500MB`, `20GB`, `1.5GiB` |
| `SHARE` | `34%` or `0.34` |
| `TIME` | `2026-11-12T10:00:00Z`, or a date |
| `PLACE`, `CATALOG`, `STATE` | as the command says; for a source, best its configuration (`.toml`) |

| variable | for |
|---|---|
| `HEADWATER_TOKEN`, `HEADWATER_USER`, `HEADWATER_PASSWORD` | a source: `--token`, `--user` and its password |
| `HEADWATER_SPARQL_USER` | a SPARQL endpoint: `--sparql-user` |
| `HEADWATER_CLUSTER_USER` and `_PASSWORD`, or `_API_KEY` | a catalog on a search cluster |
| `HEADWATER_INDEX_USER` and `_PASSWORD`, or `_API_KEY` | an index that `ingest dit` or a set reads |
| `HTTPS_PROXY`, `http_proxy`, `NO_PROXY` | proxies, unless `--proxy` names one |
| `NETRC` | the file of credentials, in place of `~/.netrc` |
| `TMPDIR` | the folder of temporary files |
| `XDG_STATE_HOME` | the folder of states, in place of `~/.local/state` |

Headwater compares a `PATTERN` with the path of a file below the top of its set. Upper and lower case differ. A
pattern that matches a folder matches everything in it. An exclusion always wins.

| pattern | matches |
|---|---|
| `*.pdf` | names at any depth: a pattern without `/` matches names |
| `/drafts`, `2026/drafts` | paths from the top: a pattern with `/` begins there |
| `drafts/` | folders only, with everything in them |
| `a/**/b` | any number of folders between `a` and `b` |
| `[a-z]?.txt` | `[…]` one of these characters, `[!…]` none of them, `?` any, `*` any number, never `/` |
| `*://cdn.example/**` | for copies only: whole addresses |
"""


def render() -> str:
    """The whole page."""
    shared = {group: dict(_records(group.path, group.options.split())) for group in GROUPS}
    commands = ", ".join(f"[`{name}`](#headwater-{name})" for name in COMMANDS)
    parts = [INTRODUCTION.format(commands=commands), "## Common options\n"]
    for group, records in shared.items():
        parts += [f"### {group.title}\n", _listed(records.values())]
    parts += [_section(path, shared) for name in COMMANDS for path in command_paths(name)]
    return "\n".join(parts)


def command_paths(name: str) -> list[tuple[str, ...]]:
    """A command, and those of a group after it."""
    command = command_named(name)
    return [(name,), *((name, one) for one in command.commands)] if isinstance(command, click.Group) else [(name,)]


def context_of(path: tuple[str, ...]) -> click.Context:
    """The context in which a command is, without carrying it out."""
    context = click.Context(program, info_name="headwater", **program.context_settings)
    command: click.Command = program
    for name in path:
        found = command_named(name) if command is program else command.get_command(context, name)  # type: ignore[attr-defined]
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=name)
    return context


def options_of(context: click.Context) -> Iterator[tuple[str, str, str, str]]:
    """Of each option its parameter, the heading that begins with it, how it is written, and what it does."""
    headings = context.command.headings if isinstance(context.command, SectionedCommand) else {}
    for one in context.command.get_params(context):
        record = one.get_help_record(context) if isinstance(one, click.Option) else None
        if record is not None and one.name is not None:
            yield one.name, headings.get(one.name, ""), *record


def description(context: click.Context) -> list[str]:
    """What the command says of itself, by paragraphs."""
    return [" ".join(one.split()) for one in inspect.cleandoc(context.command.help or "").split("\n\n")]


def _records(path: tuple[str, ...], names: list[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    found = {name: (written, text) for name, _, written, text in options_of(context_of(path))}
    yield from ((name, found[name]) for name in names)


def _section(path: tuple[str, ...], shared: dict[Group, dict[str, tuple[str, str]]]) -> str:
    context = context_of(path)
    usage = [one for one in context.command.collect_usage_pieces(context) if one != "[OPTIONS]"]
    parts = [f"## headwater {' '.join(path)}\n", f"`{' '.join(('headwater', *path, *usage))}`\n"]
    told = description(context)
    parts += [f"{marked(one)}\n" for one in told if not one.startswith("Exit statuses")]
    if (page := HOW_TO.get(" ".join(path))) is not None:
        parts.append(f"[{page.replace('-', ' ').capitalize().replace('rdf', 'RDF')}](../how-to/{page}.md)\n")
    if isinstance(context.command, click.Group):
        listed = ", ".join(f"[`{name}`](#headwater-{path[0]}-{name})" for name in context.command.commands)
        parts.append(f"Commands: {listed}.\n")
    found = list(options_of(context))
    of_groups = {
        group: [name for name, _, *record in found if records.get(name) == tuple(record)]
        for group, records in shared.items()
    }
    left = {group: names for group, names in of_groups.items() if 2 * len(names) >= len(shared[group])}
    own: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    for name, heading, written, text in found:
        if heading:
            own.append((heading, []))
        if not any(name in names for names in left.values()):
            own[-1][1].append((written, text))
    for heading, records in own:
        if records:
            parts += [f"**{heading}**\n"] if heading else []
            parts.append(_listed(records))
    for group, names in left.items():
        if group is not GROUPS[0]:
            missing = [shared[group][name][0].split(" ")[0] for name in shared[group] if name not in names]
            but = f" but {', '.join(f'`{one}`' for one in missing)}" if missing else ""
            parts.append(f"Also the options of [{group.title}](#{group.title.lower().replace(' ', '-')}){but}.\n")
    parts += [text for one in told if one.startswith("Exit statuses") and (text := statuses_listed(marked(one)))]
    return "\n".join(parts)


def statuses_listed(text: str) -> str:
    """The exit statuses of a command as a list, but those that mean what they do everywhere."""
    head, _, rest = text.partition(": ")
    items = [one for one in re.split(r"; (?=\d)", rest.removesuffix(".")) if one not in SAID_OF_ALL]
    return "\n".join([f"{head}:\n", *(re.sub(r"^(\d+) ", r"- \1: ", one) for one in items), ""]) if items else ""


def _listed(records: object) -> str:
    lines = [f"- `{written}`: {sentence(text)}" for written, text in records]  # type: ignore[attr-defined]
    return "\n".join([*lines, ""])


def sentence(text: str) -> str:
    """What an option does, and after it its default and its bounds, as sentences."""
    said, *values = re.split(r"\s+\[(?=[^\]]*\]\s*(?:\[|$))", text.strip())
    for value in "; ".join(one.strip().rstrip("]") for one in values).split("; "):
        bounds = re.sub(r"^([\d.]+)<=x<=([\d.]+)$", r"From \1 to \2", "" if value in NATURAL_BOUNDS else value)
        bounds = re.sub(r"^x>=(\d+)$", r"At least \1", bounds)
        said += f" {bounds[0].upper()}{bounds[1:]}." if bounds else ""
    return marked(said)


def marked(text: str) -> str:
    """A text in which options, variables and the file of credentials are marked as code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(one if one.startswith("`") else _CODE.sub(lambda found: f"`{found[0]}`", one) for one in pieces)


_CODE = re.compile(r"(?<![\w-])--[a-z][a-z-]*|\bHEADWATER_[A-Z_]+|~/\.[\w./]*\w")
