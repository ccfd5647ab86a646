"""A package on its way into the store: members in a spool, then the manifest that is made of them, put first.

The spool is a file without a name, so that nothing is left of a killed process. The same members and manifest give the
same octets, and so the same name.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Generic

import msgspec

from headwater.catalog.content import Absence, OpenContent
from headwater.catalog.interface import Metadata
from headwater.files.file_copies import refuse_little_room
from headwater.packages.member_paths import MANIFEST
from headwater.publish.added_links import AddedLinks, EntryPlace, Row
from headwater.publish.packages.builder import PackageBuilder, bounds_of
from headwater.publish.publication_state import ChangePackage
from headwater.publish.rendering.renderer import PublishContext
from headwater.publish.site import SetSettings
from headwater.publish.store_writer import DocumentMark, StoreWriter, render_document
from headwater.spec.records import Document, Entry, Link
from headwater.storage.object_store import XML, ZIP

ROOM_OCTETS = 16 << 20
"""So often it is looked whether the disk has room left: the catalog is on it, and must be able to grow."""
_BUFFER = 1 << 18
_BLOCK = 1 << 20


class SpooledPackage(Generic[Row]):
    """One package of a set. `stop` is called now and then, and raises to end early. Close it in the end.

    All methods raise OSError: the disk is full, or nearly.
    """

    def __init__(
        self,
        context: PublishContext,
        settings: SetSettings,
        store_writer: StoreWriter,
        folder: Path | None,
        stop: Callable[[], None],
        place: EntryPlace,
    ) -> None:
        """The spool lies in `folder`, or where temporary files lie; `place` is the kind of manifest."""
        self.packed: list[tuple[Row, dict[str, Any], tuple[Link, ...]]] = []
        """What is packed, each with what its entry in the manifest states besides, and with links of its own."""
        self.builder = PackageBuilder(bounds_of(settings), by_digest=place is EntryPlace.CHANGE_DUMP_MANIFEST)
        self.context = context
        self.settings = settings
        self._place = place
        self._store_writer = store_writer
        self._stop = stop
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115  `close` closes it
        self._unlooked = 0
        """Octets written since it was looked how much room there is."""

    def close(self) -> None:
        """Give the spool up."""
        self._file.close()

    def take(self, path: str, content: bytes | OpenContent, stated: Metadata) -> Absence | None:
        """Take one member in; of one whose content cannot be had nothing is left, and why is returned.

        An open content is closed.
        """
        blocks = self.builder.member(path[1:], content, stated)
        begin, is_long = self.builder.zip.octets, False
        self._stop()
        try:
            while True:
                self._write(next(blocks))
                self._stop()
                is_long = True
        except StopIteration as ended:
            why: Absence | None = ended.value
        if why is not None and is_long:
            self._file.seek(begin)
            self._file.truncate()
        return why

    def put(
        self,
        head: Document,
        entries_of: Callable[[Iterable[Row]], Iterable[Entry]],
        names: Callable[[str], tuple[str, str]],
        *,
        latest: dt.datetime,
        segment: ChangePackage | None = None,
    ) -> tuple[int, str]:
        """Put the package and the copy of its manifest into the store; what lies there already stays.

        The manifest has this head and the entries of what is packed, with the links that the set's rules add. `names`
        gives both names for the SHA-256 of the package, `latest` is the latest time that it states, `segment` what of a
        segment it holds. Returns its octets and that. Raises the store's faults.
        """
        added = AddedLinks(self.context.site, self.settings, self.context.catalog)
        more = [(stated, links) for _row, stated, links in self.packed]
        rows = added.to((row for row, _stated, _links in self.packed), self._place, self.builder.manifest_octets)
        manifest = b"".join(render_document(head, _completed(entries_of(rows), more), self._store_writer.profile))
        self._file.flush()
        members = self.builder.zip.octets
        first = self.builder.zip.insert_first(MANIFEST, manifest, deflate=True)
        end = self.builder.zip.end()
        hasher = hashlib.sha256()
        for block in chain([first], self._read(members), [end]):
            self._stop()
            hasher.update(block)
        sha256 = hasher.hexdigest()
        mark = DocumentMark(generation=self._store_writer.generation, latest=latest, is_closed=True)  # it never changes
        if segment is not None:
            mark = msgspec.structs.replace(mark, number=segment.segment, from_=segment.from_, seq=segment.last)
        package, copy = names(sha256)
        self._store_writer.blocks(copy, [manifest], mark.encode, XML)
        blocks = chain([first], self._read(members), [end])
        self._store_writer.blocks(package, self._placed(blocks), mark.encode, ZIP)
        return self.builder.zip.octets, sha256

    def _placed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The octets on their way into the store, which may be on the same disk."""
        for block in blocks:
            self._stop()
            self._look_for_room(len(block))
            yield block

    def _write(self, octets: bytes) -> None:
        self._file.write(octets)
        self._look_for_room(len(octets))

    def _look_for_room(self, written: int) -> None:
        self._unlooked += written
        if self._unlooked >= ROOM_OCTETS:
            self._unlooked = 0
            refuse_little_room(self._file.fileno(), 0)

    def _read(self, end: int) -> Iterator[bytes]:
        begin = 0
        while begin < end and (block := os.pread(self._file.fileno(), min(_BLOCK, end - begin), begin)):
            begin += len(block)
            yield block
        if begin < end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _completed(entries: Iterable[Entry], more: Iterable[tuple[dict[str, Any], tuple[Link, ...]]]) -> Iterator[Entry]:
    for entry, (stated, links) in zip(entries, more, strict=True):
        yield msgspec.structs.replace(entry, **stated, links=(*entry.links, *links))
