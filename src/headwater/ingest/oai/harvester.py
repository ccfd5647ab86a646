"""Harvests a repository by OAI-PMH into a set: asks one request at a time, and records what comes, page after page.

How far each list was read is recorded with the records of an answer, so that whatever stops a harvest, the next one
asks for little again. What was deleted without a word is found by comparisons, which read everything: the memo of a
resource has the number of the last comparison that has seen it.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlencode

import msgspec

from headwater.catalog.interface import Metadata, Resource, UnknownSet
from headwater.errors import SourceFault
from headwater.files.file_copies import hash_and_write
from headwater.ingest.folder.comparison import memos_of
from headwater.ingest.harvested import (
    Harvested,
    Harvester,
    HarvestEstimate,
    HarvestTally,
    delete_unseen,
    file_name,
    take_harvested,
)
from headwater.ingest.oai.content import fetch_files
from headwater.ingest.oai.cursor import (
    DAY,
    Cursor,
    Refused,
    RepositoryTimes,
    Window,
    begin,
    finish,
    query,
    take_page,
    take_refusal,
)
from headwater.ingest.oai.pages import OaiPage, time_of
from headwater.ingest.oai.repository import OaiRepository, RefusedRequest, RepositoryDescription
from headwater.ingest.push.feed import Feed
from headwater.processes.pool import BackgroundProcess, WorkerProgram
from headwater.progress import Listener, Notice, Progress, silent
from headwater.retry import TimeShare
from headwater.spec.records import Link
from headwater.spec.times import to_microseconds
from headwater.spec.uris import quote_path
from headwater.storage.durable import make_folders
from headwater.typed_decoding import from_json

TYPE: Final = "application/xml"
_BATCH: Final = 2_000  # records of one transaction, but for an answer with more …
_MANY: Final = 500  # records of one batch: a repository that is so fast has their octets written in the background
_COMMITS: Final = TimeShare(0.3)  # of the time: an answer that takes longer than that is recorded by itself …
_BATCH_SECONDS: Final = 1.0  # … and so much work is done again at most after a kill
_DAY_SECONDS: Final = 86_400.0  # how long `Identify` holds, and between comparisons because of empty answers
_LOOKS_BACK: Final = (0, 1, 30, 3_650)  # days before the newest record: that one may have been deleted
_KNOWN: Final = 2_000_000  # records of a chain of which it is noticed when they come twice
_MOST_RETRIES: Final = 1_000  # records whose files are asked for again
_POLICIES: Final = {
    "persistent": "the repository announces all deletions",
    "transient": "the repository forgets deletions after a while: everything is compared from time to time",
    "no": "the repository announces no deletions: everything is compared from time to time",
}


class ListName(NamedTuple):
    """One list of a repository: a metadata prefix and a set, None for everything."""

    prefix: str
    spec: str | None

    def __str__(self) -> str:
        return self.prefix if self.spec is None else f"{self.prefix} of the set {self.spec}"

    def path(self, identifier: str) -> str:
        """Where the record of an item lies in the set's folder."""
        return f"{file_name(self.prefix)}/{file_name(identifier, '.xml')}"


class OaiLists(msgspec.Struct, frozen=True, kw_only=True):
    """What is harvested: `prefixes` of `sets` (none: everything) of the repository with the base URL `url`.

    With `metadata_only` a resource is the metadata of a record, without what the repository adds. `content` are rules
    by which files of records are found. After `compare_seconds` everything is read again, where not all deletions are
    announced.
    """

    url: str
    prefixes: tuple[str, ...] = ("oai_dc",)
    sets: tuple[str, ...] = ()
    metadata_only: bool = False
    content: tuple[str, ...] = ()
    compare_seconds: float = 604_800.0

    def names(self) -> list[ListName]:
        """The lists."""
        return [ListName(prefix, spec) for prefix in dict.fromkeys(self.prefixes) for spec in self.sets or (None,)]

    def key(self, name: ListName) -> str:
        """Under what name the position in a list is kept."""
        return f"oai {self.url} {name.prefix} {'metadata' if self.metadata_only else 'record'} {name.spec or ''}"


