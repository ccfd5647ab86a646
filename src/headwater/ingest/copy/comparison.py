"""The comparison of a copy's files with the set that is published of them: what is to be recorded, what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from headwater.catalog.interface import Delete, Event, Resource, Upsert
from headwater.copies.copy_state import CopiedFile
from headwater.ingest.copy.inherited_links import leads_home
from headwater.ingest.copy.statement import metadata_of, relative_path, relative_uri


class Omission(Enum):
    """Why a file of a copy is not published."""

    LOOP = "it came from ourselves"
    CHANGED = "the file is missing, or is not the one that was placed"
    UNCONFIRMED = "no list of the origin confirms the octets so far"
    UNUSABLE = "no resource of ours can have this name"


class LeftOut:
    """How many files of a copy are left out, for each reason, and the first of each: its URI at the origin, or path."""

    def __init__(self) -> None:
        self.counts: Counter[Omission] = Counter()
        self.examples: dict[Omission, str] = {}

    def add(self, why: Omission, example: str) -> None:
        """One more."""
        self.counts[why] += 1
        self.examples.setdefault(why, example[:300])

    def add_all(self, others: LeftOut) -> None:
        """These as well."""
        self.counts.update(others.counts)
        self.examples = others.examples | self.examples


class CopyBatch(msgspec.Struct):
    """What some paths of a copy come to: events to record, notes to remember, and what is left out."""

    events: list[Event] = msgspec.field(default_factory=list)
    memos: list[tuple[str, bytes]] = msgspec.field(default_factory=list)
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)


class CopyRules(msgspec.Struct, frozen=True):
    """What a comparison has to know of its set: our addresses, the set's folder in the copy.

    `note_of` is the note of a file that is as it was placed, None for one that is not: it is not served as if it were.
    """

    base_url: str
    prefix: str
    folder: str
    note_of: Callable[[CopiedFile], bytes | None]


def uris_of(paths: Iterable[bytes], folder: str) -> dict[bytes, str]:
    """The URIs of those of the paths that can be resources of the set."""
    found = ((path, relative_path(path, folder)) for path in paths)
    uris = ((path, relative_uri(below)) for path, below in found if below is not None)
    return {path: uri for path, uri in uris if uri is not None}


def compare(
    paths: Iterable[bytes], files: Mapping[bytes, CopiedFile], known: Mapping[str, Resource], rules: CopyRules
) -> CopyBatch:
    """What these paths come to: `files` are those of them that the copy holds, `known` the resources published."""
    batch = CopyBatch()
    uris = uris_of(paths, rules.folder)
    for path in paths:
        uri, file = uris.get(path), files.get(path)
        if uri is None:
            batch.left_out.add(Omission.UNUSABLE, repr(path[:200]))
            continue
        resource = known.get(uri)
        if file is None:
            if resource is not None:
                batch.events.append(Delete(uri))
            continue
        metadata = metadata_of(file, rules.prefix + uri)
        if leads_home(metadata.links, rules.base_url):
            batch.left_out.add(Omission.LOOP, file.uri)
            if resource is not None:
                batch.events.append(Delete(uri))
        elif file.digest is None or file.unconfirmed:
            batch.left_out.add(Omission.UNCONFIRMED, file.uri)
        elif (note := rules.note_of(file)) is None:
            batch.left_out.add(Omission.CHANGED, file.uri)
        else:
            _take(batch, Upsert(uri, metadata, note), resource)
    return batch


def _take(batch: CopyBatch, event: Upsert, resource: Resource | None) -> None:
    if resource is None or resource.metadata != event.metadata:
        batch.events.append(event)
    elif resource.memo != event.memo:
        batch.memos.append((event.uri, event.memo))
