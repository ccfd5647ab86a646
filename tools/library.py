"""Writes docs/library.md from the library itself: every name of `import headwater`, its signature, fields and meaning.

`make docs` writes it; a test fails when the page and the library differ.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import msgspec

import headwater
from headwater.cli.sync import command as sync_command
from headwater.progress import PHASES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "library.md"

CHAPTERS = {
    "Copy a source": (
        *("sync_folder", "SyncOptions", "SyncReport", "SetReport", "FailedTransfer", "PlannedAction", "TransferWay"),
        *("UnverifiedVersion", "DatasetReport", "StoreReport", "copy_status", "CopyStatus", "RunStatus", "SetStatus"),
        *("FailedResource", "HeldBackDeletion", "Done", "copy_records", "CopyRecord"),
    ),
    "Prove that a copy is in sync": (
        *("audit_folder", "AuditReport", "SetAudit", "Finding", "StoreAudit"),
        *("export_manifest", "export_bag", "restore_copy", "ExportReport"),
    ),
    "See what a source offers": (
        *("explore_source", "ExploreReport", "ExploreNode", "ExploreWarning", "DumpLimits"),
        "changes",
    ),
    "Publish a folder": ("publish_folder", "Placing", "PublishReport"),
    "Read documents": (*("read_document", "read_bytes", "Reading", "WholeReading", "Reader", "ReadLimits", "Warned"),),
    "Write documents": ("write_file", "write_document", "DocumentWriter", "Profile"),
    "What documents say": (
        *("Document", "Entry", "Link", "Extra", "ChangeKind", "Kind", "Digest", "AbsentResource", "AbsenceReason"),
    ),
    "Progress and notes": ("Listener", "Progress", "Notice"),
    "Errors": (
        *("HeadwaterError", "UsageFault", "WriteRefused", "SourceFault", "DocumentFault", "StoreFault"),
        *("Undetermined", "Interrupted", "Exit"),
    ),
}
"""Every exported name, in the order in which the page tells of them."""


_REPORTS = ("SyncReport", "SetReport", "CopyStatus", "AuditReport", "SetAudit", "ExploreReport")
NOTES = dict.fromkeys(_REPORTS, "What the fields mean: [output for programs](destination.md#output-for-programs).")
"""What is said of a name besides its own words."""

ALIASES = {
    "Listener": "A function that takes a `Progress` or a `Notice`, as `listener=` of the functions above:\n"
    "`Callable[[Progress | Notice], None]`. What it raises ends the job.",
    "Placing": 'How files get into the output: `Literal["link", "copy", "none"]`, as hard links (copies where the\n'
    "system allows no links), as copies, or not at all.",
    "Extra": "Attributes of other namespaces: `tuple[tuple[str, str], ...]`, pairs of `{namespace}name` and value.",
}
"""What is said of names that are types of others."""

_NOT_TOLD = ("self", "now", "transport")


def main() -> None:
    PAGE.write_text(render(), "utf-8")


def render() -> str:
    """The whole page."""
    parts = [
        "# The library\n",
        "Generated from the library by `make docs`; do not edit. Examples, which the tests run, are in the\n"
        "[manual](manual.md#the-library). Everything is typed (`py.typed`), and loaded when it is first used.\n"
        "Parameters that only tests and services of our own need (`now`, `transport`, `hints`) are left out. Every\n"
        "name on this page can be imported from `headwater`. Reports and entries are records of `msgspec`: with\n"
        "`one.to_dict()` there is what `json.dumps` takes, with `msgspec.structs.replace(one, path=…)` another one.\n"
        "There is no application (ASGI, WSGI) of a source to be mounted in a server of your own: run\n"
        "`headwater serve` beside it.\n",
    ]
    parts.append(" · ".join(f"[{title}](#{anchor(title)})" for title in CHAPTERS) + "\n")
    for title, names in CHAPTERS.items():
        parts.append(f"## {title}\n")
        parts += [section(name) for name in names]
        if title == "Progress and notes":
            parts.append(phases())
    return "\n".join(parts)


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def section(name: str) -> str:
    """One exported name."""
    thing = getattr(headwater, name)
    if name in ALIASES:
        return f"### {name}\n\n{ALIASES[name]}\n"
    if inspect.isfunction(thing):
        return f"### {name}\n\n```python\n{signature(name, thing)}\n```\n\n{doc(thing)}\n"
    parts = [f"### {name}\n", doc(thing) + "\n"]
    if issubclass(thing, Enum):
        parts.append(", ".join(f"`{one.name}` ({one.value})" for one in thing) + "\n")
    elif issubclass(thing, msgspec.Struct):
        parts.append(fields(name, thing))
        parts.append(f"{NOTES[name]}\n" if name in NOTES else "")
    elif not issubclass(thing, Exception):
        parts.append(f"```python\n{signature(name, thing.__init__)}\n```\n")
    parts.append(members(thing))
    return "\n".join(part for part in parts if part)


def doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def outside(text: str) -> str:
    """Names as they are exported, in the text of a signature or a type."""
    for names in headwater._HOMES.values():
        for pair in names.split():
            inside, _, exported = pair.partition("=")
            if exported:
                text = re.sub(rf"\b{inside}\b(?!\()", exported, text)
    return text


def signature(name: str, thing: Any) -> str:
    """A function's parameters, one a line when they do not fit."""
    found = inspect.signature(thing)
    wanted = [one for one in found.parameters.values() if one.name not in _NOT_TOLD]
    told: list[str] = []
    said = annotations_of(thing)
    for one in wanted:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in told:
            told.append("*")
        told.append(outside(parameter(one, said[one.name])))
    back = said.get("return", "None")
    arrow = "" if back == "None" else f" -> {outside(back)}"
    line = f"{name}({', '.join(told)}){arrow}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in told) + f"){arrow}"


