"""Whole JSON texts out of lines: one a line, or, where the first line only begins one, one or more over many lines.

Tools print what an index answers over many lines, and clients send it under any media type: the text itself tells.
Bounded: what is longer than a text may be is taken line by line after all, and nothing is lost by the attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from headwater.ingest.dit.documents import BadDocument
from headwater.ingest.push.events.lines import Line


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
        if len(held) > 1:
            whole = _together(held)
            return [whole] if _is_json(whole.text) else list(_apart(held))
        return held

    def _complete(self, following: Line) -> list[Line]:
        """The text that the held lines are, when another one begins after it."""
        held = self._held or []
        if len(held) < 2 or not _begins(following) or (held[-1].text or b"").rstrip() not in (b"}", b"]"):
            return []
        whole = _together(held)
        if not _is_json(whole.text):
            return []
        self._held, self._octets = [], 0
        return [whole]

    def _release(self) -> list[Line]:
        held, self._held = self._held or [], None
        return held


def decoded(text: bytes) -> object:
    """The value of a JSON text. Raises BadDocument."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadDocument(f"not one JSON text a line: {cause}"[:200]) from cause


def _begins(line: Line) -> bool:
    return (line.text or b"").startswith((b"{", b"["))


def _opens(text: bytes | None) -> bool:
    return text is not None and text.lstrip().startswith((b"{", b"[")) and not _is_json(text)


def _together(lines: list[Line]) -> Line:
    return Line(lines[0].number, b"\n".join(line.text or b"" for line in lines))


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
