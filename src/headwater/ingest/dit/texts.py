"""Whole JSON texts out of lines: one a line, or, where the first line only begins one, all lines together.

Tools print what an index answers over many lines, and clients send it under any media type: the text itself tells.
Bounded: what is longer than a text may be is taken line by line after all, and nothing is lost by the attempt.
"""

from __future__ import annotations

import msgspec

from headwater.ingest.dit.documents import BadDocument
from headwater.ingest.fed.lines import Line


class Texts:
    """Takes lines and gives lines; those that are one JSON text together, as one line with the number of the first."""

    def __init__(self, most_octets: int) -> None:
        self._most_octets = most_octets
        self._held: list[Line] | None = []
        self._octets = 0

    def push(self, line: Line) -> list[Line]:
        """The lines that can be taken now."""
        if self._held is None:
            return [line]
        self._held.append(line)
        self._octets += len(line.text or b"")
        goes_on = line.text is not None and self._octets <= self._most_octets
        return [] if goes_on and (len(self._held) > 1 or _opens(line.text)) else self._release()

    def finish(self) -> list[Line]:
        """What is left at the end."""
        held = self._release()
        if len(held) > 1:
            whole = b"\n".join(line.text or b"" for line in held)
            if _is_json(whole):
                return [Line(held[0].number, whole)]
        return held

    def _release(self) -> list[Line]:
        held, self._held = self._held or [], None
        return held


def decoded(text: bytes) -> object:
    """The value of a JSON text. Raises BadDocument."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadDocument(f"not one JSON text a line: {cause}"[:200]) from cause


def _opens(text: bytes | None) -> bool:
    return text is not None and text.lstrip().startswith((b"{", b"[")) and not _is_json(text)


def _is_json(text: bytes) -> bool:
    try:
        decoded(text)
    except BadDocument:
        return False
    return True