def annotations_of(thing: Any) -> dict[str, str]:
    """The annotations of a function or a class as the source has them."""
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(node, ast.FunctionDef):
        arguments = (*node.args.args, *node.args.kwonlyargs)
        pairs = [*((one.arg, one.annotation) for one in arguments), ("return", node.returns)]
    else:
        assert isinstance(node, ast.ClassDef)
        pairs = [(ast.unparse(one.target), one.annotation) for one in node.body if isinstance(one, ast.AnnAssign)]
    return {name: ast.unparse(annotation) for name, annotation in pairs if annotation is not None}


def parameter(one: inspect.Parameter, annotation: str) -> str:
    text = f"{one.name}: {annotation}"
    if one.default is inspect.Parameter.empty:
        return text
    default = one.default
    if isinstance(default, Enum):
        shown = f"{type(default).__name__}.{default.name}"
    else:
        shown = default.__name__ if inspect.isfunction(default) else repr(default)
    return f"{text} = {shown}"


def fields(name: str, thing: type[msgspec.Struct]) -> str:
    """A table of a record's fields: type, default, meaning."""
    meanings = said_of_fields(thing)
    if name == "SyncOptions":
        meanings = {one: meanings.get(one) or said_by_the_command(one) for one in thing.__struct_fields__}
    rows = []
    ours = [one for one in reversed(thing.__mro__) if one.__module__.startswith("headwater.")]
    kinds = {name: kind for one in ours for name, kind in annotations_of(one).items()}
    for one in msgspec.structs.fields(thing):
        default = "" if one.required else f"`{default_of(one)}`"
        kind = outside(kinds[one.name])
        kind = re.sub(r"Annotated\[(\w+), Meta\(.*?\)\]", r"\1", kind)  # what it may be is said by the command
        rows.append(f"| `{one.name}` | `{escaped(kind)}` | {default} | {escaped(meanings.get(one.name, ''))} |")
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows, ""])


def default_of(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{field.default_factory()!r}"
    value = field.default
    return repr(value.value if isinstance(value, Enum) else value)


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def said_of_fields(thing: type) -> dict[str, str]:
    """What stands below each field in the source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for before, after in pairwise(body):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and is_text:
            found[before.target.id] = " ".join(str(after.value.value).split())
    return found


def said_by_the_command(name: str) -> str:
    """What `headwater sync --help` says of the same option."""
    for one in sync_command.params:
        if isinstance(one, click.Option) and one.name == name and one.help:
            return re.sub(r"\s*\[default: [^\]]*\]", "", " ".join(one.help.split()))
    return ""


def members(thing: type) -> str:
    """The methods and properties that a class of ours has itself or inherits, and what they say."""
    rows = []
    for name, one in inspect.getmembers(thing):
        home = next((kind for kind in thing.__mro__ if name in vars(kind)), object)
        if name.startswith("_") or not home.__module__.startswith("headwater."):
            continue
        if isinstance(one, property):
            rows.append(f"- `{name}`: {first(one)}")
        elif inspect.isfunction(one):
            rows.append(f"- `{escaped(signature(name, one))}`: {first(one)}")
    return "\n".join([*rows, ""]) if rows else ""


def first(thing: Any) -> str:
    return " ".join(doc(thing).split())


def phases() -> str:
    rows = [f"| `{phase}` | {meaning} |" for phase, meaning in PHASES.items()]
    return "\n".join(["| `phase` of `Progress` | what is counted |", "|---|---|", *rows, ""])


if __name__ == "__main__":
    main()
