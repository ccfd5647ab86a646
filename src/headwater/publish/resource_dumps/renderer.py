"""Writes the Resource Dump of one set: the document that names its packages, which are made aside (`packing`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from headwater.catalog.interface import SetSnapshot
from headwater.catalog.state import WITHDRAWN
from headwater.publish.capabilities import RESOURCE_DUMP, Capability
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import PagePackages, PublicationState, ResourceDumpState, fingerprint
from headwater.publish.rendering import documents
from headwater.publish.rendering.renderer import PublicationJob, RenderResult
from headwater.publish.site import Site, resource_package_names
from headwater.publish.store_writer import StoreWriter
from headwater.spec.timestamps import to_microseconds


class ResourceDumps:
    """The Resource Dump of one set during one publication: what was lost or has another shape is to be packed anew.

    Nothing is packed here, so that Change Lists never wait for packages.
    """

    capabilities: ClassVar[tuple[Capability, ...]] = (RESOURCE_DUMP,)

    def __init__(self, job: PublicationJob) -> None:
        self._job = job
        self._state = job.publication.resource_dump
        self._is_withdrawn = False

    @staticmethod
    def published(snapshot: SetSnapshot, publication: PublicationState) -> Iterator[str]:
        """The Resource Dump, or its index and the parts, and the packages with the copies of their manifests."""
        if publication.resource_dump is not None:
            yield from resource_dump_names(snapshot.state.name, publication.resource_dump)

    def publish(self) -> None:
        """Write what is due."""
        job, before = self._job, self._state
        if not job.settings.dump:
            self._state = None
            return
        shape = f"{job.publication.generation} {fingerprint(job.context.site, job.settings)}"
        state = before
        if state is None or state.shape != shape:
            state = ResourceDumpState(shape=shape, at=job.at)
        if len(shown := self._without_withdrawn(state)) < len(state.pages):
            state = msgspec.structs.replace(state, pages=shown, is_offered=False)
            self._is_withdrawn = True
        if job.refresh is Refresh.ALL:
            pages = tuple(one for one in state.pages if self._is_sound(one))
            if len(pages) < len(state.pages):
                state = msgspec.structs.replace(state, pages=pages, is_offered=False)
            if state.is_offered:
                write_resource_dump(job.store_writer, job.context.site, job.name, state)
        self._state = state

    def _without_withdrawn(self, state: ResourceDumpState) -> tuple[PagePackages, ...]:
        """The pages whose packages hold nothing that the settings have taken out of the set since."""
        if not state.pages:
            return ()
        rows = self._job.context.catalog.rows_of(self._job.name, WITHDRAWN)
        newest = {int(row.key): row.rank for row in rows}
        return tuple(one for one in state.pages if to_microseconds(one.at) > newest.get(one.number, -1))

    def _is_sound(self, page: PagePackages) -> bool:
        names = package_names(self._job.name, page)
        return all(self._job.integrity.is_as_left(name) for name in names)

    def result(self, publication: PublicationState) -> RenderResult:
        """What came of it."""
        names = () if self._state is None else tuple(resource_dump_names(self._job.name, self._state))
        publication = msgspec.structs.replace(publication, resource_dump=self._state)
        folder = f"{self._job.name}/resourcedump/" if self._is_withdrawn else None
        return RenderResult(names=names, publication=publication, withdrawn=folder)


def resource_dump_names(name: str, state: ResourceDumpState) -> Iterator[str]:
    """The documents and packages of a set's Resource Dump; before it is offered, the packages that there are."""
    if state.is_offered:
        yield from documents.resource_dump_names(name, state)
    for page in state.pages:
        yield from package_names(name, page)


def package_names(name: str, page: PagePackages) -> Iterator[str]:
    """The names of a page's packages and of the copies of their manifests."""
    for part, one in enumerate(page.packages):
        yield from resource_package_names(name, page.number, part, one.hash)


def write_resource_dump(store_writer: StoreWriter, site: Site, name: str, state: ResourceDumpState) -> None:
    """Write the documents that name the packages: parts first, then their index (AMB-63)."""
    for document, head, entries in documents.resource_dumps(site, name, state):
        store_writer.document(document, head, entries)
