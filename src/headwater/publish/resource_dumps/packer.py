"""Packs the resources of sets beside their publications: the page that is due, its packages, the note that names them.

Packages are made without holding up publications; they have names that nothing tells yet. Whether they still fit is
looked at when they are named: if the dump has meanwhile begun anew, they are left to be cleaned away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from headwater import notices
from headwater.catalog.content import ContentChanged, ContentReader, NoContent, recorded_blocks
from headwater.catalog.interface import Resource
from headwater.catalog.set_snapshot import read_snapshot
from headwater.progress import Notice
from headwater.publish.context import PublishContext
from headwater.publish.plan import with_retired
from headwater.publish.publication_state import (
    PagePackages,
    PublicationNotes,
    ResourceDumpState,
    decode_publication,
)
from headwater.publish.rendering import documents
from headwater.publish.resource_dumps import dump_plan
from headwater.publish.resource_dumps.dump_plan import PackingPlan
from headwater.publish.resource_dumps.packing import PackedPage, PagePacking, pack_page
from headwater.publish.resource_dumps.renderer import package_names, resource_dump_names, write_resource_dump
from headwater.publish.site import SetSettings, capability_list_name
from headwater.publish.store_writer import StoreWriter

PACKAGES = "resourcedump/"
MASS_SECONDS = 30.0
"""Between two looks at a page of which too much cannot be had."""
MOST_TRIES = 8
"""So often, with pauses of two minutes all together, it is looked whether a change tells of what was left out …"""
FEW_TRIES = 2
"""… and so often once that was in vain for a page of the set: many files may be away, their deletions held back."""


class DuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page that is due, and the state of the Resource Dump in which its packages are to be named.

    `packed` is what was packed already, and could not be named so far.
    """

    plan: PackingPlan
    state: ResourceDumpState
    generation: str
    packed: PackedPage | None = None


