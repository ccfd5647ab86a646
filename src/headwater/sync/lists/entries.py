"""The entries of a list, staged as rows: URI, metadata, whether in scope; and from when on a Change List tells.

Entries of Resource Lists go to `temp.listed`, those of Change Lists to `temp.changed`, of which the last one of each
resource stays. Which links of an entry are kept is decided here alone (`KEPT_RELATIONS`). `ListContext` is what readers
of lists share.
"""

import datetime as dt
import re
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.patches import is_of_dataset
from headwater.progress import Listener, Progress
from headwater.rdf import N_QUADS_DIFF
from headwater.spec.extensions import CANONICAL, canonical_digest
from headwater.spec.kinds import PATCH, Kind
from headwater.spec.records import ChangeKind, Document, Entry, Extra, Link
from headwater.spec.uris import normalise
from headwater.storage.database import Database
from headwater.storage.transaction import Row, Transaction
from headwater.sync.connection import REFUSALS, Origin, Scope, origin_of
from headwater.sync.lists.documents import ListDocuments
from headwater.sync.lists.position import (
    NEVER,
    ChangeListFingerprint,
    IndexedList,
    Interval,
    Position,
    Times,
    kept_bound,
)
from headwater.sync.options import Choice
from headwater.sync.source_times import micros
from headwater.typed_decoding import json_decoder

_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*\Z")
_LOWEST_PRIORITY = 999_999
_ANY_HOST = Scope(frozenset(), any_host=True)  # mirrors are exempt from the scope, and from nothing else (DST-S12)

KEPT_RELATIONS = {"duplicate": 20, PATCH: 4}
"""The relations by which something is fetched, and how many links of each are kept at most; they come first, best `pri`
first. A relation by which something is to be fetched needs a line here, and no column anywhere.
"""

_OTHER_LINKS = 50
"""So many links of other relations are kept beside them, in document order, for whoever publishes the copy (DST-S9)."""

DEEPEST_INDEX = 2  # an index in an index: one extra level (AMB-65)
_LONGEST_KEPT = 1 << 16
"""Characters of all links of an entry together, and of its foreign attributes; further ones are not kept."""


_ENCODER = msgspec.json.Encoder(enc_hook=dt.datetime.isoformat)  # of times that are coarser than a second
all_links = json_decoder(list[Link])
"""The links that were kept."""

_extra_from = json_decoder(Extra)


class StagedEntry(NamedTuple):
    """The staged row of one entry; the fields are columns of `temp.listed` and of `temp.changed`."""

    uri: str
    loc: str | None  # None: as `uri`
    lastmod: int | None
    length: int | None
    hash: str | None
    type: str | None
    encoding: str | None
    links: str | None  # the links that are kept, as JSON (`links_of`)
    extra: str | None  # the attributes of other namespaces, as JSON (RS-MD-14)
    refused: int  # 0: it is not; else which of `REFUSALS` it is, from 1 on


STAGED_COLUMNS = ", ".join(StagedEntry._fields)
STAGED_VALUES = ", ".join("?" * len(StagedEntry._fields))
STAGE_LISTED = f"INSERT INTO temp.listed({STAGED_COLUMNS}) VALUES ({STAGED_VALUES})"  # noqa: S608  our own names


class ListContext(msgspec.Struct, frozen=True):
    """The context of reading lists of one set: documents, state, scope and listener."""

    documents: ListDocuments
    database: Database
    scope: Scope
    listener: Listener
    choice: Choice = Choice()
    restate: Callable[[Transaction, int], None] | None = None
    """Puts changes of a set into another form after they are staged, and before they are folded."""


