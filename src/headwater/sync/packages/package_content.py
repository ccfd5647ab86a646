"""The content of one package, in a file: its manifest is staged and joined with the work, what is wanted is placed.

The manifest inside the package counts (DST-P2). What it says of the package's moment should be what the dump says of it
(DST-P8); of another kind than the dump it makes the package unusable (DST-P7).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from headwater.packages.package import PackageFile
from headwater.spec.kinds import Kind
from headwater.spec.records import Document
from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.filters import Scope
from headwater.sync.lists.entries import EntryFilter
from headwater.sync.packages.dump_documents import ListedPackage
from headwater.sync.packages.placing import MemberPlacing, StatedByManifest, WantedMember
from headwater.sync.source_times import micros
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, Work

Warn = Callable[[str, str, str | None], None]

MANIFESTS = {
    Kind.RESOURCE_DUMP: Kind.RESOURCE_DUMP_MANIFEST,
    Kind.CHANGE_DUMP: Kind.CHANGE_DUMP_MANIFEST,
}
"""The kind of the manifests in the packages of a dump (DST-P7)."""

_STAGE = "INSERT INTO temp.packed(place, name, uri, hash, length, lastmod, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ANOTHER = "substr(p.hash, 1, instr(p.hash, ':')) = substr(w.hash, 1, instr(w.hash, ':')) AND p.hash <> w.hash"
"""Whether the manifest itself says that the member is in another state than the listed one."""

_WANTED = f"FROM temp.packed p CROSS JOIN temp.work w ON w.uri = p.uri WHERE {ELIGIBLE} AND NOT coalesce({_ANOTHER}, 0)"
_KEEP = (
    f"DELETE FROM temp.packed WHERE place NOT IN (SELECT place FROM (SELECT p.place, max(({{}}) * {1 << 40} + p.place)"  # noqa: S608
    f" {_WANTED} GROUP BY w.n))"
)
"""Of several states of a resource the last one counts, of those that agree with what is listed if there are any."""

_COUNTS = f"SELECT count(*), count(*) - count(w.hash) {_WANTED}"

_AGREES = "coalesce(w.lastmod = p.lastmod, w.known_at = p.at, 0)"
"""Whether the manifest speaks of the very state that is listed, as far as times tell."""

_AGREES_AS_LISTED = f"""(w.lastmod IS p.lastmod AND w.length IS p.length AND w.hash IS p.hash
  AND ({_AGREES} OR w.changed_at IS NULL OR p.at IS NULL))"""
"""The same where this very manifest is what lists it."""

_CHUNK = 2_000
"""So many files are noted as about to be placed at a time: each note waits for the disk, and a run after a kill looks
at them all."""

_WORK = ", ".join(f"w.{name}" for name in COLUMNS)


class PackageContent:
    """The content of one package; staged in place of that of the package before."""

    def __init__(
        self,
        database: Database,
        package: PackageFile,
        listed: ListedPackage | None,
        scope: Scope,
        warn: Warn,
        *,
        is_list: bool = False,
    ) -> None:
        """`listed`: what a dump says of the package; None: it was made on demand. `is_list`: this very manifest lists
        what is wanted of it (DST-D). Raises BadPackage."""
        self._database = database
        self._package = package
        self._listed = listed
        self._uris = EntryFilter(scope)
        self._agrees = "0" if listed is None else _AGREES_AS_LISTED if is_list else _AGREES
        with database.write() as t:
            t.run("DELETE FROM temp.packed")
            t.many(_STAGE, self._rows())
            t.run(_KEEP.format(self._agrees))
            self._count, self.unverifiable = t.one(_COUNTS) or (0, 0)
        """How many of those that are wanted have no listed hash."""

        if listed is not None:
            assert package.document is not None
            tell_moments(warn, listed, package.document)
            self._tell_problems(warn, listed)

    def _rows(self) -> Iterator[Row]:
        at: int | None = None
        for place, packaged in enumerate(self._package.entries(), 1):
            if at is None:
                head = self._package.document
                at = _micros(head.at) if head is not None else None
                at = self._listed.at if at is None and self._listed is not None else at
            entry, member = packaged.entry, packaged.member
            if member is not None:
                moment = at if entry.datetime is None else _micros(entry.datetime)
                uri = self._uris.uri(entry.loc)
                yield place, member.name, uri, entry.hash, entry.length, _micros(entry.lastmod), moment

    def _tell_problems(self, warn: Warn, listed: ListedPackage) -> None:
        """What the manifest names and the package has not, and the other way round (DST-P4)."""
        for problem in self._package.problems:
            if problem.rule == "DST-P3":
                warn(problem.rule, f"an entry of a manifest is left out: {problem.message}", listed.uri)
        if missing := self._package.missing_count:
            warn("DST-P4", f"{missing:,} members that its manifest names are missing from a package", listed.uri)
        if undeclared := len(self._package.undeclared()):
            said = f"{undeclared:,} members of a package are in no entry of its manifest: they are ignored"
            warn("DST-P4", said, listed.uri)

    def place(self, placing: MemberPlacing, results: ResultLog, objection: Callable[[str], str | None]) -> None:
        """Place what is wanted.

        `objection`: what the scope, which is another by now perhaps, says of what an earlier run has failed to fetch.
        Raises BadPackage where a member is not what the package says of it: the rest is left.
        """
        with closing(self._members(results, objection)) as members:
            placing.place(self._package.directory, members, self._count)

    def _members(
        self, results: ResultLog, objection: Callable[[str], str | None]
    ) -> Generator[WantedMember, None, None]:
        """The members that are wanted, with their work noted as about to be placed."""
        columns = f"SELECT p.place, p.name, p.hash, p.length, {self._agrees}, {_WORK}"
        query = f"{columns} {_WANTED} AND p.place > ? ORDER BY p.place LIMIT {_CHUNK}"
        told: list[Row] = [(0,)]

        def select(t: Transaction) -> list[Row]:
            told[:] = t.fetch(query, (told[-1][0],))
            return [row[5:] for row in told]

        while works := deque(results.take(select)):
            try:
                for _, name, hash_, length, agreed, *_ in told:
                    work = works.popleft()
                    member = self._package.directory.get(name)
                    assert member is not None
                    if _is_refused(work, objection):
                        results.left(work)
                    else:
                        yield WantedMember(work, member, StatedByManifest(hash_, length) if agreed else None)
            finally:
                for work in works:
                    results.left(work)


def _is_refused(work: Work, objection: Callable[[str], str | None]) -> bool:
    return work.tries is not None and objection(work.loc) is not None


def tell_moments(warn: Warn, package: ListedPackage, manifest: Document) -> None:
    """What the dump says of the package's moment, the manifest should say: a difference is told (DST-P8)."""
    pairs = (("at", package.at, manifest.at), ("from", package.from_, manifest.from_))
    for name, listed, said in (*pairs, ("until", package.until, manifest.until)):
        if listed is not None and said is not None and _micros(said) != listed:
            warn("DST-P8", f"the manifest of a package has another `{name}` than the dump gives for it", package.uri)


def _micros(at: dt.datetime | None) -> int | None:
    return None if at is None else micros(at)
