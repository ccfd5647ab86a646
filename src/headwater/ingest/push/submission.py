"""One submission of lines, from its first octet to its answer: parted in bounded memory, counted, recorded in batches.

Its lines are events for one set, or documents for any number of sets (`Records`). With an idempotency key
every batch is kept together with how far the submission has got and what was answered so far: whoever sends the same
again, after an answer that was lost or a crash in the middle, gets the first outcome, and only what was not taken yet
is taken.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from headwater.errors import UsageFault
from headwater.ingest.push.events import take_lines
from headwater.ingest.push.feed import BATCH, Feed, Line, Outcome, OutcomeKind
from headwater.ingest.push.ingest_state import RequestProgress
from headwater.spec.decoding import Inflater
from headwater.spec.kinds import ReadLimits
from headwater.spec.text_values import BadCompression, LimitExceeded, Truncated
from headwater.typed_decoding import from_json

# Lines out of octets that come in pieces (NDJSON), and counts of what became of them

LINE_OCTETS: Final = 1 << 20  # one line, at most: a document with five hundred links is a tenth of that
_BOM: Final = b"\xef\xbb\xbf"  # some editors write it before the first line; it is part of none


class Lines:
    """Takes octets and gives lines; what is left of a line that is too long is dropped as it comes."""

    def __init__(self, *, octets: int, line_octets: int = LINE_OCTETS, ratio: int = 200) -> None:
        limits = ReadLimits(octets=octets, compressed_octets=octets, ratio=ratio, ratio_octets=1 << 20)
        self._inflater = Inflater(limits)
        self._line_octets = line_octets
        self._rest = bytearray()
        self._number = 0
        self._too_long = False

    def push(self, data: bytes) -> Iterator[Line]:
        """The lines that `data` completes. Raises HW-ING-55, HW-ING-56."""
        for block in _sent(self._inflater.push(data)):
            yield from self._take(block)

    def finish(self) -> Iterator[Line]:
        """The last line, when it does not end as a line does. Raises HW-ING-55, HW-ING-56."""
        for block in _sent(self._inflater.finish()):
            yield from self._take(block)
        if self._inflater.has_trailing:
            raise UsageFault("other data follows the gzip data", code="HW-ING-55")
        if self._rest or self._too_long:
            yield from self._line(bytes(self._rest))

    def _take(self, block: bytes) -> Iterator[Line]:
        *ends, rest = block.split(b"\n")
        for end in ends:
            yield from self._line(bytes(self._rest + end))
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._line_octets:
            self._rest.clear()
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


FEW: Final = 3  # reasons that are told


class Account(msgspec.Struct, kw_only=True):
    """What lines or documents came to: taken, no news, of other sets, refused; and why the first of these."""

    lines: int = 0
    taken: int = 0
    ignored: int = 0
    foreign: int = 0
    rejected: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    code: str | None = None  # of the first that was refused
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


# A submission

_KEY = re.compile(r"[\x21-\x7e]{1,200}\Z")


class SubmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one submission: octets as they come and unpacked, lines, octets of one, and how steep gzip may be."""

    octets: int = 256 << 20
    lines: int = 100_000
    ratio: int = 200
    line_octets: int = LINE_OCTETS


BATCH_OCTETS = 4 << 20  # octets of the lines of one batch, so that the longest lines do not add up


class BadKey(UsageFault):
    """An Idempotency-Key is invalid, or was used for another request."""

    code = "HW-ING-44"


class KeyUnderWay(UsageFault):
    """Another process is handling a request with the same Idempotency-Key."""

    code = "HW-ING-53"


class Record(NamedTuple):
    """One record: its line, which of several in that line it is, the set that it is for, and what it says."""

    line: int
    item: int | None
    feed: Feed
    value: Any


Progress = Callable[[list[Outcome]], RequestProgress]


class Records:
    """What the lines of a submission are: events for one set. Documents are another kind (`ingest.dit.intake`)."""

    def __init__(self, feed: Feed | None) -> None:
        self.feed = feed

    def told(self, counts: Account) -> Mapping[str, int | None]:
        """The counts as they are answered."""
        return counts.of_events

    def texts(self, line: Line | None) -> list[Line]:
        """The texts that a line completes; with None those that are left at the end."""
        return [] if line is None else [line]

    def read(self, text: Line) -> list[Record | Outcome | None]:
        """What a text says: records, refusals, and None for each record that is no matter of ours."""
        assert self.feed is not None
        return [Record(text.number, None, self.feed, text)]  # it is judged when it is taken

    def end(self) -> list[Outcome]:
        """What is wrong with the end of the whole."""
        return []

    def take(self, feed: Feed, records: Sequence[Record], progress: Progress | None) -> list[Outcome]:
        """Record some for one set; `progress` of the outcomes is kept together with them."""
        return take_lines(feed, [one.value for one in records], progress)


