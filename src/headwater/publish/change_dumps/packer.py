"""The Change Dump as `DumpPacker` packs it: the changes that are due, and their package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from headwater import notices
from headwater.catalog.interface import Change, SetSnapshot
from headwater.progress import Notice, of_set
from headwater.publish.change_dumps import package_plan
from headwater.publish.change_dumps.change_contents import ChangeContents
from headwater.publish.change_dumps.package_plan import PackagePlan
from headwater.publish.change_dumps.packing import NotHad, Packing, pack
from headwater.publish.change_dumps.renderer import change_dump_names, write_change_dump
from headwater.publish.links.added_links import AddedLinks
from headwater.publish.patches import PublishedPatch, packed_patch
from headwater.publish.publication_state import ChangeDumpState, ChangePackage, PublicationState
from headwater.publish.rendering.dump_packer import Due
from headwater.publish.rendering.renderer import PublishContext
from headwater.publish.site import SetSettings, change_package_names
from headwater.publish.store_writer import StoreWriter

_ROWS = 2_000

Packed = ChangePackage | NotHad


class ChangeDumpPlan:
    """The `DumpPlan` of Change Dumps."""

    folder = "changedump/"

    def __init__(self, context: PublishContext, contents: ChangeContents | None, spool: Path | None) -> None:
        self._context = context
        self._contents = contents
        self._spool = spool

    def forget(self) -> None:
        """Nothing is kept."""

    def may_pack(self, settings: SetSettings, *, at_once: bool) -> bool:
        """Whether the set has a Change Dump."""
        del at_once
        return self._contents is not None and settings.change_dump

    def awaits_scan(self, name: str) -> bool:
        """Never: octets of changes were kept, or are lost."""
        del name
        return False

    def held(self, settings: SetSettings) -> Due[ChangeDumpState, PackagePlan, Packed] | None:
        """Nothing: every package is named as soon as it is made."""
        del settings
        return None

    def state_of(self, publication: PublicationState) -> ChangeDumpState | None:
        """None: the set has none."""
        return publication.change_dump

    def with_state(self, publication: PublicationState, state: ChangeDumpState) -> PublicationState:
        """The publication state with another state of the dump."""
        return msgspec.structs.replace(publication, change_dump=state)

    def is_offered(self, state: ChangeDumpState) -> bool:
        """Packing never takes its time: a package is waited for."""
        del state
        return False

    def next(
        self, settings: SetSettings, snapshot: SetSnapshot, state: ChangeDumpState, *, at_once: bool
    ) -> PackagePlan | None:
        """The changes to pack; with `at_once` those of the open segment do not wait their time."""
        return package_plan.next_package(state, snapshot.segments, settings, self._context.clock(), at_once=at_once)

    def pack(
        self, settings: SetSettings, plan: PackagePlan, store_writer: StoreWriter, stop: Callable[[], None]
    ) -> Packed:
        """Make the package."""
        assert self._contents is not None
        packing = Packing(
            site=self._context.site,
            name=settings.name,
            contents=self._contents,
            store_writer=store_writer,
            links=AddedLinks(self._context.site, settings, self._context.catalog),
            spool=self._spool,
            stop=stop,
            listener=of_set(self._context.listener, settings.name),
            patch_of=self._patch_of(settings),
        )
        return pack(packing, plan, self._changes(settings.name, plan))

    def _patch_of(self, settings: SetSettings) -> Callable[[Change], tuple[PublishedPatch, bytes] | None]:
        context = self._context
        if not settings.patch:
            return lambda _change: None
        return partial(packed_patch, context.catalog, context.store, settings.name)

    def packages(self, name: str, packed: Packed) -> tuple[str, ...]:
        """The names of what was put into the store."""
        return () if isinstance(packed, NotHad) else change_package_names(name, packed.segment, packed.hash)

    def named(
        self, settings: SetSettings, due: Due[ChangeDumpState, PackagePlan, Packed], packed: Packed
    ) -> ChangeDumpState:
        """The dump with the package; one that begins anew after a change whose octets cannot be had."""
        if isinstance(packed, NotHad):
            change = packed.change
            text = f"the octets of change {change.seq:,} cannot be had: Change Dumps begin anew after it"
            where = f"{settings.name}: {change.uri[:200]}"
            self._context.listener(Notice(notices.CHANGE_DUMP_ANEW, text, where))
            return package_plan.begin_after(change)
        return package_plan.with_package(due.state, packed, self._context.clock())

    def names(self, name: str, state: ChangeDumpState) -> Iterator[str]:
        """The documents and packages of the dump."""
        return change_dump_names(name, state)

    def write(
        self, store_writer: StoreWriter, settings: SetSettings, before: ChangeDumpState, state: ChangeDumpState
    ) -> None:
        """Write the documents that name the packages."""
        del before
        write_change_dump(store_writer, self._context.site, settings.name, state)

    def _changes(self, name: str, plan: PackagePlan) -> Iterator[Change]:
        after = plan.first - 1
        while after < plan.last:
            rows = self._context.catalog.changes(name, after, min(_ROWS, plan.last - after))
            if not rows:
                return
            yield from rows
            after = rows[-1].seq
