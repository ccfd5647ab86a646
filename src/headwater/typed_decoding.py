"""Values of known types from JSON and MessagePack, in programs of several threads.

msgspec (0.22 and before) shows others what it knows of a `Struct` before all of it is filled in: where two threads are
the first to decode one, the process ends by SIGSEGV. So what decodes is made here, by one thread at a time. What has
been made may be used by all.
"""

import re
import threading
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_DECODERS: dict[tuple[Any, Any], Callable[[bytes | str], Any]] = {}
_ONE_AT_A_TIME = threading.RLock()


def json_decoder(kind: type[T]) -> Callable[[bytes | str], T]:
    """What makes values of this type from JSON; it raises msgspec.ValidationError and msgspec.DecodeError."""
    return _decoder(msgspec.json.Decoder, kind)


def msgpack_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """The same from MessagePack."""
    return _decoder(msgspec.msgpack.Decoder, kind)


def _decoder(form: Any, kind: type[T]) -> Callable[[bytes | str], T]:
    decode = _DECODERS.get((form, kind))
    if decode is None:
        with _ONE_AT_A_TIME:
            decode = _DECODERS[form, kind] = form(kind).decode
    return decode


def from_json(octets: bytes | str, kind: type[T]) -> T:
    """A value of this type from JSON. Raises msgspec.ValidationError, msgspec.DecodeError."""
    return json_decoder(kind)(octets)


def from_msgpack(octets: bytes, kind: type[T]) -> T:
    """The same from MessagePack."""
    return msgpack_decoder(kind)(octets)


def from_values(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """A value of this type from dictionaries, lists, texts and numbers, as TOML gives them.

    Not `strict`: also numbers and truth values that are written as texts. Raises msgspec.ValidationError.
    """
    with _ONE_AT_A_TIME:
        return msgspec.convert(value, kind, strict=strict)


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_NAMES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}
_MOST_NAMED = 16  # fields of a small record; those of a large one are in the manual


def in_plain_words(what: str, fields: list[str], noun: str = "field") -> str:
    """What msgspec says of a value that it refuses, without the place: types by their usual names, and of a field that
    is none of these `fields` (called `noun`) the one that was probably meant."""
    if unknown := _UNKNOWN.match(what):
        meant = get_close_matches(unknown[1], fields, 1) or [one for one in fields if one.startswith(unknown[1])]
        possible = f"; possible are {', '.join(fields)}" if 0 < len(fields) <= _MOST_NAMED else ""
        return f"unknown {noun}: {unknown[1]}" + (f" (did you mean {meant[0]}?)" if meant else possible)
    if missing := _MISSING.match(what):
        return f"the {noun} {missing[1]} is missing"
    what = _TYPES.sub(lambda told: ", or ".join(_NAMES.get(name, name) for name in told[1].split(" | ")), what)
    return what if what.startswith("JSON") else f"{what[:1].lower()}{what[1:]}"
