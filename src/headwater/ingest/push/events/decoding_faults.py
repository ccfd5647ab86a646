"""What a decoder of JSON finds wrong with a line, in the words of who has written it."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

import msgspec

from headwater.spec.records import ChangeKind

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte (\d+)\)")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_NAMES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}


def in_plain_words(words: str, kind: type[msgspec.Struct]) -> str:
    """What is wrong with a line that was to be a `kind`: the field first, and the one that was probably meant."""
    what, _, place = words.partition(" - at `$.")
    if unknown := _UNKNOWN.match(what):
        names = [one.encode_name for one in msgspec.structs.fields(kind)] if not place else []
        meant = get_close_matches(unknown[1], names, 1)
        what = f"unknown field: {unknown[1]}" + (f" (did you mean {meant[0]}?)" if meant else "")
    elif trailing := _TRAILING.match(what):
        what = f"more than one JSON text in a line: the second begins at octet {trailing[1]}; end each with"
        what += " a line feed (curl keeps them with --data-binary, not with -d)"
    elif what == "Input data was truncated":
        what = "the JSON text is cut off, or has half a surrogate pair"
    elif what.startswith("'utf-8' codec"):
        what = "the line is not UTF-8"
    elif what.startswith("Invalid enum value "):
        values = ", ".join(one.value for one in ChangeKind)
        what = f"{what.removeprefix('Invalid enum value ')} is none of {values}"
    elif missing := _MISSING.match(what):
        what = f"the field {missing[1]} is missing"
    elif not place and what.startswith("Expected `object`"):
        what = f"{what}: each line is one object"
    what = _TYPES.sub(lambda told: " or ".join(_NAMES.get(name, name) for name in told[1].split(" | ")), what)
    place = place.rstrip("`").replace("[...]", "")
    what = what if what.startswith("JSON") else f"{what[:1].lower()}{what[1:]}"
    return f"{place}: {what}" if place else what
