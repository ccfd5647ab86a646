"""Writes docs/reference/configuration.md: each key with its type and its default, as the program's structs have them.

What a key means is in `src/headwater/source/keys.txt`. `make docs` writes the page; a test fails when they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from headwater.catalog.interface import ClusterOptions
from headwater.publish.link_rules import DescribedRule, UrlRule
from headwater.publish.site import RESERVED
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.hubs_and_tokens import HubConfig, NotifyConfig

STRUCTS: dict[str, type[msgspec.Struct]] = {
    one.__name__: one
    for one in (SourceConfig, NotifyConfig, HubConfig, ClusterOptions, SetConfig, DescribedRule, UrlRule)
}
NOT_TOLD = {"SourceConfig": {"set", "configuration"}}
"""Fields that are no keys with a row of their own."""

_RESERVED = ", ".join(f"`{one}`" for one in sorted(RESERVED))

INTRODUCTION = """\
# Configuration

Generated from the program by `make docs`; do not edit. `headwater serve CONFIG` and `headwater publish CONFIG` read
this TOML file. `headwater check-config CONFIG` shows what is wrong with it.

```toml
# source.toml
state = "state"
base_url = "https://data.example.org"

[[set]]
name = "reports"
files = "/srv/reports"
exclude = ["drafts/", "*.tmp"]

[[set]]
name = "articles"
feed = "events"
token_file = "articles.token"
retention_seconds = "30 days"
```

- Paths are relative to the file. Options of the command line override the file. Headwater refuses unknown keys.
- Seconds are a number, `"90 min"`, `"12 h"` or `"30 days"`; bytes a number or `"20 GB"`; a share `0.2` or `"20%"`.
- One text may stand for a list of one.

The brackets after a key have its type and its default.
"""


class Key(NamedTuple):
    """What is said of a key in the table of the page."""

    name: str
    default: str | None
    meaning: str


class Group(NamedTuple):
    """Keys of one struct under one title."""

    struct: str
    title: str
    introduction: str
    keys: list[Key]


def groups() -> Iterator[Group]:
    """What the program's own text says, by groups."""
    text = files("headwater.source").joinpath("keys.txt").read_text("utf-8").replace("{reserved}", _RESERVED)
    for part in text.split("\n\n["):
        head, *lines = part.strip().splitlines()
        struct, found, title = head.partition("] ")
        if found:
            said = [re.fullmatch(r"([a-z_]+)(?: \[(.+?)\])?: (.+)", line) for line in lines]
            keys = [Key(*one.groups()) for one in said if one is not None]
            yield Group(struct, title, " ".join(lines[: len(lines) - len(keys)]), keys)


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for group in groups():
        fields = {one.encode_name: one for one in inspect.type_info(STRUCTS[group.struct]).fields}  # type: ignore[attr-defined]
        parts.append(f"## {group.title}\n")
        parts += [f"{group.introduction}\n"] if group.introduction else []
        for key in group.keys:
            field = fields[key.name]
            values = "; ".join(filter(None, (kind_of(field.type, key.name), key.default or default_of(field))))
            parts.append(f"- `{key.name}` ({values}): {key.meaning}")
        parts.append("")
    return "\n".join(parts)


def kind_of(kind: inspect.Type, key: str) -> str:
    """The type of a key, in words."""
    match kind:
        case inspect.UnionType():
            return " or ".join(kind_of(one, key) for one in kind.types if not isinstance(one, inspect.NoneType))
        case inspect.LiteralType():
            return ", ".join(f"`{one}`" for one in sorted(map(str, kind.values)))
        case inspect.EnumType():
            return ", ".join(f"`{one.value}`" for one in kind.cls)
        case inspect.BoolType():
            return "boolean"
        case inspect.DictType() | inspect.StructType():
            return "table"
        case inspect.VarTupleType():
            inner = kind_of(kind.item_type, key)
            return {"text": "texts", "table": "tables"}.get(inner, f"list of {inner}")
        case inspect.IntType() | inspect.FloatType():
            unit = "seconds" if key.endswith("_seconds") else "bytes" if key.endswith("_octets") else "number"
            if (kind.ge, kind.le) == (0, 1):
                return "share"
            return unit if kind.le is None else f"{unit} to {kind.le:g}" if kind.le < 1e6 else unit
    assert isinstance(kind, inspect.StrType), kind
    return "text"


def default_of(field: inspect.Field) -> str:
    """The default of a key, as it would stand in the file; none where there is none."""
    if field.required:
        return "required"
    value: Any = field.default
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    if value in (None, ""):
        return ""
    value = getattr(value, "value", value)
    shown = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{shown if 'e+' not in shown else int(value)}`"
