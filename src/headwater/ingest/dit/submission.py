"""One submission of DIT-ES documents for any number of sets, from its first octet to its answer: bounded, in batches.

A submission has no idempotency key: a change document is known again by itself, and a resource document that says
what is known already does nothing (DIT-A12), so that sending the same again is harmless.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from headwater.errors import UsageFault
from headwater.ingest.dit.documents import BadDocument, DitDocument, read_document
from headwater.ingest.dit.intake import Tally, resolvable, take_documents
from headwater.ingest.dit.texts import Texts, Unwrapper, Wrapped, decoded
from headwater.ingest.push.events import LineTooLong, refusal
from headwater.ingest.push.feed import BATCH, Feed, Outcome
from headwater.ingest.push.lines import Account, Line, Lines
from headwater.ingest.push.submission import BATCH_OCTETS, SubmissionLimits, TooManyLines
from headwater.progress import Listener, silent

WHOLE_OCTETS = 8 << 20
"""One JSON text that is not in lines, at most."""

Route = Callable[[str | None], Feed | None]
"""The set that documents with this `resource_set` are for; None for those that are no matter of ours.

Raises UsageFault: there is no such set, or it may not be announced to.
"""


class NotForUs(UsageFault):
    """The resource_set of a document matches no set of this source."""

    code: ClassVar[str] = "HW-ING-48"
    advice: ClassVar[str] = "Configure a set with this resource_set, or send the document to the right server."


class DitSubmission:
    """Takes octets as they come (`push`) and answers at the end (`finish`). One thread at a time.

    They are lines of JSON, or one JSON text over several lines. `patience` is that of each set, by its name.
    """

    def __init__(
        self,
        route: Route,
        limits: SubmissionLimits | None = None,
        *,
        patience: Mapping[str, dt.timedelta] | None = None,
        keep: bool = True,
        dry_run: bool = False,
        listener: Listener = silent,
    ) -> None:
        self._route = route
        self._limits = limits or SubmissionLimits()
        line_octets = self._limits.line_octets
        self._lines = Lines(octets=self._limits.octets, ratio=self._limits.ratio, line_octets=line_octets)
        self._unwrapper = Unwrapper()
        self._texts = Texts(max(WHOLE_OCTETS, line_octets))
        self._batches: dict[str, tuple[Feed, list[tuple[int, DitDocument]]]] = {}
        self._origin: list[tuple[int, int | None]] = [(0, None)]
        """Line and item of each document, by the number that it goes by until it is recorded."""
        self._number = 0
        self._count = 0
        self._octets = 0
        self._keep = keep
        self._dry_run = dry_run
        self._patience = patience or {}
        self._listener = listener
        self.tally = Tally()
        self.outcomes: list[Outcome] = []
        self.accounts: dict[str | None, Account] = {}
        """By set; of None are documents of which nobody knows for which set they are."""

    @property
    def fed(self) -> list[str]:
        """The sets that got documents."""
        return list(self._batches)

    def push(self, data: bytes) -> None:
        """Take octets. Raises what stops the whole; what was taken before stays taken, and stands in `body`."""
        for line in self._lines.push(data):
            self._take_all(self._texts.push(line))

    def finish(self) -> None:
        """Take what is left. Raises as `push` does."""
        for line in self._lines.finish():
            self._take_all(self._texts.push(line))
        self._take_all(self._texts.finish())
        try:
            self._unwrapper.finish()
        except BadDocument as fault:
            self._tell([refusal(self._number, fault)])
        self.flush()

    def flush(self) -> None:
        """Record what has been collected."""
        self._octets = 0
        for feed, documents in self._batches.values():
            batch = documents[:]
            documents.clear()
            for start in range(0, len(batch), BATCH):
                if self._dry_run:
                    self._tell(self._placed(resolvable(feed, batch[start : start + BATCH])), feed.name)
                    continue
                taken = take_documents(feed, batch[start : start + BATCH])
                self._tell(self._placed(taken.outcomes), feed.name)
                taken.remarks = [(self._origin[line][0], remark) for line, remark in taken.remarks]
                self.tally.notice(taken, self._listener)
        self._origin = [(0, None)]

    def _placed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """With the lines in which the documents came."""
        places = (self._origin[one.line] for one in outcomes)
        return [
            msgspec.structs.replace(one, line=line, item=item)
            for one, (line, item) in zip(outcomes, places, strict=True)
        ]

    @property
    def body(self) -> bytes:
        """What has been taken so far, as one JSON object."""
        results = msgspec.json.encode(sorted(self.outcomes, key=lambda one: (one.line, one.item or 0)))
        return msgspec.json.encode(self.tally)[:-1] + b',"results":' + results + b"}\n"

    def _take_all(self, lines: list[Line]) -> None:
        for line in lines:
            self._take(line)

    def _take(self, line: Line) -> None:
        if self._count >= self._limits.lines:
            self.flush()
            raise TooManyLines(f"more than {self._limits.lines:,} lines or documents")
        self._number = line.number
        self._octets += len(line.text or b"")
        try:
            if line.text is None:
                raise LineTooLong("the line is too long")
            value = decoded(line.text)
        except UsageFault as fault:
            self._unwrapper.skip()
            self._count += 1
            self._tell([refusal(line.number, fault)])
            return
        try:
            found = self._unwrapper.push(value)
        except UsageFault as fault:
            self._count += 1
            self._tell([refusal(line.number, fault)])
            return
        self._count += max(1, len(found))
        if self._count > self._limits.lines:
            self.flush()
            raise TooManyLines(f"more than {self._limits.lines:,} lines or documents")
        for item, one in enumerate(found, 1):
            self._add(line.number, item if len(found) > 1 else None, one)
            if self._octets >= BATCH_OCTETS or len(self._origin) > BATCH:
                self.flush()

    def _add(self, line: int, item: int | None, wrapped: Wrapped) -> None:
        try:
            document = read_document(wrapped.source, wrapped.kind, wrapped.stored_at)
            feed = self._route(document.resource_set)
        except UsageFault as fault:
            self._tell([msgspec.structs.replace(refusal(line, fault), item=item)])
            return
        if feed is None:
            self.tally.count([], foreign=1)
            return
        self._origin.append((line, item))
        self._batches.setdefault(feed.name, (feed, []))[1].append((len(self._origin) - 1, document))

    def _tell(self, outcomes: list[Outcome], name: str | None = None) -> None:
        self.accounts.setdefault(name, Account()).count(outcomes)
        self.tally.count(outcomes)
        self.tally.complain(outcomes, self._listener)
        if self._keep:
            self.outcomes += outcomes
