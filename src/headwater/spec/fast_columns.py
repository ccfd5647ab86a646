"""Fast path for columns of values that are all of the usual shape: checked and written many at once.

Each function gives None where one value at a time has to do it, which then gives the same or says what is wrong:
`checks` and `markup`.
"""

import datetime as dt
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.spec.records import HEX_LENGTH
from headwater.spec.text_values import URI_CHARACTERS

IS_ON = True
"""Whether it is used: tests and measurements do without."""

_PLAIN_URIS = re.compile(f"(?:https?://[0-9A-Za-z][{URI_CHARACTERS}]{{0,2000}}\n)*").fullmatch
_SHAPES: Final = {
    sum(len(f"{name}:") + HEX_LENGTH[name] + 1 for name in names) - 1: (
        re.compile("(?:" + " ".join(f"{name}:[^\n]{{{HEX_LENGTH[name]}}}" for name in names) + "\n)*").fullmatch,
        len(re.sub("[0-9a-f]", "", " ".join(f"{name}:" for name in names) + "\n")),
    )
    for names in (("md5", "sha-256"), ("md5",), ("sha-256",), ("md5", "sha-1", "sha-256"))
}
"""By length of the text: an expression for many texts in lines, and what is left of one without its hex digits."""


def written_moments(times: Sequence[dt.datetime]) -> list[str] | None:
    """The times as they are written; all are in UTC."""
    if not IS_ON:
        return None
    try:
        texts = msgspec.json.encode(times).decode("ascii")[2:-2].split('","') if times else []
    except TypeError:  # a subclass: written coarser than a second
        return None
    return texts if len(texts) == len(times) and all(text.endswith("Z") for text in texts) else None


def are_plain_uris(texts: Sequence[str]) -> bool:
    """Whether all are URIs that are written as they are."""
    joined = "\n".join((*texts, ""))
    return IS_ON and _PLAIN_URIS(joined) is not None and joined.count("\n") == len(texts)  # none of them has one


def are_right_digests(texts: Sequence[str]) -> bool:
    """Whether all are right and name the same algorithms: the names by an expression, the hex by what it leaves."""
    shape = _SHAPES.get(len(texts[0])) if IS_ON and texts else None
    joined = "\n".join((*texts, ""))
    if shape is None or shape[0](joined) is None:
        return False
    return len(joined.encode("ascii", "replace").translate(None, b"0123456789abcdef")) == shape[1] * len(texts)