class OaiComparison(msgspec.Struct, kw_only=True):
    """The newest comparison: its `number`; the last one that has ended, when (microseconds), and whether deletions of
    it are held back."""

    number: int = 0
    is_held: bool = False
    ended: int = 0
    ended_us: int = 0


@dataclass(eq=False)
class OaiHarvester(Harvester):
    """One repository harvested into one set, whose octets lie in `folder`.

    A harvest raises DeletionsHeld, too.
    """

    feed: Feed
    folder: Path
    lists: OaiLists
    _: KW_ONLY
    listener: Listener = silent
    stop: Callable[[], bool] = lambda: False
    longest_wait_seconds: float = 60.0
    fault_code: ClassVar[str] = "HW-OAI-13"

    def __post_init__(self) -> None:
        self.tally = HarvestTally()
        self._open: OaiRepository | None = None
        self._about: RepositoryDescription | None = None
        self._about_until = self._batch_until = 0.0
        self._batch = dict[str, Harvested | None]()  # what is recorded next, by path; None: deleted
        self._known = set[int]()
        self._helper: BackgroundProcess | None = None  # writes the octets of a first harvest
        self._written: tuple[list[Harvested], dict[str, bytes]] | None = None  # recorded when they are written

    def close(self) -> None:
        """Give up the connection; the next harvest goes on behind what is recorded."""
        super().close()
        self._batch.clear()
        self._known.clear()
        self._written = None
        if self._helper is not None:
            self._helper.close()
            self._helper = None
        if self._open is not None:
            self.tally.requests += self._open.requests
            self._open.close()
            self._open = None

    def estimate(self, *, compare: bool = False, most: int = 5) -> HarvestEstimate:
        """What a harvest will take, as the first answers tell; records nothing, and asks `most` times at most."""
        names, is_known = self.lists.names(), True
        records = pages = octets = seconds = 0.0
        try:
            about = self._described()
            for name in names[: most - 1]:
                cursor, times = self._cursor(name), about.times(None, self.feed.clock())
                begin(cursor, -1 if compare else cursor.full or -1, times)
                began = time.monotonic()
                page = self._repository.ask(query(cursor, name.prefix, name.spec, times))
                took = time.monotonic() - began
                if isinstance(page, RefusedRequest):
                    if page.kind is not Refused.EMPTY:
                        raise page.fault
                    page = OaiPage()
                count = len(page.records)
                size = count if page.token is None else page.size
                is_known = is_known and size is not None
                number = max(1, -(-(size or count) // max(count, 1)))
                records, pages, seconds = records + (size or count), pages + number, seconds + number * took
                octets += number * sum(len(one.octets) for one in page.records)
        finally:
            self.close()
        asked = min(len(names), most - 1)
        told = [round(one * len(names) / asked) if is_known else None for one in (records, pages, octets, seconds)]
        return HarvestEstimate(
            repository=about.name,
            deletions=about.deletions,
            granularity="day" if about.granule == DAY else "second",
            lists=len(names),
            lists_asked=asked,
            records=told[0],
            requests=None if told[1] is None else told[1] + 1,
            octets=told[2],
            seconds=seconds * len(names) / asked if is_known else None,
        )

    # the course of a harvest, which may be left at each `yield`

    def steps(self, *, compare: bool) -> Iterator[None]:
        """The harvest that is due, in steps of about a second."""
        self.feed.catalog.create(self.feed.name)
        about = self._described()
        self._fetch_again()
        comparison, number = self._comparison(about, is_wanted=compare), 0
        while number != comparison.number:  # another one is begun where an answer is suspicious
            number = comparison.number
            for name in self.lists.names():
                yield from self._read(name, about, comparison)
        self._judge(comparison)
        if not self.feed.is_open:
            self.feed.open()

    @property
    def _repository(self) -> OaiRepository:
        if self._open is None:
            wait = self.longest_wait_seconds
            self._open = OaiRepository(self.lists.url, stop=self.stop, longest_wait_seconds=wait)
        return self._open

    def _described(self) -> RepositoryDescription:
        if self._about is None or time.monotonic() > self._about_until:
            self._about, self._about_until = self._repository.describe(), time.monotonic() + _DAY_SECONDS
        return self._about

    def _cursor(self, name: ListName) -> Cursor:
        with suppress(UnknownSet):  # nothing was recorded yet
            if (found := self.feed.state.position(self.lists.key(name))) is not None:
                return from_json(found, Cursor)
        return Cursor()

    def _now_us(self) -> int:
        return to_microseconds(self.feed.clock())

    # comparisons

    def _comparison(self, about: RepositoryDescription, *, is_wanted: bool) -> OaiComparison:
        """The comparison that a harvest is for: a new one where that is wanted or due."""
        found = self.feed.state.position(f"oai {self.lists.url}")
        if found is None:
            self.listener(Notice("HW-OAI-11", _POLICIES[about.deletions], self.lists.url))
            return self._begin_comparison(OaiComparison())
        comparison = from_json(found, OaiComparison)
        if comparison.ended != comparison.number:
            return comparison
        is_needed = about.deletions != "persistent" or bool(self.lists.sets) or self._lacks_some()
        is_due = is_needed and self._now_us() - comparison.ended_us >= self.lists.compare_seconds * 1e6
        return self._begin_comparison(comparison) if is_wanted or is_due else comparison

    def _begin_comparison(self, comparison: OaiComparison) -> OaiComparison:
        comparison.number = self._now_us()
        self._note(comparison)
        return comparison

    def _note(self, comparison: OaiComparison) -> None:
        take_harvested(self.feed, self.folder, [], [], {f"oai {self.lists.url}": msgspec.json.encode(comparison)})

    def _lacks_some(self) -> bool:
        return self._is_incomplete() or any(self._cursor(name).has_unreadable for name in self.lists.names())

    def _is_incomplete(self) -> bool:
        return any(self._cursor(name).is_incomplete for name in self.lists.names())

    def _judge(self, comparison: OaiComparison) -> None:
        """Delete what a comparison has not seen, as far as the guard of the set lets it go; what was held back, too."""
        feed, name = self.feed, self.feed.name
        if comparison.ended == comparison.number and not comparison.is_held:
            return
        if not self._is_incomplete():
            memos, number = memos_of(feed.catalog, name), b"%d" % comparison.number
            vanished = [unquote_to_bytes(uri).decode() for uri, memo in memos if memo.isdigit() and memo != number]
            hold = delete_unseen(feed, vanished, lambda part: self._record([], part, {}))
            self.tally.held_back, comparison.is_held = hold, hold is not None
        if comparison.ended != comparison.number:
            comparison.ended, comparison.ended_us = comparison.number, self._now_us()
        self._note(comparison)

    # one list

    def _read(self, name: ListName, about: RepositoryDescription, comparison: OaiComparison) -> Iterator[None]:
        """Read a list to its end."""
        cursor, is_fresh, times = self._cursor(name), False, about.times(None, self.feed.clock())
        begin(cursor, comparison.number, times)
        while cursor.windows:
            if cursor.chain.pages == 0:
                self._known.clear()
            try:
                asked = query(cursor, name.prefix, name.spec, times)
                page = self._repository.ask(asked, metadata_only=self.lists.metadata_only)
                times = about.times(page.responded_at, self.feed.clock())
                if isinstance(page, RefusedRequest):
                    told = take_refusal(cursor, page.kind, times, is_fresh=is_fresh)
                    if told == "":
                        raise page.fault
                else:
                    if page.token is not None and not cursor.chain.pages and not self.feed.is_open:
                        self._start_helper()
                    told = take_page(cursor, page, self._take(page, cursor, name, comparison.number), times)
            except SourceFault:  # the next harvest goes on where the cursor is now
                self._commit(name, cursor)
                self._settle()
                raise
            if told:
                self.listener(Notice("HW-OAI-12", told, str(name)))
            if cursor.full < 0 and not cursor.reading:
                begin(cursor, comparison.number, times)
            is_fresh = True
            if not cursor.windows:
                if not cursor.total and cursor.has_records and not self._may_be_empty(name, cursor, times):
                    self._suspect(name, cursor, comparison)
                    return
                if not cursor.windows:
                    self._end(name, cursor)
            if not cursor.windows or len(self._batch) >= _BATCH or time.monotonic() >= self._batch_until:
                self._commit(name, cursor)
                if not cursor.windows:
                    self._settle()
                yield

    def _take(self, page: OaiPage, cursor: Cursor, name: ListName, number: int) -> int:
        """Put the records of an answer to what is recorded next; how many had come before."""
        url, doubled, memo = self.lists.url, 0, b"%d" % number
        known, batch, unreadable, folder = self._known, self._batch, page.left_out, file_name(name.prefix)
        for one in page.records:
            mark, path = hash(one.identifier), f"{folder}/{file_name(one.identifier, '.xml')}"
            if mark in known:
                doubled += 1
            elif len(known) < _KNOWN:
                known.add(mark)
            if one.is_deleted:
                batch[path] = None
            elif one.octets:
                links = _collections(url, name.prefix, one.sets)
                metadata = Metadata(lastmod=time_of(one.datestamp), type=TYPE, links=links)
                batch[path] = Harvested(path=path, octets=one.octets, metadata=metadata, memo=memo)
            else:
                unreadable = [*unreadable, one.identifier]
        cursor.lacking += page.left_out.count(None)
        cursor.has_unreadable = cursor.has_unreadable or bool(unreadable)
        seen = [(quote_path(name.path(one).encode()), memo) for one in unreadable if one is not None]
        if seen:  # they are there, and not to be deleted
            self.feed.catalog.remember(self.feed.name, seen)
        for told, some in (("left out, because it cannot be read", unreadable), ("repaired", page.repaired)):
            for identifier in some:
                self.listener(
                    Notice("HW-OAI-13", f"a record was {told}: {identifier or 'without identifier'}", str(name))
                )
        if page.has_other:
            self.listener(Notice("HW-OAI-12", "what is beside the document of an answer was left out", str(name)))
        self.tally.unreadable += len(unreadable)
        self.tally.repaired += len(page.repaired)
        self.tally.records += len(page.records)
        return doubled

    def _may_be_empty(self, name: ListName, cursor: Cursor, times: RepositoryTimes) -> bool:
        """Whether an answer without records may be right for a list that had some.

        News may be none where the repository still has records of a time at which it had some, everything with consent
        to all deletions. Newer ones among those came later than their datestamps say: then a window is read for them.
        """
        if cursor.reading:
            cursor.has_records = self.feed.guard is None or not self.feed.guard.consents()
            return not cursor.has_records
        for days in _LOOKS_BACK:
            asked = {"verb": "ListIdentifiers", "metadataPrefix": name.prefix}
            if cursor.newest is not None:
                asked["from"] = times.text(max(times.earliest, cursor.newest - dt.timedelta(days=days)))
            page = self._repository.ask(asked | ({} if name.spec is None else {"set": name.spec}))
            if isinstance(page, OaiPage) and page.records:
                found = [at for one in page.records if (at := time_of(one.datestamp)) is not None and at <= times.now]
                newest, cursor.newest = cursor.newest, max(found, default=cursor.newest)
                if newest is not None and cursor.newest is not None and newest < cursor.newest:
                    cursor.windows = (Window(newest),)
                return True
        return False

    def _suspect(self, name: ListName, cursor: Cursor, comparison: OaiComparison) -> None:
        """Begin a comparison because of an answer without records. Raises SourceFault where that was one of it."""
        if cursor.reading:
            what = "the repository has no record any more, where it had some: nothing is deleted"
            raise SourceFault(what, code="HW-OAI-04", where=str(name))
        if self._now_us() - comparison.ended_us < min(_DAY_SECONDS, self.lists.compare_seconds) * 1e6:
            what = "the repository has no record of a time at which it had some: what is new cannot be known"
            raise SourceFault(what, code="HW-OAI-04", where=str(name))
        self._begin_comparison(comparison)

    def _end(self, name: ListName, cursor: Cursor) -> None:
        finish(cursor)
        self.tally.lacking += cursor.lacking
        if cursor.lacking:
            self.listener(Notice("HW-OAI-13", f"{cursor.lacking:,} records of a list did not come", str(name)))
        if not cursor.has_records:
            self.listener(Notice("HW-OAI-14", "the repository has no records", str(name)))

    def _commit(self, name: ListName, cursor: Cursor) -> None:
        """Record what came, and how far the list was read."""
        began = time.monotonic()
        found = [one for one in self._batch.values() if one is not None]
        gone = [path for path, one in self._batch.items() if one is None]
        self._record(found, gone, {self.lists.key(name): msgspec.json.encode(cursor)})
        self._batch.clear()
        now = time.monotonic()
        self._batch_until = now + min(_BATCH_SECONDS, _COMMITS.pause_after(now - began))
        self.listener(Progress("records", self.tally.records))

    def _record(self, found: list[Harvested], gone: Sequence[str], positions: dict[str, bytes]) -> None:
        found, gone = self._with_alternates(found, gone), [*gone]
        if self.lists.content:
            self._add_content(found, gone, positions)
        if self._helper is None or gone or len(found) < _MANY:
            self._settle()
            self.tally.add(take_harvested(self.feed, self.folder, found, gone, positions))
            return
        for folder in {one.path.partition("/")[0] for one in found}:
            make_folders(self.folder / folder)
        root = f"{self.folder}/"
        self._helper.begin([(root + one.path, one.octets) for one in found if one.octets is not None])
        before, self._written = self._written, (found, positions)
        if before is not None:
            self._settle(before)

    def _start_helper(self) -> None:
        """Have a process for the octets of a first harvest, if one is to be had."""
        with suppress(OSError):
            self._helper = self._helper or BackgroundProcess(WorkerProgram(function=hash_and_write))

    def _settle(self, batch: tuple[list[Harvested], dict[str, bytes]] | None = None) -> None:
        """Record a batch whose octets are being written in the background: this one, or the last one, if there is one.

        Octets that the process could not write are written here.
        """
        if batch is None:
            batch, self._written = self._written, None
        if batch is not None and self._helper is not None:
            found, positions = batch
            waiting = [one for one in found if one.octets is not None]
            for one, (digest, place) in zip(waiting, self._helper.end() or (), strict=False):
                one.describe(digest)
                one.octets, one.file = None, place
            self.tally.add(take_harvested(self.feed, self.folder, found, [], positions))

    # what belongs together

    def _with_alternates(self, found: list[Harvested], gone: Sequence[str]) -> list[Harvested]:
        """The same, linked with the records of other prefixes of each item; and those whose links change by that."""
        folders = [file_name(prefix) for prefix in self.lists.prefixes]
        if len(folders) < 2:
            return found
        there, others = {one.path: one for one in found}, dict[str, list[str]]()
        for path in (*there, *gone):
            own, _, name = path.partition("/")
            others[path] = [quote_path(f"{folder}/{name}".encode()) for folder in folders if folder != own]
        held, changed = self.feed.held(uri for some in others.values() for uri in some), list[Harvested]()
        for path, some in others.items():
            ours, link = there.get(path), self._link("alternate", quote_path(path.encode()))
            for other in filter(None, map(held.get, some)):
                links = _ordered((*(one for one in other.metadata.links if one != link), *([link] if ours else ())))
                if ours is not None:
                    more = _ordered((*ours.metadata.links, self._link("alternate", other.uri)))
                    ours.metadata = msgspec.structs.replace(ours.metadata, links=more)
                if links != other.metadata.links:
                    changed.append(_relinked(other, links))
        return [*found, *changed]

    def _link(self, rel: str, uri: str, type_: str | None = TYPE) -> Link:
        return Link(rel=rel, href=self.feed.locations.absolute(uri), type=type_)

    def _add_content(self, found: list[Harvested], gone: list[str], positions: dict[str, bytes]) -> None:
        """Fetch the files of records that are new or changed, and link them; those that nothing describes go.

        Records whose files cannot be had are noted, and tried again at the end of the next harvest.
        """
        records = {one.uri: one for one in found if one.octets is not None}
        held = self.feed.held([*records, *(quote_path(path.encode()) for path in gone)])
        said = {uri: [one for one in was.metadata.links if one.rel == "describes"] for uri, was in held.items()}
        retries, files, dropped = self._pending(), dict[str, Harvested](), dict[str, set[str]]()
        for uri, one in records.items():
            assert one.octets is not None
            was, kept = held.get(uri), said.get(uri, [])
            digest = f"sha-256:{hashlib.sha256(one.octets).hexdigest()}"
            if was is None or was.metadata.hash != digest or one.path in retries:
                fetched, failed = fetch_files(self._repository, self.folder, one.octets, self.lists.content)
                retries.discard(one.path)
                for what in failed:
                    self.listener(Notice("HW-OAI-13", f"a file of a record cannot be had: {what}", one.path))
                self.tally.failed_files += len(failed)
                if failed and len(retries) < _MOST_RETRIES:
                    retries.add(one.path)
                files |= {file.path: file for file in fetched}
                new = [self._link("describes", file.uri, file.metadata.type) for file in fetched]
                kept = [*new, *(one for one in kept if failed and one.href not in {link.href for link in new})]
            one.metadata = msgspec.structs.replace(one.metadata, links=_ordered((*one.metadata.links, *kept)))
            said[uri] = [link for link in said.get(uri, []) if link.href not in {link.href for link in kept}]
        for uri, links in said.items():  # what a record does not describe any more
            for link in links:
                dropped.setdefault(self.feed.locations.link(link.href), set()).add(uri)
        about = self.feed.state.about(dropped) if dropped else {}
        for uri, by in dropped.items():
            path = unquote_to_bytes(uri).decode()
            if path not in files and not {other for _, other in about.get(uri, ())} - by:
                gone.append(path)
        found += files.values()
        positions[self._retry_key] = msgspec.json.encode(sorted(retries))

    @property
    def _retry_key(self) -> str:
        return f"oai files {self.lists.url}"

    def _pending(self) -> set[str]:
        found = self.feed.state.position(self._retry_key)
        return set() if found is None else set(from_json(found, list[str]))

    def _fetch_again(self) -> None:
        """Try the files again that could not be had in an earlier harvest."""
        if not self.lists.content or not (paths := self._pending()):
            return
        held, found = self.feed.held(quote_path(path.encode()) for path in paths), list[Harvested]()
        for uri, was in held.items():
            path = unquote_to_bytes(uri).decode()
            links = tuple(one for one in was.metadata.links if one.rel != "describes")
            with suppress(OSError):
                octets, metadata = (self.folder / path).read_bytes(), msgspec.structs.replace(was.metadata, links=links)
                found.append(Harvested(path=path, octets=octets, metadata=metadata, memo=was.memo))
        self._record(found, [], {})


def _relinked(resource: Resource, links: tuple[Link, ...]) -> Harvested:
    """A resource with other links; its file stays."""
    metadata, path = msgspec.structs.replace(resource.metadata, links=links), unquote_to_bytes(resource.uri).decode()
    return Harvested(path=path, octets=None, metadata=metadata, memo=resource.memo)


def _ordered(links: tuple[Link, ...]) -> tuple[Link, ...]:
    """Links in the order in which they are always written."""
    return tuple(sorted(links, key=lambda one: (one.rel != "collection", one.rel, one.href)))


@lru_cache(maxsize=4_096)
def _collections(url: str, prefix: str, specs: tuple[str, ...]) -> tuple[Link, ...]:
    """Links to the lists of sets."""
    asked = (urlencode({"verb": "ListRecords", "set": one, "metadataPrefix": prefix}) for one in sorted(set(specs)))
    return tuple(Link(rel="collection", href=f"{url}{'&' if '?' in url else '?'}{one}") for one in asked)
