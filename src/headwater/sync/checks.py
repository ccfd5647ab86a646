"""Holds what a program asks of a destination to the types and bounds that the command line has for the same options."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from headwater.errors import UsageFault

_NUMBER_AT_LEAST_ONE = (1, None)
BOUNDS: dict[str, tuple[float, float | None]] = {
    "max_delete": (0, 1),
    "concurrency": (1, 256),
    "largest": _NUMBER_AT_LEAST_ONE,
    "stall_seconds": _NUMBER_AT_LEAST_ONE,
    "retries": (0, None),
}
"""The least and the largest value of options that are numbers (None: no bound)."""

SECRETS = frozenset({"authorization", "password", "headers", "proxy"})
"""Options whose values are never shown."""

_ABOVE_ZERO = frozenset({"rate", "bwlimit"})
_WORDS: dict[Any, str] = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}


def checked(options: msgspec.Struct) -> None:
    """Hold each field to its type and its bounds; a list where a tuple is meant becomes one. Raises UsageFault."""
    for field in msgspec.structs.fields(options):
        value = getattr(options, field.name)
        try:
            taken = msgspec.convert(value, field.type)
        except (msgspec.ValidationError, TypeError):
            found = "what was given" if field.name in SECRETS else f"{value!r:.200}"
            raise UsageFault(f"{field.name} is {_kind(field.type)}, not {found}", advice=_ADVICE) from None
        _check_bounds(field.name, taken)
        if taken is not value:
            msgspec.structs.force_setattr(options, field.name, taken)


_ADVICE = "Correct the call; docs/library.md lists every option, its type and what it may be."


def _check_bounds(name: str, value: Any) -> None:
    if value is None:
        return
    if name in _ABOVE_ZERO and not value > 0:
        raise UsageFault(f"{name} is more than 0, not {value}", advice=_ADVICE)
    least, largest = BOUNDS.get(name, (None, None))
    if (least is not None and not value >= least) or (largest is not None and not value <= largest):
        said = f"between {least:,} and {largest:,}" if largest is not None else f"{least:,} or more"
        raise UsageFault(f"{name} is {said}, not {value}", advice=_ADVICE)


def _kind(annotation: Any) -> str:
    """What a value of this type is, in words."""
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join("None" if one is type(None) else _kind(one) for one in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f'several of them in a tuple or list, as ("{"…"}",)'
    return _WORDS.get(annotation, str(annotation))
