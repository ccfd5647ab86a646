"""Archived Change Lists that close a gap: found in the Change List Archive, without a hole, or not used (RS-ARC-34)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.sync.archives.archive_documents import CHANGE_LIST_ARCHIVE, read_archive
from headwater.sync.archives.coverage import ListedDocument, covering
from headwater.sync.lists.entries import ListContext
from headwater.sync.source_times import format_micros


class ArchivedChanges(msgspec.Struct, frozen=True):
    """The archive at `uri`, and those of its lists that tell of a gap, oldest first."""

    uri: str
    lists: Sequence[ListedDocument]


def lists_over_gap(context: ListContext, uri: str, after: int, begin: int) -> ArchivedChanges | None:
    """The lists of the archive at `uri` that tell of all changes later than `after` and before `begin`.

    None where there are none, or not all; then a person is told why.
    """
    documents = context.documents
    try:
        archive = read_archive(documents, uri, CHANGE_LIST_ARCHIVE, context.scope.objection)
    except SourceFault as fault:
        documents.warn("RS-ARC-34", f"the Change List Archive cannot be used: {fault.what}", uri)
        return None
    found = covering(archive.documents, after, begin)
    if found.hole is not None:
        first, last = format_micros(found.hole.after), format_micros(found.hole.before or begin)
        documents.warn("RS-ARC-19", f"the Change List Archive has nothing of {first} to {last}", uri)
        return None
    return ArchivedChanges(uri, found.lists)
