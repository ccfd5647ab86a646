"""Harvests a repository by OAI-PMH into a set: asks one request at a time, and records what comes, page after page.

How far each list was read is recorded with the records of an answer, so that whatever stops a harvest, the next one
asks for little again. What was deleted without a word is found by comparisons, which read everything: the memo of a
resource has the number of the last comparison that has seen it. A deletion that is announced, too, is only noted in
the memo: the guard of the set judges all of them together, at the end of a harvest.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlencode

import msgspec

from headwater.catalog.interface import Metadata, Resource, UnknownSet
from headwater.errors import SourceFault
from headwater.ingest.folder.comparison import memos_of
from headwater.ingest.harvested import (
    Harvested,
    Harvester,
    HarvestEstimate,
    HarvestTally,
    NoAnswer,
    delete_unseen,
    file_name,
    take_harvested,
)
from headwater.ingest.oai.content import fetch_files
from headwater.ingest.oai.cursor import (
    DAY,
    Cursor,
    Refused,
    begin,
    finish,
    query,
    take_page,
    take_refusal,
)
from headwater.ingest.oai.pages import OaiPage, time_of
from headwater.ingest.oai.repository import OaiRepository, RefusedRequest, RepositoryDescription
from headwater.ingest.push.feed import Feed
from headwater.progress import Listener, Notice, Progress, silent
from headwater.retry import TimeShare
from headwater.spec.records import Link
from headwater.spec.times import to_microseconds
from headwater.spec.uris import quote_path
from headwater.typed_decoding import from_json

TYPE: Final = "application/xml"
_BATCH: Final = 2_000  # records of one transaction, but for an answer with more …
_COMMITS: Final = TimeShare(0.3)  # of the time: an answer that takes longer than that is recorded by itself …
_BATCH_SECONDS: Final = 1.0  # … and so much work is done again at most after a kill
_GONE: Final = b"0"  # the memo of what was told as deleted
_LACKS_FILES: Final = b"+"  # the end of the memo of a record of which files could not be had
_LONGEST_SPEC: Final = 200  # characters of a set's name in a link
_DAY_SECONDS: Final = 86_400.0  # how long `Identify` holds, and between comparisons because of empty answers
_KNOWN: Final = 2_000_000  # records of a chain of which it is noticed when they come twice
_POLICIES: Final = {
    "persistent": "the repository announces all deletions",
    "transient": "the repository forgets deletions after a while: comparisons find them",
    "no": "the repository announces no deletions: comparisons find them",
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
    by which files of records are found. After `compare_seconds` everything is read again.
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
    """The newest comparison: its `number`, the time at which it began (microseconds); the number of the last one that
    has ended, and when. `has_files`: it fetches the files of all records again. `has_gone`: some deletions wait."""

    number: int = 0
    has_files: bool = False
    has_gone: bool = False
    ended: int = 0
    ended_us: int = 0


@dataclass(eq=False)
class OaiHarvester(Harvester):
    """One repository harvested into one set, whose octets lie in `folder`."""

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

    def close(self) -> None:
        """Give up the connection; the next harvest goes on behind what is recorded."""
        super().close()
        self._batch.clear()
        self._known.clear()
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
        about, number, failed = self._described(), 0, None
        comparison = self._comparison(about, is_wanted=compare)
        while number != comparison.number:  # another one is begun where an answer is suspicious
            number, failed = comparison.number, None
            for name in self.lists.names():
                try:
                    yield from self._read(name, about, comparison)
                except NoAnswer:
                    raise
                except SourceFault as fault:  # of this list: the others go on
                    failed = failed or fault
        self._judge(comparison, is_whole=failed is None)
        if failed is not None:
            raise failed
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
        comparison, now, seconds = from_json(found, OaiComparison), self._now_us(), self.lists.compare_seconds
        is_over = comparison.ended == comparison.number
        if is_wanted:
            is_due = is_over or not comparison.has_files or now - comparison.number >= seconds * 1e6
        else:
            is_due = is_over and now - comparison.ended_us >= seconds * 1e6
        return self._begin_comparison(comparison, has_files=is_wanted) if is_due else comparison

    def _begin_comparison(self, comparison: OaiComparison, *, has_files: bool = False) -> OaiComparison:
        comparison.number, comparison.has_files = max(self._now_us(), comparison.number + 1), has_files
        self._note(comparison)
        return comparison

    def _position(self, comparison: OaiComparison) -> dict[str, bytes]:
        return {f"oai {self.lists.url}": msgspec.json.encode(comparison)}

    def _note(self, comparison: OaiComparison) -> None:
        take_harvested(self.feed, self.folder, [], [], self._position(comparison))

    def _judge(self, comparison: OaiComparison, *, is_whole: bool) -> None:
        """Delete what was told as deleted and, where all lists are whole, what the comparison has not seen; as far as
        the guard of the set lets it go. What was held back before is judged again."""
        is_ending = is_whole and comparison.ended != comparison.number
        if not is_ending and not comparison.has_gone:
            return
        is_compared = is_ending or comparison.ended == comparison.number
        is_compared = is_compared and not any(self._cursor(name).is_incomplete for name in self.lists.names())
        number, vanished = b"%d" % comparison.number, list[str]()
        for uri, memo in memos_of(self.feed.catalog, self.feed.name):
            if memo == _GONE or (is_compared and memo and memo.rstrip(_LACKS_FILES) != number):
                vanished.append(unquote_to_bytes(uri).decode())
        self.tally.held_back = delete_unseen(self.feed, vanished, self._delete)
        comparison.has_gone = self.tally.held_back is not None
        if is_ending:
            comparison.ended, comparison.ended_us = comparison.number, self._now_us()
        self._note(comparison)

    def _delete(self, paths: Sequence[str]) -> None:
        found = self._with_alternates([], paths)
        gone = self._add_content([], paths, has_files=False)
        self.tally.add(take_harvested(self.feed, self.folder, found, [*paths, *gone], {}))

    # one list

    def _read(self, name: ListName, about: RepositoryDescription, comparison: OaiComparison) -> Iterator[None]:
        """Read a list to its end."""
        cursor, is_fresh, times = self._cursor(name), False, about.times(None, self.feed.clock())
        begin(cursor, comparison.number, times)
        self._known.clear()
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
                    told = take_page(cursor, page, self._take(page, cursor, name, comparison.number), times)
            except SourceFault:  # the next harvest goes on where the cursor is now
                self._commit(name, cursor, comparison)
                raise
            if told:
                self.listener(Notice("HW-OAI-12", told, str(name)))
            if cursor.full < 0 and not cursor.reading:
                begin(cursor, comparison.number, times)
            is_fresh = True
            if not cursor.windows:
                if not cursor.total and cursor.is_sure and not self._may_be_empty(cursor):
                    self._suspect(name, cursor, comparison)
                    return
                self._end(name, cursor)
            if not cursor.windows or len(self._batch) >= _BATCH or time.monotonic() >= self._batch_until:
                self._commit(name, cursor, comparison)
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
            elif octets := one.octets:
                metadata = Metadata(
                    lastmod=time_of(one.datestamp),
                    hash=f"sha-256:{sha256(octets).hexdigest()}",
                    length=len(octets),
                    type=TYPE,
                    links=_collections(url, name.prefix, one.sets),
                )
                batch[path] = Harvested(path=path, octets=octets, metadata=metadata, memo=memo)
            else:
                unreadable = [*unreadable, one.identifier]
        cursor.lacking += page.left_out.count(None)
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

    def _may_be_empty(self, cursor: Cursor) -> bool:
        """Whether a list that had records may have none: with consent to all deletions, and not because of news."""
        cursor.has_records = not cursor.reading or (self.feed.guard is not None and not self.feed.guard.consents())
        return not cursor.has_records

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

    def _commit(self, name: ListName, cursor: Cursor, comparison: OaiComparison) -> None:
        """Record what came, and how far the list was read. What is gone is only noted."""
        began = time.monotonic()
        positions = {self.lists.key(name): msgspec.json.encode(cursor)}
        gone, left = self._told_as_deleted(name, [path for path, one in self._batch.items() if one is None])
        found = self._with_alternates([*left, *(one for one in self._batch.values() if one is not None)], ())
        gone += self._add_content(found, (), has_files=comparison.has_files)
        if gone:
            self.feed.catalog.remember(self.feed.name, [(quote_path(path.encode()), _GONE) for path in gone])
            comparison.has_gone = True
            positions |= self._position(comparison)
        self.tally.add(take_harvested(self.feed, self.folder, found, [], positions))
        self._batch.clear()
        now = time.monotonic()
        self._batch_until = now + min(_BATCH_SECONDS, _COMMITS.pause_after(now - began))
        self.listener(Progress("records", self.tally.records))

    def _told_as_deleted(self, name: ListName, paths: Sequence[str]) -> tuple[list[str], list[Harvested]]:
        """Those of the paths that a list tells as deleted that are gone; and those that only leave its set, because
        another set that is harvested had them, without their links to it."""
        gone, left = list[str](), list[Harvested]()
        for path, was in zip(paths, self._held(paths), strict=True):
            if was is None:
                continue
            stays = tuple(one for one in was.metadata.links if not self._is_of_set(one, name))
            others = (other for other in self.lists.names() if other.prefix == name.prefix and other.spec is not None)
            if any(self._is_of_set(link, other) for other in others for link in stays):
                left.append(_relinked(was, stays))
            else:
                gone.append(path)
        return gone, left

    def _held(self, paths: Sequence[str]) -> list[Resource | None]:
        uris = [quote_path(path.encode()) for path in paths]
        held = self.feed.held(uris)
        return [held.get(uri) for uri in uris]

    def _is_of_set(self, link: Link, name: ListName) -> bool:
        """Whether a link leads to the set of a list, or to a part of it."""
        address = _list_address(self.lists.url, name.spec or "")
        return name.spec is not None and link.href.startswith((f"{address}&", f"{address}%3A"))

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
            for other in (held[uri] for uri in some if uri in held and unquote_to_bytes(uri).decode() not in gone):
                links = _ordered((*(one for one in other.metadata.links if one != link), *([link] if ours else ())))
                if ours is not None:
                    more = _ordered((*ours.metadata.links, self._link("alternate", other.uri)))
                    ours.metadata = msgspec.structs.replace(ours.metadata, links=more)
                if links != other.metadata.links:
                    changed.append(_relinked(other, links))
        return [*found, *changed]

    def _link(self, rel: str, uri: str, type_: str | None = TYPE) -> Link:
        return Link(rel=rel, href=self.feed.locations.absolute(uri), type=type_)

    def _add_content(self, found: list[Harvested], gone: Sequence[str], *, has_files: bool) -> list[str]:
        """Fetch the files of records that are new or changed, and link them; the paths of those that nothing describes
        any more.

        A comparison fetches also those of records of which some could not be had, or are not there; with `has_files`
        all files.
        """
        if not self.lists.content:
            return []
        records = {one.uri: one for one in found if one.octets is not None}
        held = self.feed.held([*records, *(quote_path(path.encode()) for path in gone)])
        said = {uri: [one for one in was.metadata.links if one.rel == "describes"] for uri, was in held.items()}
        files, dropped = dict[str, Harvested](), dict[str, set[str]]()
        for uri, one in records.items():
            assert one.octets is not None
            was, kept = held.get(uri), said.get(uri, [])
            is_new = was is None or was.metadata.hash != one.metadata.hash
            if was is not None and not is_new:
                has_failed = was.memo.endswith(_LACKS_FILES)
                if was.memo.rstrip(_LACKS_FILES) != one.memo:  # a comparison
                    is_new = has_files or has_failed or not all(self._is_here(link) for link in kept)
                one.memo += _LACKS_FILES * has_failed
            if is_new:
                fetched, failed = fetch_files(self._repository, self.folder, one.octets, self.lists.content)
                for what in failed:
                    self.listener(Notice("HW-OAI-13", f"a file of a record cannot be had: {what}", one.path))
                self.tally.failed_files += len(failed)
                one.memo = one.memo.rstrip(_LACKS_FILES) + _LACKS_FILES * bool(failed)
                files |= {file.path: file for file in fetched}
                new = [self._link("describes", file.uri, file.metadata.type) for file in fetched]
                kept = [*new, *(one for one in kept if failed and one.href not in {link.href for link in new})]
            one.metadata = msgspec.structs.replace(one.metadata, links=_ordered((*one.metadata.links, *kept)))
            said[uri] = [link for link in said.get(uri, []) if link.href not in {link.href for link in kept}]
        for uri, links in said.items():  # what a record does not describe any more
            for link in links:
                dropped.setdefault(self.feed.locations.link(link.href), set()).add(uri)
        about = self.feed.state.about(dropped) if dropped else {}
        found += files.values()
        alone = [uri for uri, by in dropped.items() if not {one for _, one in about.get(uri, ())} - by]
        return [path for path in (unquote_to_bytes(uri).decode() for uri in alone) if path not in files]

    def _is_here(self, link: Link) -> bool:
        return (self.folder / unquote_to_bytes(self.feed.locations.link(link.href)).decode()).is_file()


def _relinked(resource: Resource, links: tuple[Link, ...]) -> Harvested:
    """A resource with other links; its file stays."""
    metadata, path = msgspec.structs.replace(resource.metadata, links=links), unquote_to_bytes(resource.uri).decode()
    return Harvested(path=path, octets=None, metadata=metadata, memo=resource.memo)


def _ordered(links: tuple[Link, ...]) -> tuple[Link, ...]:
    """Links in the order in which they are always written."""
    return tuple(sorted(dict.fromkeys(links), key=lambda one: (one.rel != "collection", one.rel, one.href)))


@lru_cache(maxsize=4_096)
def _collections(url: str, prefix: str, specs: tuple[str, ...]) -> tuple[Link, ...]:
    """Links to the lists of sets."""
    names = (one for one in sorted(set(specs)) if len(one) <= _LONGEST_SPEC)
    asked = urlencode({"metadataPrefix": prefix})
    return tuple(Link(rel="collection", href=f"{_list_address(url, one)}&{asked}") for one in names)


def _list_address(url: str, spec: str) -> str:
    """Where the records of a set begin, but for the prefix."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode({'verb': 'ListRecords', 'set': spec})}"
