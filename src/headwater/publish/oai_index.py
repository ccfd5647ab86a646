"""An index of one set for OAI-PMH: each record as it is sent, in the order of its last change, in a SQLite file.

It is a cache of the catalog: `catch_up` makes it of the resources as loaded and of the log of changes, and adds what
came since. The order is that of the log, on whatever machine it is made; so a place in a list is a time and an item,
and a record that changes while a list is read comes again at its end. The log is never cut, so deletions are told for
ever.

A harvested record is an item under its own identifier. Otherwise a resource that describes no other is an item, under
its URL: with the records that describe it, and else with its own octets if they are metadata. Where one record
describes many resources (`records_stand_alone`), it is the item, and they are none.
"""

import datetime as dt
import hashlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, read_and_close
from headwater.catalog.interface import Catalog, Resource
from headwater.errors import HeadwaterError, StoreFault
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.oai_records import (
    DELETED,
    DUBLIN_CORE,
    RECORD_OCTETS,
    Format,
    XmlRecord,
    dublin_core,
    harvested_identifier,
    header,
    is_spec,
    read_record,
    spec_of,
    with_ancestors,
)
from headwater.spec.records import ChangeKind
from headwater.spec.times import to_microseconds
from headwater.storage.database import Database, Durability, Schema
from headwater.storage.transaction import DatabaseFault, Row, Transaction, Values

# ruff: noqa: S608 the only text put into a statement is our own names

_TABLES: Final = """
CREATE TABLE state (
  shape TEXT NOT NULL, opened_us INTEGER NOT NULL,  -- settings and catalog of which the index is
  seq INTEGER NOT NULL, seq_us INTEGER,   -- the last change of the log that is in the index
  loaded TEXT                             -- URI up to which resources as loaded are in it; NULL: all
) STRICT;
CREATE TABLE format (
  id INTEGER PRIMARY KEY, prefix TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, schema TEXT NOT NULL
) STRICT;
CREATE TABLE collection (id INTEGER PRIMARY KEY, spec TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT;
CREATE TABLE record (
  id INTEGER PRIMARY KEY,
  item TEXT NOT NULL, format INTEGER NOT NULL,
  source TEXT NOT NULL,                   -- URI of the resource whose metadata it has
  at_us INTEGER NOT NULL,
  is_deleted INTEGER NOT NULL,
  sets TEXT NOT NULL,                     -- setSpecs of its collections, with blanks between
  header BLOB NOT NULL, opening BLOB NOT NULL, rest BLOB NOT NULL,
  UNIQUE (item, format)
) STRICT;
CREATE INDEX record_source ON record (source);
CREATE TABLE place (                      -- of each record in the list of all (collection 0) and those of its sets
  format INTEGER NOT NULL, collection INTEGER NOT NULL, at_us INTEGER NOT NULL, item TEXT NOT NULL,
  PRIMARY KEY (format, collection, at_us, item)
) STRICT, WITHOUT ROWID;
"""
_SCHEMA: Final = Schema(application_id=0x48574F41, migrations=(_TABLES,))
_WORTHLESS: Final = frozenset({"HW-DB-05", "HW-DB-06", "HW-DB-09"})  # a file with one of these faults is made anew
_BATCH, _BATCH_OCTETS = 1_000, 32 << 20  # changes or resources of one transaction, and octets of their records
_MOST_FORMATS: Final = 200
_MOST_SPECS: Final = 100  # of a record
_IDENTIFIER_OCTETS: Final = 2_000  # a record with a longer one stands under its URL: tokens have room for it