class ResourcePacker:
    """Does that, for all sets. `due` and `name` are called under the lock of the set, `pack` without it."""

    def __init__(self, context: PublishContext, contents: ContentReader | None, spool: Path | None) -> None:
        self._context = context
        self._contents = contents
        self._spool = spool
        self._swept: set[str] = set()
        """Sets in whose store all packages are known."""
        self._pending: dict[str, DuePage] = {}
        """Pages that are packed, and wait for the changes of what was left out."""
        self._not_before: dict[str, float] = {}
        self._tries: dict[tuple[str, int], int] = {}
        self._in_vain: set[str] = set()
        self._missing: dict[tuple[str, int], tuple[str, ...]] = {}
        """Of the pages that this process has packed: URIs of what was left out."""
        self._held_until: dict[str, float] = {}
        """Sets of which too much cannot be had: they are looked at again then."""

    def due(self, settings: SetSettings) -> DuePage | None:
        """What is to be packed now; None when nothing is, or the set has to be published first."""
        if self._contents is None or not settings.dump or self.is_waiting(settings.name):
            return None
        if time.monotonic() < self._held_until.get(settings.name, 0.0):
            return None
        if (pending := self._pending.pop(settings.name, None)) is not None and not self._can_be_had(pending, settings):
            return pending
        snapshot = read_snapshot(self._context.catalog, settings.name)
        publication = decode_publication(snapshot.state.notes)
        state = publication.resource_dump
        if state is None or not publication.is_of(self._context.site, settings):
            return None
        out_of_reach = frozenset(one.number for one in state.pages if self._is_out_of_reach(settings, one))
        plan = dump_plan.next_packing(state, snapshot, settings, self._context.clock(), out_of_reach)
        return None if plan is None else DuePage(plan=plan, state=state, generation=publication.generation)

    def pack(self, settings: SetSettings, due: DuePage, stop: Callable[[], None]) -> PackedPage | None:
        """Make the packages of the page that is due and put them into the store; None when it has no resources."""
        if due.packed is not None:
            return due.packed
        page = due.plan.page
        if page is None or not page.count:
            return None
        assert self._contents is not None
        packing = PagePacking(
            site=self._context.site,
            name=settings.name,
            catalog=self._context.catalog,
            contents=self._contents,
            store_writer=self._writer(due.generation, {}),
            spool=self._spool,
            stop=stop,
            listener=self._context.listener,
        )
        packed = pack_page(packing, due.plan, page)
        completed = max(due.plan.at, self._context.clock())
        return msgspec.structs.replace(packed, packages=msgspec.structs.replace(packed.packages, completed=completed))

    def forget(self) -> None:
        """Others may have packed since, and cleaned away what was packed here."""
        self._swept.clear()
        self._pending.clear()

    def is_waiting(self, name: str) -> bool:
        """Whether resources of the set are not as they were recorded: packing goes on when that has been looked at."""
        return time.monotonic() < self._not_before.get(name, 0.0)

    def look_again(self, name: str) -> None:
        """The set was scanned: go on packing."""
        self._not_before.pop(name, None)

    def _is_held(self, name: str, due: DuePage, packed: PackedPage) -> bool:
        """Whether the packages have to wait, because a resource was left out of which no later change tells.

        Not for ever: what is never as it was recorded cannot be fetched by its URI, either.
        """
        rest = tuple((one.uri, one.seq) for one in self._unsettled(name, packed))
        key = (name, packed.packages.number)
        tries = self._tries.pop(key, 0) + 1
        if not rest:
            self._in_vain.discard(name)
            return False
        if tries >= (FEW_TRIES if name in self._in_vain else MOST_TRIES):
            self._in_vain.add(name)
            return False
        self._tries[key] = tries
        self._pending[name] = msgspec.structs.replace(due, packed=msgspec.structs.replace(packed, unsettled=rest))
        self._not_before[name] = time.monotonic() + 0.5 * 2.0**tries
        return True

    def _unsettled(self, name: str, packed: PackedPage) -> list[Resource]:
        """The resources that were left out and of which no later change tells."""
        found = self._context.catalog.get(name, [uri for uri, _seq in packed.unsettled])
        return [found[uri] for uri, seq in packed.unsettled if uri in found and found[uri].seq == seq]

    def _can_be_had(self, pending: DuePage, settings: SetSettings) -> bool:
        """Whether a resource that was left out is as it was recorded after all: then its page is packed again."""
        assert pending.packed is not None
        return self._is_one_at_hand(settings.name, self._unsettled(settings.name, pending.packed))

    def _is_out_of_reach(self, settings: SetSettings, page: PagePackages) -> bool:
        """Whether nothing that was left out of a page can be had, as far as this process knows what that was."""
        missing = self._missing.get((settings.name, page.number)) if page.left_out else None
        if missing is None:
            return False
        found = self._context.catalog.get(settings.name, missing)
        return not self._is_one_at_hand(settings.name, found.values())

    def _is_one_at_hand(self, name: str, resources: Iterable[Resource]) -> bool:
        """Whether one of these resources is as it was recorded."""
        assert self._contents is not None
        for one in resources:
            content = self._contents.open(name, one)
            if isinstance(content, NoContent):
                continue
            try:
                for _block in recorded_blocks(content, one.metadata):
                    pass
            except (ContentChanged, OSError):
                continue
            finally:
                content.close()
            return True
        return False

    def name(self, settings: SetSettings, due: DuePage, packed: PackedPage | None, etags: dict[str, str]) -> bool:
        """Name the packages in the Resource Dump, unless that is another one by now; `etags` learn what was written.

        False, and nothing is named, while resources were left out of which no later change tells: a destination that
        goes on from this dump by changes would never come to know of them; and while so much cannot be had as if a disk
        were not mounted: what was named before stays. The Capability List names the dump from then
        on when it is the first that is whole.
        """
        context, name = self._context, settings.name
        if packed is not None and packed.is_mass:
            self._hold_back(name, packed)
            return False
        self._held_until.pop(name, None)
        snapshot = read_snapshot(context.catalog, name)
        publication = decode_publication(snapshot.state.notes)
        if publication.resource_dump != due.state or publication.generation != due.generation:
            self._swept.discard(name)  # what was packed is to be cleaned away
            return True
        if packed is not None and not self._is_stored(name, packed.packages):
            return True  # packed so long that it was taken for what a killed process has left: it is packed again
        if packed is not None and packed.unsettled and self._is_held(name, due, packed):
            return False
        state = dump_plan.with_page(due.state, due.plan, None if packed is None else packed.packages)
        writer = self._writer(due.generation, etags)
        if state.is_offered:
            write_resource_dump(writer, context.site, name, state)
        if state.is_offered and not due.state.is_offered:
            content = documents.capability_list(context.site, settings, with_later=True)
            writer.document(capability_list_name(name), *content)
        before = set(resource_dump_names(name, due.state))
        if name not in self._swept:
            before.update(context.store.names(f"{name}/{PACKAGES}"))
            self._swept.add(name)
        live = set(resource_dump_names(name, state))
        retired = with_retired(publication, before, live, context.clock())
        context.may_write()
        publication = msgspec.structs.replace(publication, retired=retired, resource_dump=state)
        PublicationNotes(context.catalog, snapshot.state).write(publication)
        if packed is not None:
            self._missing[name, packed.packages.number] = packed.missing
        return True

    def _hold_back(self, name: str, packed: PackedPage) -> None:
        """Leave the Resource Dump as it is, and look again later."""
        self._swept.discard(name)  # what was packed is to be cleaned away
        if name not in self._held_until:
            count = packed.packages.left_out
            text = f"the Resource Dump stays as it is: {count:,} resources of one page cannot be had"
            self._context.listener(Notice(notices.DUMP_HELD_BACK, text, set_name=name))
        self._held_until[name] = time.monotonic() + MASS_SECONDS

    def _is_stored(self, name: str, page: PagePackages) -> bool:
        return all(self._context.store.stat(one) is not None for one in package_names(name, page))

    def _writer(self, generation: str, etags: dict[str, str]) -> StoreWriter:
        context = self._context
        return StoreWriter(context.store, context.site.profile, context.may_write, etags, generation)
