"""An index of one set for OAI-PMH: each record as it is sent, in the order of its last change, in a SQLite file.

It is a cache of the catalog, made of the resources there are and of the log of changes; whenever it is asked, it adds
what came since. The order is that of the log, on whatever machine it is made; so a place in a list is a time and an
item, and a record that changes while a list is read comes again at its end. The log is never cut, so deletions are told
for ever. Each combination of settings has a file of its own, since what they mean for a record is in it.

A harvested record is an item under its own identifier. Otherwise a resource that describes no other is an item, under
its URL: with the records that describe it, and with its own octets if they are metadata. Where one record describes
many resources (`records_stand_alone`), it is the item, and they are none.

An item of which something cannot be read now stays as it is, and is looked at again later.
"""

import datetime as dt
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, read_and_close
from headwater.catalog.interface import Catalog, Metadata, Resource, SetState
from headwater.errors import HeadwaterError, StoreFault
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.link_rules import LinkRules
from headwater.publish.oai_records import (
    DELETED,
    DUBLIN_CORE,
    KNOWN,
    RECORD_OCTETS,
    Format,
    XmlRecord,
    dublin_core,
    header,
    read_record,
    set_of,
    unescaped,
    with_ancestors,
)
from headwater.spec.records import Link
from headwater.spec.times import to_microseconds
from headwater.storage.database import Database, Durability, Schema
from headwater.storage.transaction import Transaction, Values

# ruff: noqa: S608 the only text put into a statement is our own names

_TABLES: Final = """
CREATE TABLE state (
  seq INTEGER NOT NULL, seq_us INTEGER,  -- the last change of the log that is in the index
  loaded TEXT                            -- URI up to which the resources are in it, before any change; NULL: all
) STRICT;
CREATE TABLE format (prefix TEXT NOT NULL UNIQUE, schema TEXT NOT NULL, namespace TEXT NOT NULL) STRICT;
CREATE TABLE collection (spec TEXT PRIMARY KEY, name TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE record (
  id INTEGER PRIMARY KEY, item TEXT NOT NULL, prefix TEXT NOT NULL, at_us INTEGER NOT NULL,
  source TEXT NOT NULL,                  -- URI of the resource whose metadata it has; '': deleted before the index
  is_deleted INTEGER NOT NULL,
  specs TEXT NOT NULL,                   -- setSpecs of the whole and of its collections, with blanks between
  header BLOB NOT NULL, whole BLOB NOT NULL,
  UNIQUE (item, prefix)
) STRICT;
CREATE INDEX record_source ON record (source);
CREATE TABLE place (                     -- of a record in the lists of its sets and those above them
  spec TEXT NOT NULL, prefix TEXT NOT NULL, at_us INTEGER NOT NULL, item TEXT NOT NULL, record INTEGER NOT NULL,
  PRIMARY KEY (spec, prefix, at_us, item)
) STRICT, WITHOUT ROWID;
CREATE TABLE unread (uri TEXT PRIMARY KEY, source TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- of items that are to be looked at again when this resource can be read
"""
_SCHEMA: Final = Schema(application_id=0x48574F41, migrations=(_TABLES,))
_WORTHLESS: Final = frozenset({"HW-DB-05", "HW-DB-06", "HW-DB-09"})  # a file with one of these faults is made anew
_BATCH, _BATCH_SECONDS = 200, 0.5  # so many changes or resources has a transaction at most; fewer if they take longer
_AT_ONCE, _WAIT_SECONDS = 5_000, 2.0  # so many are added while somebody waits, for so long
_UNUSED_SECONDS: Final = 86_400  # a file of other settings goes when nobody has written to it for so long


