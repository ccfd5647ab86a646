"""The Framework Notifications of a set for one hub: what the documents are now, against what the hub was told (RS-FN).

What is written tells only when to look. What is told is the difference to the digests in the hub's row, so that nothing
is told before it can be had, and nothing is lost, whatever was killed in between.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from headwater.catalog.set_snapshot import read_snapshot
from headwater.publish.capabilities import FRAMEWORK_CHANNEL, RESOURCE_DUMP
from headwater.publish.notifications import (
    DocumentChange,
    FrameworkDocument,
    document_changes,
    document_named,
    framework_documents,
    framework_payload,
)
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import published_names
from headwater.publish.site import capability_list_name, source_description_name
from headwater.publish.store_writer import decode_mark
from headwater.source.notifications.hub_position import LastPayload, batch_pause
from headwater.source.notifications.notification_stream import NotificationStream, NotifyContext
from headwater.spec.records import ChangeKind


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
        there = {} if self._is_gone else self._documents_there()
        if there is None:
            self.has_news = True
            return None
        told = {} if position is None else position.documents
        changes = document_changes(told, there, self.name)
        if not changes:
            return None
        context = self._context
        payload = framework_payload(context.site, self.name, changes, self._changed_at, self.most_octets)
        is_all = len(payload.changes) == len(changes)
        if not is_all:  # else it stays as it is: more may have been written meanwhile
            self.has_news = self._is_waited_for = True
        self._told_before = told
        return FrameworkPosition(
            documents=_documents_told(told, there, payload.changes, is_all=is_all),
            until=context.clock(),
            payload=payload.octets,
            is_taken=False,
        )

    def _before(self, position: FrameworkPosition) -> FrameworkPosition:
        self.has_news = self._is_waited_for = True
        return msgspec.structs.replace(position, documents=dict(self._told_before), is_taken=True)

    def _documents_there(self) -> dict[FrameworkDocument, str] | None:
        """The documents of the set that can be had, with their digests; None while the set is not shown."""
        context, name = self._context, self.name
        if not context.is_shown(name):
            return None
        etags = {one: context.store.noted_etag(one.name) for one in framework_documents(name, self._names())}
        return {one: etag for one, etag in etags.items() if etag is not None}

    def _names(self) -> Iterator[str]:
        """The documents that are published: what the catalog has noted after they and their indexes were written."""
        site, name = self._context.site, self.name
        snapshot = read_snapshot(self._context.catalog, name)
        publication = decode_publication(snapshot.state.notes)
        yield source_description_name(site, name)
        yield capability_list_name(name)
        dump = publication.resource_dump
        has_dump = dump is not None and dump.is_offered
        for one in published_names(snapshot, publication):
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


def _documents_told(
    told: Mapping[str, str],
    there: Mapping[FrameworkDocument, str],
    changes: Iterable[DocumentChange],
    *,
    is_all: bool,
) -> dict[str, str]:
    """The documents of which the hub knows when it has the notification; `is_all`: of all that there are."""
    if is_all:
        return {one.name: digest for one, digest in there.items()}
    gone = {one.document.name for one in changes if one.kind is ChangeKind.DELETED}
    more = {one.document.name: there[one.document] for one in changes if one.document in there}
    return {name: digest for name, digest in {**told, **more}.items() if name not in gone}
