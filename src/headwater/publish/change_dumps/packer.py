"""Packs the changes of sets beside their publications: what is due, the package, and the note that names it.

The package is made without holding up publications; it has a name that nothing tells yet. Whether it still fits is
looked at when it is named: if the Change Dump has meanwhile begun anew, it is left to be cleaned away.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headwater import notices
from headwater.catalog.interface import Change
from headwater.catalog.set_snapshot import read_snapshot
from headwater.progress import Notice, of_set
from headwater.publish.change_dumps import package_plan
from headwater.publish.change_dumps.change_contents import ChangeContents
from headwater.publish.change_dumps.package_plan import PackagePlan
from headwater.publish.change_dumps.packing import NotHad, Packing, pack
from headwater.publish.change_dumps.renderer import change_dump_names, write_change_dump
from headwater.publish.context import PublishContext
from headwater.publish.plan import with_retired
from headwater.publish.publication_state import (
    ChangeDumpState,
    ChangePackage,
    PublicationNotes,
    PublicationState,
    decode_publication,
)
from headwater.publish.site import SetSettings, change_package_names
from headwater.publish.store_writer import StoreWriter

PACKAGES = "changedump/"
_ROWS = 2_000


class DuePackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is due, and the state of the Change Dump to which it is to be added."""

    plan: PackagePlan
    state: ChangeDumpState
    generation: str


class ChangePacker:
    """Does that, for all sets. `due` and `name` are called under the lock of the set, `pack` without it."""

    def __init__(self, context: PublishContext, contents: ChangeContents | None, spool: Path | None) -> None:
        self._context = context
        self._contents = contents
        self._spool = spool
        self._swept: set[str] = set()
        """Sets in whose store all packages are known."""

    def forget(self) -> None:
        """Others may have packed since, and left what is to be cleaned away."""
        self._swept.clear()

    def due(self, settings: SetSettings, *, at_once: bool) -> DuePackage | None:
        """What is to be packed now; None when nothing is, or the set has to be published first."""
        if self._contents is None or not settings.change_dump:
            return None
        snapshot = read_snapshot(self._context.catalog, settings.name)
        publication = decode_publication(snapshot.state.notes)
        state = publication.change_dump
        if state is None or not publication.is_of(self._context.site, settings):
            return None
        now = self._context.clock()
        plan = package_plan.next_package(state, snapshot.segments, settings, now, at_once=at_once)
        if plan is None:
            return None
        return DuePackage(plan=plan, state=state, generation=publication.generation)

    def pack(self, settings: SetSettings, due: DuePackage, stop: Callable[[], None]) -> ChangePackage | NotHad:
        """Make the package and put it into the store; nothing names it yet."""
        assert self._contents is not None
        packing = Packing(
            site=self._context.site,
            name=settings.name,
            contents=self._contents,
            store_writer=self._writer(due.generation, {}),
            spool=self._spool,
            stop=stop,
            listener=of_set(self._context.listener, settings.name),
        )
        return pack(packing, due.plan, self._changes(settings.name, due.plan))

    def name(
        self, settings: SetSettings, due: DuePackage, packed: ChangePackage | NotHad, etags: dict[str, str]
    ) -> None:
        """Name the package in the Change Dump, unless that is another one by now; `etags` learn what was written."""
        context, name = self._context, settings.name
        snapshot = read_snapshot(context.catalog, name)
        publication = decode_publication(snapshot.state.notes)
        if publication.change_dump != due.state or publication.generation != due.generation:
            self._swept.discard(name)  # what was packed is to be cleaned away
            return
        if isinstance(packed, ChangePackage) and not self._is_stored(name, packed):
            return  # packed so long that it was taken for what a killed process has left: it is packed again
        now = context.clock()
        if isinstance(packed, NotHad):
            state = package_plan.begin_after(packed.change)
            text = f"the octets of change {packed.change.seq:,} cannot be had: Change Dumps begin anew after it"
            context.listener(Notice(notices.CHANGE_DUMP_ANEW, text, f"{name}: {packed.change.uri[:200]}"))
        else:
            state = package_plan.with_package(due.state, packed, now)
        write_change_dump(self._writer(due.generation, etags), context.site, name, state)
        context.may_write()
        publication = msgspec.structs.replace(publication, retired=self._retired(name, publication, state, now))
        PublicationNotes(context.catalog, snapshot.state).write(msgspec.structs.replace(publication, change_dump=state))

    def _is_stored(self, name: str, one: ChangePackage) -> bool:
        names = change_package_names(name, one.segment, one.hash)
        return all(self._context.store.stat(part) is not None for part in names)

    def _retired(
        self, name: str, publication: PublicationState, state: ChangeDumpState, now: dt.datetime
    ) -> tuple[tuple[str, dt.datetime], ...]:
        """What nothing names any more, and since when; once in a while also what killed processes have left."""
        before = (
            set[str]() if publication.change_dump is None else set(change_dump_names(name, publication.change_dump))
        )
        if name not in self._swept:
            before.update(self._context.store.names(f"{name}/{PACKAGES}"))
            self._swept.add(name)
        return with_retired(publication, before, set(change_dump_names(name, state)), now)

    def _writer(self, generation: str, etags: dict[str, str]) -> StoreWriter:
        context = self._context
        return StoreWriter(context.store, context.site.profile, context.may_write, etags, generation)

    def _changes(self, name: str, plan: PackagePlan) -> Iterator[Change]:
        after = plan.first - 1
        while after < plan.last:
            rows = self._context.catalog.changes(name, after, min(_ROWS, plan.last - after))
            if not rows:
                return
            yield from rows
            after = rows[-1].seq
