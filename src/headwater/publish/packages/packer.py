"""Packs the dumps of sets beside their publications: finds what is due, makes packages, names them in the dump.

Packages are made without holding up publications; they have names that nothing tells yet. Whether they still fit is
looked at when they are named: if the dump is meanwhile another one, they are left to be cleaned away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import ClassVar, Generic, TypeVar

import msgspec

from headwater.catalog.interface import SetSnapshot
from headwater.publish.archive_documents import archive_names
from headwater.publish.plan import with_retired
from headwater.publish.publication_state import PublicationNotes, decode_publication
from headwater.publish.rendering.renderer import PublishContext, Renderer
from headwater.publish.site import SetSettings
from headwater.publish.store_writer import StoreWriter

S = TypeVar("S")
"""The state of a dump."""
D = TypeVar("D")
"""What is due."""


class PackResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a look at a dump.

    `is_done`: something was packed, and there may be more. `doubted` are the URIs of resources that were left out
    because they are not as they were recorded: whoever scans them looks at them. `is_offered`: destinations had a dump
    before already, so that packing may take its time.
    """

    is_done: bool
    doubted: tuple[str, ...] = ()
    is_offered: bool = False


class Made(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """What was packed: the state of the dump with it, the `names` of what was put into the store.

    Without a state it is not to be named, but to be cleaned away.
    """

    state: S | None
    names: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()


class DumpPacker(Generic[S, D]):
    """Packs one kind of dump of all sets.

    `locks` are those of the publications of sets; `etags` learn what was written; `spool` is the folder of spools.
    """

    folder: ClassVar[str]
    """Where the packages lie, below the set's folder."""
    field: ClassVar[str]
    """The field of the publication state that the state of the dump is in; it is None while the set has none."""
    renderer: ClassVar[type[Renderer]]
    """What names the documents and packages of the dump."""

    def __init__(
        self, context: PublishContext, locks: Mapping[str, Lock], etags: dict[str, str], spool: Path | None
    ) -> None:
        self._context = context
        self._locks = locks
        self._etags = etags
        self._spool = spool

    def pack(self, settings: SetSettings, *, at_once: bool, stop: Callable[[], None]) -> PackResult:
        """Make the packages that are due, and name them. With `at_once` what waits its time does not.

        Raises the store's and the catalog's StoreFaults, OSError, and what `stop` raises.
        """
        name = settings.name
        with self._locks[name]:
            snapshot = self._context.catalog.snapshot_of(name)
            publication = decode_publication(snapshot.state.notes)
            state: S | None = getattr(publication, self.field)
            if state is None or not publication.is_of(self._context.site, settings):
                return PackResult(is_done=False)  # the set has to be published first
            due = self._due(settings, snapshot, state, at_once=at_once)
        if due is None:
            return PackResult(is_done=False)
        made = self._make(settings, state, due, self._writer(publication.generation, {}), stop)
        if made.state is None:
            return PackResult(is_done=False)
        with self._locks[name]:
            self._name(settings, publication.generation, state, made.state, made.names)
        return PackResult(is_done=True, doubted=made.doubted, is_offered=getattr(state, "is_offered", False))

    def _due(self, settings: SetSettings, snapshot: SetSnapshot, state: S, *, at_once: bool) -> D | None:
        """What is due next. Called under the lock of the set."""
        raise NotImplementedError

    def _make(
        self, settings: SetSettings, state: S, due: D, store_writer: StoreWriter, stop: Callable[[], None]
    ) -> Made[S]:
        """Make the packages and put them into the store; nothing names them yet."""
        raise NotImplementedError

    def _write(self, store_writer: StoreWriter, settings: SetSettings, before: S, state: S) -> None:
        """Write the documents that name the packages. Called under the lock of the set."""
        raise NotImplementedError

    def _name(self, settings: SetSettings, generation: str, before: S, state: S, packed: Iterable[str]) -> None:
        """Name the packages in the dump, unless that is another one by now."""
        context, name = self._context, settings.name
        snapshot = context.catalog.snapshot_of(name)
        publication = decode_publication(snapshot.state.notes)
        if getattr(publication, self.field) != before or publication.generation != generation:
            return  # what was packed is to be cleaned away
        if any(context.store.stat(one) is None for one in packed):
            return  # packed so long that it was taken for what a killed process has left: it is packed again
        self._write(self._writer(generation, self._etags), settings, before, state)
        known = {*self.renderer.published(name, publication), *context.store.names(f"{name}/{self.folder}")}
        publication = msgspec.structs.replace(publication, **{self.field: state})
        live = {*self.renderer.published(name, publication), *archive_names(name, publication.archive)}
        retired = with_retired(publication, known, live, context.clock())
        context.may_write()
        publication = msgspec.structs.replace(publication, retired=retired)
        PublicationNotes(context.catalog, snapshot.state).write(publication)

    def _writer(self, generation: str, etags: dict[str, str]) -> StoreWriter:
        context = self._context
        return StoreWriter(context.store, context.site.profile, context.may_write, etags, generation)
