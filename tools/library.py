"""Writes docs/reference/library.md from the library itself: each name of `import headwater`, and what it means.

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

import msgspec

import headwater
from headwater.progress import PHASES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "library.md"

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
        *("changes", "SourceChanges"),
    ),
    "Follow many sources": ("events", "Event"),
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


ALIASES = {
    "Listener": "A function that takes a `Progress` or a `Notice`, as `listener=` of the functions above:\n"
    "`Callable[[Progress | Notice], None]`. What it raises ends the job.",
    "Placing": 'How files get into the output: `Literal["link", "copy", "none"]`, as hard links (copies where the\n'
    "system allows no links), as copies, or not at all.",
    "Extra": "Attributes of other namespaces: `tuple[tuple[str, str], ...]`, pairs of `{namespace}name` and value.",
}
"""What is said of names that are types of others."""

INTRODUCTION = """Generated from the library by `make docs`; do not edit.

Import every name from `headwater`. Everything is typed (`py.typed`). [Feed an index](../how-to/feed-an-index.md) has
examples. [Outputs](outputs.md) says what the fields of reports mean, and [`sync`](commands.md#headwater-sync) what
those of `SyncOptions` do.

Reports and entries are `msgspec` records. `one.to_dict()` gives what `json.dumps` takes, with the keys of `--json`.
`msgspec.structs.replace(one, path=…)` gives a changed copy.

Run `headwater serve` beside your own server: the library has no ASGI or WSGI application.
"""
ASYNCIO = """## In an asyncio program

Run the function in a thread. To cancel it, pass `stopped`: when it returns true, transfers stop at once. The next call
continues.

```python
import asyncio
import contextlib
import threading

import headwater


async def copy(url: str, folder: str) -> headwater.SyncReport:
    stop = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(headwater.sync_folder, url, folder, stopped=stop.is_set))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        with contextlib.suppress(headwater.HeadwaterError):
            await work
        raise


print(asyncio.run(copy("http://127.0.0.1:8000/", "library-copy")).exit_status)
```
"""
"""Whose function the tests run."""
_NOT_TOLD = ("self", "now", "transport")
_SAID_ONCE = ("to_dict",)
"""Methods of many, which the introduction describes."""


def main() -> None:
    PAGE.write_text(render(), "utf-8")


def render() -> str:
    """The whole page."""
    parts = ["# Python library\n", INTRODUCTION]
    for title, names in CHAPTERS.items():
        parts.append(f"## {title}\n")
        parts += [section(name) for name in names]
        if title == "Progress and notes":
            parts.append(phases())
    return "\n".join([*parts, ASYNCIO])


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
        parts += ["```python", *textwrap.wrap(", ".join(value(one) for one in thing), 100), "```\n"]
    elif issubclass(thing, msgspec.Struct):
        parts.append(fields(name, thing))
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


def value(one: Enum) -> str:
    """A value of an enumeration, with what stands for it where the name does not tell."""
    return one.name if one.value == one.name.lower().replace("_", "-") else f"{one.name} = {one.value!r}"


def fields(name: str, thing: type[msgspec.Struct]) -> str:
    """A record's fields as the source has them, and a table of those whose name does not tell all."""
    meanings = said_of_fields(thing)
    rows, lines = [], []
    ours = [one for one in reversed(thing.__mro__) if one.__module__.startswith("headwater.")]
    kinds = {name: kind for one in ours for name, kind in annotations_of(one).items()}
    for one in msgspec.structs.fields(thing):
        kind = re.sub(r"Annotated\[(\w+), Meta\(.*?\)\]", r"\1", outside(kinds[one.name]))  # the command tells bounds
        lines.append(f"{one.name}: {kind}" + ("" if one.required else f" = {default_of(one)}"))
        if meanings.get(one.name):
            rows.append(f"| `{one.name}` | {escaped(meanings[one.name])} |")
    table = ["| field | meaning |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(["```python", *lines, "```\n", *table])


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


def members(thing: type) -> str:
    """The methods and properties that a class of ours has itself or inherits, and what they say."""
    rows = []
    for name, one in inspect.getmembers(thing):
        home = next((kind for kind in thing.__mro__ if name in vars(kind)), object)
        if name.startswith("_") or name in _SAID_ONCE or not home.__module__.startswith("headwater."):
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
