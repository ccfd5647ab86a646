"""Streams of notifications: what one hub is told of one channel, how many changes at once, and how soon.

Each hub has its own chain of intervals, without gap or overlap (RS-CN-05). How far it was told, and the last payload,
are a row of the set in the catalog, written before the payload is sent: what is sent again, after whatever was lost or
killed, is the same octets. Change Notifications tell what lies between the hub's position and what is visible (RS-CN),
Framework Notifications what the documents are now, against what the hub was told (RS-FN).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, UnknownSet
from headwater.catalog.state import StateRow, StateUpdate
from headwater.progress import Listener
from headwater.publish.capabilities import CHANGE_CHANNEL, FRAMEWORK_CHANNEL, RESOURCE_DUMP, Channel
from headwater.publish.notifications import (
    PAYLOAD_OCTETS,
    FrameworkDocument,
    change_payload,
    document_changes,
    document_named,
    framework_documents,
    framework_payload,
)
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import published_names
from headwater.publish.site import Site, source_description_name
from headwater.publish.store_writer import decode_mark
from headwater.source.hubs_and_tokens import NotifyConfig
from headwater.source.set_health import Publication
from headwater.spec.records import ChangeKind
from headwater.storage.folder_store import FolderStore
from headwater.typed_decoding import from_json


class LastPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The octets of the last notification of a channel, none before the first; it was taken if `is_taken`."""

    until: dt.datetime
    payload: bytes = b""
    is_taken: bool = True


class HubPosition(LastPayload, frozen=True, kw_only=True):
    """A hub was told, or is being told, of the changes of a history up to `seq`, of times up to `until`.

    The last notification tells of what follows the change `after`, of times from `since` on.
    """

    history: int
    after: int
    seq: int
    since: dt.datetime | None = None

    def waiting(self, visible: Publication) -> int:
        """How many changes are visible that the hub has not taken."""
        if self.history != visible.history:
            return visible.last - visible.history_first + 1
        return visible.last - (self.seq if self.is_taken else self.after)


def chain_begin(position: HubPosition | None, visible: Publication) -> int | None:
    """After which change a chain begins for a hub at this position; None: the chain goes on.

    A hub that is new hears of what changes from now on. Where the history of a set had to begin anew, so does the
    chain, with that history: its `from` is later than the last `until`, which tells subscribers of the gap.
    """
    if position is None:
        return visible.last
    return visible.history_first - 1 if position.history != visible.history else None


def batch_pause(waiting: int, since_last: float, *, batch_count: int, batch_seconds: float) -> float:
    """For how many seconds a notification of so many `waiting` changes still waits for more; 0: it is sent.

    The last one of the set was begun `since_last` seconds ago: one that comes after a quiet time does not wait.
    """
    return 0.0 if waiting >= batch_count else max(0.0, batch_seconds - since_last)


P = TypeVar("P", bound=LastPayload)


def latest_payload(catalog: Catalog, name: str, channel: Channel, hubs: Iterable[str]) -> bytes:
    """The octets of the newest notification of a channel, as a hub gets it; none before the first (RS-NT-03).

    Raises the catalog's faults.
    """
    try:
        rows = catalog.rows(name, [(channel.capability, hub) for hub in hubs])
    except UnknownSet:
        return b""
    told = [one for row in rows.values() if (one := from_json(row.value, LastPayload)).payload]
    return max(told, key=lambda one: one.until).payload if told else b""


LEAST_OCTETS: Final = 4_096
"""A hub that takes no payload of this size is not offered smaller ones."""


class NotifyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What notifications are made with. `may_send` raises when another process has the right to.

    `is_shown` says whether the documents of a set can be had.
    """

    catalog: Catalog
    store: FolderStore
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener
    may_send: Callable[[], None]
    is_shown: Callable[[str], bool]
    token: str | None
    settings: NotifyConfig


class NotificationStream(Generic[P]):
    """What all streams have in common. `next_payload` and `settle` wait for the catalog and raise its faults."""

    channel: Channel
    kind: type[P]

    def __init__(self, name: str, hub: str, context: NotifyContext) -> None:
        self.name = name
        self.position: P | None = None
        self.most_octets = PAYLOAD_OCTETS
        self._key = (self.channel.capability, hub)
        """Of the row of the position."""
        self._context = context
        self._is_read = False
        self._is_written = True
        self.news = asyncio.Event()
        """Whether there may be something to send."""
        self.made_at = -math.inf
        """When its last payload was made, by the clock of the event loop."""
        self.refusals = self.faults = 0
        """How often in a row its payload was refused, or could not be made."""

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken."""
        return 0

    def pause(self, since_last: float) -> float:
        """For how many seconds the next payload still waits for more; the last was made `since_last` seconds ago."""
        raise NotImplementedError

    def next_payload(self) -> bytes | None:
        """What is to be sent now; None: nothing. New octets are kept before they are returned."""
        if not self._is_read:
            row = self._context.catalog.rows(self.name, [self._key]).get(self._key)
            self.position = None if row is None else from_json(row.value, self.kind)
            self._is_read = True
        if self.position is not None and not self.position.is_taken and self._holds(self.position):
            return self.position.payload
        made = self._made(self.position)
        if made is None:
            return None
        self._write(made)
        return None if made.is_taken else made.payload

    def taken(self) -> None:
        """The hub has taken the payload."""
        assert self.position is not None
        self.position, self._is_written = msgspec.structs.replace(self.position, is_taken=True), False

    def too_large(self) -> bool:
        """The hub takes no payload of this size: make a smaller one, which tells of less; False: it cannot be."""
        position = self.position
        before = None if position is None or len(position.payload) <= LEAST_OCTETS else self._before(position)
        if position is None or before is None:
            return False
        self.most_octets = max(len(position.payload) // 2, LEAST_OCTETS)
        self.position = before
        return True

    def settle(self) -> None:
        """Write down that the last payload was taken, unless that is written; from then on only the row has it.

        The streams of thousands of sets would else hold a payload each.
        """
        if not self._is_written and self.position is not None:
            self._write(self.position)
        if self.position is not None and self.position.is_taken:
            self.position = msgspec.structs.replace(self.position, payload=b"")

    def _holds(self, position: P) -> bool:
        """Whether a payload that was not taken is still to be sent."""
        return bool(position.payload)

    def _made(self, position: P | None) -> P | None:
        """The position with the next payload; None: there is nothing to tell. One that is taken is only kept."""
        raise NotImplementedError

    def _before(self, position: P) -> P | None:
        """The position before the last payload, which was not taken; None where that is not known."""
        raise NotImplementedError

    def _write(self, position: P) -> None:
        self._context.may_send()
        update = StateUpdate([StateRow(*self._key, msgspec.json.encode(position))])
        self._context.catalog.record(self.name, [], self._context.clock(), state=update)
        self.position, self._is_written = position, True


class ChangeStream(NotificationStream[HubPosition]):
    """Those of one set; `visible` is what is published of it."""

    channel = CHANGE_CHANNEL
    kind = HubPosition

    def __init__(self, visible: Publication, hub: str, context: NotifyContext) -> None:
        super().__init__(visible.name, hub, context)
        self.visible = visible
        self._first_visible = visible
        """A hub that is new hears of what comes after that, however soon it comes."""

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken."""
        return 0 if self.position is None else self.position.waiting(self.visible)

    def pause(self, since_last: float) -> float:
        """Nothing, unless there are only few changes, and the last were told just now."""
        if self.position is None or not self.position.is_taken or not self.waiting:
            return 0.0
        settings = self._context.settings
        return batch_pause(
            self.waiting, since_last, batch_count=settings.batch_count, batch_seconds=settings.batch_seconds
        )

    def _holds(self, position: HubPosition) -> bool:
        return position.history == self.visible.history

    def _made(self, position: HubPosition | None) -> HubPosition | None:
        visible = self.visible
        is_new = position is None and self._first_visible.history == visible.history
        begin = chain_begin(position, self._first_visible if is_new else visible)
        if begin is not None:  # nothing is sent for it
            # A time that this change is not after, and all later ones are: where the interval of these begins.
            catalog = self._context.catalog
            times = [one.from_ for one in catalog.segments(self.name) if one.first == begin + 1]
            times += [one.at for one in catalog.changes(self.name, begin - 1, 1)] if begin > 0 else []
            self._write(HubPosition(history=visible.history, after=begin, seq=begin, until=max(times)))
            position = self.position
        assert position is not None
        if position.seq >= visible.last:
            return None
        payload = change_payload(
            self._context.site,
            self._context.catalog,
            self.name,
            position.until,
            after=position.seq,
            last=visible.last,
            most=self._context.settings.batch_count,
            most_octets=self.most_octets,
        )
        return HubPosition(
            history=visible.history,
            after=position.seq,
            since=position.until,
            seq=payload.last,
            until=payload.until,
            payload=payload.octets,
            is_taken=False,
        )

    def _before(self, position: HubPosition) -> HubPosition | None:
        if position.since is None:
            return None
        return msgspec.structs.replace(position, seq=position.after, until=position.since, is_taken=True)


class FrameworkPosition(LastPayload, frozen=True, kw_only=True):
    """A hub was told, or is being told, of `documents`, which had these digests."""

    documents: dict[str, str] = msgspec.field(default_factory=dict)


class FrameworkStream(NotificationStream[FrameworkPosition]):
    """Those of one set. One that `is_gone` is no longer a set of the source; that is told once."""

    channel = FRAMEWORK_CHANNEL
    kind = FrameworkPosition

    def __init__(self, name: str, hub: str, context: NotifyContext, *, is_gone: bool = False) -> None:
        super().__init__(name, hub, context)
        self._is_gone = is_gone
        self._is_waited_for = True
        """Whether something was written that is told at once."""
        self.has_news = True
        """Whether the documents may be others than when they were looked at."""
        self._told_before: Mapping[str, str] = {}

    def wrote(self, names: Iterable[str]) -> bool:
        """These documents were written; whether the stream is to be looked at."""
        told = {} if self.position is None else self.position.documents
        ours = [one for one in (document_named(self.name, name) for name in names) if one is not None]
        self.has_news = self.has_news or bool(ours)
        self._is_waited_for = self._is_waited_for or any(one.is_waited_for or one.name not in told for one in ours)
        return bool(ours)

    def pause(self, since_last: float) -> float:
        """Nothing after a quiet time; lists that go on changing are told of now and then."""
        if self.position is None or not self.position.is_taken or not self.has_news:
            return 0.0
        context = self._context
        seconds = context.settings.batch_seconds if self._is_waited_for else context.settings.framework_seconds
        return batch_pause(0, since_last, batch_count=1, batch_seconds=seconds)

    def taken(self) -> None:
        """The hub has taken the payload."""
        super().taken()
        self._told_before = {}

    def _made(self, position: FrameworkPosition | None) -> FrameworkPosition | None:
        if not self.has_news:
            return None
        self.has_news = self._is_waited_for = False
        context, name = self._context, self.name
        there: dict[FrameworkDocument, str] = {}
        if not self._is_gone:
            if not context.is_shown(name):
                self.has_news = True
                return None
            etags = {one: context.store.noted_etag(one.name) for one in framework_documents(name, self._names())}
            there = {one: etag for one, etag in etags.items() if etag is not None}
        told = {} if position is None else position.documents
        changes = document_changes(told, there, name)
        if not changes:
            return None
        payload = framework_payload(context.site, name, changes, self._changed_at, self.most_octets)
        documents = {one.name: digest for one, digest in there.items()}
        if len(payload.changes) < len(changes):  # else it stays as it is: more may have been written meanwhile
            self.has_news = self._is_waited_for = True
            gone = {one.document.name for one in payload.changes if one.kind is ChangeKind.DELETED}
            more = {one.document.name: there[one.document] for one in payload.changes if one.document in there}
            documents = {one: digest for one, digest in {**told, **more}.items() if one not in gone}
        self._told_before = told
        return FrameworkPosition(
            documents=documents,
            until=context.clock(),
            payload=payload.octets,
            is_taken=False,
        )

    def _before(self, position: FrameworkPosition) -> FrameworkPosition:
        self.has_news = self._is_waited_for = True
        return msgspec.structs.replace(position, documents=dict(self._told_before), is_taken=True)

    def _names(self) -> Iterator[str]:
        """The documents that are published: what the catalog has noted after they and their indexes were written."""
        site, name = self._context.site, self.name
        publication = decode_publication(self._context.catalog.snapshot_of(name).state.notes)
        yield source_description_name(site, name)
        dump = publication.resource_dump
        has_dump = dump is not None and dump.is_offered
        for one in published_names(name, publication):
            document = document_named(name, one)
            if has_dump or document is None or document.capability != RESOURCE_DUMP.name:
                yield one

    def _changed_at(self, name: str) -> dt.datetime | None:
        """When a document was written, and never before a time that it states: storages' clocks are late or coarse."""
        store = self._context.store
        held, mark = store.stat(name), decode_mark(store.mark(name))
        if held is None:
            return None
        return held.modified if mark is None else max(held.modified, mark.latest)
