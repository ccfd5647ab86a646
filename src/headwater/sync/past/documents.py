"""The documents that tell of a set's past: its archives, and which of all its lists tell of a moment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.sync.archives.archive_documents import (
    CHANGE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    read_archive,
)
from headwater.sync.archives.coverage import ListedDocument
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import IndexedList, is_past
from headwater.sync.state.set_rows import Offer


class PastDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """Archived snapshots and Change Lists, and those of dumps, each in the order of its archive."""

    snapshots: tuple[ListedDocument, ...] = ()
    changes: tuple[IndexedList, ...] = ()
    resource_dumps: tuple[ListedDocument, ...] = ()
    change_dumps: tuple[IndexedList, ...] = ()
    unread: tuple[str, ...] = ()
    """Archives that cannot be read: what they tell nobody knows."""


def latest_before(snapshots: Sequence[ListedDocument], moment: int) -> ListedDocument | None:
    """The snapshot with the greatest `at` that is not later than the moment."""
    known = [one for one in snapshots if one.at is not None and one.at <= moment]
    return max(known, key=lambda one: one.at or 0, default=None)


def first_after(snapshots: Sequence[ListedDocument], moment: int) -> ListedDocument | None:
    """The snapshot with the smallest `at` that is later than the moment."""
    known = [one for one in snapshots if one.at is not None and one.at > moment]
    return min(known, key=lambda one: one.at or 0, default=None)


def touching(lists: Sequence[IndexedList], after: int, until: int) -> list[IndexedList]:
    """The Change Lists whose interval can hold changes of a period, or that state none (DST-5.1, AMB-11)."""
    return [one for one in lists if _may_hold(one, after, until)]


def _may_hold(one: IndexedList, after: int, until: int) -> bool:
    if one.from_ is not None and one.from_ > until:
        return False
    return one.until is None or not is_past(one.until, after)


def past_documents(context: ListContext, offer: Offer) -> PastDocuments:
    """What the archives that a source offers list; one that cannot be read is told of, and tells nothing."""
    unread: list[str] = []
    lists, dumps, changes, change_dumps = (
        _archived(context, offer, capability, unread)
        for capability in (RESOURCE_LIST_ARCHIVE, RESOURCE_DUMP_ARCHIVE, CHANGE_LIST_ARCHIVE, CHANGE_DUMP_ARCHIVE)
    )
    return PastDocuments(
        snapshots=lists or dumps,
        changes=_indexed(changes or change_dumps),
        resource_dumps=dumps,
        change_dumps=_indexed(change_dumps),
        unread=tuple(unread),
    )


def _archived(context: ListContext, offer: Offer, capability: str, unread: list[str]) -> tuple[ListedDocument, ...]:
    uri = offer.documents.get(capability)
    if uri is None:
        return ()
    try:
        return read_archive(context.documents, uri, capability, context.scope.objection).documents
    except SourceFault as fault:
        context.documents.warn(fault.rule or fault.code, f"an archive cannot be read: {fault.what}", uri)
        unread.append(uri)
        return ()


def _indexed(documents: Sequence[ListedDocument]) -> tuple[IndexedList, ...]:
    return tuple(IndexedList(one.uri, one.from_, one.until) for one in documents)
