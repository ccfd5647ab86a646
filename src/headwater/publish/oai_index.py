"""An index of one set for OAI-PMH: each record as it is sent, in the order of its last change, in a SQLite file.

It is a cache of the catalog: `catch_up` makes it of the resources as loaded and of the log of changes, and adds what
came since. The order is that of the log, on whatever machine it is made; so a place in a list is a time and an item,
and a record that changes while a list is read comes again at its end. The log is never cut, so deletions are told for
ever. Each combination of settings has a file of its own, since what they mean for a record is in it.

A harvested record is an item under its own identifier. Otherwise a resource that describes no other is an item, under
its URL: with the records that describe it, and with its own octets if they are metadata. Where one record describes
many resources (`records_stand_alone`), it is the item, and they are none.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, read_and_close
from headwater.catalog.interface import Catalog, Metadata, Resource
from headwater.errors import HeadwaterError, StoreFault
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.link_rules import LinkRules
from headwater.publish.oai_records import (
    DELETED,
    DUBLIN_CORE,
    FORMATS,
    RECORD_OCTETS,
    Format,
    XmlRecord,
    dublin_core,
    header,
    read_record,
    spec_of,
    unescaped,
    with_ancestors,
)
from headwater.spec.records import Link
from headwater.spec.times import to_microseconds
from headwater.storage.database import Database, Durability, Schema
from headwater.storage.transaction import Row, Transaction

# ruff: noqa: S608 the only text put into a statement is our own names

_TABLES: Final = """
CREATE TABLE state (
  seq INTEGER NOT NULL, seq_us INTEGER,  -- the last change of the log that is in the index
  loaded TEXT                            -- URI up to which resources as loaded are in it; NULL: all
) STRICT;
CREATE TABLE format (prefix TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, schema TEXT NOT NULL) STRICT;
CREATE TABLE collection (spec TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE record (
  id INTEGER PRIMARY KEY, item TEXT NOT NULL, prefix TEXT NOT NULL, at_us INTEGER NOT NULL,
  source TEXT NOT NULL,                  -- URI of the resource whose metadata it has; '': deleted before the index
  is_deleted INTEGER NOT NULL,
  specs TEXT NOT NULL,                   -- setSpecs of its collections, with blanks between
  header BLOB NOT NULL, opening BLOB NOT NULL, rest BLOB NOT NULL,
  UNIQUE (item, prefix)
) STRICT;
CREATE INDEX record_source ON record (source);
CREATE TABLE place (                     -- of a record in the lists of its sets, of which the whole is one
  prefix TEXT NOT NULL, spec TEXT NOT NULL, at_us INTEGER NOT NULL, item TEXT NOT NULL,
  record INTEGER NOT NULL REFERENCES record ON DELETE CASCADE,
  PRIMARY KEY (prefix, spec, at_us, item)
) STRICT, WITHOUT ROWID;
CREATE INDEX place_record ON place (record);
CREATE TABLE unread (uri TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;  -- resources to be read again
"""
_WHOLE: Final = "r.item, r.prefix, r.at_us, source, is_deleted, CAST(opening || header || rest AS BLOB)"
_HEADER: Final = "r.item, r.prefix, r.at_us, source, is_deleted, header"
_SCHEMA: Final = Schema(application_id=0x48574F41, migrations=(_TABLES,))
_WORTHLESS: Final = frozenset({"HW-DB-05", "HW-DB-06", "HW-DB-09"})  # a file with one of these faults is made anew
_BATCH: Final = 1_000  # changes or resources of one transaction
_UNUSED_SECONDS: Final = 86_400  # a file of other settings goes when nobody has written to it for so long


class IndexedSet(msgspec.Struct, frozen=True, kw_only=True):
    """The set of an index: `links` gives its resources their links by `rules`, `contents` has their octets.

    `prefixes` are those of a set that was harvested by OAI-PMH: its paths are a prefix and an identifier.
    """

    name: str
    url_prefix: str
    catalog: Catalog
    rules: LinkRules
    links: AddedLinks
    contents: ContentReader
    prefixes: tuple[str, ...] = ()
    records_stand_alone: bool = False

    def url(self, uri: str) -> str:
        """The URL of a resource."""
        return uri if "://" in uri else self.url_prefix + uri

    def uri(self, url: str) -> str:
        """The URI by which the catalog knows what is at a URL."""
        return url.removeprefix(self.url_prefix)

    def record(self, resource: Resource) -> XmlRecord | Absence | None:
        """The record that the octets of a resource are; an Absence where they cannot be read now, None for no record.

        They are read only where the media type does not say that they are no record.
        """
        told = resource.metadata
        may_be = any(one in (told.type or "xml") for one in ("xml", "json", "octet-stream"))  # the last: not known
        if not may_be or (told.length or 0) > RECORD_OCTETS:
            return None
        opened = self.contents.open(self.name, resource)
        if not isinstance(opened, NoContent) and opened.octets > RECORD_OCTETS:
            opened.close()
            return None
        octets = opened if isinstance(opened, NoContent) else read_and_close(opened, told)
        if isinstance(octets, NoContent):
            return None if octets.why is Absence.ELSEWHERE else octets.why
        return read_record(octets)


Microseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class ListPlace(msgspec.Struct, frozen=True, array_like=True):
    """A place in a list: behind the record of `item`, which was changed at `at_us`.

    The list has the records in the format `prefix` and of the set `spec` that were changed before `until_us`.
    """

    prefix: str
    spec: str
    until_us: Microseconds
    at_us: Microseconds
    item: str = ""


class ListedRecord(NamedTuple):
    """A record or its header: its place, the resource whose metadata it has, and its octets."""

    item: str
    prefix: str
    at_us: int
    source: str
    is_deleted: int
    octets: bytes


class OaiIndex:
    """The index of a set, in a file of `folder`, for one thread at a time. `is_wanted`: False ends `catch_up`.

    It answers when `catch_up` has been True. Methods raise StoreFaults, also those of the catalog.
    """

    def __init__(self, folder: Path, of: IndexedSet) -> None:
        self.of, self.is_wanted = of, True
        self._folder, self._path = folder, folder
        self._database: Database | None = None

    def _open(self, opened_at: dt.datetime) -> Database:
        """The file for the settings, and for the catalog that was opened at a time."""
        of = self.of
        settings = (_TABLES, FORMATS, of.url_prefix, of.prefixes, of.records_stand_alone, of.rules, opened_at)
        path = self._folder / f"{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}.sqlite"
        if self._database is None or path != self._path:
            self.close()
            self._folder.mkdir(parents=True, exist_ok=True)
            for one in self._folder.glob("*.sqlite"):
                if one != path and one.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                    _remove(one)
            self._path = path
            self._database = Database(path, _SCHEMA, durability=Durability.NORMAL)
        return self._database

    def __enter__(self) -> None:
        """What is done with the index from here on may find that the file is at fault."""

    def __exit__(self, _kind: object, fault: BaseException | None, _trace: object) -> None:
        """Give the file up after a fault of its own, and remove it if it is damaged: `catch_up` opens it again."""
        if isinstance(fault, HeadwaterError) and fault.where == str(self._path):
            self.close()
            if fault.code in _WORTHLESS:
                _remove(self._path)

    def close(self) -> None:
        """Give up the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    # what is asked for

    def _reading(self) -> AbstractContextManager[Transaction]:
        if self._database is None:
            raise StoreFault("the index is not open")
        return self._database.read()

    def formats(self) -> list[Format]:
        """All formats."""
        with self._reading() as transaction:
            return [Format(*row) for row in transaction.rows("SELECT * FROM format ORDER BY rowid")]

    def has_format(self, prefix: str) -> bool:
        """Whether a format is there: a deleted record may be in one of which no more is known."""
        sql = "SELECT EXISTS (SELECT 1 FROM format WHERE prefix = ?1) OR EXISTS (SELECT 1 FROM place WHERE prefix = ?1)"
        with self._reading() as transaction:
            return bool(transaction.value(sql, (prefix,)))

    def collections(self, after: str, limit: int) -> list[str]:
        """Up to so many setSpecs of collections, behind one of them."""
        with self._reading() as transaction:
            sql = "SELECT spec FROM collection WHERE spec > ? ORDER BY spec LIMIT ?"
            return [row[0] for row in transaction.rows(sql, (after, limit))]

    def records(self, item: str) -> list[ListedRecord]:
        """The records of an item, one for each format that it has or had."""
        with self._reading() as transaction:
            rows = transaction.rows(f"SELECT {_WHOLE} FROM record AS r WHERE item = ?", (item,))
            return [*map(ListedRecord._make, rows)]

    def listed(
        self, at: ListPlace, limit: int, octets: int, shows: Callable[[ListedRecord], bool], *, headers_only: bool
    ) -> tuple[list[ListedRecord], bool]:
        """The next records of a list that are to be shown, up to so many and so many octets; whether there are more."""
        sql = (
            f"SELECT {_HEADER if headers_only else _WHOLE} FROM place AS p CROSS JOIN record AS r ON r.id = p.record"
            " WHERE p.prefix = ? AND p.spec = ? AND p.at_us < ? AND (p.at_us, p.item) > (?, ?)"
            " ORDER BY p.at_us, p.item"
        )
        found = list[ListedRecord]()
        with self._reading() as transaction:
            for one in filter(shows, map(ListedRecord._make, transaction.rows(sql, msgspec.structs.astuple(at)))):
                octets -= len(one.octets)
                if len(found) == limit or (found and octets < 0):
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
        state = self.of.catalog.state(self.of.name)
        if state.opened_at is None:
            return False
        database = self._open(state.opened_at)
        while self.is_wanted:
            with database.read() as transaction:
                at = self._position(transaction)
            if at is not None and at.loaded is None and at.seq >= state.last_seq:
                return True
            with database.write() as transaction:
                self._add(transaction)
        return False

    def _position(self, transaction: Transaction) -> "_Position | None":
        """How far the index is; None where it is empty, or of another log."""
        if (row := transaction.one("SELECT * FROM state")) is None:
            return None
        at = _Position(*row)
        if at.seq_us is None:
            return at
        last = self.of.catalog.changes(self.of.name, at.seq - 1, 1)
        return at if [to_microseconds(one.at) for one in last] == [at.seq_us] else None

    def _add(self, transaction: Transaction) -> None:
        """Add a batch: of resources as loaded, then of changes."""
        catalog, name = self.of.catalog, self.of.name
        first = catalog.segments(name)[0]  # a set that was moved here has no log of what was before
        if (at := self._position(transaction)) is None:
            for table in ("state", "format", "collection", "record", "unread"):
                transaction.run(f"DELETE FROM {table}")
            transaction.run("INSERT INTO format VALUES (?, ?, ?)", msgspec.structs.astuple(DUBLIN_CORE))
            at = _Position(first.first - 1, None, "")
            transaction.run("INSERT INTO state VALUES (?, ?, ?)", at)
        if at.loaded is not None:
            resources = catalog.resources(name, at.loaded, _BATCH)
            times = {one.uri: to_microseconds(first.from_) for one in resources if one.seq <= at.seq}
            at = at._replace(loaded=resources[-1].uri if resources else None)
        else:
            changes = catalog.changes(name, at.seq, _BATCH)
            latest = {one.uri: one for one in changes}
            there = catalog.get(name, list(latest))
            last = [one for one in latest.values() if one.uri not in there or there[one.uri].seq == one.seq]
            times = {one.uri: to_microseconds(one.at) for one in last}  # of others a later change tells
            if changes:  # else another process has added them
                at = at._replace(seq=changes[-1].seq, seq_us=to_microseconds(changes[-1].at))
        _Batch(transaction, self.of).add(times)
        transaction.run("UPDATE state SET seq = ?, seq_us = ?, loaded = ?", at)

    def read_again(self, now: dt.datetime) -> None:
        """Add what could not be read before and now can: that counts as changed now."""
        of = self.of
        with self._reading() as transaction:
            sql = "SELECT uri FROM unread ORDER BY random() LIMIT ?"
            uris = [row[0] for row in transaction.rows(sql, (_BATCH,))]
        there = of.catalog.get(of.name, uris) if uris else {}
        ready = [uri for uri, one in there.items() if not isinstance(of.record(one), Absence)]
        if ready and self._database is not None:
            at_us = to_microseconds(of.catalog.mark(of.name, now))  # no harvester is beyond it
            with self._database.write() as transaction:
                _Batch(transaction, of).add(dict.fromkeys(ready, at_us))


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class _Position(NamedTuple):
    """How far an index is: its columns in the table `state`."""

    seq: int
    seq_us: int | None
    loaded: str | None


class _Found(NamedTuple):
    """A record with the URI of the resource whose metadata it has, and the setSpecs of its collections."""

    source: str
    record: XmlRecord
    specs: Sequence[str]


class _Batch:
    """What some resources or changes make of the records, in one transaction."""

    def __init__(self, transaction: Transaction, of: IndexedSet) -> None:
        self._transaction, self._of = transaction, of
        self._links = dict[str, tuple[Link, ...]]()  # of all resources that were looked at, also of those that are gone
        self._held = dict[str, Resource]()
        self._unread = set[str]()
        self._formats = {row[0] for row in transaction.rows("SELECT prefix FROM format")}

    def add(self, times: Mapping[str, int]) -> None:
        """Write what follows from resources that have their last change, perhaps their deletion, at these times."""
        of, near = self._of, dict(times)
        self._look(times)
        stored = self._stored(times)
        if not of.prefixes:
            for uri, at_us in times.items():  # also what they describe, what describes them, and did so before
                others = {*self._linked(uri)}
                for item, _prefix, source, *_ in stored[uri]:
                    others |= {of.uri(item), source or uri}
                near |= {one: max(at_us, near.get(one, 0)) for one in others}
            self._look(near)
            self._look([one for uri in near for one in self._linked(uri, "describedby")])
            stored |= self._stored(near.keys() - times.keys())
        for uri in sorted(near, key=self._held.__contains__):  # deletions first
            found, is_gone = self._records_of(uri), uri in times and uri not in self._held
            for item, prefix, source, is_deleted, specs in stored[uri]:
                if source in self._unread and not is_deleted:
                    found.pop((item, prefix), None)  # it stays as it is
                elif (of.prefixes or of.uri(item) == uri) and (is_gone or not is_deleted):
                    found.setdefault((item, prefix), _Found(source, DELETED, specs.split()))
            if is_gone and not stored[uri]:
                found = dict.fromkeys(self._keys(uri), _Found("", DELETED, ()))
            for (item, prefix), one in found.items():
                self._put(item, prefix, near[uri], one)
        self._transaction.many("DELETE FROM unread WHERE uri = ?", [(uri,) for uri in near])
        self._transaction.many("INSERT OR IGNORE INTO unread VALUES (?)", [(uri,) for uri in self._unread])

    def _look(self, uris: Iterable[str]) -> None:
        """Ask the catalog for resources; those that are gone have the links that follow from rules."""
        of = self._of
        new = [uri for uri in dict.fromkeys(uris) if uri not in self._links]
        there = of.catalog.get(of.name, new)
        rows = [there.get(uri) or Resource(uri, Metadata(), b"", 0, 0) for uri in new]
        for one in of.links.to(rows, EntryPlace.RESOURCE_LIST):
            self._links[one.uri] = one.metadata.links
            if one.uri in there:
                self._held[one.uri] = one

    def _linked(self, uri: str, *rels: str) -> list[str]:
        """The URIs of what a resource describes and what describes it, as its links say."""
        hrefs = [one.href for one in self._links[uri] if one.rel in (rels or ("describes", "describedby"))]
        return [one for one in map(self._of.uri, hrefs) if one != uri]

    def _stored(self, uris: Iterable[str]) -> dict[str, list[Row]]:
        """The records that have the metadata of these resources, or stand under their URLs."""
        found: dict[str, list[Row]] = {uri: [] for uri in uris}
        sql = "SELECT ?1, item, prefix, source, is_deleted, specs FROM record WHERE source = ?1 OR item = ?2"
        for row in self._transaction.rows_each(sql, [(uri, self._of.url(uri)) for uri in found]):
            found[row[0]].append(row[1:])
        return found

    def _records_of(self, uri: str) -> dict[tuple[str, str], _Found]:
        """The records of a resource, if it is an item, by identifier and prefix; `_unread` gets what cannot be read."""
        of = self._of
        if uri not in self._held:
            return {}
        if of.prefixes:
            return self._harvested(uri)
        abouts, described = (
            [one for one in self._linked(uri, rel) if one in self._held] for rel in ("describedby", "describes")
        )
        if abouts if of.records_stand_alone else described:  # it is a part of an item
            return {}
        item, resource = of.url(uri), self._held[uri]
        specs = self._specs(uri, *abouts)
        found = {(item, DUBLIN_CORE.prefix): _Found(uri, dublin_core("", item, resource.metadata), specs)}
        is_own = of.records_stand_alone or "xml" in (resource.metadata.type or "")
        for source in (*([uri] if is_own else ()), *([] if of.records_stand_alone else abouts)):
            record = self._read(source)
            if record is not None and (source != uri or described or record.is_known):  # other XML is no metadata
                self._meet(record.format)
                found[item, record.format.prefix] = _Found(source, record, specs)
        return found

    def _harvested(self, uri: str) -> dict[tuple[str, str], _Found]:
        """The same for a resource of a set that was harvested by OAI-PMH."""
        keys, resource = self._keys(uri), self._held[uri]
        record = self._read(uri) if keys else None
        if record is None:
            return {}
        self._meet(msgspec.structs.replace(record.format, prefix=keys[0][1]))
        core = dublin_core(keys[0][0], self._of.url(uri), resource.metadata)
        specs = self._specs(uri)
        return {key: _Found(uri, one, specs) for key, one in zip(keys, (record, core), strict=False)}

    def _keys(self, uri: str) -> list[tuple[str, str]]:
        """Item and prefix of the records that a resource may have, by its URI alone."""
        of = self._of
        if not of.prefixes:
            return [(of.url(uri), prefix) for prefix in self._formats]
        folder, _, name = unquote(uri).removesuffix(".xml").partition("/")
        prefix, item = unescaped(folder), unescaped(name) or of.url(uri)
        if prefix not in of.prefixes:  # it is a file of a record
            return []
        is_mapped = prefix == of.prefixes[0] and DUBLIN_CORE.prefix not in of.prefixes
        return [(item, one) for one in (prefix, *([DUBLIN_CORE.prefix] if is_mapped else []))]

    def _read(self, uri: str) -> XmlRecord | None:
        record = self._of.record(self._held[uri])
        if isinstance(record, Absence):
            self._unread.add(uri)
            return None
        return record

    def _specs(self, *uris: str) -> list[str]:
        """The setSpecs of the collections that resources say they are in."""
        return [spec_of(link.href) for uri in uris for link in self._links[uri] if link.rel == "collection"]

    def _meet(self, format_: Format) -> None:
        """Have a format in the index. When it is new, what was deleted before the index was made is so in it, too."""
        if format_.prefix not in self._formats:
            self._formats.add(format_.prefix)
            self._transaction.run("INSERT INTO format VALUES (?, ?, ?)", msgspec.structs.astuple(format_))
            sql = "SELECT item, at_us FROM record WHERE source = '' AND prefix = ?"
            for item, at_us in self._transaction.fetch(sql, (DUBLIN_CORE.prefix,)) if not self._of.prefixes else ():
                self._put(item, format_.prefix, at_us, _Found("", DELETED, ()))

    def _put(self, item: str, prefix: str, at_us: int, one: _Found) -> None:
        """Write a record."""
        run_each, record, is_deleted = self._transaction.many, one.record, one.record is DELETED
        specs = [*dict.fromkeys((self._of.name, *one.specs))]
        head = header(item, at_us, specs, is_deleted=is_deleted, declares=record.declares)
        row = (item, prefix, at_us, one.source, is_deleted, " ".join(specs), head, record.opening, record.rest)
        self._transaction.run("DELETE FROM record WHERE item = ? AND prefix = ?", (item, prefix))
        sql = "INSERT INTO record VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
        number, above = self._transaction.value(sql, row), with_ancestors(specs)
        run_each("INSERT INTO place VALUES (?, ?, ?, ?, ?)", [(prefix, spec, at_us, item, number) for spec in above])
        run_each("INSERT OR IGNORE INTO collection VALUES (?)", [(spec,) for spec in above[1:]])
