"""Cuts a page of resources into packages, and these into batches of members, which are made by processes.

What is in which package follows from the catalog alone, whatever can be had of it: so the same state gives the same
packages, and members can be made before it is known how those before them went.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import BinaryIO, NamedTuple

from headwater.catalog.content import ContentReader, FileLocator, NoContent
from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Resource
from headwater.packages.compression import pays
from headwater.packages.zip_writer import PackedMember
from headwater.processes.pool import ProcessPool, WorkerProgram
from headwater.processes.processors import processors
from headwater.publish.rendering.package_spool import MANIFEST_OCTETS, SMALL_OCTETS
from headwater.publish.rendering.resource_paths import ResourcePaths
from headwater.publish.resource_dumps.file_members import FileMember, MemberJob, make_members, member_maker, room_for
from headwater.publish.site import SetSettings

BATCH_MEMBERS = 128
BATCH_OCTETS = 2 << 20
POOL_MEMBERS = 2_000
"""With fewer resources to pack, starting processes takes as long as it saves."""
_SAMPLE = 100
"""So many resources tell whether those of a page lie in files."""
_ESCAPED, _PATH_MARGIN = 6, 16
"""What a character of a path may take in a manifest, and by how much a path may be longer than its URI."""
AHEAD = 4
"""Batches that a process has in hand: it makes members while this process writes others down."""


class PlannedMember(NamedTuple):
    """A resource, its path in the package, and the file to make it of, where a process can do that."""

    row: Resource
    path: str
    file: FileMember | None


class MemberBatch(NamedTuple):
    """Members of one package, numbered from 0, that are made together."""

    part: int
    members: list[PlannedMember]


class PageCutter:
    """Cuts the rows of a page of the set `name`, whose settings bound the packages."""

    def __init__(self, name: str, settings: SetSettings, prefix: str, contents: ContentReader) -> None:
        self._name = name
        self._settings = settings
        self._most_manifest_octets = min(MANIFEST_OCTETS, settings.links.document_octets)
        self._path_octets = len(prefix) + _ESCAPED * _PATH_MARGIN
        self._contents = contents
        self._locate = contents.file_of if isinstance(contents, FileLocator) else None
        self._part = 0
        self._begin()

    def _begin(self) -> None:
        self._paths = ResourcePaths()
        self._members = self._octets = self._manifest_octets = 0

    def batches(self, rows: Iterable[Resource]) -> Iterator[MemberBatch]:
        """The members of the page, in the order of its rows."""
        batch, batch_octets = list[Resource](), 0
        for row in rows:
            octets = self._octets_of(row)
            is_full = self._is_full(octets)
            if is_full or len(batch) >= BATCH_MEMBERS or batch_octets >= BATCH_OCTETS:
                yield self._batch(batch)
                batch, batch_octets = [], 0
            if is_full:
                self._begin()
                self._part += 1
            batch.append(row)
            batch_octets += octets
            self._members += 1
            self._octets += octets
            self._manifest_octets += self._path_octets + weight(row.uri, row.metadata) + _ESCAPED * len(row.uri)
        if batch:
            yield self._batch(batch)

    def processes_for(self, rows: Sequence[Resource]) -> int:
        """How many processes make the members as fast as this process enters them into packages.

        One does where few are deflated, else two; none does where there are few members, or no files to make them of.
        """
        if len(rows) < POOL_MEMBERS or processors() < 2:
            return 0
        if not any(self._file_of(row, "") for row in rows[:_SAMPLE]):
            return 0
        deflated = sum([pays(row.metadata.type, row.metadata.length) for row in rows])
        return 2 if 2 * deflated > len(rows) else 1

    def _is_full(self, octets: int) -> bool:
        settings = self._settings
        return self._members > 0 and (
            self._members >= settings.package_entries
            or self._octets + octets > settings.package_octets
            or self._manifest_octets > self._most_manifest_octets
        )

    def _batch(self, rows: list[Resource]) -> MemberBatch:
        paths = self._paths.take_all([row.uri for row in rows])
        return MemberBatch(self._part, list(map(PlannedMember, rows, paths, map(self._file_of, rows, paths))))

    def _file_of(self, row: Resource, path: str) -> FileMember | None:
        """The file of a resource that a process can make a member of."""
        length = row.metadata.length
        if self._locate is None or length is None or length > SMALL_OCTETS:
            return None
        found = self._locate(self._name, row)
        return None if found is None else (found.path, found.state, path[1:], pays(row.metadata.type, length))

    def _octets_of(self, row: Resource) -> int:
        """The length of a resource; of one that does not state it, as it is at present."""
        if row.metadata.length is not None:
            return row.metadata.length
        content = self._contents.open(self._name, row)
        if isinstance(content, NoContent):
            return 0
        try:
            return content.octets
        finally:
            content.close()


class MadeBatch(NamedTuple):
    """A batch, what could be made of its files, and where that lies: a place in the file of its package.

    Without a file nothing was made.
    """

    batch: MemberBatch
    members: list[PackedMember | None]
    file: BinaryIO | None
    place: int


class MemberMaker:
    """Has the members of a page made of files. `stop` is called now and then, and raises to end early.

    A package whose members have begun to be made has one of the `files`; it is free again when that is given back.
    """

    def __init__(self, files: Sequence[BinaryIO], stop: Callable[[], None]) -> None:
        self._files = files
        self._free = deque(files)
        self._stop = stop
        self._part = -1
        self._file: BinaryIO | None = None
        self._place = 0

    def give_back(self, file: BinaryIO) -> None:
        """The package of this file has been put into the store. Any thread may call it."""
        file.truncate(0)
        self._free.append(file)

    def made(self, batches: Iterator[MemberBatch], processes: int) -> Generator[MadeBatch, None, None]:
        """The batches in their order, made by so many processes. Raises OSError: they cannot be written."""
        program = WorkerProgram(
            function=member_maker, libraries=True, descriptors=tuple(file.fileno() for file in self._files)
        )
        pool: ProcessPool[MadeBatch] = ProcessPool(
            program, make_members, processes=processes, ahead=AHEAD, stop=self._stopped
        )
        with closing(pool.answers(map(self._job, batches))) as answers:
            for batch, (error, members) in answers:
                if error:
                    raise OSError(error, os.strerror(error))
                yield batch._replace(members=members)

    def _stopped(self) -> bool:
        self._stop()
        return False

    def _job(self, batch: MemberBatch) -> tuple[MadeBatch, MemberJob]:
        if batch.part != self._part:
            self._part, self._place = batch.part, 0
            self._file = self._free.popleft() if self._free else None
        file, place = self._file, self._place
        if file is None:
            return MadeBatch(batch, [], None, 0), (-1, 0, [None] * len(batch.members))
        files = [one.file for one in batch.members]
        self._place += sum([room_for(one) for one in files if one is not None])
        return MadeBatch(batch, [], file, place), (file.fileno(), place, files)