class IndexedSet(msgspec.Struct, frozen=True, kw_only=True):
    """The set of an index: `links` gives its resources their links, `contents` has their octets.

    `prefixes` are those of a set that was harvested by OAI-PMH: its paths are a prefix and an identifier.
    """

    name: str
    url_prefix: str
    catalog: Catalog
    links: AddedLinks
    contents: ContentReader
    takes: Callable[[bytes], bool] | None = None
    prefixes: tuple[str, ...] = ()
    records_stand_alone: bool = False

    def url(self, uri: str) -> str:
        """The URL of a resource."""
        return uri if "://" in uri else self.url_prefix + uri

    def uri(self, url: str) -> str:
        """The URI by which the catalog knows what is at a URL."""
        return url.removeprefix(self.url_prefix)

    def identity(self, uri: str) -> tuple[str, str]:
        """Prefix and identifier of a harvested record, by its path."""
        prefix, _, name = unquote(uri).partition("/")
        return prefix, (harvested_identifier(name) if self.prefixes else None) or self.url(uri)

    def linked(self, held: Mapping[str, Resource], uri: str, *rels: str) -> list[str]:
        """The URIs of what a resource describes and what describes it, as its links say."""
        links = held[uri].metadata.links if uri in held else ()
        found = [self.uri(link.href) for link in links if link.rel in (rels or ("describes", "describedby"))]
        return [one for one in found if one != uri]

    def shows(self, uri: str) -> bool:
        """Whether the settings take a resource."""
        return self.takes is None or "://" in uri or self.takes(unquote_to_bytes(uri))

    def shows_record(self, source: str, item: str) -> bool:
        """Whether the settings take the resource that has a record, and the item under whose URL it stands."""
        return self.shows(source) and (bool(self.prefixes) or self.shows(self.uri(item)))

    def held(self, uris: Iterable[str]) -> dict[str, Resource]:
        """Those of the resources that are there and taken, with all their links."""
        found = self.catalog.get(self.name, [uri for uri in uris if self.shows(uri)])
        return {one.uri: one for one in self.links.to(found.values(), EntryPlace.RESOURCE_LIST)}

    def record_octets(self, resource: Resource) -> int | None:
        """How many octets are read to know what record a resource is. None: its type says that it is none."""
        told = resource.metadata
        if not any(one in (told.type or "xml") for one in ("xml", "json", "octet-stream")):  # the last: not known
            return None
        return told.length if told.length is not None and told.length <= RECORD_OCTETS else 0

    def record(self, resource: Resource) -> XmlRecord | Absence | None:
        """The record that the octets of a resource are; an Absence where another change follows, None for no record.

        Raises StoreFault where they cannot be read at present: the index waits, for it would announce a deletion.
        """
        if self.record_octets(resource) is None:
            return None
        opened = self.contents.open(self.name, resource)
        if not isinstance(opened, NoContent) and opened.octets > RECORD_OCTETS:
            opened.close()
            return None
        octets = opened if isinstance(opened, NoContent) else read_and_close(opened, resource.metadata)
        if isinstance(octets, NoContent):
            if octets.why is Absence.UNREADABLE:
                raise StoreFault("a record cannot be read at present", where=self.url(resource.uri))
            return octets.why if octets.why in (Absence.CHANGED, Absence.GONE) else None
        return read_record(octets)


class ListPlace(NamedTuple):
    """A place in a list: behind the record of this item, which was changed at this time."""

    at_us: int
    item: str


class Wanted(NamedTuple):
    """What a list has: records in a format and of a collection (0: all), changed within [from_us, until_us)."""

    format: int
    collection: int
    from_us: int
    until_us: int


class ListedRecord(NamedTuple):
    """A record of a list, or its header: its place, and the resource whose metadata it has."""

    place: ListPlace
    source: str
    is_deleted: bool
    octets: bytes