class EntryFilter(msgspec.Struct):
    """Turns entries into rows. Remembers the origins it has judged, so that the usual entry costs a look-up."""

    scope: Scope
    prefix: str = "\0"
    """What the URI of the usual entry begins with."""

    has_staged: bool = False
    """Whether rows of changes were made of entries that it has judged."""

    def judged(self, loc: str) -> tuple[str, int]:
        """The form in which URIs are compared (AMB-08), and 0, or which of `REFUSALS` it is, from 1 on."""
        if loc.startswith(self.prefix) and _PLAIN.match(loc) and "/." not in loc:
            return loc, 0
        uri = normalise(loc)
        if (refusal := self.scope.refusal(loc)) is not None:
            return uri, 1 + REFUSALS.index(refusal)
        self.prefix = uri[: uri.find("/", uri.find("://") + 3) + 1] or self.prefix
        return uri, 0

    def row(self, entry: Entry) -> StagedEntry:
        """The staged row of one entry."""
        loc = entry.loc
        uri, refused = self.judged(loc)
        lastmod, extra = entry.lastmod, _ENCODER.encode(entry.extra).decode() if entry.extra else None
        if extra is not None and len(extra) > _LONGEST_KEPT:
            extra = None
        return StagedEntry(
            uri,
            None if loc == uri else loc,
            None if lastmod is None else micros(lastmod),
            entry.length,
            entry.hash,
            entry.type,
            entry.encoding,
            kept_links(entry) if entry.links else None,
            extra,
            refused,
        )


