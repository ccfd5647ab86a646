"""The configuration file of a source: TOML, read with the place of whatever is wrong in it.

Unknown keys are refused with their path, so that a misspelt key never passes for a default.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from enum import Enum, EnumType
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from headwater.catalog.catalog_url import anchored, is_cluster
from headwater.errors import UsageFault
from headwater.publish.site import DEFAULT_SET, Site
from headwater.quantities import octets_from, seconds_from
from headwater.source.config import BadConfiguration, SetConfig, SourceConfig
from headwater.typed_decoding import from_values

_MOST_NAMED = 16  # keys of a small table; those of a large one are in the manual
_PERCENTAGE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*\Z")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_ENUM = re.compile(r"Invalid enum value")
_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}

Config = TypeVar("Config", SetConfig, SourceConfig)

_PATHS = ("authorities", "copy", "dataset", "documents", "files", "oxigraph", "resource_root", "state", "token_file")
_LISTS = ("exclude", "hashes", "hubs", "include", "mirrors", "patch", "resource_sets", "variants")


def read_config(path: Path) -> SourceConfig:
    """Read a TOML configuration; relative paths in it are relative to its own folder. Raises BadConfiguration."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as cause:
        raise BadConfiguration(f"cannot be read: {cause.strerror}", where=str(path)) from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise BadConfiguration(f"not TOML: {cause}", where=str(path)) from cause
    data = _spelled_out(data, path.absolute().parent)
    for number, table in enumerate(data["set"] if isinstance(data.get("set"), list) else [], 1):
        name = table.get("name", DEFAULT_SET) if isinstance(table, dict) else ""
        _read_set(table, f"{path}, [[set]] {number} {name!r}")
    if "configuration" in data:
        raise BadConfiguration("unknown key: configuration", where=str(path))
    return msgspec.structs.replace(_read(data, SourceConfig, str(path)), configuration=str(path.absolute()))


def _read_set(table: object, where: str) -> None:
    one = _read(table, SetConfig, where)
    try:
        Site(base_url="http://localhost", sets=(one.settings("http://localhost"),))
    except UsageFault as fault:
        fault.where = where
        raise


def _read(data: object, kind: type[Config], where: str) -> Config:
    """A record of this kind; whatever is wrong is said with its place. Raises UsageFault."""
    try:
        return from_values(data, kind)
    except msgspec.ValidationError as cause:
        raise BadConfiguration(refusal(str(cause), kind), where=where) from cause
    except UsageFault as fault:
        fault.where = f"{where}: {fault.where}" if fault.where else where
        raise


def refusal(words: str, kind: type[msgspec.Struct]) -> str:
    """What was wrong with a table, in the words of its writer: the key first, and the one that was probably meant."""
    what, _, place = words.partition(" - at `$.")
    place = place.rstrip("`").replace("[...]", "")
    key = re.sub(r"\[(\d+)\]", lambda index: f" {int(index[1]) + 1}", place)
    if unknown := _UNKNOWN.match(what):
        names = [one.encode_name for one in _fields(kind, re.sub(r"\[\d+\]", "", place))]
        meant = get_close_matches(unknown[1], names, 1) or [one for one in names if one.startswith(unknown[1])]
        possible = f"; possible are {', '.join(names)}" if 0 < len(names) <= _MOST_NAMED else ""
        what = f"unknown key: {unknown[1]}" + (f" (did you mean {meant[0]}?)" if meant else possible)
    elif _ENUM.match(what) and (values := _values(kind, place)):
        what = f"{what.replace('enum ', '')}, expected one of {', '.join(values)}"
    elif key == "set" and what.endswith("got `object`"):
        what = "write [[set]], in double brackets: there may be several"
    elif missing := _MISSING.match(what):
        what = f"{f'there is no [[{missing[1]}]] table' if missing[1] == 'set' else f'the key {missing[1]} is missing'}"
    what = re.sub(r"`([a-z]+(?: \| [a-z]+)*)`", lambda told: _kinds(told[1]), what)
    return f"{key}: {what[:1].lower()}{what[1:]}" if key else what


def _kinds(told: str) -> str:
    return ", or ".join(_KINDS.get(name, name) for name in told.split(" | "))


def _values(kind: type[msgspec.Struct], place: str) -> list[str]:
    """The values that the key at this place may have, where they are a closed set."""
    table, _, key = re.sub(r"\[\d+\]", "", place).rpartition(".")
    types = [one.type for one in _fields(kind, table) if one.encode_name == key]
    choices = [choice for one in types for choice in (one, *get_args(one))]
    closed = [str(one.value) for choice in choices if isinstance(choice, EnumType) for one in list[Enum](choice)]
    return closed or [text for choice in choices if get_origin(choice) is Literal for text in get_args(choice)]


def _fields(kind: type[msgspec.Struct], key: str) -> tuple[FieldInfo, ...]:
    """The keys that a table may have: this one, or the one that lies at a key of it, as `set.described`."""
    for name in filter(None, key.split(".")):
        of_name = [one for one in msgspec.structs.fields(kind) if one.encode_name == name]
        tables = [table for one in of_name for table in _tables(one.type)]
        if not tables:
            return ()
        kind = tables[0]
    return msgspec.structs.fields(kind)


def _tables(annotation: object) -> list[type[msgspec.Struct]]:
    """The tables that a type allows: itself, those of a list of them, or of a choice."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [table for one in get_args(annotation) for table in _tables(one)]


def _spelled_out(value: Any, folder: Path, key: str = "") -> Any:
    """A table of a configuration, and those in it, without short forms. What is none is left for others to refuse.

    A text stands for a list with it alone at the keys of lists, and for a number where the key says its unit, or it is
    a percentage (`50%`). Paths, also those in addresses of clusters, are counted from `folder`.
    """
    if isinstance(value, dict):
        return {name: _spelled_out(one, folder, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_spelled_out(one, folder) for one in value]
    if not isinstance(value, str):
        return value
    if key in _LISTS:
        return [value]
    if value and key in _PATHS:
        return str(folder / Path(value).expanduser())
    if key == "catalog" or (key == "index" and is_cluster(value)):
        return anchored(value, folder)
    if share := _PERCENTAGE.match(value):
        return float(share[1]) / 100
    read = seconds_from if key.endswith("_seconds") else octets_from if key.endswith("_octets") else None
    number = None if read is None else read(value)
    return value if number is None else number