class Submission:
    """Takes octets as they come (`push`) and answers at the end (`finish`). One thread at a time.

    A `key` is for events. Whoever hears of the outcomes of each batch gets no `body` with all of them.
    """

    def __init__(
        self,
        records: Feed | Records,
        key: str | None = None,
        limits: SubmissionLimits | None = None,
        hear: Callable[[list[Outcome]], None] | None = None,
    ) -> None:
        if key is not None and not _KEY.match(key):
            raise BadKey("an Idempotency-Key is 1 to 200 printable characters")
        self._records = Records(records) if isinstance(records, Feed) else records
        self._feed = self._records.feed
        self._key = key
        self._limits = limits or SubmissionLimits()
        bounds = self._limits
        self._lines = Lines(octets=bounds.octets, ratio=bounds.ratio, line_octets=bounds.line_octets)
        self._batch: list[Record] = []
        self._octets = 0
        self._count = 0
        self._digest = hashlib.sha256()
        self._outcomes: list[Outcome] = []
        self.counts = Account()
        self.accounts: dict[str | None, Account] = {}
        """By set, of what this request has brought; None has the records that are for no known set."""
        self._hear = hear
        before = self._feed.request(key) if key is not None and self._feed is not None else None
        self._before = None if before is None else before[0]
        self._is_repeat = self._before is not None
        self._kept_lines = None if self._before is None else self._before.lines
        for part in () if before is None else before[1]:
            self._tell(None, from_json(part, list[Outcome]), is_new=False)

    def push(self, data: bytes) -> None:
        """Take octets.

        Raises what stops the whole: bounds, damaged gzip, another body for the same key, a fault of the catalog.
        What was taken before stays taken, and stands in `body`.
        """
        for line in self._lines.push(data):
            for text in self._records.texts(line):
                self._take(text)

    def finish(self) -> None:
        """Take what is left. Raises as `push` does."""
        for line in chain(self._lines.finish(), [None]):
            for text in self._records.texts(line):
                self._take(text)
        if self._is_repeat and not self._reached():
            raise BadKey("this Idempotency-Key was used for another body")
        self._tell(None, self._records.end())
        if self._batch or (self._key is not None and not self.is_answered):
            self._flush(complete=True)

    @property
    def is_answered(self) -> bool:
        """Whether all of it was taken before: it gets the first answer again, or is refused as another one."""
        return self._before is not None and self._before.complete

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each record so far, in the order of lines."""
        return sorted(self._outcomes, key=lambda one: (one.line, one.item or 0))

    @property
    def body(self) -> bytes:
        """What has been taken so far, as one JSON object: the counts and the outcome of every record."""
        items = b",\n".join(map(msgspec.json.encode, self.outcomes))
        return msgspec.json.encode(self._records.told(self.counts))[:-1] + b',"results":[\n' + items + b"\n]}\n"

    def _take(self, text: Line) -> None:
        if self._is_repeat and self._reached():
            self._is_repeat = False
            if self.is_answered:
                raise BadKey("this Idempotency-Key was used for another body")
        self._bound(self._count + 1)
        if self._key is not None:
            self._digest.update(b"%d %s\n" % (text.number, text.text if text.text is not None else b""))
        if self._is_repeat:
            self._count += 1
            return
        records = self._records.read(text)
        self._bound(self._count + max(1, len(records)))
        self._count += max(1, len(records))
        self._octets += len(text.text or b"")
        for one in records:
            if isinstance(one, Outcome):
                self._tell(None, [one])
            elif one is None:
                self.counts.count((), foreign=1)
            else:
                self._batch.append(one)
            if len(self._batch) >= BATCH or self._octets >= BATCH_OCTETS:
                self._flush()

    def _bound(self, count: int) -> None:
        if count > self._limits.lines:
            self._flush()
            raise UsageFault(f"more than {self._limits.lines:,} lines", code="HW-ING-45")

    def _reached(self) -> bool:
        """Whether what is repeated has come to where the first time ended; it must have been the same until there."""
        before = self._before
        if before is None or self._count < before.lines:
            return False
        if self._count > before.lines or self._digest.digest() != before.digest:
            raise BadKey("this Idempotency-Key was used for another body")
        return True

    def _flush(self, *, complete: bool = False) -> None:
        batch, self._batch, self._octets = self._batch, [], 0
        feeds: Mapping[str, Feed] = {one.feed.name: one.feed for one in batch}
        if self._key is not None and self._feed is not None:
            feeds = {self._feed.name: self._feed}  # also of nothing the answer is kept
        for name, feed in feeds.items():
            records = [one for one in batch if one.feed.name == name]
            progress = None if self._key is None else partial(self._progress, complete=complete)
            self._tell(name, self._records.take(feed, records, progress))
        self._kept_lines = self._count

    def _progress(self, outcomes: list[Outcome], *, complete: bool) -> RequestProgress:
        """How far the request has got with these outcomes; asked in the transaction of the batch."""
        assert self._feed is not None
        assert self._key is not None
        before = self._feed.state.taken(self._key)
        if (None if before is None else before.lines) != self._kept_lines:
            raise KeyUnderWay("a request with this Idempotency-Key is under way")
        return RequestProgress(
            key=self._key,
            lines=self._count,
            digest=self._digest.digest(),
            part=msgspec.json.encode(outcomes) if outcomes else b"",
            complete=complete,
            before=before,
        )

    def _tell(self, name: str | None, outcomes: list[Outcome], *, is_new: bool = True) -> None:
        if outcomes and is_new:
            self.accounts.setdefault(name, Account()).count(outcomes)
        if self._hear is None:
            self._outcomes += outcomes
        else:
            self._hear(outcomes)
        self.counts.count(outcomes)
