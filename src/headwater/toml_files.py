"""Configuration files in TOML: their values as records of known types, and the secrets that they name.

Each fault names the key and shows no value, which may be secret.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from headwater.errors import UsageFault
from headwater.typed_decoding import from_values, in_plain_words

T = TypeVar("T")

_MOST_OCTETS: Final = 1 << 20
_FILE_ADVICE: Final = (
    "Name a file with one secret a line that the process may read; a relative path is relative to the configuration."
)


def read_toml(path: Path, fault: type[UsageFault]) -> dict[str, Any]:
    """The table of a file. Raises the `fault` where it cannot be read, or is not TOML."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as cause:
        raise fault(f"cannot be read: {cause.strerror}", where=str(path)) from cause
    except (ValueError, RecursionError) as cause:  # a number may have too many digits, and a list too many lists
        raise fault(f"not TOML: {cause}", where=str(path)) from cause


def record_from(
    table: object,
    kind: type[T],
    fault: type[UsageFault],
    *,
    strict: bool = True,
    tables: Mapping[str, type[msgspec.Struct]] = MappingProxyType({}),
    others: Iterable[str] = (),
) -> T:
    """A record of a table. Not `strict`: numbers and truth values may be written as texts.

    Raises the `fault`: what is wrong with which key, and which key was probably meant. `tables`: the records of tables
    in it; `others`: keys that are possible besides the fields.
    """
    try:
        return from_values(table, kind, strict=strict)
    except msgspec.ValidationError as cause:
        what, _, place = str(cause).partition(" - at `$.")
        key = place.rstrip("`").replace("[...]", "")
        of_table = next((tables[one] for one in reversed(re.findall(r"[a-z]\w*", key)) if one in tables), kind)
        fields = [one.encode_name for one in msgspec.structs.fields(of_table)]  # type: ignore[arg-type]
        what = in_plain_words(what, [*fields, *others], "key").replace("an object", "a table")
        raise fault(f"{key}: {what}" if key else what) from cause


def secret_texts(
    file: str | None, variable: str | None, fault: type[UsageFault], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """The secrets in a file, one a line, and in an environment variable. Raises the `fault` where there is none."""
    texts = []
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                texts = [text for line in lines.read(_MOST_OCTETS).splitlines() if (text := line.strip())]
        except (OSError, UnicodeDecodeError) as cause:
            reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8"
            raise fault(f"the file cannot be read: {reason}", where=file, advice=_FILE_ADVICE) from cause
        if not texts:
            raise fault("the file is empty", where=file, advice=_FILE_ADVICE)
    if variable is not None:
        if not (value := environment.get(variable, "").strip()):
            advice = f"Set it for the process (export {variable}=…), or name a file with the secret instead."
            raise fault("the environment variable is not set, or empty", where=variable, advice=advice)
        texts.append(value)
    return texts
