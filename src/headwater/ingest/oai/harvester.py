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
from itertools import chain
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from headwater.catalog.interface import Resource, UnknownSet
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
    held_at,
    metadata_of,
    path_of,
    take_harvested,
    uri_of,
)
from headwater.ingest.oai.content import FOLDER, fetch_files
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
from headwater.ingest.oai.repository import OaiRepository, RefusedRequest
from headwater.ingest.push.feed import BATCH, Feed
from headwater.progress import Listener, Notice, Progress, silent
from headwater.retry import TimeShare
from headwater.spec.records import Link
from headwater.spec.times import to_microseconds
from headwater.typed_decoding import from_json

TYPE: Final = "application/xml"
_BATCH: Final = 2_000  # records of one transaction, but for an answer with more …
_COMMITS: Final = TimeShare(0.3)  # of the time: an answer that takes longer than that is recorded by itself …
_BATCH_SECONDS: Final = 1.0  # … and so much work is done again at most after a kill
_GONE: Final = b"0"  # the memo of what was told as deleted
_LACKS_FILES: Final = b"+"  # the end of the memo of a record of which files could not be had
_LONGEST_SPEC: Final = 200  # characters of a set's name in a link
_DAY_SECONDS: Final = 86_400.0  # between comparisons because of empty answers
_MOST_KNOWN: Final = 2_000_000  # identifiers of a chain that are remembered, to notice what comes twice
_MOST_ASKED: Final = 5  # requests of an estimate
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