class OaiIndex:
    """The index of a set in `folder`, for any number of threads and processes. `is_wanted`: False ends `catch_up`.

    Methods raise StoreFaults, also those of the catalog.
    """

    def __init__(self, folder: Path, of: IndexedSet) -> None:
        self.of, self.is_wanted = of, True
        self._shape = f"{of.url_prefix} {of.prefixes} {of.records_stand_alone}"
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._renewing, self._is_away = folder / "index.sqlite", threading.Lock(), False
        try:
            self._database = Database(self._path, _SCHEMA, durability=Durability.NORMAL)
        except DatabaseFault as fault:
            if fault.code not in _WORTHLESS:
                raise
            self._remove()
            self._database = Database(self._path, _SCHEMA, durability=Durability.NORMAL)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def renew(self, fault: HeadwaterError) -> None:
        """Open the file again after a fault that says it is damaged or was removed: the next `catch_up` fills it."""
        with self._renewing:
            is_ours = self.is_wanted and fault.where == str(self._path)
            if is_ours and (self._is_away or fault.code in {*_WORTHLESS, "HW-DB-12"}):
                self._is_away = True  # until it is open: a full disk may be in the way
                self._database.close()
                if fault.code in _WORTHLESS:  # else another process has made it anew
                    self._remove()
                self._database = Database(self._path, _SCHEMA, durability=Durability.NORMAL)
                self._is_away = False

    def close(self) -> None:
        """Give up the file."""
        self._database.close()

    # what is asked for

    def formats(self) -> list[Format]:
        """All formats."""
        with self._database.read() as transaction:
            return [
                Format(*row) for row in transaction.rows("SELECT prefix, namespace, schema FROM format ORDER BY id")
            ]

    def formats_of(self, item: str) -> list[tuple[Format, str, bool]]:
        """The formats of an item, each with the resource whose metadata its record has, and whether it is deleted."""
        sql = (
            "SELECT prefix, namespace, schema, source, is_deleted FROM record AS r JOIN format AS f ON f.id = r.format"
        )
        with self._database.read() as transaction:
            rows = transaction.rows(f"{sql} WHERE item = ? ORDER BY f.id", (item,))
            return [(Format(*row[:3]), row[3], bool(row[4])) for row in rows]

    def number(self, of: Literal["format.prefix", "collection.spec"], text: str) -> int | None:
        """The number of a format or a collection."""
        table, column = of.split(".")
        with self._database.read() as transaction:
            found: int | None = transaction.value(f"SELECT id FROM {table} WHERE {column} = ?", (text,))
        return found

    def collections(self, after: int, limit: int) -> list[Row]:
        """Number, setSpec and name of up to so many collections."""
        with self._database.read() as transaction:
            return transaction.fetch("SELECT * FROM collection WHERE id > ? ORDER BY id LIMIT ?", (after, limit))

    def record(self, item: str, format_: int) -> ListedRecord | None:
        """One record."""
        sql = "SELECT at_us, source, is_deleted, opening, header, rest FROM record WHERE item = ? AND format = ?"
        with self._database.read() as transaction:
            row = transaction.one(sql, (item, format_))
        return None if row is None else ListedRecord(ListPlace(row[0], item), row[1], bool(row[2]), b"".join(row[3:]))

    def count(self, wanted: Wanted) -> int:
        """How many records a list has."""
        sql = "SELECT count(*) FROM place WHERE format = ? AND collection = ? AND at_us >= ? AND at_us < ?"
        with self._database.read() as transaction:
            return int(transaction.value(sql, wanted))

    def listed(
        self, wanted: Wanted, after: ListPlace | None, limit: int, octets: int, *, headers_only: bool
    ) -> tuple[list[ListedRecord], bool]:
        """The next records of a list, up to so many and so many octets, and whether there are more."""
        sql = (
            f"SELECT p.at_us, p.item, source, is_deleted, {'header' if headers_only else 'opening, header, rest'}"
            " FROM place AS p CROSS JOIN record AS r ON r.item = p.item AND r.format = p.format WHERE p.format = ?"
            " AND p.collection = ? AND p.at_us < ? AND (p.at_us, p.item) > (?, ?) ORDER BY p.at_us, p.item"
        )
        found, room, start = list[ListedRecord](), octets, after or (wanted.from_us, "")
        with self._database.read() as transaction:
            values = (wanted.format, wanted.collection, wanted.until_us, *start)
            for at_us, item, source, is_deleted, *parts in transaction.rows(sql, values):
                one = ListedRecord(ListPlace(at_us, item), source, bool(is_deleted), b"".join(parts))
                room -= len(one.octets)
                if len(found) == limit or (found and room < 0):
                    return found, True
                found.append(one)
        return found, False

    # what is added

    def answer_time(self, now: dt.datetime) -> dt.datetime | None:
        """Add what has changed; the time up to which nothing is missing. None: the set is loading, or nobody waits.

        The catalog draws a line at `now` (`Catalog.mark`): no change that is recorded later gets a time that a
        harvester has seen already.
        """
        catalog, name = self.of.catalog, self.of.name
        line = catalog.state(name).last_at
        if line is not None and line < now.replace(microsecond=0):
            with suppress(StoreFault):  # a full disk: then the newest time is the line
                line = catalog.mark(name, now)
        return min(line, now) if self.catch_up() and line is not None else None

    def catch_up(self) -> bool:
        """Add what has changed; whether all of it is there now."""
        try:
            return self._catch_up()
        except StoreFault as fault:
            self.renew(fault)
            raise

    def _catch_up(self) -> bool:
        state = self.of.catalog.state(self.of.name)
        if state.opened_at is None:
            return False
        with self._database.read() as transaction:
            position = self._position(transaction)
        while position is None or position.loaded is not None or position.seq < state.last_seq:
            if not self.is_wanted:
                return False
            position = self._add()
        return True

    def _position(self, transaction: Transaction) -> "_Position | None":
        """How far the index is; None where it is of another catalog, or of other settings."""
        catalog, name = self.of.catalog, self.of.name
        row = transaction.one("SELECT shape, opened_us, seq, seq_us, loaded FROM state")
        state = catalog.state(name)
        opened_us = 0 if state.opened_at is None else to_microseconds(state.opened_at)
        if row is None or row[:2] != (self._shape, opened_us) or row[2] > state.last_seq:
            return None
        if row[3] is not None and [to_microseconds(one.at) for one in catalog.changes(name, row[2] - 1, 1)] != [row[3]]:
            return None
        return _Position(*row[1:])

    def _add(self) -> "_Position":
        """Add a batch; how far the index is then."""
        catalog, name = self.of.catalog, self.of.name
        with self._database.write() as transaction:
            at = self._position(transaction) or self._begin(transaction)
            batch = _Batch(transaction, self.of)
            if at.loaded is not None:
                resources = catalog.resources(name, at.loaded, _BATCH)
                resources = resources[: self._fitting(resources)]
                batch.derive({one.uri: at.opened_us for one in resources if one.seq <= at.seq}, frozenset())
                at = at._replace(loaded=resources[-1].uri if resources else None)
            elif changes := catalog.changes(name, at.seq, _BATCH):
                there = catalog.get(name, list({one.uri for one in changes}))
                changes = changes[: self._fitting([there.get(one.uri) for one in changes])]
                latest = {one.uri: one for one in changes}
                gone = {uri for uri, one in latest.items() if one.change is ChangeKind.DELETED and uri not in there}
                kept = {uri for uri, one in latest.items() if uri in there and there[uri].seq == one.seq} | gone
                batch.derive({uri: to_microseconds(latest[uri].at) for uri in latest if uri in kept}, gone)
                at = at._replace(seq=changes[-1].seq, seq_us=to_microseconds(changes[-1].at))
            batch.write()
            transaction.run("UPDATE state SET seq = ?, seq_us = ?, loaded = ?", at[1:])
            return at

    def _fitting(self, resources: Sequence[Resource | None]) -> int:
        """How many of the resources, one at least, have records that one transaction has room for."""
        sums = accumulate(0 if one is None else self.of.record_octets(one) or 0 for one in resources)
        return max(1, bisect_right(list(sums), _BATCH_OCTETS))

    def _begin(self, transaction: Transaction) -> "_Position":
        """Empty the index."""
        catalog, name = self.of.catalog, self.of.name
        for table in ("state", "format", "collection", "record", "place"):
            transaction.run(f"DELETE FROM {table}")
        transaction.run("INSERT INTO format VALUES (1, ?, ?, ?)", msgspec.structs.astuple(DUBLIN_CORE))
        first = catalog.segments(name)[0]  # a set that was moved here has no log of what was before
        at = _Position(to_microseconds(first.from_), first.first - 1, None, "")
        transaction.run("INSERT INTO state VALUES (?, ?, ?, ?, ?)", (self._shape, *at))
        return at