class NotReadable(Exception):
    """The octets of the resource with this URI cannot be read now."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri


class IndexedSet(msgspec.Struct, frozen=True, kw_only=True):
    """The set of an index: `links` gives its resources their links by `rules`, `contents` has their octets.

    `admin` is the mail address that `Identify` names. `prefixes` are those of a set that was harvested by OAI-PMH: its
    paths are a prefix and an identifier. `takes` tells which files the settings still take, where they may change.
    """

    name: str
    admin: str
    url_prefix: str
    catalog: Catalog
    rules: LinkRules
    links: AddedLinks
    contents: ContentReader
    prefixes: tuple[str, ...] = ()
    records_stand_alone: bool = False
    takes: Callable[[bytes], bool] | None = None

    def url(self, uri: str) -> str:
        """The URL of a resource."""
        return uri if "://" in uri else self.url_prefix + uri

    def uri(self, url: str) -> str:
        """The URI by which the catalog knows what is at a URL."""
        return url.removeprefix(self.url_prefix)

    def record(self, resource: Resource) -> XmlRecord | None:
        """The record that the octets of a resource are; None for no record. Raises NotReadable.

        They are read only where the media type does not say that they are no record.
        """
        if not any(one in (resource.metadata.type or "xml") for one in ("xml", "json", "octet-stream")):
            return None  # the last one says nothing
        opened = self.contents.open(self.name, resource)
        if not isinstance(opened, NoContent) and opened.octets > RECORD_OCTETS:
            opened.close()
            return None
        octets = opened if isinstance(opened, NoContent) else read_and_close(opened, resource.metadata)
        if not isinstance(octets, NoContent):
            return read_record(octets)
        if octets.why is Absence.ELSEWHERE:
            return None
        raise NotReadable(resource.uri)

    def can_read(self, resource: Resource) -> bool:
        """Whether it can be told now if the octets of a resource are a record."""
        with suppress(NotReadable):
            self.record(resource)
            return True
        return False


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
    """A record or its header, and its place."""

    prefix: str
    item: str
    at_us: int
    is_deleted: int
    octets: bytes


class IndexSnapshot(NamedTuple):
    """One state of an index, in which nothing is missing up to a time."""

    of: IndexedSet
    at: dt.datetime
    transaction: Transaction

    def formats(self) -> list[Format]:
        """All formats of which there is or was a record."""
        return [Format(*row) for row in self.transaction.rows("SELECT * FROM format ORDER BY rowid")]

    def has_format(self, prefix: str) -> bool:
        """Whether a format is there: a deleted record may be in one of which no more is known."""
        sql = "SELECT EXISTS (SELECT 1 FROM place WHERE spec = ? AND prefix = ?)"
        return prefix == DUBLIN_CORE.prefix or bool(self.transaction.value(sql, (self.of.name, prefix)))

    def collections(self, after: str, limit: int) -> list[tuple[str, str]]:
        """The setSpecs and names of up to so many collections, behind one of them."""
        sql = "SELECT spec, name FROM collection WHERE spec > ? ORDER BY spec LIMIT ?"
        return [(spec, name) for spec, name in self.transaction.rows(sql, (after, limit))]

    def records(self, item: str) -> list[ListedRecord]:
        """The records of an item, one for each format that it has or had."""
        return [*self._shown("whole", "record AS r WHERE item = ?", (item,))]

    def listed(self, at: ListPlace, limit: int, octets: int, *, headers_only: bool) -> tuple[list[ListedRecord], bool]:
        """The next records of a list, up to so many and so many octets; whether there are more."""
        rows = (
            "place AS p CROSS JOIN record AS r ON r.id = p.record"
            " WHERE p.prefix = ? AND p.spec = ? AND p.at_us < ? AND (p.at_us, p.item) > (?, ?)"
            " ORDER BY p.at_us, p.item"
        )
        found, place = list[ListedRecord](), (at.prefix, at.spec, at.until_us, at.at_us, at.item)
        for one in self._shown("header" if headers_only else "whole", rows, place):
            octets -= len(one.octets)
            if len(found) == limit or (found and octets < 0):
                return found, True
            found.append(one)
        return found, False

    def _shown(self, column: str, rows: str, values: Values) -> Iterator[ListedRecord]:
        """The records among these rows that are deletions, or of files that the settings still take."""
        sql, takes = f"SELECT source, r.prefix, r.item, r.at_us, is_deleted, {column} FROM {rows}", self.of.takes
        for source, *row in self.transaction.rows(sql, values):
            one = ListedRecord(*row)
            if takes is not None and not one.is_deleted:
                paths = [unquote_to_bytes(uri) for uri in (source, self.of.uri(one.item)) if "://" not in uri]
                if not all(map(takes, paths)):
                    continue
            yield one


class _Position(NamedTuple):
    """How far an index is: its columns in the table `state`."""

    seq: int
    seq_us: int | None
    loaded: str | None


_BEGINNING: Final = _Position(0, None, "")


class IndexBehind(Exception):
    """Much is missing in the index: whoever asks has to come again."""


class OaiIndex:
    """The index of a set, in a file of `folder`; safe for several threads.

    Methods raise StoreFaults, also those of the catalog.
    """

    def __init__(self, folder: Path, of: IndexedSet) -> None:
        self.of, self._folder = of, folder
        self._lock = threading.Lock()
        self._batch = 8  # changes or resources of the next transaction
        self._database: Database | None = None

    def close(self) -> None:
        """Give up the file."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    @contextmanager
    def snapshot(self, now: dt.datetime) -> Iterator[IndexSnapshot]:
        """The index as the set is now. Raises IndexBehind.

        The catalog draws a line at `now` (`Catalog.mark`), while nobody writes to the index: no change that is recorded
        later, and no record that is written later, gets a time that a harvester has seen already.
        """
        latest, catalog, name = time.monotonic() + _WAIT_SECONDS, self.of.catalog, self.of.name
        with self._opened() as (database, state):
            with database.write():
                if (state.last_at or now) < now.replace(microsecond=0):
                    with suppress(StoreFault):  # a full disk: then the newest time is the line
                        catalog.mark(name, now)
                state = catalog.state(name)
            while missing := self._missing(database, state):
                if missing > _AT_ONCE or time.monotonic() > latest:
                    raise IndexBehind
                self._add(database)
            with database.read() as transaction:
                yield IndexSnapshot(self.of, min(state.last_at or now, now), transaction)

    def follow(self, now: dt.datetime) -> bool:
        """Add a batch of what is missing, and tell whether there was something to add.

        If nothing is missing, look again at items that could not be read: they count as changed now.
        """
        catalog, name, latest = self.of.catalog, self.of.name, time.monotonic() + _WAIT_SECONDS
        with self._opened() as (database, state):
            if self._missing(database, state):
                self._add(database)
                return True
            with database.read() as transaction:
                unread = transaction.fetch("SELECT * FROM unread ORDER BY random() LIMIT ?", (_BATCH,))
            there, uris = catalog.get(name, [source for _uri, source in unread]), list[str]()
            for uri, source in unread:
                if time.monotonic() < latest and (source not in there or self.of.can_read(there[source])):
                    uris.append(uri)
            if uris:
                with database.write() as transaction:
                    at_us = to_microseconds(catalog.mark(name, now))  # no harvester is beyond it
                    _Batch(transaction, self.of).write(dict.fromkeys(uris, at_us))
            return bool(uris)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Database, SetState]]:
        """The file for the settings and for the catalog as it was opened, and the state of the set.

        It is given up after a fault of its own, and removed if it is damaged: it is made again then.
        """
        of, state = self.of, self.of.catalog.state(self.of.name)
        if state.opened_at is None:
            raise StoreFault("the set is loading")
        settings = (_TABLES, KNOWN, of.url_prefix, of.prefixes, of.records_stand_alone, of.rules, state.opened_at)
        path = self._folder / f"{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}.sqlite"
        try:
            with self._lock:
                if self._database is None or self._database.path != path:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    for one in self._folder.glob("*.sqlite"):
                        if one != path and one.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                            _remove(one)
                    self._database = Database(path, _SCHEMA, durability=Durability.NORMAL)
                database = self._database
            yield database, state
        except HeadwaterError as fault:
            if fault.where == str(path):
                self.close()
                if fault.code in _WORTHLESS:
                    _remove(path)
            raise

    def _missing(self, database: Database, state: SetState) -> int:
        """How many resources and changes are to be added at most."""
        with database.read() as transaction:
            at = self._position(transaction)
        return max(0, state.last_seq - at.seq) + (0 if at.loaded is None else 1 + state.count)

    def _position(self, transaction: Transaction) -> _Position:
        """How far the index is: at the beginning where it is empty, or of another log."""
        row = transaction.one("SELECT * FROM state")
        at = _BEGINNING if row is None else _Position(*row)
        if at.seq_us is None:
            return at
        last = self.of.catalog.times({self.of.name: at.seq}).get(self.of.name)
        return at if last is not None and to_microseconds(last) == at.seq_us else _BEGINNING

    def _add(self, database: Database) -> None:
        """Add a batch: of the resources there are, as of the time when the set was opened; then of the changes."""
        catalog, name, limit = self.of.catalog, self.of.name, min(self._batch, _BATCH)
        with database.write() as transaction:
            began = time.monotonic()
            if (at := self._position(transaction)) == _BEGINNING:
                for table in ("format", "collection", "record", "place", "unread"):
                    transaction.run(f"DELETE FROM {table}")
                transaction.run("INSERT INTO format VALUES (?, ?, ?)", DUBLIN_CORE)
            if at.loaded is not None:
                resources, first = catalog.resources(name, at.loaded, limit), catalog.segments(name)[0]
                times = dict.fromkeys((one.uri for one in resources), to_microseconds(first.from_))
                at = _Position(first.first - 1, None, resources[-1].uri if resources else None)
            else:
                changes = catalog.changes(name, at.seq, limit)
                there = catalog.get(name, list({one.uri: None for one in changes}))
                last = [one for one in changes if one.uri not in there or there[one.uri].seq == one.seq]
                times = {one.uri: to_microseconds(one.at) for one in last}  # of others a later change tells
                if changes:  # else another process has added them
                    at = at._replace(seq=changes[-1].seq, seq_us=to_microseconds(changes[-1].at))
            _Batch(transaction, self.of).add(times)
            transaction.run("DELETE FROM state")
            transaction.run("INSERT INTO state VALUES (?, ?, ?)", at)
        is_slow = time.monotonic() > began + _BATCH_SECONDS
        self._batch = max(1, limit // 4) if is_slow else limit * 2


def _remove(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):  # and its companions
        one.unlink(missing_ok=True)


class _Content(NamedTuple):
    """A record with the URI of the resource whose metadata it has, and the setSpecs of its collections."""

    source: str
    record: XmlRecord
    specs: Sequence[str]


_Key = tuple[str, str]  # item and prefix


class _Batch:
    """What some resources or changes make of the records, in one transaction."""

    def __init__(self, transaction: Transaction, of: IndexedSet) -> None:
        self._transaction, self._of = transaction, of
        self._links = dict[str, tuple[Link, ...]]()  # of all resources that were looked at, also of those that are gone
        self._held = dict[str, Resource]()
        self._formats = {row[0] for row in transaction.rows("SELECT prefix FROM format")}

    def add(self, times: Mapping[str, int]) -> None:
        """Write what follows from resources that have their last change, perhaps their deletion, at these times."""
        of, near, strangers = self._of, dict(times), set(times)
        self._look(times)
        if not of.prefixes:  # also what they describe, what describes them, and did so before
            sql = "SELECT ?1, item, source FROM record WHERE source = ?1 OR item = ?2"
            pairs = [(uri, other) for uri in times for other in self._linked(uri, "describes", "describedby")]
            for uri, item, source in self._transaction.rows_each(sql, [(uri, of.url(uri)) for uri in times]):
                strangers.discard(uri)
                pairs += [(uri, of.uri(item)), (uri, source or uri)]
            for uri, other in pairs:
                near[other] = max(times[uri], near.get(other, 0))
        self.write(near, strangers)

    def write(self, times: Mapping[str, int], strangers: Set[str] = frozenset()) -> None:
        """Write the records of the items among these resources anew, as changed at these times.

        Strangers have changed and are not known to the index: those that are gone were items in any format.
        """
        self._look(times)
        self._look([one for uri in times for one in self._linked(uri, "describedby")])
        self._transaction.many("DELETE FROM unread WHERE uri = ?", [(uri,) for uri in times])
        sql = "SELECT item, prefix, source, is_deleted, specs FROM record WHERE item = ? AND prefix = ?"
        for uri, at_us in times.items():
            keys, is_gone = self._keys(uri), uri not in self._held
            try:
                contents = self._contents(uri, keys)
            except NotReadable as fault:
                self._transaction.run("INSERT INTO unread VALUES (?, ?)", (uri, fault.uri))
                continue
            stored = [*self._transaction.rows_each(sql, keys)]
            for item, prefix, source, is_deleted, specs in stored:
                if is_gone or not is_deleted:
                    contents.setdefault((item, prefix), _Content(source, DELETED, specs.split()))
            if is_gone and uri in strangers and not stored:
                contents = dict.fromkeys(keys, _Content("", DELETED, ()))
            for key, one in contents.items():
                self._put(key, at_us, one)

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
        """The URIs to which the links of a resource lead."""
        hrefs = [one.href for one in self._links[uri] if one.rel in rels]
        return [one for one in map(self._of.uri, hrefs) if one != uri]

    def _keys(self, uri: str) -> list[_Key]:
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

    def _contents(self, uri: str, keys: Sequence[_Key]) -> dict[_Key, _Content]:
        """The records of a resource, if it is there and an item. Raises NotReadable."""
        of, resource = self._of, self._held.get(uri)
        if resource is None or not keys:
            return {}
        abouts, described = (
            [one for one in self._linked(uri, rel) if one in self._held] for rel in ("describedby", "describes")
        )
        is_part = abouts if of.records_stand_alone else described
        if is_part and not of.prefixes:
            return {}
        (item, own_prefix), specs = keys[0], self._collections(uri, *abouts)
        found = dict[_Key, _Content]()
        is_own = of.records_stand_alone or "xml" in (resource.metadata.type or "")
        for source in (*([uri] if is_own else ()), *([] if of.records_stand_alone else abouts)):
            record = of.record(self._held[source])
            if record is None or not (source != uri or described or of.prefixes or record.format.namespace in KNOWN):
                continue  # other XML is no metadata
            format_ = record.format._replace(prefix=own_prefix) if of.prefixes else record.format
            self._meet(format_)
            found[item, format_.prefix] = _Content(source, record, specs)
        if (core := (item, DUBLIN_CORE.prefix)) in keys and core not in found:
            found[core] = _Content(uri, dublin_core(item, of.url(uri), resource.metadata), specs)
        return found

    def _collections(self, *uris: str) -> list[str]:
        """The setSpecs of the collections that resources say they are in; these are in the index then."""
        found = dict(set_of(link.href) for uri in uris for link in self._links[uri] if link.rel == "collection")
        found.pop(self._of.name, None)
        sql = "INSERT OR IGNORE INTO collection VALUES (?, ?)"
        specs = [spec for spec in with_ancestors(found) if spec != self._of.name]
        self._transaction.many(sql, [(spec, found.get(spec, spec)) for spec in specs])
        return [*found]

    def _meet(self, format_: Format) -> None:
        """Have a format in the index. When it is new, what was deleted before the index was made is so in it, too."""
        if format_.prefix not in self._formats:
            self._formats.add(format_.prefix)
            self._transaction.run("INSERT INTO format VALUES (?, ?, ?)", format_)
            sql = "SELECT item, at_us FROM record WHERE source = '' AND prefix = ?"
            for item, at_us in self._transaction.fetch(sql, (DUBLIN_CORE.prefix,)) if not self._of.prefixes else ():
                self._put((item, format_.prefix), at_us, _Content("", DELETED, ()))

    def _put(self, key: _Key, at_us: int, one: _Content) -> None:
        """Write a record over the one that there was."""
        (item, prefix), transaction, is_deleted = key, self._transaction, one.record is DELETED
        sql = "DELETE FROM record WHERE item = ? AND prefix = ? RETURNING at_us, specs"
        for then_us, specs in transaction.fetch(sql, key):
            places = [(spec, prefix, then_us, item) for spec in with_ancestors(specs.split())]
            transaction.many("DELETE FROM place WHERE (spec, prefix, at_us, item) = (?, ?, ?, ?)", places)
        told = [*dict.fromkeys((self._of.name, *one.specs))]
        head = header(item, at_us, told, is_deleted=is_deleted)
        whole = one.record.opening + head + one.record.rest
        row = (item, prefix, at_us, one.source, is_deleted, " ".join(told), head, whole)
        number = transaction.value("INSERT INTO record VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id", row)
        added = [(spec, prefix, at_us, item, number) for spec in with_ancestors(told)]
        transaction.many("INSERT INTO place VALUES (?, ?, ?, ?, ?)", added)