class OaiComparison(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The newest comparison: its `number` is the time at which it began, in microseconds.

    `has_files`: it fetches the files of all records again. `has_gone`: some deletions wait.
    """

    number: int = 0
    is_over: bool = False
    has_files: bool = False
    has_gone: bool = False


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
        self._batch_until = 0.0
        self._batch = dict[str, Harvested | None]()  # what is recorded next, by path; None: deleted
        self._known = set[int]()
        self._comparison = OaiComparison()

    def close(self) -> None:
        """Give up the connection; the next harvest goes on behind what is recorded."""
        super().close()
        self._batch.clear()
        self._known.clear()
        if self._open is not None:
            self.tally.requests += self._open.requests
            self._open.close()
            self._open = None

    def estimate(self, *, compare: bool = False) -> HarvestEstimate:
        """What a harvest will take, as the first answers tell; records nothing, and asks a few times."""
        names, sizes, requests, octets = self.lists.names(), list[int | None](), 0, 0
        try:
            repository, began = self._described(), time.monotonic()
            for name in names[: _MOST_ASKED - 1]:
                cursor, times, page = self._cursor(name), repository.times, OaiPage()
                begin(cursor, -1 if compare else cursor.full or -1, times)
                try:
                    page = repository.ask(query(cursor, name.prefix, name.spec, times))
                except RefusedRequest as fault:
                    if fault.kind not in (Refused.EMPTY, Refused.EMPTY_OR_REQUEST):
                        raise
                sizes.append(len(page.records) if page.token is None else page.size)
                pages = max(1, -(-(sizes[-1] or 0) // max(1, len(page.records))))
                requests, octets = requests + pages, octets + pages * sum(len(one.octets) for one in page.records)
            seconds = (time.monotonic() - began) / len(sizes)  # of a request
        finally:
            self.close()

        def of_all(count: int) -> int | None:
            return None if None in sizes else round(count * len(names) / len(sizes))

        total = of_all(requests)
        return HarvestEstimate(
            repository=repository.name,
            deletions=repository.deletions,
            granularity="day" if repository.times.granule == DAY else "second",
            lists=len(names),
            lists_asked=len(sizes),
            records=of_all(sum(filter(None, sizes))),
            requests=total and total + 1,
            octets=of_all(octets),
            seconds=total and total * seconds,
            without_files=bool(self.lists.content),
        )

    # the course of a harvest, which may be left at each `yield`

    def steps(self, *, compare: bool) -> Iterator[None]:
        """The harvest that is due, in steps of about a second."""
        self.feed.catalog.create(self.feed.name)
        number, failed, repository = 0, None, self._described()
        self._begin_if_due(repository.deletions, is_wanted=compare)
        while number != self._comparison.number:  # another one is begun where an answer is suspicious
            number, failed = self._comparison.number, None
            for position, name in enumerate(self.lists.names()):
                if position:
                    yield
                try:
                    yield from self._read(name, repository)
                except NoAnswer:
                    raise
                except SourceFault as fault:  # of this list: the others go on
                    failed = failed or fault
        self._judge(is_whole=failed is None)
        if failed is not None:
            raise failed
        if not self.feed.is_open:
            self.feed.open()

    def _described(self) -> OaiRepository:
        """The repository, after it was asked what it says of itself."""
        wait = self.longest_wait_seconds
        self._open = OaiRepository(self.lists.url, stop=self.stop, longest_wait_seconds=wait)
        self._open.describe(self.feed.clock())
        return self._open

    def _cursor(self, name: ListName) -> Cursor:
        with suppress(UnknownSet):  # nothing was recorded yet
            if (found := self.feed.state.position(self.lists.key(name))) is not None:
                return from_json(found, Cursor)
        return Cursor()

    # comparisons

    def _begin_if_due(self, deletions: str, *, is_wanted: bool) -> None:
        """Begin a comparison where that is wanted or due; else go on with the newest one."""
        found = self.feed.state.position(self._position)
        self._comparison = now = OaiComparison(is_over=True) if found is None else from_json(found, OaiComparison)
        if found is None:
            self.listener(Notice("HW-OAI-11", _POLICIES[deletions], self.lists.url))
        is_old = self._age_seconds() >= self.lists.compare_seconds
        if (now.is_over and (is_old or is_wanted)) or (is_wanted and (is_old or not now.has_files)):
            self._begin_comparison(has_files=is_wanted)

    def _begin_comparison(self, *, has_files: bool = False) -> None:
        now, number = self._comparison, to_microseconds(self.feed.clock())
        now.number, now.is_over, now.has_files = max(number, now.number + 1), False, has_files
        self._note()

    def _age_seconds(self) -> float:
        return (to_microseconds(self.feed.clock()) - self._comparison.number) / 1e6

    @property
    def _position(self) -> str:
        return f"oai {self.lists.url}"

    def _note(self) -> None:
        positions = {self._position: msgspec.json.encode(self._comparison)}
        take_harvested(self.feed, self.folder, [], [], positions)

    def _judge(self, *, is_whole: bool) -> None:
        """Delete what was told as deleted and, where all lists are whole, what the comparison has not seen, with the
        files that nothing else describes; as far as the guard of the set lets it go, which judges it in each run."""
        comparison, feed = self._comparison, self.feed
        if not comparison.has_gone and (comparison.is_over or not is_whole):
            return
        comparison.is_over = comparison.is_over or is_whole
        is_compared = comparison.is_over and not any(self._cursor(name).is_incomplete for name in self.lists.names())
        number, gone, files = b"%d" % comparison.number, dict[str, None](), list[str]()
        for uri, memo in memos_of(feed.catalog, feed.name):
            if not memo and uri.startswith(f"{FOLDER}/"):
                files.append(uri)
            elif memo == _GONE or (is_compared and memo and memo.rstrip(_LACKS_FILES) != number):
                gone[uri] = None
        for start in range(0, len(files), BATCH):
            some = files[start : start + BATCH]
            about = feed.state.about(some)
            gone |= dict.fromkeys(uri for uri in some if all(by in gone for _, by in about.get(uri, ())))
        self.tally.held_back = delete_unseen(feed, [path_of(uri) for uri in gone], self._delete, self.listener)
        comparison.has_gone = self.tally.held_back is not None
        self._note()

    def _delete(self, paths: Sequence[str]) -> None:
        self.tally.add(take_harvested(self.feed, self.folder, self._with_alternates([], paths), paths, {}))

    # one list

    def _read(self, name: ListName, repository: OaiRepository) -> Iterator[None]:
        """Read a list to its end."""
        cursor, is_fresh = self._cursor(name), False
        told = begin(cursor, self._comparison.number, repository.times)
        while cursor.windows:
            if told:
                self.listener(Notice("HW-OAI-12", told, str(name)))
            if cursor.chain.pages == 0 or not is_fresh:
                self._known.clear()
            try:
                asked = query(cursor, name.prefix, name.spec, repository.times)
                page = repository.ask(asked, metadata_only=self.lists.metadata_only)
                told = take_page(cursor, page, self._take(page, cursor, name), repository.times)
            except SourceFault as fault:
                kind = fault.kind if isinstance(fault, RefusedRequest) else Refused.OTHER
                told = take_refusal(cursor, kind, repository.times, is_fresh=is_fresh)
                if told == "":
                    self._commit(name, cursor)  # the next harvest goes on where the cursor is now
                    raise
            is_fresh = True
            if not cursor.windows:
                if not cursor.total and cursor.is_sure and self._is_doubted(name, cursor):
                    return
                self._end(name, cursor)
            if not cursor.windows or len(self._batch) >= _BATCH or time.monotonic() >= self._batch_until:
                self._commit(name, cursor)
                if cursor.windows:  # else what is left of the harvest may need no request, nor an open window
                    yield

    def _take(self, page: OaiPage, cursor: Cursor, name: ListName) -> int:
        """Put the records of an answer to what is recorded next; how many had come before."""
        url, memo, batch, unreadable = self.lists.url, b"%d" % self._comparison.number, self._batch, page.left_out
        folder = file_name(name.prefix)
        for one in page.records:
            path = f"{folder}/{file_name(one.identifier, '.xml')}"
            if one.is_deleted:
                batch[path] = None
            elif one.octets:
                links = _collections(url, name.prefix, one.sets)
                metadata = metadata_of(one.octets, TYPE, time_of(one.datestamp), links)
                batch[path] = Harvested(path=path, octets=one.octets, metadata=metadata, memo=memo)
            else:
                unreadable = [*unreadable, one.identifier]
        cursor.lacking += page.left_out.count(None)
        seen = [(uri_of(f"{folder}/{file_name(one, '.xml')}"), memo) for one in unreadable if one is not None]
        if seen:  # they are there, and not to be deleted
            self.feed.catalog.remember(self.feed.name, seen)
        for told, some in (("left out, because it cannot be read", unreadable), ("repaired", page.repaired)):
            for identifier in some:
                what = f"a record was {told}: {identifier or 'without identifier'}"
                self.listener(Notice("HW-OAI-13", what, str(name)))
        if page.has_other:
            self.listener(Notice("HW-OAI-12", "what is beside the document of an answer was left out", str(name)))
        self.tally.unreadable += len(unreadable)
        self.tally.repaired += len(page.repaired)
        self.tally.records += len(page.records)
        new = {hash(one.identifier) for one in page.records} - self._known
        if len(self._known) < _MOST_KNOWN:
            self._known |= new
        return len(page.records) - len(new)

    def _is_doubted(self, name: ListName, cursor: Cursor) -> bool:
        """Whether a list without records, where there were some, has begun another comparison. Raises SourceFault where
        one has looked already, unless everything may be deleted."""
        guard = self.feed.guard
        if cursor.reading and (guard is None or guard.consents()):
            cursor.has_records = False
            return False
        what = "the repository has no record any more, where it had some: nothing is deleted"
        if not cursor.reading:
            if self._age_seconds() >= min(_DAY_SECONDS, self.lists.compare_seconds):
                self._begin_comparison()
                return True
            what = "the repository has no record of a time at which it had some: what is new cannot be known"
        raise SourceFault(what, code="HW-OAI-04", where=str(name))

    def _end(self, name: ListName, cursor: Cursor) -> None:
        finish(cursor)
        self.tally.lacking += cursor.lacking
        if cursor.lacking:
            self.listener(Notice("HW-OAI-13", f"{cursor.lacking:,} records of a list did not come", str(name)))
        if not cursor.has_records:
            self.listener(Notice("HW-OAI-14", "the repository has no records", str(name)))

    def _commit(self, name: ListName, cursor: Cursor) -> None:
        """Record what came, and how far the list was read. What is gone is only noted."""
        began, comparison = time.monotonic(), self._comparison
        found, gone = [one for one in self._batch.values() if one is not None], list[str]()
        for path, was in held_at(self.feed, (path for path, one in self._batch.items() if one is None)).items():
            if (left := self._left(was, name)) is None:
                gone.append(path)
            else:
                found.append(left)
        found = self._with_alternates(found, ())
        found += self._add_content(found)
        positions = {self.lists.key(name): msgspec.json.encode(cursor)}
        if gone:
            self.feed.catalog.remember(self.feed.name, [(uri_of(path), _GONE) for path in gone])
        if gone or comparison.has_gone:
            comparison.has_gone = True
            positions[self._position] = msgspec.json.encode(comparison)
        self.tally.add(take_harvested(self.feed, self.folder, found, [], positions))
        self._batch.clear()
        now = time.monotonic()
        self._batch_until = now + min(_BATCH_SECONDS, _COMMITS.pause_after(now - began))
        self.listener(Progress("records", self.tally.records))

    def _left(self, was: Resource, name: ListName) -> Harvested | None:
        """What a list tells as deleted, without the links to its set, where another set that is harvested had it."""
        stays = tuple(one for one in was.metadata.links if not self._is_of_set(one, name))
        others = [other for other in self.lists.names() if other.prefix == name.prefix]
        is_there = any(self._is_of_set(link, other) for other in others for link in stays)
        return _relinked(was, stays) if is_there else None

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
        there, changed = {one.path: one for one in found}, list[Harvested]()
        others = {path: [f"{folder}/{path.partition('/')[2]}" for folder in folders] for path in (*there, *gone)}
        held = held_at(self.feed, chain.from_iterable(others.values()))
        for path, some in others.items():
            ours, link = there.get(path), self._link("alternate", path)
            for other in (one for one in some if one in held and one != path and one not in gone):
                was = held[other]
                links = _ordered((*(one for one in was.metadata.links if one != link), *([link] if ours else ())))
                if ours is not None:
                    more = _ordered((*ours.metadata.links, self._link("alternate", other)))
                    ours.metadata = msgspec.structs.replace(ours.metadata, links=more)
                if links != was.metadata.links:
                    changed.append(_relinked(was, links))
        return [*found, *changed]

    def _link(self, rel: str, path: str, type_: str | None = TYPE) -> Link:
        return Link(rel=rel, href=self.feed.locations.absolute(uri_of(path)), type=type_)

    def _add_content(self, found: Sequence[Harvested]) -> list[Harvested]:
        """Fetch the files of records that are new or changed, and link them to these; returns the files.

        A comparison fetches also those of records of which some could not be had, or are not there; with `has_files`
        all files. What cannot be had stays as it was.
        """
        files = dict[str, Harvested]()
        records = {one.path: one for one in found if one.octets is not None and self.lists.content}
        held = held_at(self.feed, records)
        for path, one in records.items():
            was, octets = held.get(path), one.octets or b""
            kept = [] if was is None else [link for link in was.metadata.links if link.rel == "describes"]
            has_failed = was is not None and was.memo.endswith(_LACKS_FILES)
            is_same = was is not None and was.metadata.hash == one.metadata.hash
            if is_same and was is not None and was.memo.rstrip(_LACKS_FILES) != one.memo:  # a comparison
                is_same = not (has_failed or self._comparison.has_files) and all(map(self._is_here, kept))
            if not is_same:
                assert self._open is not None
                fetched, failed = fetch_files(self._open, self.folder, octets, self.lists.content)
                for what in failed:
                    self.listener(Notice("HW-OAI-13", f"a file of a record cannot be had: {what}", path))
                self.tally.failed_files += len(failed)
                files |= {file.path: file for file in fetched}
                new = [self._link("describes", file.path, file.metadata.type) for file in fetched]
                addresses, has_failed = {link.href for link in new}, bool(failed)
                left = [link for link in kept if link.href not in addresses]
                self._comparison.has_gone |= bool(left) and not failed
                kept = new + left * has_failed
            one.memo += _LACKS_FILES * has_failed
            one.metadata = msgspec.structs.replace(one.metadata, links=_ordered((*one.metadata.links, *kept)))
        return [*files.values()]

    def _is_here(self, link: Link) -> bool:
        return (self.folder / path_of(self.feed.locations.link(link.href))).is_file()


def _relinked(resource: Resource, links: tuple[Link, ...]) -> Harvested:
    """A resource with other links; its file stays."""
    metadata = msgspec.structs.replace(resource.metadata, links=links)
    return Harvested(path=path_of(resource.uri), octets=None, metadata=metadata, memo=resource.memo)


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
