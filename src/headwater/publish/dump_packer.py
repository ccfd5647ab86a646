"""Packs the dumps of sets beside their publications: finds what is due, makes packages, names them in the dump.

Packages are made without holding up publications; they have names that nothing tells yet. Whether they still fit is
looked at when they are named: if the dump is meanwhile another one, they are left to be cleaned away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec

from headwater.catalog.interface import SetSnapshot
from headwater.publish.added_links import EntryPlace, Row
from headwater.publish.archives import archive_names
from headwater.publish.package_builder import SpooledPackage
from headwater.publish.plan import with_retired
from headwater.publish.publication_state import (
    ChangeDumpState,
    PublicationState,
    ResourceDumpState,
    decode_publication,
    encode_publication,
)
from headwater.publish.site import SetSettings
from headwater.publish.store_writer import PublishContext, StoreWriter
from headwater.spec.records import Document, Entry


class PackResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a look at a dump.

    `is_done`: something was packed, and there may be more. `doubted` are the URIs of resources that were left out
    because they are not as they were recorded: whoever scans them looks at them. `is_offered`: destinations had a dump
    before already, so that packing may take its time.
    """

    is_done: bool
    doubted: tuple[str, ...] = ()
    is_offered: bool = False


NOTHING_PACKED: Final = PackResult(is_done=False)


class Packing(NamedTuple):
    """What packages of all sets are made with.

    `locks` are those of the publications of sets; `spool` is the folder of spools. `held_back` are sets of
    whose last page too many resources could not be had.
    """

    context: PublishContext
    locks: Mapping[str, Lock]
    spool: Path | None
    held_back: set[str]

    def look(self, settings: SetSettings) -> tuple[SetSnapshot, PublicationState] | None:
        """The set as it was published; None where it has to be published first."""
        with self.locks[settings.name]:
            snapshot = self.context.catalog.snapshot_of(settings.name)
        publication = decode_publication(snapshot.state.notes)
        return (snapshot, publication) if publication.is_of(self.context.site, settings) else None

    def package(
        self, settings: SetSettings, generation: str, place: EntryPlace, stop: Callable[[], None]
    ) -> SpooledPackage[Row]:
        """A new package; nothing names it yet."""
        return SpooledPackage(self.context, settings, StoreWriter(self.context, generation), self.spool, stop, place)

    def name(
        self,
        settings: SetSettings,
        before: PublicationState,
        state: ResourceDumpState | ChangeDumpState,
        names: Callable[[str, Any], Iterator[str]],
        packed: Iterable[str],
        documents: Iterable[tuple[str, Document, Iterable[Entry]]],
    ) -> None:
        """Name what was packed in the documents of the dump, unless that is another one by now.

        `names` tells the documents and packages of a state of the dump.
        """
        context, name = self.context, settings.name
        field = "resource_dump" if isinstance(state, ResourceDumpState) else "change_dump"
        with self.locks[name]:
            publication = decode_publication(context.catalog.state(name).notes)
            held = getattr(publication, field)
            if held != getattr(before, field) or publication.generation != before.generation:
                return  # what was packed is to be cleaned away
            if any(context.store.stat(one) is None for one in packed):
                return  # packed so long that it was taken for what a killed process has left: it is packed again
            StoreWriter(context, publication.generation).documents(documents)
            known = {*names(name, held), *context.store.names(f"{name}/{field.replace('_', '')}/")}
            live = set(names(name, state))
            if publication.archive is not None:
                live.update(archive_names(name, publication.archive))
            retired = with_retired(publication, known, live, context.clock())
            context.may_write()
            publication = msgspec.structs.replace(publication, retired=retired, **{field: state})
            context.catalog.note(name, encode_publication(publication))
