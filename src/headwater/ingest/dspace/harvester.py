"""Harvests a DSpace repository into a set: what an anonymous reader sees there, and nothing else.

A *comparison* reads the lists of items, by collection, and looks at each item by its own address; then at each item of
the set that no list had, because only its own address says that an item is gone. Between comparisons, a poll looks at
the items that the search index tells as modified, and once a day lists are compared without files. A changed file does
not touch its item: comparisons find it by its MD5.

An item notes the number of the comparison that has seen it, so that a comparison goes on where it was stopped. What is
gone is noted, too; the guard judges all of it at once, and again in each run as long as it holds it back.
"""

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from headwater.catalog.interface import Metadata, Resource
from headwater.errors import SourceFault
from headwater.ingest.deletion_guard import HoldReason
from headwater.ingest.dspace.repository import (
    BadAnswer,
    ListPage,
    Repository,
    RestObject,
    item_octets,
    read_list,
    time_of,
)
from headwater.ingest.folder.comparison import memos_of
from headwater.ingest.harvested import (
    Harvested,
    Harvester,
    HarvestEstimate,
    HarvestTally,
    NoAnswer,
    delete_unseen,
    file_name,
    http_time,
    metadata_of,
    remove_strangers,
    take_harvested,
)
from headwater.ingest.push.feed import BATCH, Feed
from headwater.ingest.recording import is_acceptable
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.records import Link
from headwater.spec.times import to_microseconds
from headwater.typed_decoding import from_json, from_msgpack

_POSITION: Final = "dspace"
_ITEMS, _FILES = "items/", "bitstreams/"
_RESERVED: Final = re.compile("[:@]")  # in URIs
_ASIDE: Final = ".headwater"  # for files on their way: a folder of this name is never published
_GONE: Final = b"0"  # the memo of what is to be deleted
_LIST_SECONDS: Final = 86_400.0  # lists are compared so often at least
_OVERLAP: Final = dt.timedelta(hours=1)  # so late the search index may be
_MOST_FAILURES: Final = 10  # in a row: then it is not the items that fail
_MOST_AGAIN: Final = 1_000
_BATCH_ITEMS, _BATCH_OCTETS = 50, 32 << 20  # recorded at once


class _Position(msgspec.Struct):
    """How far the repository and the bundles that `source` tells were read.

    `number`: of the newest comparison, the time at which it began (microseconds). It reads the collections from `scope`
    on, None when it has ended. `is_whole`: it compares files, too; `whole`: the last one that did, and has ended.
    `since`: later modifications are news. `failed`: items that are looked at again. `has_gone`: some deletions wait.
    """

    source: str = ""
    number: int = 0
    scope: str | None = None
    is_whole: bool = True
    whole: int = 0
    since: dt.datetime | None = None
    failed: set[str] = set()
    has_gone: bool = False


class _Memo(msgspec.Struct, array_like=True, frozen=True):
    """What an item notes: the newest comparison that has seen it, its `lastModified`, and the URIs of its files."""

    number: int = 0
    modified: str = ""
    files: tuple[str, ...] = ()

    def encoded(self, **changed: object) -> bytes:
        return msgspec.msgpack.encode(msgspec.structs.replace(self, **changed))


