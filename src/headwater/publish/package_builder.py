"""Builds packages: ZIP files with the octets of rows of the catalog, in a spool and into the store, and names them.

The blocks of a member go into a spool, from which a package is put into the store (`SpooledPackage`), or to a client
that waits for them. A row whose octets are not the recorded ones is left out, and why is said; the manifest, which is
put first, names what is there.

A resource, or the octets of a change, has a path in a package that any file system can hold.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import msgspec

from headwater.catalog.content import Absence, ContentChanged, NoContent, OpenContent, read_and_close, recorded_blocks
from headwater.catalog.interface import Change, Metadata, Resource, SetSnapshot
from headwater.catalog.page_filling import weight
from headwater.files.file_copies import refuse_little_room
from headwater.packages.faults import BadPackage, MemberChanged
from headwater.packages.member_paths import MANIFEST, MemberNames
from headwater.packages.zip_writer import ZipWriter, pays
from headwater.publish.added_links import AddedLinks, EntryPlace, Row
from headwater.publish.archives import archive_names
from headwater.publish.document_names import CHANGE_DUMP, Capability
from headwater.publish.plan import with_retired
from headwater.publish.publication_state import (
    ChangeDumpState,
    PublicationState,
    ResourceDumpState,
    decode_publication,
    encode_publication,
)
from headwater.publish.site import SetSettings
from headwater.publish.store_writer import DocumentMark, PublishContext, StoreWriter, render_document
from headwater.spec.records import Document, Entry
from headwater.spec.uris import quote_path
from headwater.storage.object_store import XML, ZIP

if TYPE_CHECKING:
    from headwater.publish.publisher import PublisherOptions

# Members

SMALL_OCTETS = 1 << 20
"""A resource of so many octets is read whole before its member begins; a larger one while that is written."""
MANIFEST_OCTETS = 40_000_000  # no manifest is longer: it has to be a document like others (RS-LIM-01)
_ESCAPED = 6  # a character of a path becomes so many octets at most when it is escaped


def entry_octets(row: Resource | Change, path: str) -> int:
    """What the entry of a row takes in a manifest at most, without links that are added."""
    return weight(row.uri, row.metadata) + _ESCAPED * len(path) + len(' path=""')


@dataclass(kw_only=True)
class PackageBuilder:
    """The members of one package. With `deflates` those are deflated for which that pays; with `by_digest` only a
    digest tells whether octets are the recorded ones.

    It holds so many entries at most, so many octets of content, and so many of its manifest. If a member turns out
    wrong while it is given, a package that `is_stream` goes on with what has been given of it, which its manifest does
    not name; of any other the caller takes it back: the package ends at `zip.octets` again.
    """

    most_entries: int
    most_octets: int
    most_manifest_octets: int
    deflates: bool = True
    is_stream: bool = False
    by_digest: bool = False
    zip: ZipWriter = field(default_factory=ZipWriter)
    entries: int = 0
    octets: int = 0
    manifest_octets: int = 0  # what the entries take at most

    def reserve(self, octets: int, manifest_octets: int) -> bool:
        """Take the room of one more entry, of so many octets in the package and in the manifest; False: there is none.

        The first entry of a package that is no stream always has room.
        """
        if (self.entries or self.is_stream) and (
            self.entries >= self.most_entries
            or self.octets + octets > self.most_octets
            or self.manifest_octets + manifest_octets > self.most_manifest_octets
        ):
            return False
        self.entries += 1
        self.octets += octets
        self.manifest_octets += manifest_octets
        return True

    def member(self, path: str, content: OpenContent, stated: Metadata) -> Generator[bytes, None, Absence | None]:
        """The octets of one member; returns why its content cannot be had, if so. The content is closed."""
        if content.octets <= SMALL_OCTETS:
            found = read_and_close(content, stated, by_digest=self.by_digest)
            if isinstance(found, NoContent):
                return found.why
            yield self.zip.member(path, found, deflate=self._pays(stated, len(found)))
            return None
        blocks = recorded_blocks(content, stated, by_digest=self.by_digest)
        reading = _Reading(blocks, is_stream=self.is_stream)
        octets = None if self.is_stream else content.octets
        try:
            yield from self.zip.stream(path, reading, octets=octets, deflate=self._pays(stated, content.octets))
        except MemberChanged:
            return reading.fault or Absence.CHANGED
        finally:
            content.close()
        return reading.fault

    def _pays(self, stated: Metadata, octets: int) -> bool:
        return self.deflates and pays(stated.type, octets)


class _Reading:
    """The octets of a content in blocks, and `fault`: why they are not the recorded ones."""

    fault: Absence | None = None

    def __init__(self, blocks: Iterator[bytes], *, is_stream: bool) -> None:
        self._blocks = blocks
        self._is_stream = is_stream

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._blocks
        except ContentChanged:
            self.fault = Absence.CHANGED
        except OSError:
            self.fault = Absence.UNREADABLE
        if self.fault is not None and not self._is_stream:
            raise MemberChanged("the content is not as it was recorded")


def in_blocks(pieces: Iterable[bytes], octets: int) -> Iterator[bytes]:
    """The same octets in blocks of about this size."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= octets:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


FOLDER = "/resources/"
NUMBERED = "/others/"
"""Below it lie, by number, resources whose own path another one has already, but for case or normalisation."""

_safe = re.compile(r"[0-9A-Za-z_\-][0-9A-Za-z_.\-]*(?:/[0-9A-Za-z_\-][0-9A-Za-z_.\-]*)*").fullmatch
_NAME = re.compile(r"[\w ()+,;=@~.%!'-]{1,80}\Z")
_ASCII_NAME = re.compile(r"[A-Za-z0-9._~%!'()+,;=@-]{1,80}\Z")
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f"%*:<>?\\|\ufffe\uffff]')
"""What some file system, our readers or XML cannot hold, and the sign of percent-encoding."""


