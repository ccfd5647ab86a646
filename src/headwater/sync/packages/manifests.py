"""The manifest of a package: read, judged, and staged as the members that are wanted (`temp.packed`).

The manifest inside the package counts (DST-P2). What it says of the package's moment should be what the dump says of it
(DST-P8); of another kind than the dump it makes the package unusable (DST-P7).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterator

from headwater.packages.faults import BadPackage, BadPath
from headwater.packages.member_paths import member_name, percent_decoded
from headwater.spec.fast_entries import EntryColumns, TakeColumns
from headwater.spec.faults import DocumentFault
from headwater.spec.kinds import Kind
from headwater.spec.reader import Reader
from headwater.spec.records import Document, Entry
from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Row
from headwater.sync.filters import Scope
from headwater.sync.lists.entries import EntryFilter
from headwater.sync.packages.cost_model import USUAL_OCTETS, Demand
from headwater.sync.packages.dump_documents import ListedPackage
from headwater.sync.packages.planned_members import PlannedMembers
from headwater.sync.source_times import micros
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import ELIGIBLE

Warn = Callable[[str, str, str | None], None]

_STAGE = "INSERT INTO temp.packed(place, name, uri, hash, length, lastmod, at) VALUES (?, ?, ?, ?, ?, ?, ?)"

WORK_OF_MEMBERS = f"""
LEFT JOIN temp.work w ON w.uri = p.uri AND {ELIGIBLE.replace("round", "w.round")}"""
"""Beside the members `p` of `temp.packed`: the work that each may be."""

AGREES = "coalesce(w.lastmod = p.lastmod, w.known_at = p.at, 0)"
"""Whether the manifest speaks of the very state that is listed, as far as times tell."""

AGREES_AS_LISTED = f"""(w.lastmod IS p.lastmod AND w.length IS p.length AND w.hash IS p.hash
  AND ({AGREES} OR w.changed_at IS NULL OR p.at IS NULL)
  AND p.place = (SELECT max(q.place) FROM temp.packed q WHERE q.uri = p.uri))"""  # noqa: S608  our own names
"""The same where this very manifest is what lists it: of several states of a resource the last one counts."""

_ANOTHER = "substr(p.hash, 1, instr(p.hash, ':')) = substr(w.hash, 1, instr(w.hash, ':')) AND p.hash <> w.hash"
"""Whether the manifest itself says that the member is in another state than the listed one."""

_WANTED = (
    f"WITH wanted AS (SELECT DISTINCT w.n, w.hash, coalesce(w.length, {USUAL_OCTETS}) AS octets"  # noqa: S608
    f" FROM temp.packed p {WORK_OF_MEMBERS} WHERE w.n IS NOT NULL AND NOT coalesce({_ANOTHER}, 0))"
    " SELECT count(*), count(*) - count(hash), coalesce(sum(octets), 0) FROM wanted"
)

READ_FIRST = 1_000
"""So many members are known by the manifest before the first of them is placed, where the rest of it may wait."""

_PIECE_OCTETS = 1 << 16
_MOST_WAITING = 8 << 20

MANIFESTS = {
    Kind.RESOURCE_DUMP: Kind.RESOURCE_DUMP_MANIFEST,
    Kind.CHANGE_DUMP: Kind.CHANGE_DUMP_MANIFEST,
}
"""The kind of the manifests in the packages of a dump (DST-P7)."""


_DECLARED = "SELECT count(DISTINCT name) FROM temp.packed WHERE place > 0"
"""Two resources of the same octets may be one member."""


class ManifestReader:
    """Reads one manifest as it comes, and holds it to its kind. Raises BadPackage."""

    def __init__(self, where: str, kind: Kind, take_columns: TakeColumns | None = None) -> None:
        self._reader = Reader(base_uri=where, take_columns=take_columns)
        self._where = where
        self._kind = kind

    def feed(self, octets: bytes) -> list[Entry]:
        """The entries that are complete with these octets."""
        return self._judged(lambda: self._reader.feed(octets))

    def close(self) -> list[Entry]:
        """The last entries."""
        entries = self._judged(self._reader.close)
        if self._reader.document is None:
            raise BadPackage("its manifest is no document of ResourceSync", where=self._where, rule="DST-P7")
        return entries

    @property
    def document(self) -> Document | None:
        """Its head, when that has been read."""
        return self._reader.document

    @property
    def count(self) -> int:
        """How many entries it has, so far."""
        return self._reader.entry_count

    @property
    def skipped(self) -> int:
        """Entries that name no resource, so far (DST-F5)."""
        return self._reader.skipped_count

    def _judged(self, read: Callable[[], list[Entry]]) -> list[Entry]:
        try:
            entries = read()
        except DocumentFault as fault:
            said = f"its manifest cannot be read: {fault.what}"
            raise BadPackage(said, where=self._where, rule="DST-P2") from fault
        document = self._reader.document
        if document is not None and document.kind is not self._kind:
            said = f"its manifest is {document.called}"
            raise BadPackage(said, where=self._where, rule="DST-P7")
        return entries


class StagedManifest:
    """The manifest of one package, staged as it comes, in place of that of the package before.

    One that names the resources in the order of the plan need not be read to its end before the first members are
    placed: the rest of it, up to 8 MiB, waits to be read by `read_next` (decision 067).
    """

    def __init__(
        self,
        database: Database,
        package: ListedPackage,
        kind: Kind,
        scope: Scope,
        warn: Warn,
        is_worth: Callable[[ListedPackage, Demand], bool],
    ) -> None:
        """`kind`: of the dump. `is_worth`: whether a package is worth its octets for what is wanted of it."""
        self._is_worth = is_worth
        self._database = database
        self._package = package
        self._reader = ManifestReader(package.uri, MANIFESTS[kind], self._take_columns)
        self._uris = EntryFilter(scope)
        self._warn = warn
        self._planned: PlannedMembers | None = PlannedMembers(database, self._uris.uri)
        self._waiting: deque[bytes] = deque()
        """Pieces that have not been read."""

        self._waiting_octets = 0
        self._is_closed = False

        self.declared = 0
        """Entries that name a member; their places are counted from 1. When it is read: the members that they name."""

        self.linked = 0
        """Members that links of entries name: patches (RS-CDM-11)."""

        self._wanted = Demand(0, 0)

        self.unverifiable = 0
        """Wanted resources of which the list gives no digest, so that only a verified package may bring them."""

        self.is_list = False
        """Whether this manifest is what lists the resources that are wanted of its package (DST-D)."""

        with database.write() as t:
            t.run("DELETE FROM temp.packed")
            t.run("DROP INDEX IF EXISTS temp.packed_name")
            t.run("DROP INDEX IF EXISTS temp.packed_uri")

    def feed(self, octets: bytes, *, may_wait: bool) -> None:
        """Take the next octets; `may_wait`: what is not needed yet need not be read at once. Raises BadPackage."""
        self._waiting.extend(octets[at : at + _PIECE_OCTETS] for at in range(0, len(octets), _PIECE_OCTETS))
        self._waiting_octets += len(octets)
        while self._waiting and not (may_wait and self._is_ahead and self._waiting_octets <= _MOST_WAITING):
            self.read_next()

    @property
    def _is_ahead(self) -> bool:
        is_known = self._reader.document is not None  # of which kind it is
        return is_known and self.planned is not None and len(self.planned.names) >= READ_FIRST

    def end(self) -> None:
        """Nothing more comes: it is read to its end, unless a part of it waits. Raises BadPackage."""
        if not self._waiting:
            self._close()

    def read_next(self) -> None:
        """Read the next piece of what waits. Raises BadPackage."""
        piece = self._waiting.popleft()
        self._waiting_octets -= len(piece)
        self._stage(self._reader.feed(piece))

    def read_rest(self) -> None:
        """Read it to its end, when nothing more comes. Raises BadPackage."""
        while self._waiting:
            self.read_next()
        if not self._is_closed:
            self._close()

    def _close(self) -> None:
        self._stage(self._reader.close())
        self._is_closed = True
        if self.planned is None:
            with self._database.write() as t:
                if self.is_list:
                    t.run("CREATE INDEX IF NOT EXISTS temp.packed_uri ON packed(uri)")
                resources, self.unverifiable, octets = t.one(_WANTED) or (0, 0, 0)
                self.declared = int(t.value(_DECLARED) or 0)
            self._wanted = Demand(resources, octets)
        assert self._reader.document is not None
        tell_moments(self._warn, self._package, self._reader.document)

    @property
    def has_waiting(self) -> bool:
        """Whether a part of it has not been read."""
        return bool(self._waiting)

    @property
    def wanted(self) -> Demand:
        """Resources of the work among its members so far, as far as they are said to be in the listed state; where they
        are not in the order of the plan, none before it is read to its end."""
        return self._wanted if self.planned is None else self.planned.wanted

    @property
    def planned(self) -> PlannedMembers | None:
        """Its members in the order of the plan, where they are so, and where a list has what verifies each."""
        return self._planned if self._planned is not None and self._planned.names else None

    def tabulate(self) -> None:
        """Have all that was read in `temp.packed`, whatever its order."""
        planned, self._planned = self._planned, None
        if planned is not None:
            with self._database.write() as t:
                planned.tabulate(t)

    @property
    def agrees(self) -> str:
        """By what an entry is known to speak of the listed state, in SQL."""
        return AGREES_AS_LISTED if self.is_list else AGREES

    @property
    def is_worth_it(self) -> bool:
        """Whether what is wanted of it, as far as it is read, is worth the rest of the package (DST-D)."""
        return bool(self.wanted.resources) and self._is_worth(self._package, self.wanted)

    def _take_columns(self, found: EntryColumns) -> bool:
        """Take the next entries where they are those of the plan."""
        if self._planned is None or self.is_list or not self._planned.match(found):
            return False
        self.declared += len(found.locs)
        return True

    def _stage(self, entries: list[Entry]) -> None:
        if not entries:
            return
        if self._planned is not None and (found := EntryColumns.of(entries)) is not None and self._take_columns(found):
            return
        self.tabulate()
        with self._database.write() as t:
            t.many(_STAGE, self._rows(entries))

    def _rows(self, entries: list[Entry]) -> Iterator[Row]:
        head = self._reader.document
        at = _micros(head.at) if head is not None and head.at is not None else self._package.at
        for entry in entries:
            self.linked += len({link.path for link in entry.links if link.path is not None})
            if entry.path is None:
                continue  # a deletion, or what has no bitstream
            try:
                name = member_name(entry.path)
            except BadPath as fault:
                told = f"an entry of a manifest is left out: {fault.what}"
                self._warn(fault.rule or "DST-P3", told, self._package.uri)
                continue
            self.declared += 1
            moment = at if entry.datetime is None else _micros(entry.datetime)
            rest = self._uris.uri(entry.loc), entry.hash, entry.length, _micros(entry.lastmod), moment
            yield self.declared, name, *rest
            if "%" in name and (decoded := percent_decoded(name)) is not None and strongest_of(entry.hash) is not None:
                yield (
                    -self.declared,
                    decoded,
                    *rest,
                )  # what the path means where no member has the literal name (AMB-36)


def tell_moments(warn: Warn, package: ListedPackage, manifest: Document) -> None:
    """What the dump says of the package's moment, the manifest should say: a difference is told (DST-P8)."""
    pairs = (("at", package.at, manifest.at), ("from", package.from_, manifest.from_))
    for name, listed, said in (*pairs, ("until", package.until, manifest.until)):
        if listed is not None and said is not None and _micros(said) != listed:
            warn("DST-P8", f"the manifest of a package has another `{name}` than the dump gives for it", package.uri)


def _micros(at: dt.datetime | None) -> int | None:
    return None if at is None else micros(at)
