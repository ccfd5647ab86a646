"""Makes a package of changes: every change's octets in order, and a manifest that states just what was packed.

Members go into a spool, the manifest is made of them and put first. The same changes give the same octets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Change
from headwater.progress import Listener, Progress, silent
from headwater.publish.change_dumps import package_plan
from headwater.publish.change_dumps.change_contents import ChangeContents
from headwater.publish.change_dumps.package_plan import PackagePlan
from headwater.publish.links.added_links import AddedLinks
from headwater.publish.links.link_sources import EntryPlace
from headwater.publish.patches import PublishedPatch
from headwater.publish.publication_state import ChangePackage
from headwater.publish.rendering import documents
from headwater.publish.rendering.package_spool import MANIFEST_OCTETS, PackageSpool, package_spool
from headwater.publish.site import SetSettings, Site, change_package_names
from headwater.publish.store_writer import DocumentMark, StoreWriter, render_document
from headwater.spec.records import ChangeKind, Entry, Link

UNKNOWN_TYPE = "application/octet-stream"
_TELL_EVERY = 500
_SAFE = re.compile(r"[\w ()+,;=@~.%!'-]{1,80}\Z")
_ASCII = re.compile(r"[A-Za-z0-9._~%!'()+,;=@-]{1,80}\Z")


class NotHad(msgspec.Struct, frozen=True):
    """The octets of this change cannot be had: no package may cover its time (RS-CDM-10)."""

    change: Change


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """With what packages of one set are made. `spool` is the folder of the spool; `stop` raises to end early.

    `listener` is told how far a package has got; `links` adds what the set's settings ask for. `patch_of` has the
    patches of changes, which go with them.
    """

    site: Site
    name: str
    contents: ChangeContents
    store_writer: StoreWriter
    links: AddedLinks
    spool: Path | None = None
    stop: Callable[[], None] = lambda: None
    listener: Listener = silent
    patch_of: Callable[[Change], tuple[PublishedPatch, bytes] | None] = lambda _change: None


def pack(packing: Packing, plan: PackagePlan, changes: Iterator[Change]) -> ChangePackage | NotHad:
    """Make the package that is planned and put it, with a copy of its manifest, into the store; nothing names it yet.

    `changes` are those from the first that is planned. What cannot be had after others ends the package before it.
    Raises the store's faults; the package is then made again the next time.
    """
    with package_spool(packing.spool, packing.stop) as spool:
        packed = _Members(packing, spool)
        last = packed.take(plan, changes)
        if isinstance(last, NotHad):
            return last
        one = package_plan.package(plan, last, 0, "")
        head = documents.change_dump_manifest(packing.site, packing.name, one.from_, one.until)
        manifest = b"".join(render_document(head, packed.linked_entries(), packing.site.profile))
        names = functools.partial(change_package_names, packing.name, one.segment)
        done = spool.put(packing.store_writer, manifest, names, _mark(packing.store_writer.generation, one))
        return msgspec.structs.replace(one, octets=done.octets, hash=done.hash)


class _Members:
    """The members of one package on their way into the spool, and what their entries are made of."""

    def __init__(self, packing: Packing, spool: PackageSpool) -> None:
        self.packed: list[tuple[Change, str | None, Link | None]] = []
        """Each with the path of its octets and the link to its patch."""
        self._packing = packing
        self._spool = spool
        self._octets = self._manifest_octets = 0
        self._prefix = packing.site.resource_prefix(packing.name)

    def take(self, plan: PackagePlan, changes: Iterator[Change]) -> Change | NotHad:
        """Pack the changes that fit; the last of them, or the first when it cannot be had."""
        settings = self._packing.site.settings(self._packing.name)
        last: Change | None = None
        for change in changes:
            if change.seq > plan.last:
                break
            self._packing.stop()
            if last is not None and self._is_full(change, settings):
                break
            if not self._add(change):
                return NotHad(change) if last is None else last
            last = change
            if len(self.packed) % _TELL_EVERY == 0:
                self._packing.listener(Progress("packing", len(self.packed), plan.last - plan.first + 1))
        assert last is not None
        return last

    def _is_full(self, change: Change, settings: SetSettings) -> bool:
        return (
            len(self.packed) >= settings.package_entries
            or self._octets + (change.metadata.length or 0) > settings.package_octets
            or self._manifest_octets > min(MANIFEST_OCTETS, settings.links.document_octets)
        )

    def _add(self, change: Change) -> bool:
        path = None
        if change.change is not ChangeKind.DELETED:
            path = f"/changes/{change.seq:010d}/{file_name(change.uri)}"
            if not self._pack(change, path[1:]):
                return False
        patch = None if path is None else self._packed_patch(change)
        self.packed.append((change, path, patch))
        self._manifest_octets += weight(change.uri, change.metadata) + len(self._prefix) + 6 * len(path or "")
        return True

    def _packed_patch(self, change: Change) -> Link | None:
        """The link to the patch of a change, which is packed as well: in a manifest it has a path (RS-CDM-11)."""
        found = self._packing.patch_of(change) if change.change is ChangeKind.UPDATED else None
        if found is None:
            return None
        patch, octets = found
        name = f"patches/{change.seq:010d}.{patch.suffix}"
        self._spool.add_whole(name, octets, patch.media_type)
        self._octets += len(octets)
        link = patch.link(self._packing.site, self._packing.name, change)
        self._manifest_octets += len(link.href) + 300
        return msgspec.structs.replace(link, path=f"/{name}")

    def linked_entries(self) -> Iterator[Entry]:
        """The entries of the manifest, with the links that the set's rules add."""
        site, links = self._packing.site, self._packing.links
        room = links.room(self._manifest_octets, len(self.packed))
        rows = links.to((change for change, _path, _patch in self.packed), EntryPlace.CHANGE_DUMP_MANIFEST, room)
        entries = documents.change_entries(rows, self._prefix, site.profile)
        for entry, (_change, path, patch) in zip(entries, self.packed, strict=True):
            if path is None:
                yield entry
                continue
            linked = entry.links if patch is None else (*entry.links, patch)
            # RS-CDM-07: every bitstream has a type
            yield msgspec.structs.replace(entry, path=path, type=entry.type or UNKNOWN_TYPE, links=linked)

    def _pack(self, change: Change, name: str) -> bool:
        """Pack the octets of a change; False when they cannot be had, and nothing of them is left."""
        stated, begin = change.metadata, self._spool.octets
        blocks = self._packing.contents.blocks(self._packing.name, change)
        if blocks is None or not self._spool.add(name, blocks, stated.length, stated.type):
            return False
        self._octets += self._spool.octets - begin if stated.length is None else stated.length
        return True


def _mark(generation: str, one: ChangePackage) -> Callable[[], str]:
    """What is kept with a package: it never changes, so that caches keep it for good."""
    mark = DocumentMark(
        generation=generation,
        latest=one.until,
        number=one.segment,
        from_=one.from_,
        seq=one.last,
        changed=None,
        is_closed=True,
    )
    return mark.encode


def file_name(uri: str) -> str:
    """A safe name for the octets of a resource: the last name of its URI, decoded where every system takes that.

    Never empty, no separator, no control character, not only dots, no dot or blank at the end.
    """
    coded = (urlsplit(uri).path if "://" in uri else uri).rpartition("/")[2]
    try:
        plain = unquote(coded, errors="strict")
    except UnicodeDecodeError:
        plain = ""
    for name, pattern in ((plain, _SAFE), (coded, _ASCII)):
        if pattern.match(name) and not name.endswith((".", " ")) and not name.startswith((".", " ")):
            return name
    return "content"