@dataclass(eq=False)
class DSpaceHarvester(Harvester):
    """Harvests the repository into the set of `feed`, whose files lie in `folder`."""

    feed: Feed
    folder: Path
    repository: Repository
    _: KW_ONLY
    bundles: Sequence[str] = ("ORIGINAL",)
    compare_seconds: float = 604_800.0
    listener: Listener = silent

    fault_code: ClassVar[str] = "HW-DSP-06"

    def __post_init__(self) -> None:
        self.tally = HarvestTally()
        self._failures = 0  # in a row

    def close(self) -> None:
        """Leave the harvest that is under way."""
        super().close()
        self.tally.requests = self.repository.requests

    def estimate(self, *, compare: bool = False) -> HarvestEstimate:
        """What a first harvest, or a comparison, will take, by five requests; records nothing, and needs no account."""
        _, repository, began = compare, self.repository, time.monotonic()
        lists, page = repository.page("core/collections", "collections").total, repository.items(0)
        some = page.entries[:: max(1, len(page.entries) // 3)][:3]
        files = [file.size_bytes or 0 for one in some for file in repository.item(one.uuid, self.bundles)[1]]
        seconds = (time.monotonic() - began) / repository.requests
        items, share = max(page.total, len(page.entries)), 1 / max(1, len(some))
        requests = round(items * (1.02 + share * len(files))) + 2 * lists
        return HarvestEstimate(
            repository=repository.url,
            deletions="no",
            granularity="seconds",
            lists=lists,
            records=items,
            requests=requests,
            octets=round(items * share * sum(files)),
            seconds=round(requests * seconds, 1),
        )

    def steps(self, *, compare: bool) -> Iterator[None]:
        """A comparison where one is due or under way, else the news; then the items that have failed before."""
        self._found, self._gone = dict[str, Harvested](), set[str]()  # what is recorded next, by URI
        at = self._due(compare=compare)
        again, is_comparison = [*at.failed], at.scope is not None
        for chosen in (self._compared(at) if is_comparison else self._news(at), [again]):
            for uuids in chosen:
                yield from self._look_at(uuids, at)
            self._judge(at)
        self.tally.unreadable, hold = len(at.failed), self.tally.held_back
        if is_comparison and hold is not None and hold.reason is HoldReason.ALL_GONE:
            raise SourceFault("the repository shows nothing any more", code="HW-DSP-04", where=self.repository.url)

    def _due(self, *, compare: bool) -> _Position:
        """The position, with a new comparison where one is due."""
        is_loading, now = not self.feed.is_open, to_microseconds(self.feed.clock())  # a new set is made by the question
        octets, source = self.feed.state.position(_POSITION), f"{self.repository.url} {' '.join(self.bundles)}"
        at = _Position(source) if octets is None else from_json(octets, _Position)
        at = at if at.source == source else _Position(source)  # of another one, nothing was read yet

        def is_over(number: int, seconds: float) -> bool:
            return not 0 <= now - number < seconds * 1e6

        is_whole = compare or is_loading or is_over(at.whole, self.compare_seconds)
        is_due = is_whole or is_over(at.number, min(_LIST_SECONDS, self.compare_seconds))
        is_old = not at.is_whole or is_over(at.number, self.compare_seconds)
        if (is_due and at.scope is None) or (compare and is_old):
            at.number, at.scope, at.is_whole, at.failed = now, "", is_whole, set()  # it looks at all of them
            self._commit(at)
        return at

    def _compared(self, at: _Position) -> Iterator[Sequence[str]]:
        """The items that a comparison looks at: of the lists, then those of the set that no list had."""
        feed, last = self.feed, _ITEMS
        for ask in self._lists(at):
            for listed in read_list(ask):
                at.since = at.since or self.repository.answered_at
                yield self._chosen(listed, at)
        while memos := feed.catalog.memos(feed.name, last, BATCH):
            last = memos[-1][0]
            unseen = (uri for uri, memo in memos if _memo(memo).number != at.number)
            yield [uuid for uri in unseen if (uuid := uri[len(_ITEMS) : -len(".json")]) not in at.failed]
        at.scope = None
        if not feed.is_open and last == _ITEMS:
            self._commit(at)
            raise SourceFault("the repository shows no items", code="HW-DSP-04", where=self.repository.url)
        at.whole = at.number if at.is_whole else at.whole
        feed.open()
        self._commit(at)
        remove_strangers(feed, self.folder, (_ASIDE, _ITEMS, _FILES))

    def _lists(self, at: _Position) -> Iterator[Callable[[int], ListPage]]:
        """The lists of a comparison, but those that were read before."""
        repository = self.repository
        if at.is_whole and repository.account is not None:  # else what is hidden would not be missed
            yield repository.all_items
            return
        for scope in repository.collections():
            if scope >= (at.scope or ""):
                at.scope = scope
                yield partial(repository.items, scope=scope)

    def _news(self, at: _Position) -> Iterator[Sequence[str]]:
        """The items modified since the last poll."""
        since, began = f"{(at.since or self.feed.clock()) - _OVERLAP:%Y-%m-%dT%H:%M:%SZ}", None
        try:
            for listed in read_list(partial(self.repository.items, since=since)):
                began = began or self.repository.answered_at
                yield self._chosen(listed, at)
        except BadAnswer as fault:
            if fault.status not in (400, 422):
                raise
            self.listener(Notice("HW-DSP-05", "the search index cannot tell what was modified", self.repository.url))
        at.since = began or at.since
        self._commit(at)

    def _chosen(self, listed: Sequence[RestObject], at: _Position) -> list[str]:
        """The items of a list to look at: those that were modified, for a whole comparison those that it has not seen,
        too; the others are seen by that."""
        held, chosen, seen = self.feed.held(_item_path(one.uuid) for one in listed), list[str](), dict[str, bytes]()
        for one in (one for one in listed if one.uuid not in at.failed):
            path = _item_path(one.uuid)
            memo = _memo(held[path].memo if path in held else b"")
            if memo.modified != one.last_modified or (at.is_whole and memo.number != at.number):
                chosen.append(one.uuid)
            elif memo.number != at.number:
                seen[path] = memo.encoded(number=at.number)
        self.feed.catalog.remember(self.feed.name, [*seen.items()])
        return chosen

    def _judge(self, at: _Position) -> None:
        """Delete what is noted as gone, as far as the guard allows."""
        if at.has_gone:
            gone = [uri for uri, memo in memos_of(self.feed.catalog, self.feed.name) if memo == _GONE]
            self.tally.held_back = delete_unseen(self.feed, gone, lambda part: self._take((), part, {}), self.listener)
            at.has_gone = self.tally.held_back is not None
            self._commit(at)

    # items

    def _look_at(self, uuids: Sequence[str], at: _Position) -> Iterator[None]:
        """Look at items by their addresses and record them; yields after each batch."""
        held = self.feed.held(map(_item_path, uuids))
        for number, uuid in enumerate(uuids, 1):
            try:
                self._look(uuid, held.get(_item_path(uuid)), at)
            except SourceFault:
                self._commit(at)  # what came before a pause
                raise
            octets = sum(len(one.octets or b"") + (one.metadata.length or 0) for one in self._found.values())
            if number % _BATCH_ITEMS == 0 or number == len(uuids) or octets >= _BATCH_OCTETS:
                self._commit(at)
                yield

    def _look(self, uuid: str, held: Resource | None, at: _Position) -> None:
        """Take what an item has now, and what it has no longer. What cannot be read stays as it is."""
        path, before = _item_path(uuid), _memo(b"" if held is None else held.memo)
        at.failed.discard(uuid)
        self.tally.records += 1
        try:
            item, listed = self.repository.item(uuid, self.bundles)
        except (BadAnswer, NoAnswer) as fault:
            self._fail(uuid, fault, at)
            return
        files = {_file_path(one): one for one in listed}
        gone, known = [one for one in before.files if one not in files], self.feed.held([*files, *before.files])
        if item is not None:
            own = self._found[path] = self._item(item)
            both = tuple(dict.fromkeys((*before.files, *files)))
            own.memo = before.encoded(modified="", files=both)  # until its files are here, too
            for name, file in files.items():
                try:
                    found = self._file(file, name, known.get(name), self.feed.locations.absolute(path))
                except (BadAnswer, NoAnswer) as fault:
                    self._fail(uuid, fault, at)
                    continue
                if found is None:
                    gone.append(name)
                else:
                    self._found[name] = found
            modified = (item.last_modified or "") if uuid not in at.failed else ""
            own.memo = _Memo(at.number, modified, tuple(one for one in files if one not in gone)).encoded()
        elif held is not None:
            self._gone.add(path)
        self._gone |= {one for one in gone if one in known and _is_of(path, known[one])}
        self._failures = 0 if uuid not in at.failed else self._failures

    def _item(self, item: RestObject) -> Harvested:
        """The metadata resource of an item."""
        owner, address = item.part("owningCollection"), f"{self.repository.url}/core/collections/"
        links = (Link(rel="collection", href=f"{address}{owner.uuid}"),) if owner and owner.uuid else ()
        octets = item_octets(item)
        metadata = metadata_of(octets, "application/json", time_of(item.last_modified), links)
        return Harvested(path=_item_path(item.uuid), octets=octets, metadata=metadata)

    def _file(self, file: RestObject, path: str, held: Resource | None, about: str) -> Harvested | None:
        """The resource of a file, fetched where its content is new; None where it is not public."""
        fetched, metadata, kind = None, held.metadata if held is not None else Metadata(), file.part("format")
        is_same = f"md5:{file.md5}" in (metadata.hash or "").split() and metadata.length == file.size_bytes
        if is_same and (self.folder / path).is_file():
            if not self.repository.is_open(file):
                return None
        else:
            fetched = self.folder / _ASIDE / file.uuid
            fetched.parent.mkdir(parents=True, exist_ok=True)
            fetched.unlink(missing_ok=True)
            if (answer := self.repository.fetch(file, fetched, Path(f"{fetched}-{file.md5}"))) is None:
                return None
            metadata = Metadata(
                lastmod=http_time(answer.headers.get("last-modified")) or self.feed.clock(),
                hash=f"md5:{answer.digests['md5']} sha-256:{answer.digests['sha-256']}",
                length=answer.octets,
                type=answer.headers.get("content-type"),
            )
        link = Link(rel="describedby", href=about)
        metadata = msgspec.structs.replace(metadata, type=(kind and kind.mimetype) or metadata.type, links=(link,))
        if not is_acceptable(path, metadata):  # no media type
            metadata = msgspec.structs.replace(metadata, type=None)
        return Harvested(path=path, octets=None, file=fetched, metadata=metadata)

    def _fail(self, uuid: str, fault: BadAnswer | NoAnswer, at: _Position) -> None:
        """Note that something of an item failed. Raises the fault where all fails, or the repository wants a pause."""
        at.failed.add(uuid)
        self.listener(Notice(self.fault_code, f"something of an item failed: {fault.what}", fault.where))
        self._failures += 1
        if fault.pause_seconds or self._failures >= _MOST_FAILURES:
            raise fault

    def _commit(self, at: _Position) -> None:
        """Record what was found, and how far the repository was read. What is gone is only noted."""
        if self._gone:
            at.has_gone = True
            self.feed.catalog.remember(self.feed.name, [(uri, _GONE) for uri in self._gone])
        kept = msgspec.structs.replace(at, failed=set(islice(at.failed, _MOST_AGAIN)))
        positions = {_POSITION: msgspec.json.encode(kept)}
        self._take([*self._found.values()], (), positions)
        self._found.clear()
        self._gone.clear()
        self.listener(Progress("records", self.tally.records))

    def _take(self, found: Sequence[Harvested], gone: Sequence[str], positions: dict[str, bytes]) -> None:
        self.tally.add(take_harvested(self.feed, self.folder, found, gone, positions))


def _memo(octets: bytes) -> _Memo:
    return _Memo() if octets in (b"", _GONE) else from_msgpack(octets, _Memo)


def _item_path(uuid: str) -> str:
    return f"{_ITEMS}{uuid}.json"


def _file_path(file: RestObject) -> str:
    """Where a file lies; this is its URI, too."""
    return f"{_FILES}{file.uuid}/{file_name(_RESERVED.sub('_', file.name or file.uuid))}"


def _is_of(path: str, file: Resource) -> bool:
    """Whether a file is still that of the item at this path: it may have moved to another one."""
    return any(one.rel == "describedby" and one.href.endswith(f"/{path}") for one in file.metadata.links)