def kept_links(entry: Entry) -> str | None:
    """The links of an entry that are kept, whole, as JSON (RS-LN-03).

    Those by which something is fetched come first: as far as they can be asked for, best `pri` first, each URI once and
    never `loc` itself. Then the others.
    """
    kept: list[Link] = []
    for relation, most in KEPT_RELATIONS.items():
        best: dict[str, Link] = {}
        found = (link for link in entry.links if link.rel == relation and link.href != entry.loc)
        for link in sorted(found, key=lambda link: link.pri or _LOWEST_PRIORITY):
            best.setdefault(link.href, link)
        kept += islice((link for link in best.values() if _ANY_HOST.refusal(link.href) is None), most)
    kept += [link for link in entry.links if link.rel not in KEPT_RELATIONS][:_OTHER_LINKS]
    while kept:
        encoded = encode_links(kept)
        if len(encoded) <= _LONGEST_KEPT:
            return encoded
        kept = kept[: len(kept) // 2]
    return None


def encode_links(links: list[Link]) -> str:
    """Links as they are kept."""
    return _ENCODER.encode(links).decode()


def without_patches(kept: str) -> str | None:
    """Kept links without those to patches."""
    links = [link for link in all_links(kept) if link.rel != PATCH]
    return encode_links(links) if links else None


def links_of(kept: str | None, relation: str) -> list[Link]:
    """The links of one relation among those that were kept, best `pri` first."""
    return [link for link in all_links(kept) if link.rel == relation] if kept else []


def canonical_hash_of(kept: str | None) -> str | None:
    """The SHA-256 of canonical N-Quads among the kept attributes (docs/reference/addresses-and-additions.md)."""
    return canonical_digest(_extra_from(kept)) if kept and CANONICAL in kept else None


def scope_origins(moved: Mapping[str, str], *uris: str | None) -> frozenset[Origin]:
    """The origins of the source's documents, and those to which these have `moved` for good (DST-S12)."""
    documents = {*uris, *(moved.get(uri) for uri in uris if uri)}
    return frozenset(origin for uri in documents if uri and (origin := origin_of(uri)) is not None)


# the changes of Change Lists (DST-C, DST-5.3)

_INSERT = (
    f"INSERT INTO temp.changed(list, ordinal, {STAGED_COLUMNS}, change, pending, at, exact)"  # noqa: S608
    f" VALUES (?, ?, {STAGED_VALUES}, ?, 0, NULL, 0)"
)
_MARK = "UPDATE temp.changed SET pending = ?, at = ?, latest = ?, exact = ?, stated = ? WHERE list = ? AND ordinal = ?"
_MOST_LISTS = 100_000
_DIFF = N_QUADS_DIFF.rpartition(".")[2]


@dataclass
class ChangeListStaging:
    """Stages one document: of a Change List the times of every entry are kept here.

    Entries get rows, but for those at the front of a list that was read before: they are done, or the list is not
    followed (DST-C10).
    """

    context: ListContext
    intake: EntryFilter
    position: Position  # from where changes are read
    before: Position  # how far the copy was, where they are read again
    number: int
    uri: str

    def begin(self) -> None:
        """Forget what an earlier try has brought, and what a document has that was read in vain."""
        if self.intake.has_staged:  # a set that has not changed costs no transaction
            with self.context.database.write() as t:
                t.run("DELETE FROM temp.changed WHERE list >= ?", (self.number,))
        self.parts: list[IndexedList] = []
        self.rows = array("q")
        self.print = ChangeListFingerprint(self.before, self.uri, None)
        self.times: list[Times] = []
        """The times that the entries state, in document order."""

        self.until: int | None = None
        self._is_known = False
        """Whether changes are read from where the list was left, and not again from an earlier time."""

        self._of_dataset = False
        self._first: ChangeKind | None = None

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries, in document order. Raises SourceFault for an index beyond all bounds."""
        if document.kind is Kind.CHANGE_LIST_INDEX:
            self.parts += [IndexedList.of(entry.loc, entry) for entry in entries]
            if len(self.parts) > _MOST_LISTS:
                raise SourceFault("an index of too many Change Lists", rule="RS-LIM-04")
        if document.kind is not Kind.CHANGE_LIST:
            return
        if not self.times:
            from_, self.until = micros(document.from_), micros(document.until)
            self.print = ChangeListFingerprint(self.before, self.uri, from_)
            self._is_known = bool(self.position.lists) and self.print.comparable
        rows = [row for row in map(self._change, entries) if row is not None]
        if rows:
            self.intake.has_staged = True
            with self.context.database.write() as t:
                t.many(_INSERT, rows)
        self.context.listener(Progress("reading changes", len(self.times)))

    def _change(self, entry: Entry) -> Row | None:
        """The staged row of one entry; None for one that is done."""
        ordinal = len(self.times)
        change = (entry.change or ChangeKind.UPDATED).value  # AMB-35: GET decides
        times = Times.of(entry)
        self.times.append(times)
        if not ordinal:
            self._first = entry.change
        if not self._of_dataset:  # a change has a patch of that kind, or is one (TIM-A1)
            self._of_dataset = entry.loc.endswith(".nqud") or (entry.type is not None and _DIFF in entry.type)
            if entry.links and any(link.rel == PATCH and is_of_dataset(link.type) for link in entry.links):
                self._of_dataset = True
        is_done = self._is_known and not self.print.beyond
        self.print.see(entry.loc, change, times.low, times.lastmod, entry.hash)
        if is_done:
            return None
        self.rows.append(ordinal)
        return self.number, ordinal, *self.intake.row(entry), change

    def begins(self, from_: int | None, since: int | None) -> int | None:
        """Where the list begins: its `from`, unless it is one of an RDF dataset in which that cannot be (TIM-A4).

        The existing exporter writes the time of its last import, which is later than most of the changes that it lists:
        such a list begins with its first change, and before it where that created the dataset.
        """
        if from_ is None or not self._of_dataset:
            return from_
        earliest = min((one.low for one in self.times if one.low is not None), default=from_)
        if earliest >= from_:
            return from_
        return min(earliest, since) if self._first is ChangeKind.CREATED and since is not None else earliest

    def mark(self, t: Transaction, intervals: Sequence[Interval], pending: Collection[int]) -> None:
        """Give the rows of the list their times; those whose ordinals are in `pending` are to be done."""
        rows: list[Row] = []
        for n in self.rows:
            at, own = intervals[n], self.times[n]
            precise = own.low if own.low == own.high else None
            rows.append((int(n in pending), at.low, kept_bound(at.high), int(at.exact), precise, self.number, n))
        t.many(_MARK, rows)


_PATCHES_ALONE = "SELECT 1 FROM temp.changed WHERE change != 'deleted' AND (uri LIKE '%.nqud' OR type LIKE ?) LIMIT 1"


def any_patches_alone(t: Transaction) -> bool:
    """Whether there are staged changes whose resource is N-Quads Unified Diff (TIM-A1)."""
    return t.one(_PATCHES_ALONE, (f"{N_QUADS_DIFF}%",)) is not None


_WITH_PATCH = (
    "SELECT c.n, c.links, r.links, c.hash IS NOT NULL AND c.hash = r.listed_hash FROM temp.changed c"
    " JOIN resources r ON r.set_id = ? AND r.uri = c.uri AND r.links IS NOT NULL WHERE c.pending AND c.links LIKE ?"
)


def keep_links(t: Transaction, set_id: int) -> None:
    """Have changes of datasets say what is held of them: they have one link, to the patch (TIM-A2).

    What a link said of another state than this one, its hash for instance, is left out.
    """
    found = []
    for n, links, held, same in t.rows(_WITH_PATCH, (set_id, f"%{N_QUADS_DIFF}%")):
        told = all_links(links)
        if all(link.rel == PATCH for link in told):
            kept = (link for link in all_links(held) if link.rel != PATCH)
            told += [link if same else Link(rel=link.rel, href=link.href, type=link.type) for link in kept]
            found.append((encode_links(told), n))
    t.many("UPDATE temp.changed SET links = ? WHERE n = ?", found)


_FLAG_KEPT = """
SELECT c.n, c.extra, coalesce(r.extra, f.extra) AS held FROM temp.changed c
LEFT JOIN resources r ON r.set_id = ?1 AND r.uri = c.uri LEFT JOIN failures f ON f.set_id = ?1 AND f.uri = c.uri
WHERE c.pending AND c.change != 'deleted' AND instr(held, 'isDataset')
  AND NOT coalesce(instr(c.extra, 'isDataset'), 0)"""


def keep_dataset_flags(t: Transaction, set_id: int) -> None:
    """Have pending changes repeat the flag `isDataset` of their resources: it holds until a list says otherwise, also
    beyond a deletion (TIM-A5)."""
    found = []
    for n, stated, held in t.rows(_FLAG_KEPT, (set_id,)):
        flag = [pair for pair in _extra_from(held) if pair[0].endswith("isDataset")]
        found.append((_ENCODER.encode([*(_extra_from(stated) if stated else ()), *flag]).decode(), n))
    t.many("UPDATE temp.changed SET extra = ? WHERE n = ?", found)


BY_URI = "CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)"
_AND_LATER = f"""
UPDATE temp.changed SET pending = 1 WHERE n IN (SELECT n FROM (
  SELECT n, pending, min(coalesce(at, {-NEVER})) FILTER (WHERE pending) OVER (
    PARTITION BY uri ORDER BY list, ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) <= coalesce(at, {NEVER}) AS is_later
  FROM temp.changed WHERE uri IN (SELECT uri FROM temp.changed WHERE pending)
) WHERE is_later AND NOT pending)"""  # noqa: S608  our own names
"""With a change that is done again all later ones of its resource are, or it would have the last word."""

_OVERTAKEN = """
UPDATE temp.changed SET pending = 0, asked = NULL WHERE n IN (SELECT n FROM (SELECT n, at, max(at) OVER (
  PARTITION BY uri ORDER BY list GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM temp.changed WHERE pending AND exact) WHERE before > at)"""
"""Of two lists that overlap the first may tell the later change: there the time decides, not the place."""

IS_FOLLOWED = (
    "EXISTS (SELECT 1 FROM temp.changed later WHERE later.uri = {0}.uri AND later.pending"
    " AND (later.list, later.ordinal) > (+{0}.list, +{0}.ordinal))"
)
"""Whether there is a pending change behind one of the same resource. Of `+c.ordinal` an index finds the row next to it;
of `c.ordinal` it reads all rows of the list."""

_FOLD = (
    f"UPDATE temp.changed SET pending = 0, asked = NULL, folded = 1 WHERE pending AND {IS_FOLLOWED.format('changed')}"  # noqa: S608
)


def fold(t: Transaction, listed: Sequence[int], count: int) -> None:
    """Leave pending only the last change of each resource.

    `listed`: the numbers of lists in the order of their index, of `count` in all. One that was polled, and so read
    before those ahead of it in the index, takes its place among them.
    """
    placed = list(dict.fromkeys(listed))
    order = [number for number in range(count) if number not in set(placed)] + placed
    if order != sorted(order):
        t.many("UPDATE temp.changed SET list = ? WHERE list = ?", ((-1 - n, old) for n, old in enumerate(order)))
        t.run("UPDATE temp.changed SET list = -1 - list")
    t.run(BY_URI)
    if t.one("SELECT 1 FROM temp.changed WHERE NOT pending LIMIT 1"):
        t.run(_AND_LATER)
    if count > 1:
        t.run(_OVERTAKEN)
    t.run(_FOLD)


def set_apart(t: Transaction) -> int:
    """Move what the scope refuses out of the pending changes, to `temp.refused`; how much it is."""
    t.run(
        "INSERT INTO temp.refused(uri, type, length, lastmod, links, change, at, refused) SELECT uri, type, length,"
        " lastmod, links, change, at, refused FROM temp.changed WHERE pending AND refused ORDER BY n"
    )
    t.run("DELETE FROM temp.changed WHERE refused")
    return int(t.value("SELECT count(*) FROM temp.refused"))
