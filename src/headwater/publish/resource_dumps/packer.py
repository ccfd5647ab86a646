"""The Resource Dump as `DumpPacker` packs it: the page that is due, its packages, and when these may be named."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from headwater import notices
from headwater.catalog.content import ContentChanged, ContentReader, NoContent, recorded_blocks
from headwater.catalog.interface import Resource, SetSnapshot
from headwater.progress import Notice
from headwater.publish.plan import completed_at
from headwater.publish.publication_state import PagePackages, PublicationState, ResourceDumpState
from headwater.publish.rendering import documents
from headwater.publish.rendering.dump_packer import NotNamed
from headwater.publish.rendering.renderer import PublishContext
from headwater.publish.resource_dumps import dump_plan
from headwater.publish.resource_dumps.dump_plan import PackingPlan
from headwater.publish.resource_dumps.packing import PackedPage, PagePacking, pack_page
from headwater.publish.resource_dumps.renderer import package_names, resource_dump_names, write_resource_dump
from headwater.publish.resource_dumps.waiting import DuePage, PackageVerdict, PageOutcome, Waiting, judged
from headwater.publish.site import SetSettings, capability_list_name
from headwater.publish.store_writer import StoreWriter

_replace = msgspec.structs.replace


class ResourceDumpPlan:
    """The `DumpPlan` of Resource Dumps: a page is packed; None is packed where it has no resources."""

    folder = "resourcedump/"

    def __init__(self, context: PublishContext, contents: ContentReader | None, spool: Path | None) -> None:
        self._context = context
        self._contents = contents
        self._spool = spool
        self._waiting: defaultdict[str, Waiting] = defaultdict(Waiting)

    def forget(self) -> None:
        """What was packed may have been cleaned away."""
        for name, waiting in list(self._waiting.items()):
            self._waiting[name] = _replace(waiting, pending=None)

    def may_pack(self, settings: SetSettings, *, at_once: bool) -> bool:
        """Whether the set has a dump, and packing does not wait. With `at_once` it was scanned: only what is held back
        waits then."""
        if self._contents is None or not settings.dump:
            return False
        if at_once and self.awaits_scan(settings.name):
            self._waiting[settings.name] = _replace(self._waiting[settings.name], not_before=0.0)
        waiting = self._waiting.get(settings.name)
        return waiting is None or max(waiting.not_before, waiting.held_until) <= time.monotonic()

    def awaits_scan(self, name: str) -> bool:
        """Whether resources of the set are not as they were recorded: packing goes on when that has been looked at."""
        waiting = self._waiting.get(name)
        return waiting is not None and time.monotonic() < waiting.not_before

    def held(self, settings: SetSettings) -> DuePage | None:
        """The page that waits, unless one of the resources that were left out is as it was recorded after all."""
        waiting = self._waiting.get(settings.name)
        if waiting is None or waiting.pending is None:
            return None
        self._waiting[settings.name] = _replace(waiting, pending=None)
        packed = waiting.pending.packed
        assert packed is not None
        return None if self._is_one_at_hand(settings.name, self._untold(settings.name, packed)) else waiting.pending

    def state_of(self, publication: PublicationState) -> ResourceDumpState | None:
        """None: the set has none."""
        return publication.resource_dump

    def with_state(self, publication: PublicationState, state: ResourceDumpState) -> PublicationState:
        """The publication state with another state of the dump."""
        return _replace(publication, resource_dump=state)

    def is_offered(self, state: ResourceDumpState) -> bool:
        """Whether all pages have their packages."""
        return state.is_offered

    def next(
        self, settings: SetSettings, snapshot: SetSnapshot, state: ResourceDumpState, *, at_once: bool
    ) -> PackingPlan | None:
        """The page to pack."""
        del at_once  # pages are due by what has changed of them
        out_of_reach = frozenset(one.number for one in state.pages if self._is_out_of_reach(settings.name, one))
        return dump_plan.next_packing(state, snapshot, settings, self._context.clock(), out_of_reach)

    def pack(
        self, settings: SetSettings, plan: PackingPlan, store_writer: StoreWriter, stop: Callable[[], None]
    ) -> PackedPage | None:
        """Make the packages of the page."""
        if plan.page is None or not plan.page.count:
            return None
        assert self._contents is not None
        packing = PagePacking(
            site=self._context.site,
            name=settings.name,
            catalog=self._context.catalog,
            contents=self._contents,
            store_writer=store_writer,
            spool=self._spool,
            stop=stop,
            listener=self._context.listener,
        )
        packed = pack_page(packing, plan, plan.page)
        now = self._context.clock()
        completed = completed_at(plan.at, now, self._context.catalog.state(settings.name))
        packages = _replace(packed.packages, completed=completed, packed_at=now)
        return _replace(packed, packages=packages)

    def packages(self, name: str, packed: PackedPage | None) -> Iterator[str]:
        """The names of what was put into the store."""
        return iter(()) if packed is None else package_names(name, packed.packages)

    def named(self, settings: SetSettings, due: DuePage, packed: PackedPage | None) -> ResourceDumpState | NotNamed:
        """The dump with the packages of the page in the place of what it had."""
        name = settings.name
        if packed is None:
            self._waiting[name] = _replace(self._waiting[name], held_until=0.0)
            return dump_plan.with_page(due.state, due.plan, None)
        untold = [(one.uri, one.seq) for one in self._untold(name, packed)]
        page, before = packed.packages.number, self._waiting[name]
        outcome = PageOutcome(page=page, unsettled=len(packed.unsettled), untold=len(untold), is_mass=packed.is_mass)
        after, verdict = judged(before, outcome, time.monotonic())
        if verdict is PackageVerdict.NAMED:
            self._waiting[name] = _replace(after, missing={**after.missing, page: packed.missing})
            return dump_plan.with_page(due.state, due.plan, packed.packages)
        if verdict is PackageVerdict.WAITING:
            pending = _replace(due, packed=_replace(packed, unsettled=tuple(untold)))
            self._waiting[name] = _replace(after, pending=pending)
            return NotNamed.WAITING
        if not before.is_held_back:
            text = f"the Resource Dump stays as it is: {packed.packages.left_out:,} resources of one page cannot be had"
            self._context.listener(Notice(notices.DUMP_HELD_BACK, text, set_name=name))
        self._waiting[name] = after
        return NotNamed.REFUSED

    def names(self, name: str, state: ResourceDumpState) -> Iterator[str]:
        """The documents and packages of the dump."""
        return resource_dump_names(name, state)

    def write(
        self, store_writer: StoreWriter, settings: SetSettings, before: ResourceDumpState, state: ResourceDumpState
    ) -> None:
        """Write the dump once it is whole; from then on the Capability List names it."""
        site, name = self._context.site, settings.name
        if not state.is_offered:
            return
        write_resource_dump(store_writer, site, name, state)
        if not before.is_offered:
            content = documents.capability_list(site, settings, with_later=True)
            store_writer.document(capability_list_name(name), *content)

    def _untold(self, name: str, packed: PackedPage) -> list[Resource]:
        """The resources that were left out and of which no later change tells."""
        found = self._context.catalog.get(name, [uri for uri, _seq in packed.unsettled])
        return [found[uri] for uri, seq in packed.unsettled if uri in found and found[uri].seq == seq]

    def _is_out_of_reach(self, name: str, page: PagePackages) -> bool:
        """Whether nothing that was left out of a page can be had, as far as this process knows what that was."""
        missing = self._waiting[name].missing.get(page.number) if page.left_out else None
        if missing is None:
            return False
        found = self._context.catalog.get(name, missing)
        return not self._is_one_at_hand(name, found.values())

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
