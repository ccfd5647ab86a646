"""The content of one package: its manifest, read for what it lists, and the members that are wanted, put in place.

The manifest inside the package counts, also where a copy lies beside it (DST-P2). What it says of the package's moment
should be what the dump says of it (DST-P8); of another kind than the dump it makes the package unusable (DST-P7).

What verifies against the list gets its place, and is recorded (DST-P5). A member is given with the work it may be: a
row of `temp.work`, noted before as about to be placed. What does not fit, or finds its place occupied, is left to
single requests, whose rules hold for it (`transfer/resources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from headwater.files.hashing import HASHERS
from headwater.packages.faults import BadPackage, PackageTooLarge
from headwater.packages.package import PackageFile
from headwater.packages.zip_reader import ZipMember
from headwater.spec.records import Entry
from headwater.sync.connection import Scope
from headwater.sync.copy.file_tree import PathOccupied
from headwater.sync.lists.entries import EntryFilter, canonical_hash_of
from headwater.sync.packages.dump_documents import tell_moments
from headwater.sync.source_times import micros, mtime_ns
from headwater.sync.transfer.result_log import PlacedFile, ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, RunContext, Work

Warn = Callable[[str, str, str | None], None]

_CHUNK = 2_000
"""So many files are noted as about to be placed at a time: each note waits for the disk, and a run after a kill looks
at them all."""

MOST_STATED_OCTETS = 1 << 28
"""What the entries of one manifest may take in memory (DST-P6): that of a million usual ones, whose members are in
memory too."""

_STATED_OCTETS = 160
"""What one of them takes beside its URI and hash."""

_WANTED = (
    f"SELECT {', '.join(f'w.{name}' for name in COLUMNS)} FROM json_each(?) u CROSS JOIN temp.work w"  # noqa: S608
    f" ON w.uri = u.value WHERE {ELIGIBLE}"
)


class StatedMember(NamedTuple):
    """What the manifest says of a resource, and the member with its octets."""

    member: ZipMember
    hash: str | None
    length: int | None
    lastmod: int | None
    at: int | None

    def contradicts(self, work: Work) -> bool:
        """Whether the manifest itself says that this is another state than the listed one."""
        if self.hash is None or work.hash is None or self.hash == work.hash:
            return False
        return self.hash.partition(":")[0] == work.hash.partition(":")[0]


class DemandedMember(NamedTuple):
    """A member, and algorithm and hex of the digest that it must have; None where whatever it is may stand."""

    member: ZipMember
    algorithm: str
    hex: str | None


class PackageContent:
    """The content of one package, of which some is wanted."""

    def __init__(
        self, package: PackageFile, listed: Entry | None, scope: Scope, warn: Warn, *, is_list: bool = False
    ) -> None:
        """`listed`: what a dump says of the package; None: it was made on demand. `is_list`: whether this very manifest
        lists what is wanted of it (DST-D). Raises BadPackage."""
        self._package = package
        self._listed = listed
        self._objection = scope.objection
        self._is_list = is_list
        self._states: dict[str, list[StatedMember]] = {}
        """What the manifest says of each resource, in its order."""

        self.placed_count = 0
        self.unverifiable = 0
        """How many of those that are wanted have no listed hash."""

        self._read_manifest(EntryFilter(scope))
        if listed is not None:
            assert package.document is not None
            tell_moments(warn, listed, package.document)
            for problem in package.problems:
                if problem.rule == "DST-P3":
                    warn(problem.rule, f"an entry of a manifest is left out: {problem.message}", listed.loc)
            if missing := package.missing_count:
                said = f"{missing:,} members that its manifest names are missing from a package"
                warn("DST-P4", said, listed.loc)
            if undeclared := len(package.undeclared()):
                said = f"{undeclared:,} members of a package are in no entry of its manifest: they are ignored"
                warn("DST-P4", said, listed.loc)

    def _read_manifest(self, uris: EntryFilter) -> None:
        octets = 0
        at: int | None = None
        for packaged in self._package.entries():
            entry, member = packaged.entry, packaged.member
            if at is None:
                head = self._package.document
                at = micros(head.at) if head is not None else None
                at = micros(self._listed.at) if at is None and self._listed is not None else at
            if member is not None:
                moment = at if entry.datetime is None else micros(entry.datetime)
                uri = uris.uri(entry.loc)
                stated = StatedMember(member, entry.hash, entry.length, micros(entry.lastmod), moment)
                self._states.setdefault(uri, []).append(stated)
                octets += _STATED_OCTETS + len(uri) + len(entry.hash or "")
                if octets > MOST_STATED_OCTETS:
                    what = f"its manifest has more than {len(self._states):,} entries, and no room for them"
                    raise PackageTooLarge(what)

    def place(self, context: RunContext, results: ResultLog) -> None:
        """Verify members and give them their places, where they are wanted. Raises BadPackage where one is not what the
        package says of it: then the others are left."""
        uris = list(self._states)
        for start in range(0, len(uris), _CHUNK):
            works = results.take(_WANTED, msgspec.json.encode(uris[start : start + _CHUNK]).decode())
            settled = 0
            try:
                for work in works:
                    found = self._member(work, context.options.largest)
                    if found is None or not self._placed(work, found, context, results):
                        results.left(work)
                    settled += 1
            finally:
                for work in works[settled:]:
                    results.left(work)

    def _member(self, work: Work, largest: int) -> DemandedMember | None:
        """The member that a resource is, to be placed where it verifies.

        Of several states of a resource the last one counts, of those that agree with what is listed if any do.
        """
        states = [one for one in self._states[work.uri] if not one.contradicts(work)]
        if len(states) > 1:
            states = [one for one in states if self._agrees(work, one)] or states
        if not states or (work.tries is not None and self._objection(work.loc) is not None):
            return None
        stated, member = states[-1], states[-1].member
        self.unverifiable += work.hash is None
        if member.octets > largest or work.length not in (None, member.octets):
            return None
        digest = strongest_of(work.hash)
        if digest is None:  # then what the manifest states counts (DST-P5)
            if not self._agrees(work, stated) or stated.length not in (None, member.octets):
                return None
            if canonical_hash_of(work.extra) is not None:
                return None  # to be verified by what it says, which a transfer does
            digest = strongest_of(stated.hash)
        if digest is None:
            return DemandedMember(member, "sha-256", None)
        return DemandedMember(member, digest.algorithm, digest.hex)

    def _placed(self, work: Work, demanded: DemandedMember, context: RunContext, results: ResultLog) -> bool:
        """Whether a member was what is demanded of it, and has its place. Raises BadPackage."""
        tree, name, member = context.tree, f"{work.n}-member", demanded.member
        assert tree is not None
        directory, hasher = self._package.directory, HASHERS[demanded.algorithm]()

        def hashed() -> Iterator[bytes]:
            for block in directory.blocks(member):
                hasher.update(block)
                yield block

        content: bytes | Iterator[bytes] = hashed()
        if member.is_small:
            content = directory.read(member)
            hasher.update(content)
        try:
            size, time_ns = tree.write(name, content, mtime_ns(work.lastmod, None))
            digest = hasher.hexdigest()
            if demanded.hex in (None, digest):
                tree.place(name, work.path)
                results.placed(work, PlacedFile(work.path, size, time_ns, f"{demanded.algorithm}:{digest}"), size)
                self.placed_count += 1
                return True
        except PathOccupied:
            pass
        except BadPackage:
            tree.discard(name)
            raise
        tree.discard(name)
        return False

    def _agrees(self, work: Work, stated: StatedMember) -> bool:
        """Whether the manifest, of a dump, speaks of the very state that is listed, as far as times tell."""
        if self._listed is None:
            return False
        if stated.lastmod is not None and work.lastmod is not None:
            is_same = stated.lastmod == work.lastmod
        else:
            is_same = stated.at is not None and stated.at == work.known_at
        if not self._is_list:
            return is_same
        said, listed = (stated.lastmod, stated.length, stated.hash), (work.lastmod, work.length, work.hash)
        return said == listed and (is_same or work.changed_at is None or stated.at is None)
