"""One submission of lines to a set, from its first octet to its answer: bounded, in batches, and done only once.

With an idempotency key every batch is kept together with how far the submission has got and what was answered so far:
whoever sends the same again, after an answer that was lost or a crash in the middle, gets the first outcome, and only
what was not taken yet is taken.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import ClassVar

import msgspec

from headwater.errors import UsageFault
from headwater.ingest.push.events import Summary, take_lines
from headwater.ingest.push.feed import BATCH, Feed, Outcome
from headwater.ingest.push.ingest_state import RequestProgress
from headwater.ingest.push.lines import LINE_OCTETS, Account, Line, Lines
from headwater.typed_decoding import from_json

_KEY = re.compile(r"[\x21-\x7e]{1,200}\Z")


class SubmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one submission: octets as they come and unpacked, lines, octets of one, and how steep gzip may be."""

    octets: int = 256 << 20
    lines: int = 100_000
    ratio: int = 200
    line_octets: int = LINE_OCTETS


BATCH_OCTETS = 4 << 20
"""Octets of the lines of one batch, so that the longest lines do not add up."""


class BadKey(UsageFault):
    """An Idempotency-Key is invalid, or was used for another request."""

    code: ClassVar[str] = "HW-ING-44"
    advice: ClassVar[str] = "Use a new key, such as a UUID, for each request; the same key only to repeat a request."


class KeyUnderWay(UsageFault):
    """Another process is handling a request with the same Idempotency-Key."""

    code: ClassVar[str] = "HW-ING-53"
    advice: ClassVar[str] = "Repeat the request in a moment: it then gets the answer of the first request."


class TooManyLines(UsageFault):
    """A request has more lines than the limit."""

    code: ClassVar[str] = "HW-ING-45"
    advice: ClassVar[str] = "Send the rest in another request; what the answer lists was taken."


class Submission:
    """Takes octets as they come (`push`) and answers at the end (`finish`). One thread at a time.

    Whoever hears of the outcomes of each batch gets no `body` with all of them.
    """

    def __init__(
        self,
        feed: Feed,
        key: str | None = None,
        limits: SubmissionLimits | None = None,
        hear: Callable[[list[Outcome]], None] | None = None,
    ) -> None:
        if key is not None and not _KEY.match(key):
            raise BadKey("an Idempotency-Key is 1 to 200 printable characters")
        self._feed = feed
        self._key = key
        self._limits = limits or SubmissionLimits()
        bounds = self._limits
        self._lines = Lines(octets=bounds.octets, ratio=bounds.ratio, line_octets=bounds.line_octets)
        self._batch: list[Line] = []
        self._octets = 0
        self._count = 0
        self._digest = hashlib.sha256()
        self._parts: list[bytes] = []
        self.summary = Summary()
        self.account = Account()
        """Of what this request has brought, without what an earlier one with its key had."""
        self._hear = hear
        self._before = feed.request(key) if key is not None else None
        self._is_repeat = self._before is not None
        self._kept_lines = None if self._before is None else self._before.lines
        for part in self._before.parts if self._before is not None else ():
            self._keep(part, from_json(part, list[Outcome]))

    def push(self, data: bytes) -> None:
        """Take octets.

        Raises what stops the whole: bounds, damaged gzip, another body for the same key, a fault of the catalog.
        What was taken before stays taken, and stands in `body`.
        """
        for line in self._lines.push(data):
            self._take(line)

    def finish(self) -> None:
        """Take what is left. Raises as `push` does."""
        for line in self._lines.finish():
            self._take(line)
        if self._is_repeat and not self._reached():
            raise BadKey("this Idempotency-Key was used for another body")
        if self._batch or (self._key is not None and not self.is_answered):
            self._flush(complete=True)

    @property
    def is_answered(self) -> bool:
        """Whether all of it was taken before: it gets the first answer again, or is refused as another one."""
        return self._before is not None and self._before.complete

    @property
    def body(self) -> bytes:
        """What has been taken so far, as one JSON object: the summary and the outcome of every line."""
        items = b",\n".join(part[1:-1] for part in self._parts if part != b"[]")
        return msgspec.json.encode(self.summary)[:-1] + b',"results":[\n' + items + b"\n]}\n"

    def _take(self, line: Line) -> None:
        if self._is_repeat and self._reached():
            self._is_repeat = False
            if self.is_answered:
                raise BadKey("this Idempotency-Key was used for another body")
        if self._count >= self._limits.lines:
            self._flush()
            raise TooManyLines(f"more than {self._limits.lines:,} lines")
        self._count += 1
        self._digest.update(b"%d %s\n" % (line.number, line.text if line.text is not None else b""))
        if self._is_repeat:
            return
        self._batch.append(line)
        self._octets += len(line.text or b"")
        if len(self._batch) >= BATCH or self._octets >= BATCH_OCTETS:
            self._flush()

    def _reached(self) -> bool:
        """Whether what is repeated has come to where the first time ended; it must have been the same until there."""
        before = self._before
        if before is None or self._count < before.lines:
            return False
        if self._count > before.lines or self._digest.digest() != before.digest:
            raise BadKey("this Idempotency-Key was used for another body")
        return True

    def _flush(self, *, complete: bool = False) -> None:
        """Take a batch; what is answered is kept with it."""
        batch, self._batch, self._octets = self._batch, [], 0

        def progress(outcomes: list[Outcome]) -> RequestProgress:
            before = self._feed.state.taken(self._key or "")
            if (None if before is None else before.lines) != self._kept_lines:
                raise KeyUnderWay("a request with this Idempotency-Key is under way")
            digest = self._digest.digest()
            encoded = msgspec.json.encode(outcomes) if outcomes else b""
            return RequestProgress(
                key=self._key or "",
                lines=self._count,
                digest=digest,
                part=encoded,
                complete=complete,
                before=before,
            )

        outcomes = take_lines(self._feed, batch, None if self._key is None else progress)
        self.account.count(outcomes)
        self._kept_lines = self._count
        self._keep(msgspec.json.encode(outcomes), outcomes)

    def _keep(self, part: bytes, outcomes: list[Outcome]) -> None:
        if self._hear is None:
            self._parts.append(part)
        else:
            self._hear(outcomes)
        self.summary.count(outcomes)