class ResourcePaths:
    """The paths of one package: any file system can hold them side by side (DST-P3)."""

    def __init__(self) -> None:
        self._names = MemberNames()
        self._numbered = 0

    def take(self, uri: str) -> str:
        """The path of one more resource with this relative URI."""
        path = resource_path(uri)
        try:
            self._names.add(path[1:])
        except BadPackage:
            self._numbered += 1
            return f"{NUMBERED}{self._numbered:08d}"
        return path


def resource_path(uri: str) -> str:
    """The path of a resource with this relative URI: decoded where that is a safe name, else as the URI has it.

    Two URIs never have the same path: a decoded one has no percent sign, any other is the URI itself.
    """
    if _safe(uri):
        return FOLDER + uri
    try:
        octets = unquote_to_bytes(uri)
        text = octets.decode()
    except UnicodeDecodeError:
        return FOLDER + uri
    parts = text.split("/")
    if _UNSAFE.search(text) or not {"", ".", ".."}.isdisjoint(parts) or quote_path(octets) != uri:
        return FOLDER + uri
    return FOLDER + text


def file_name(uri: str) -> str:
    """A safe name for the octets of a resource: the last name of its URI, decoded where every system takes that.

    Never empty, no separator, no control character, not only dots, no dot or blank at the end.
    """
    coded = (urlsplit(uri).path if "://" in uri else uri).rpartition("/")[2]
    try:
        plain = unquote(coded, errors="strict")
    except UnicodeDecodeError:
        plain = ""
    for name, pattern in ((plain, _NAME), (coded, _ASCII_NAME)):
        if pattern.match(name) and not name.endswith((".", " ")) and not name.startswith((".", " ")):
            return name
    return "content"


# A package on its way into the store
#
# The spool is a file without a name, so that nothing is left of a killed process. The same members and manifest give
# the same octets, and so the same name.

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
        self.packed: list[tuple[Row, dict[str, Any]]] = []
        """What is packed, each with what its entry in the manifest states besides; `links` come after its own."""
        self.builder = PackageBuilder(
            most_entries=settings.package_entries,
            most_octets=settings.package_octets,
            most_manifest_octets=min(MANIFEST_OCTETS, settings.links.document_octets),
            by_digest=place is EntryPlace.CHANGE_DUMP_MANIFEST,
        )
        self.context = context
        self.settings = settings
        self._place = place
        self._store_writer = store_writer
        self._stop = stop
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115  `close` closes it
        self._unlooked = 0  # octets written since it was looked how much room there is

    def close(self) -> None:
        """Give the spool up."""
        self._file.close()

    def take(self, path: str, content: OpenContent, stated: Metadata) -> Absence | None:
        """Take one member in; of one whose content cannot be had nothing is left, and why is returned.

        The content is closed.
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
    ) -> tuple[int, str]:
        """Put the package and the copy of its manifest into the store; what lies there already stays.

        The manifest has this head and the entries of what is packed, with the links that the set's rules add. `names`
        gives both names for the SHA-256 of the package, `latest` is the latest time that it states. Returns its octets
        and that. Raises the store's faults.
        """
        added = AddedLinks(self.context.site, self.settings, self.context.catalog)
        rows = added.to((row for row, _stated in self.packed), self._place, self.builder.manifest_octets)
        entries = (
            msgspec.structs.replace(entry, **stated | {"links": entry.links + stated.get("links", ())})
            for entry, (_row, stated) in zip(entries_of(rows), self.packed, strict=True)
        )
        manifest = b"".join(render_document(head, entries, self._store_writer.profile))
        self._file.flush()
        members = self.builder.zip.octets
        first = self.builder.zip.insert_first(MANIFEST, manifest)
        end = self.builder.zip.end()

        def blocks() -> Iterator[bytes]:
            for block in chain([first], self._read(members), [end]):
                self._stop()
                yield block

        hasher = hashlib.sha256()
        for block in blocks():
            hasher.update(block)
        sha256 = hasher.hexdigest()

        def placed() -> Iterator[bytes]:
            for block in blocks():
                self._look_for_room(len(block))  # the store may be on the same disk
                yield block

        mark = DocumentMark(generation=self._store_writer.generation, latest=latest, is_closed=True)  # it never changes
        package, copy = names(sha256)
        self._store_writer.blocks(copy, [manifest], mark.encode, XML)
        self._store_writer.blocks(package, placed(), mark.encode, ZIP)
        return self.builder.zip.octets, sha256

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


# Packing the dumps of sets beside their publications
#
# Packages are made without holding up publications; they have names that nothing tells yet. Whether they still fit is
# looked at when they are named: if the dump is meanwhile another one, they are left to be cleaned away.


class PackResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a look at a dump.

    `is_done`: something was packed, and there may be more. `is_offered`: destinations had a dump before already, so
    that packing may take its time.
    """

    is_done: bool
    is_offered: bool = False


NOTHING_PACKED: Final = PackResult(is_done=False)


class Packing(NamedTuple):
    """What packages of all sets are made with.

    `locks` are those of the publications of sets. `held_back` are sets of whose last page too many resources could not
    be had. Without the octets of resources, or of changes, nothing is packed of these.
    """

    context: PublishContext
    options: PublisherOptions
    locks: Mapping[str, Lock]
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
        writer = StoreWriter(self.context, generation)
        return SpooledPackage(self.context, settings, writer, self.options.spool, stop, place)

    def name(
        self,
        row: Capability,
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
        context, name, field = self.context, settings.name, "change_dump" if row is CHANGE_DUMP else "resource_dump"
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
        self.options.written(name, (f"{name}/{row.top.name}",))
