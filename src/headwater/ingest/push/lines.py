"""Lines out of octets that come in pieces, in bounded memory (NDJSON), and counts of what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headwater.errors import UsageFault
from headwater.ingest.push.feed import Outcome, OutcomeKind
from headwater.spec.decoding import Inflater
from headwater.spec.faults import BadCompression, LimitExceeded, Truncated
from headwater.spec.kinds import ReadLimits

LINE_OCTETS: Final = 1 << 20
"""One line, at most: a document with five hundred links is a tenth of that."""
_BOM: Final = b"\xef\xbb\xbf"
"""Some editors write it before the first line; it is part of none."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line that is not blank: its number, counted from 1 with the blank ones; None in place of one too long."""

    number: int
    text: bytes | None


class Lines:
    """Takes octets and gives lines; what is left of a line that is too long is dropped as it comes."""

    def __init__(self, *, octets: int, line_octets: int = LINE_OCTETS, ratio: int = 200) -> None:
        limits = ReadLimits(octets=octets, compressed_octets=octets, ratio=ratio, ratio_octets=1 << 20)
        self._inflater = Inflater(limits)
        self._line_octets = line_octets
        self._rest = bytearray()
        self._number = 0
        self._too_long = False
        self._looked = 0

    def push(self, data: bytes) -> Iterator[Line]:
        """The lines that `data` completes. Raises HW-ING-55, HW-ING-56."""
        for block in _sent(self._inflater.push(data)):
            yield from self._take(block)

    def finish(self) -> Iterator[Line]:
        """The last line, when it does not end as a line does. Raises HW-ING-55, HW-ING-56."""
        for block in _sent(self._inflater.finish()):
            yield from self._take(block)
        if self._inflater.has_trailing:
            raise UsageFault("something other than gzip follows the gzip form", code="HW-ING-55")
        if self._rest or self._too_long:
            yield from self._line(bytes(self._rest))

    def _take(self, block: bytes) -> Iterator[Line]:
        self._rest += block
        start = 0
        while (end := self._rest.find(b"\n", max(start, self._looked))) >= 0:
            yield from self._line(bytes(self._rest[start:end]))
            start = self._looked = end + 1
        del self._rest[:start]
        self._looked = len(self._rest)
        if len(self._rest) > self._line_octets:
            self._rest.clear()
            self._looked = 0
            self._too_long = True

    def _line(self, text: bytes) -> Iterator[Line]:
        self._number += 1
        if self._number == 1:
            text = text.removeprefix(_BOM)
        if self._too_long or len(text) > self._line_octets:
            self._too_long = False
            yield Line(self._number, None)
        elif text.strip():
            yield Line(self._number, text)


def _sent(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks; what is wrong with them is a matter of who sends them, and not of a source that we have read."""
    try:
        yield from blocks
    except (BadCompression, Truncated) as cause:
        raise UsageFault(cause.what, code="HW-ING-55") from cause
    except LimitExceeded as cause:
        raise UsageFault(cause.what, code="HW-ING-56") from cause


FEW: Final = 3
"""Reasons that are told."""


class Account(msgspec.Struct, kw_only=True):
    """What lines or documents came to: taken, no news, of other sets, refused; and why the first of these."""

    lines: int = 0
    taken: int = 0
    ignored: int = 0
    foreign: int = 0
    rejected: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    code: str | None = None
    """Of the first that was refused."""
    reasons: list[str] = msgspec.field(default_factory=list)

    def count(self, outcomes: Sequence[Outcome], *, foreign: int = 0) -> None:
        """Add these."""
        self.lines += len(outcomes) + foreign
        self.foreign += foreign
        for one in outcomes:
            setattr(self, one.kind, getattr(self, one.kind) + 1)
            if one.seq is not None:
                self.first_seq = one.seq if self.first_seq is None else self.first_seq
                self.last_seq = one.seq
            if one.kind is OutcomeKind.REJECTED:
                self.code = self.code or one.code
                if len(self.reasons) < FEW:
                    self.reasons.append(f"line {one.line}: {one.reason}")

    @property
    def by_outcome(self) -> dict[str, int]:
        """The counts by the name of the outcome; nothing has waited since version 0.2."""
        return {"taken": self.taken, "waiting": 0, "ignored": self.ignored, "rejected": self.rejected}

    @property
    def of_events(self) -> dict[str, int | None]:
        """The counts of lines of events, as they are answered."""
        names = ("lines", "taken", "ignored", "rejected", "first_seq", "last_seq")
        return {name: getattr(self, name) for name in names}

    @property
    def of_documents(self) -> dict[str, int]:
        """The counts of documents, as they are answered."""
        first = {"documents": self.lines, "taken": self.taken, "waiting": 0, "ignored": self.ignored}
        return {**first, "foreign": self.foreign, "rejected": self.rejected}

    @property
    def words(self) -> str:
        """What was refused, as a person reads it."""
        more = f"; {self.rejected - len(self.reasons):,} more" if self.rejected > len(self.reasons) else ""
        return f"{self.rejected:,} of {self.lines:,} announced lines were refused: {'; '.join(self.reasons)}{more}"
