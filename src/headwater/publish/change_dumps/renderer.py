"""Writes the Change Dump of one set: the document that names its packages, which are made aside (`packing`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from headwater.catalog.interface import SetSnapshot
from headwater.publish.capabilities import CHANGE_DUMP, Capability
from headwater.publish.change_dumps import package_plan
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ChangeDumpState, ChangePackage, PublicationState
from headwater.publish.rendering import documents
from headwater.publish.rendering.renderer import PublicationJob, RenderResult
from headwater.publish.site import Site, change_package_names
from headwater.publish.store_writer import StoreWriter


class ChangeDumps:
    """The Change Dump of one set during one publication: what has left the Change Lists leaves it, too.

    Nothing is packed here, so that Change Lists never wait for packages.
    """

    capabilities: ClassVar[tuple[Capability, ...]] = (CHANGE_DUMP,)

    def __init__(self, job: PublicationJob) -> None:
        self._job = job
        self._state = job.publication.change_dump

    @staticmethod
    def published(snapshot: SetSnapshot, publication: PublicationState) -> Iterator[str]:
        """The Change Dump, or its index and the parts, and the packages with the copies of their manifests."""
        if publication.change_dump is not None:
            yield from change_dump_names(snapshot.state.name, publication.change_dump)

    def publish(self) -> None:
        """Write what is due."""
        job, before = self._job, self._state
        if not job.settings.change_dump:
            self._state = None
            return
        segments = job.snapshot.segments
        state = before or package_plan.begun(segments)
        state = package_plan.kept(state, segments, max(job.first, job.publication.history))
        if job.refresh is Refresh.ALL:
            state = package_plan.without_damaged(state, [one for one in state.packages if not self._is_sound(one)])
        if state != before or job.refresh is Refresh.ALL:
            write_change_dump(job.store_writer, job.context.site, job.name, state)
        self._state = state

    def _is_sound(self, one: ChangePackage) -> bool:
        names = change_package_names(self._job.name, one.segment, one.hash)
        return all(self._job.integrity.is_as_left(name) for name in names)

    def result(self, publication: PublicationState) -> RenderResult:
        """What came of it."""
        names = () if self._state is None else tuple(change_dump_names(self._job.name, self._state))
        return RenderResult(names=names, publication=msgspec.structs.replace(publication, change_dump=self._state))


def change_dump_names(name: str, state: ChangeDumpState) -> Iterator[str]:
    """The documents and packages of a set's Change Dump."""
    yield from documents.change_dump_names(name, state)
    for one in state.packages:
        yield from change_package_names(name, one.segment, one.hash)


def write_change_dump(store_writer: StoreWriter, site: Site, name: str, state: ChangeDumpState) -> None:
    """Write the documents that name the packages: parts first, then their index (AMB-63)."""
    for document, head, entries in documents.change_dumps(site, name, state):
        store_writer.document(document, head, entries)
