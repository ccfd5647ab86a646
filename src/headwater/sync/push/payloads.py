"""Payloads of notifications: read within bounds, judged by the channel on which they came, and read as Change Lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.spec.reader import Reader, ReadLimits
from headwater.spec.records import Document, Entry
from headwater.sync.lists.document_probe import Probe
from headwater.sync.lists.documents import (
    MOST_ENTRIES,
    DocumentRead,
    EntryConsumer,
    MissingDocument,
    UnchangedDocument,
)
from headwater.sync.network.fetch import Objection
from headwater.sync.source_times import micros
from headwater.sync.state.set_rows import CHANGE_LIST
from headwater.sync.state.validators import Validators

_LIMITS: Final = ReadLimits(octets=64 << 20, compressed_octets=16 << 20, entries=MOST_ENTRIES, gzip_members=100)
_SKEW: Final = dt.timedelta(hours=1)
"""How far the source's clock may be ahead of ours: a payload has no `Date` of its source (DST-C8)."""


_READ_AS: Final = {
    Kind.CHANGE_NOTIFICATION: frozenset({Kind.CHANGE_NOTIFICATION, Kind.CHANGE_LIST, Kind.SITEMAP}),
    Kind.FRAMEWORK_NOTIFICATION: frozenset({Kind.FRAMEWORK_NOTIFICATION}),
}
"""What a payload may be: old publishers post Change Lists, or documents without `rs:md` (section G of the rules)."""


class UnusablePayload(SourceFault):
    """A payload that was delivered is no notification of its channel, or cannot be read; nothing of it is applied."""

    code = "HW-SYN-27"


class ReadPayload(msgspec.Struct, frozen=True):
    """A payload that can be applied: its head, its entries, the interval that it states, and when it came."""

    document: Document
    entries: tuple[Entry, ...]
    came_at: dt.datetime

    @property
    def from_(self) -> int | None:
        """Where its interval begins, in microseconds."""
        return micros(self.document.from_)

    @property
    def until(self) -> int | None:
        """Where its interval ends; None where no clock can be so far ahead: else later payloads would seem past."""
        until = self.document.until
        return None if until is not None and until > self.came_at + _SKEW else micros(until)


def read_payload(
    body: bytes, topic: str, kind: Kind, came_at: dt.datetime, capability_list: str | None = None
) -> ReadPayload:
    """Read a payload that came for a topic. Raises UnusablePayload where it cannot be, or is one of another channel.

    `capability_list`: that of the set, which the payload's own `up` has to be where it states one (RS-CN-08).
    """
    reader = Reader(base_uri=topic, limits=_LIMITS)
    try:
        entries = reader.feed(body) + reader.close()
    except SourceFault as fault:
        raise UnusablePayload(f"the payload cannot be read: {fault.what}", where=topic, rule=fault.rule) from fault
    document = reader.document
    if document is None or document.kind not in _READ_AS[kind]:
        found = "no notification" if document is None else f"a document of kind {document.kind.value}"
        raise UnusablePayload(f"the payload is {found}, not a {kind.value}", where=topic, rule="RS-CH-02")
    up = document.link("up")
    of_set = kind is Kind.CHANGE_NOTIFICATION and capability_list is not None
    if of_set and up is not None and up.href != capability_list:
        raise UnusablePayload(f"the payload is of another set, that of {up.href}", where=topic, rule="RS-CH-01")
    return ReadPayload(document, tuple(entries), came_at)


def changed_documents(payload: ReadPayload) -> frozenset[str]:
    """The documents that a Framework Notification names, and their indexes (RS-FN-05, RS-FN-10)."""
    found = {entry.loc for entry in payload.entries}
    found |= {link.href for entry in payload.entries if (link := entry.link("index")) is not None}
    return frozenset(found)


class PayloadLists:
    """Payloads of one channel, oldest first, as an index of Change Lists (`ListDocuments`): nothing is fetched.

    The index states no intervals, so that each of them is read whatever lies between them.
    """

    def __init__(self, topic: str, payloads: Sequence[ReadPayload]) -> None:
        self._topic = topic
        self._payloads = {f"{topic}#{number}": payload for number, payload in enumerate(payloads)}

    def read(
        self,
        uri: str,
        consumer: EntryConsumer,
        validators: Validators | None = None,
        *,
        fresh: bool = False,
        objection: Objection | None = None,
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        """The index, or one payload."""
        del validators, fresh, objection  # of requests; there are none
        payload = self._payloads.get(uri)
        if payload is None:
            index = Document(kind=Kind.CHANGE_LIST_INDEX, capability=CHANGE_LIST)
            return self._taken(
                uri, consumer, index, [Entry(loc=uri) for uri in self._payloads], dt.datetime.now(dt.UTC)
            )
        document = msgspec.structs.replace(payload.document, kind=Kind.CHANGE_LIST)
        return self._taken(uri, consumer, document, list(payload.entries), payload.came_at + _SKEW)

    def _taken(
        self, uri: str, consumer: EntryConsumer, document: Document, entries: list[Entry], read_at: dt.datetime
    ) -> DocumentRead:
        consumer.begin()
        if entries:
            consumer.take(document, entries)
        return DocumentRead(
            uri=uri,
            final=self._topic,
            document=document,
            etag=None,
            last_modified=None,
            read_at=read_at,
            count=len(entries),
            skipped=0,
            octets=0,
            moved_to=None,
        )

    def probe(self, uri: str, *, most_entries: int = MOST_ENTRIES, validators: Validators | None = None) -> Probe:
        """There is nothing else to look at. Raises SourceFault."""
        del most_entries, validators
        raise SourceFault("a payload leads to no other document", where=uri)

    def warn(self, rule: str, message: str, where: str | None = None) -> None:
        """What is odd in a payload is odd in the Change List too, and told there."""
