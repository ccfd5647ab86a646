"""Whole JSON texts out of lines: one a line, or, where the first line only begins one, one or more over many lines.

Tools print what an index answers over many lines, and clients send it under any media type: the text itself tells.
Bounded: what is longer than a text may be is taken line by line after all, and nothing is lost by the attempt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from math import inf
from typing import Final, NoReturn

import msgspec

from headwater.ingest.dit.documents import BadDocument
from headwater.ingest.push.events.lines import Line

_LEVELS: Final = 200
"""Levels of a text that are read: more than a document may have with all its wrappers."""
_LONGEST_NUMBER: Final = 300
"""Characters of a number that is read as one: anything longer is beyond what any field holds."""
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{\]}]', re.DOTALL)


class Texts:
    """Takes lines and gives lines; those that are a JSON text together, as one line with the number of the first."""

    def __init__(self, most_octets: int) -> None:
        self._most_octets = most_octets
        self._held: list[Line] | None = []
        self._octets = 0

    def push(self, line: Line) -> list[Line]:
        """The lines that can be taken now."""
        if self._held is None:
            return [line]
        before = self._complete(line)
        self._held.append(line)
        self._octets += len(line.text or b"")
        goes_on = line.text is not None and self._octets <= self._most_octets
        return before + ([] if goes_on and (len(self._held) > 1 or _opens(line.text)) else self._release())

    def finish(self) -> list[Line]:
        """What is left at the end."""
        held = self._release()
        return _parted(held) if len(held) > 1 else held

    def _complete(self, following: Line) -> list[Line]:
        """The text that the held lines are, when another one begins after it; a broken one does not heal any more."""
        held = self._held or []
        if len(held) < 2 or not _begins(following) or (held[-1].text or b"").rstrip() not in (b"}", b"]"):
            return []
        self._held, self._octets = [], 0
        return _parted(held)

    def _release(self) -> list[Line]:
        held, self._held = self._held or [], None
        return held


def decoded(text: bytes | str) -> object:
    """The value of a JSON text. Raises BadDocument.

    Engines accept and return what msgspec refuses: half of a surrogate pair, numbers beyond all bounds, a thousand
    levels. Here these are values too, so that one such document is judged alone, and not all that came with it.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as cause:
        try:
            return _read(text if isinstance(text, str) else text.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            raise BadDocument(f"not one JSON text a line: {cause}"[:200]) from cause


def _read(text: str) -> object:
    try:
        return _READER.decode(text)
    except RecursionError:
        return _READER.decode(_shallow(text))


def _integer(text: str) -> int | str:
    """The number; as text, which no field takes for one, when it is too large. There may be millions in a text."""
    return int(text) if len(text) <= _LONGEST_NUMBER else text


def _decimal(text: str) -> float | str:
    """The number; as text when it is too large."""
    number = float(text) if len(text) <= _LONGEST_NUMBER else inf
    return number if -inf < number < inf else text


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_READER = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, parse_constant=_no_number)


def _shallow(text: str) -> str:
    """The text with null in place of what is too deep; its document has too many levels all the same."""
    parts, depth, start = [], 0, 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == _LEVELS + 1:
                parts.append(text[start : token.start()])
        elif token[0] in "]}":
            if depth == _LEVELS + 1:
                parts.append("null")
                start = token.end()
            depth -= 1
    if depth:
        raise ValueError("brackets without their partners")
    return "".join((*parts, text[start:]))


def _begins(line: Line) -> bool:
    return (line.text or b"").startswith((b"{", b"["))


def _opens(text: bytes | None) -> bool:
    return text is not None and text.lstrip().startswith((b"{", b"[")) and not _is_json(text)


def _together(lines: list[Line]) -> Line:
    return Line(lines[0].number, b"\n".join(line.text or b"" for line in lines))


def _parted(lines: list[Line]) -> list[Line]:
    """The one text that the lines are, or what they are when it is broken."""
    whole = _together(lines)
    return [whole] if _is_json(whole.text) else list(_apart(lines))


def _apart(lines: list[Line]) -> Iterator[Line]:
    """Texts of which one is broken: each begins with a bracket that is not indented, and ends before the next."""
    begun = 0

    def text_of(line: Line) -> int:
        nonlocal begun
        begun += _begins(line)
        return begun

    for _, group in groupby(lines, text_of):
        several = list(group)
        whole = _together(several)
        yield from [whole] if _is_json(whole.text) else several


def _is_json(text: bytes | None) -> bool:
    try:
        decoded(text or b"")
    except BadDocument:
        return False
    return True