class _Position(NamedTuple):
    """How far an index is: its columns in the table of that name."""

    opened_us: int
    seq: int
    seq_us: int | None
    loaded: str | None


class _Put(NamedTuple):
    """A record to be written. `specs` None: those that it had."""

    source: str
    at_us: int
    record: XmlRecord
    specs: Collection[str] | None


class _Batch:
    """What some resources or changes make of the records, in one transaction."""

    def __init__(self, transaction: Transaction, of: IndexedSet) -> None:
        self._transaction, self._of = transaction, of
        rows = transaction.fetch("SELECT prefix, id, namespace FROM format ORDER BY id DESC")
        self._formats = {row[0]: row[1] for row in rows}
        self._by_namespace = {row[2]: row[1] for row in rows}
        self._numbers, self._names = dict[str, int](), dict[str, str]()  # of collections, by setSpec
        self._puts = dict[tuple[str, int], _Put]()

    def derive(self, times: dict[str, int], gone: Collection[str]) -> None:
        """Have written what follows from resources that have their last change at these times, or are `gone`."""
        of, near, held = self._of, dict(times), self._of.held(times)
        known = self._known("source", times)
        if not of.prefixes:
            by_item = self._known("item", map(of.url, times))
            for uri, at_us in times.items():  # with what they describe, what describes them, and did so before
                rows = (*known.get(uri, ()), *by_item.get(of.url(uri), ()))
                others = {of.uri(row[0]) for row in rows} | {row[2] for row in rows}
                near |= {one: max(at_us, near.get(one, 0)) for one in (*others, *of.linked(held, uri))}
            held |= of.held(near.keys() - held.keys())
            for uri, at_us in list(near.items()):
                near |= {one: max(at_us, near.get(one, 0)) for one in of.linked(held, uri, "describedby")}
            held |= of.held(near.keys() - held.keys())
            held |= of.held({one for uri in near for one in of.linked(held, uri)} - held.keys())
            known |= self._known("source", near.keys() - times.keys())
        order = {one: (one in gone, not of.linked(held, one, "describes")) for one in near}
        for uri in sorted(near, key=order.__getitem__):  # records before what they describe, deletions last
            is_clear = uri not in held or (self._harvested if of.prefixes else self._item)(uri, held, near[uri])
            former = known.get(uri) or (self._unseen(uri) if uri in gone else [])
            for item, format_, source, is_deleted in former if is_clear else ():
                if (item, format_) not in self._puts and (uri in gone or not is_deleted):
                    self._puts[item, format_] = _Put(source, near[uri], DELETED, None)

    def _unseen(self, uri: str) -> list[Row]:
        """The records that a resource may have had that was deleted before the index was made: in all formats."""
        of, formats, (prefix, item) = self._of, list(self._formats.values()), self._of.identity(uri)
        if of.prefixes:  # else it is a file of a record, and no item
            formats = [self._format(Format(prefix, "", ""))] if prefix in of.prefixes else []
            formats += [1] if prefix == of.prefixes[0] and DUBLIN_CORE.prefix not in of.prefixes else []
        return [(item, one, uri, False) for one in formats]

    def _harvested(self, uri: str, held: Mapping[str, Resource], at_us: int) -> bool:
        """Write the record that was harvested by OAI-PMH; whether it is not about to change."""
        of, resource, (prefix, item) = self._of, held[uri], self._of.identity(uri)
        record = of.record(resource) if prefix in of.prefixes else None
        if isinstance(record, XmlRecord):
            specs = dict.fromkeys((*record.sets, *self._specs([resource])))
            told = record.identifier if len(record.identifier.encode()) <= _IDENTIFIER_OCTETS else of.url(uri)
            item, format_ = told or item, msgspec.structs.replace(record.format, prefix=prefix)
            self._puts[item, self._format(format_)] = _Put(uri, at_us, record, specs)
            if prefix == of.prefixes[0] and DUBLIN_CORE.prefix not in of.prefixes:
                self._puts[item, 1] = _Put(uri, at_us, dublin_core(item, of.url(uri), resource.metadata), specs)
        return not isinstance(record, Absence)

    def _item(self, uri: str, held: Mapping[str, Resource], at_us: int) -> bool:
        """Write what a resource is: a record of others, or an item; whether it is not about to change."""
        of, resource = self._of, held[uri]
        described, abouts = (
            [one for one in of.linked(held, uri, rel) if one in held] for rel in ("describes", "describedby")
        )
        is_part = bool(abouts) if of.records_stand_alone else bool(described)
        items = ([] if is_part else [uri]) if of.records_stand_alone else described or [uri]
        may_be_record = described or of.records_stand_alone or "xml" in (resource.metadata.type or "")
        record = of.record(resource) if may_be_record and items else None
        if isinstance(record, Absence):
            return False
        for item in items:
            specs = self._specs([resource, *(held[one] for one in {item, *abouts} - {uri})])
            if record is not None and (described or record.is_known):  # any other XML is no metadata
                number = self._format(record.format, is_named=False)
                self._puts[of.url(item), number] = _Put(uri, at_us, record, specs)
            own = self._puts.get((of.url(item), 1))
            if not is_part and (own is None or own.record is DELETED):
                core = dublin_core("", of.url(uri), resource.metadata)
                self._puts[of.url(item), 1] = _Put(uri, at_us, core, specs)
        return True

    def _known(self, column: Literal["item", "source"], texts: Iterable[str]) -> dict[str, list[Row]]:
        """Item, format and source of records, and whether they are deleted, by the text in this column."""
        sql = f"SELECT item, format, source, is_deleted, {column} FROM record WHERE {column} = ?"
        found = dict[str, list[Row]]()
        for row in self._transaction.rows_each(sql, [(one,) for one in texts]):
            found.setdefault(row[4], []).append(row[:4])
        return found

    def _specs(self, resources: Sequence[Resource]) -> list[str]:
        """The setSpecs of the collections that resources say they are in."""
        hrefs = [link.href for one in resources for link in one.metadata.links if link.rel == "collection"]
        found = {spec_of(href): href for href in hrefs}
        self._names |= {spec: href for spec, href in found.items() if "~" in spec}  # an address is a name
        return list(found)

    def _format(self, wanted: Format, *, is_named: bool = True) -> int:
        """The number of a format, made when it is new: known by its prefix, or else by its namespace. 0: too many."""
        prefix, found = wanted.prefix, self._formats.get(wanted.prefix)
        if not is_named:
            found = self._by_namespace.get(wanted.namespace)
            if found is None and prefix in self._formats:  # another namespace has it
                prefix += f"-{hashlib.sha256(wanted.namespace.encode()).hexdigest()[:8]}"
        if found is None and len(self._formats) >= _MOST_FORMATS:
            return 0
        if found is None:
            found = self._formats[prefix] = self._by_namespace[wanted.namespace] = len(self._formats) + 1
            row = (found, prefix, wanted.namespace, wanted.schema)
            self._transaction.run("INSERT INTO format VALUES (?, ?, ?, ?)", row)
        elif is_named and wanted.schema:
            sql = "UPDATE format SET namespace = ?, schema = ? WHERE id = ? AND schema = ''"
            self._transaction.run(sql, (wanted.namespace, wanted.schema, found))
        return found

    def write(self) -> None:
        """Write all."""
        run_each = self._transaction.many
        sql = "SELECT item, format, at_us, sets FROM record WHERE item = ? AND format = ?"
        before = {(row[0], row[1]): row for row in self._transaction.rows_each(sql, list(self._puts))}
        rows, places, removed = list[Values](), list[Values](), list[Values]()
        for (item, format_), (source, at_us, record, given) in self._puts.items():
            old = before.get((item, format_), (item, format_, None, ""))
            specs = old[3].split() if given is None else [*islice(filter(is_spec, given), _MOST_SPECS)]
            told = {"is_deleted": record is DELETED, "declares": record.declares}
            octets = header(item, at_us, [self._of.name, *specs], **told), record.opening, record.rest
            rows.append((item, format_, source, at_us, record is DELETED, " ".join(specs), *octets))
            removed += self._places(item, format_, old[2], old[3].split()) if old[2] is not None else []
            places += self._places(item, format_, at_us, specs)
        run_each("DELETE FROM place WHERE format = ? AND collection = ? AND at_us = ? AND item = ?", removed)
        run_each(
            "INSERT INTO record (item, format, source, at_us, is_deleted, sets, header, opening, rest)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (item, format) DO UPDATE SET source = excluded.source,"
            " at_us = excluded.at_us, is_deleted = excluded.is_deleted, sets = excluded.sets,"
            " header = excluded.header, opening = excluded.opening, rest = excluded.rest",
            rows,
        )
        run_each("INSERT OR IGNORE INTO place VALUES (?, ?, ?, ?)", places)

    def _places(self, item: str, format_: int, at_us: int, specs: Iterable[str]) -> list[Values]:
        """The rows of a record in the table of places."""
        for spec in (ancestors := with_ancestors(specs)):
            if spec not in self._numbers:
                named = (spec, self._names.get(spec, spec))
                self._transaction.run("INSERT OR IGNORE INTO collection (spec, name) VALUES (?, ?)", named)
                sql = "SELECT id FROM collection WHERE spec = ?"
                self._numbers[spec] = self._transaction.value(sql, (spec,))
        return [(format_, number, at_us, item) for number in (0, *(self._numbers[spec] for spec in ancestors))]
