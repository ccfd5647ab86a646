"""Harvests a DSpace repository into a set: what an anonymous reader sees there, and nothing else.

A *comparison* reads the lists of items, by collection, and looks at each item by its own address; then at each item of
the set that no list had, because only its own address says that an item is gone. Deletions wait for the end, where the
guard judges all of them at once. An item notes the number of the comparison that has seen it, so that a comparison goes
on where it was stopped. Between comparisons, a poll looks at the items that the search index tells as modified, and
once a day lists are compared without files. A changed file does not touch its item: comparisons find it by its MD5.
"""

import datetime as dt
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal

import msgspec

from headwater.catalog.interface import Metadata, Resource
from headwater.errors import Interrupted, SourceFault
from headwater.ingest.deletion_guard import DeletionHold, DeletionsHeld, HoldReason
from headwater.ingest.dspace.repository import (
    BadAnswer,
    ListPage,
    NoAnswer,
    RemoteFile,
    Repository,
    RestObject,
    read_list,
    time_of,
)
from headwater.ingest.harvested import (
    Harvested,
    HarvestEstimate,
    HarvestTally,
    file_name,
    remove_strangers,
    take_harvested,
)
from headwater.ingest.push.feed import BATCH, Feed
from headwater.ingest.push.ingest_state import Effects
from headwater.ingest.recording import is_acceptable
from headwater.progress import Listener, Notice, Progress, silent
from headwater.retry import http_second
from headwater.spec.records import Link
from headwater.spec.uris import quote_path
from headwater.typed_decoding import from_json, from_msgpack

_POSITION: Final = "dspace"
_ITEMS, _FILES = "items/", "bitstreams/"
_FETCHED, _PART = ".headwater-fetched-", ".headwater-part-"  # files on their way; the latter outlive a kill
LIST_SECONDS: Final = 86_400.0  # lists are compared so often at least
OVERLAP: Final = dt.timedelta(hours=1)  # so late the search index may be
_MOST_FAILURES: Final = 20  # in a row: then it is not the items that fail
_MOST_AGAIN: Final = 1_000
_BATCH_ITEMS, _BATCH_OCTETS = 50, 32 << 20  # recorded at once


class _Position(msgspec.Struct):
    """How far the repository at `url` was read.

    `number`: of the newest comparison. In the phase `list` it is at a page of the first collection from `scope` on, in
    `check` at the items that no list had; `has_files`: it compares files, too. `again`: items that failed. `held`: how
    many resources there were when so many deletions were held back. `bundles`: those that the comparison reads.
    """

    url: str
    number: int = 0
    phase: Literal["", "list", "check"] = ""
    has_files: bool = True
    scope: str = ""
    page: int = 0
    began: dt.datetime | None = None
    listed: dt.datetime | None = None
    compared: dt.datetime | None = None
    since: str = ""
    again: list[str] = []
    held: tuple[int, int] | None = None
    bundles: tuple[str, ...] | None = None


class _Memo(msgspec.Struct, array_like=True, frozen=True):
    """What an item notes: the comparison that has seen it, its `lastModified`, the paths of its files."""

    number: int = 0
    modified: str = ""
    files: tuple[str, ...] = ()


def _memo(octets: bytes) -> _Memo:
    return from_msgpack(octets, _Memo) if octets else _Memo()


@dataclass(eq=False)
class DSpaceHarvester:
    """Harvests the repository into the set of `feed`, whose files lie in `folder`."""

    feed: Feed
    folder: Path
    repository: Repository
    _: KW_ONLY
    bundles: Sequence[str] = ("ORIGINAL",)
    compare_seconds: float = 604_800.0
    listener: Listener = silent
    stop: Callable[[], bool] = lambda: False

    fault_code: ClassVar[str] = "HW-DSP-06"

    def __post_init__(self) -> None:
        self.tally = HarvestTally()
        self._steps: Iterator[None] | None = None
        self._failed = dict[str, None]()
        self._numbers = itertools.count()
        self._gone = list[str]()
        self._unmarked = set[str]()  # items that this comparison has looked at, and could not mark
        self._failures = 0
        self._rests_until = 0.0

    def poll(self) -> bool:
        """Do one step of what is due; whether there may be more.

        A step is recorded when it ends, and the process may be killed at any moment. Raises what `Repository` and the
        catalog raise; the next call goes on, where the repository has asked for a longer pause not before it is over.
        """
        return self._step(compare=False)

    def harvest(self, *, compare: bool = False) -> HarvestTally:
        """Do all that is due; `compare`: a comparison with files is due. Raises as `poll` does."""
        while self._step(compare=compare):
            pass
        return self.tally

    def _step(self, *, compare: bool) -> bool:
        if time.monotonic() < self._rests_until:
            raise NoAnswer("the repository has asked for a pause", where=self.repository.url)
        try:
            self._steps = self._steps or self._due(compare=compare)
            next(self._steps)
        except BaseException as fault:
            self._steps = None
            if isinstance(fault, NoAnswer):
                self._rests_until = time.monotonic() + fault.seconds
            if not isinstance(fault, StopIteration | Interrupted):
                raise
        self.tally.requests, self.tally.unreadable = self.repository.requests, len(self._failed)
        return self._steps is not None and not self.stop()

    def estimate(self, *, compare: bool = False, samples: int = 3) -> HarvestEstimate:
        """What a first harvest, or a comparison, will take, by five requests; records nothing."""
        _, repository, began = compare, self.repository, time.monotonic()
        lists, page = repository.page("core/collections", "collections", size=1).total, repository.items(0)
        some = page.entries[:: max(1, len(page.entries) // samples)][:samples]
        found = [item.files for one in some if (item := repository.item(one.uuid, self.bundles)) is not None]
        seconds = (time.monotonic() - began) / repository.requests
        files, items = [file.octets for one in found for file in one], max(page.total, len(page.entries))
        requests = round(items * (1.02 + len(files) / max(1, len(found)))) + 2 * lists
        return HarvestEstimate(
            repository=repository.url,
            deletions="no",
            granularity="seconds",
            lists=lists,
            records=items,
            requests=requests,
            octets=round(items * sum(files) / max(1, len(found))),
            seconds=round(requests * seconds, 1),
        )

    def _due(self, *, compare: bool) -> Iterator[None]:
        is_loading = not self.feed.is_open  # a new set is made by the question
        octets, url = self.feed.state.position(_POSITION), self.repository.url
        at = _Position(url) if octets is None else from_json(octets, _Position)
        at = at if at.url == url else _Position(url, at.number)
        self._failed = dict.fromkeys(at.again)
        for left in self.folder.glob(f"{_FETCHED}*"):
            left.unlink()
        now, guard = self.feed.clock(), self.feed.guard

        def is_over(since: dt.datetime | None, seconds: float) -> bool:
            return since is None or not 0 <= (now - since).total_seconds() < seconds

        bundles = tuple(self.bundles)
        has_changed = at.bundles not in (None, bundles)
        is_due = compare or is_loading or has_changed or is_over(at.compared, self.compare_seconds)
        is_old = not at.has_files or is_over(at.began, self.compare_seconds)
        if not at.phase or has_changed or (compare and is_old):
            if is_due or is_over(at.listed, min(LIST_SECONDS, self.compare_seconds)):
                at.phase, at.scope, at.page, at.began = "list", "", 0, now
                at.has_files, at.number, at.bundles = is_due, at.number + 1, bundles
                self._write(at)  # no other comparison has this number
            elif at.held is not None and guard is not None and guard.judge(*at.held, 1) is None:
                at.phase = "check"  # somebody has consented
        if at.phase == "list":
            yield from self._list(at)
        yield from self._check(at) if at.phase else self._news(at)

    # a comparison

    def _list(self, at: _Position) -> Iterator[None]:
        """Read all lists, and look at the items that this comparison has not seen."""
        self._unmarked.clear()
        known = dict[str, _Memo]()

        def pick(page: ListPage) -> list[RestObject]:
            at.since = at.since or self._time_of(page)
            known.update(self._memos(page))
            unseen = [one for one in page.entries if known[one.uuid].number != at.number]
            return [one for one in unseen if one.uuid not in self._unmarked]

        for scope in [""] if self.repository.account is not None else self.repository.collections():
            if scope < at.scope:
                continue
            first = at.page if scope == at.scope else 0
            for number, new in read_list(partial(self.repository.items, scope=scope), pick, first):
                at.scope, at.page = scope, at.page if number is None else number
                listed = [] if at.has_files else [one for one in new if one.discoverable is not False]  # else: hidden
                same = [one.uuid for one in listed if known[one.uuid].modified == one.last_modified]
                marked = [(_item_path(one), msgspec.structs.replace(known[one], number=at.number)) for one in same]
                memos = [(uri, msgspec.msgpack.encode(memo)) for uri, memo in marked]
                self.feed.catalog.remember(self.feed.name, memos)
                yield from self._look_at([one.uuid for one in new if one.uuid not in same], at)
                known.clear()
        at.phase, at.scope, at.page = "check", "", 0
        self._write(at)

    def _check(self, at: _Position) -> Iterator[None]:
        """Look at the items of the set that no list had; then delete what is gone, as far as the guard allows."""
        feed, last, seen = self.feed, _ITEMS, 0
        self._gone.clear()
        while memos := [one for one in feed.catalog.memos(feed.name, last, BATCH) if one[0].startswith(_ITEMS)]:
            seen, last = seen + len(memos), memos[-1][0]
            unseen = [uri for uri, memo in memos if _memo(memo).number != at.number]
            yield from self._look_at([uri.removeprefix(_ITEMS).removesuffix(".json") for uri in unseen], at)
        known = feed.held(map(_item_path, self._failed))
        yield from self._look_at([one for one in self._failed if _item_path(one) not in known], at)
        if not feed.is_open and not seen:
            at.phase = ""
            self._write(at)
            raise SourceFault("the repository shows no items", code="HW-DSP-04", where=self.repository.url)
        self._delete(at)
        feed.open()
        at.phase, at.listed, at.compared = "", at.began, at.began if at.has_files else at.compared
        self._write(at)
        if at.has_files:
            for left in self.folder.glob(f"{_PART}*"):
                left.unlink()
            remove_strangers(feed, self.folder, (_ITEMS, _FILES))
        if at.held is not None and at.held[0] == at.held[1]:
            raise SourceFault("the repository shows nothing any more", code="HW-DSP-04", where=self.repository.url)

    def _delete(self, at: _Position) -> None:
        feed, gone, at.held = self.feed, list(dict.fromkeys(self._gone)), None
        guard, count = feed.guard if feed.is_open else None, feed.catalog.state(feed.name).count
        hold = guard.judge(count, len(gone), 1) if guard is not None else None
        if hold is not None:
            at.held, self.tally.held_back, gone = (count, len(gone)), hold, []
        if guard is not None and gone:
            feed.catalog.record(feed.name, (), feed.clock(), state=guard.counted(len(gone)))
        with feed.lock:
            kept, feed.guard = feed.guard, None  # it has judged all of them at once
            try:
                for start in range(0, len(gone), BATCH):
                    self.tally.add(take_harvested(feed, self.folder, [], gone[start : start + BATCH], {}))
            finally:
                feed.guard = kept
        if guard is not None and (noted := guard.after_scan(hold, is_whole=True, deleted=len(gone))) is not None:
            feed.catalog.record(feed.name, (), feed.clock(), state=noted)

    # between comparisons

    def _news(self, at: _Position) -> Iterator[None]:
        """Look at the items that failed, and at those that were modified since the last poll."""
        since = f"{(time_of(at.since) or self.feed.clock()) - OVERLAP:%Y-%m-%dT%H:%M:%SZ}"
        dates, seen = list[str](), set[str]()

        def pick(page: ListPage) -> list[RestObject]:
            dates.append(self._time_of(page))
            known = self._memos(page)
            changed = [one for one in page.entries if known[one.uuid].modified != one.last_modified]
            return [one for one in changed if one.uuid not in seen]

        yield from self._look_at(at.again, at, deletes=True)
        try:
            for _, new in read_list(partial(self.repository.items, since=since), pick):
                seen.update(one.uuid for one in new)
                yield from self._look_at([one.uuid for one in new], at, deletes=True)
        except BadAnswer as fault:
            if fault.status not in (400, 422):
                raise
            self.listener(Notice("HW-DSP-05", "the search index cannot tell what was modified", self.repository.url))
        at.since = dates[0] if dates else at.since
        self._write(at)

    def _time_of(self, page: ListPage) -> str:
        second = http_second(page.date)
        at = self.feed.clock() if second is None else dt.datetime.fromtimestamp(second, dt.UTC)
        return f"{at:%Y-%m-%dT%H:%M:%SZ}"

    def _memos(self, page: ListPage) -> dict[str, _Memo]:
        held = self.feed.held(_item_path(one.uuid) for one in page.entries)
        found = ((one.uuid, held.get(_item_path(one.uuid))) for one in page.entries)
        return {uuid: _memo(resource.memo if resource is not None else b"") for uuid, resource in found}

    # items

    def _look_at(self, uuids: Sequence[str], at: _Position, *, deletes: bool = False) -> Iterator[None]:
        """Look at items by their addresses and record them; `deletes`: also what is gone, which else waits for the end.

        Yields after each batch.
        """
        uuids, pause = list(dict.fromkeys(uuids)), None
        held, found, gone, octets = self.feed.held(map(_item_path, uuids)), dict[str, Harvested](), list[str](), 0
        for number, uuid in enumerate(uuids, 1):
            try:
                here, away = self._look(uuid, held.get(_item_path(uuid)), at.number)
            except NoAnswer as fault:  # what was found before is recorded first
                here, away, pause = [], [], fault
            found |= {one.path: one for one in here}  # a file may have moved between two items meanwhile
            gone += away
            octets += sum(len(one.octets or b"") + (one.metadata.length or 0 if one.file else 0) for one in here)
            if pause is None and number % _BATCH_ITEMS and number < len(uuids) and octets < _BATCH_OCTETS:
                continue
            if not deletes:
                self._gone, gone = self._gone + gone, []
            gone = [one for one in gone if one not in found]
            resources, positions = [*found.values()], self._position(at)
            try:
                taken = take_harvested(self.feed, self.folder, resources, gone, positions)
            except DeletionsHeld:  # the next comparison judges all of them
                count = self.feed.catalog.state(self.feed.name).count
                self.tally.held_back = DeletionHold(HoldReason.ANNOUNCED, len(gone), count)
                taken = take_harvested(self.feed, self.folder, resources, [], positions)
            self.tally.add(taken)
            self.listener(Progress("records", self.tally.records))
            if pause is not None:
                raise pause
            found, gone, octets = {}, [], 0
            yield

    def _look(self, uuid: str, held: Resource | None, number: int) -> tuple[list[Harvested], list[str]]:
        """What an item has now, and the paths of what it has no longer; nothing where it cannot be read."""
        before, path = _memo(held.memo if held is not None else b""), _item_path(uuid)
        self.tally.records += 1
        self._unmarked.add(uuid)
        try:
            item = self.repository.item(uuid, self.bundles)
        except BadAnswer as fault:
            self._fail(uuid, fault)
            return [], []
        files = {f"{_FILES}{one.uuid}/{file_name(one.name)}": one for one in item.files} if item is not None else {}
        uris = {one: quote_path(one.encode()) for one in (*files, *before.files)}
        present = self.feed.held(uris.values())
        known = {one: present[uri] for one, uri in uris.items() if uri in present}
        gone = {one: None for one in before.files if one in known and _is_of(path, known[one])}
        if item is None:
            self._failed.pop(uuid, None)
            return [], [*gone, *([path] if held is not None else [])]
        found, is_whole = list[Harvested](), True
        for name, file in files.items():
            try:
                resource = self._resource(file, name, known.get(name), self.feed.locations.absolute(path))
            except BadAnswer as fault:
                self._fail(uuid, fault)
                is_whole = False
            else:
                if resource is None:
                    continue
                found.append(resource)
            gone.pop(name, None)
        if is_whole:
            self._failures = 0
            self._failed.pop(uuid, None)
        if is_seen := is_whole and not gone:
            self._unmarked.discard(uuid)
        kept = {one: None for one in (*files, *gone) if one in known} | {one.path: None for one in found}
        memo = _Memo(number if is_seen else before.number, item.modified if is_whole else "", tuple(kept))
        links = () if item.collection is None else (Link(rel="collection", href=item.collection),)
        metadata = Metadata(lastmod=time_of(item.modified), type="application/json", links=links)
        own = Harvested(path=path, octets=item.octets, metadata=metadata, memo=msgspec.msgpack.encode(memo))
        return [own, *found], [*gone]

    def _resource(self, file: RemoteFile, path: str, held: Resource | None, about: str) -> Harvested | None:
        """The resource of a file, fetched where its content is new; None where it is not public."""
        fetched, metadata = None, held.metadata if held is not None else Metadata()
        is_same = f"md5:{file.md5}" in (metadata.hash or "").split() and metadata.length == file.octets
        if is_same and (self.folder / path).is_file():
            if not self.repository.is_open(file):
                return None
        else:
            fetched = self.folder / f"{_FETCHED}{next(self._numbers)}"
            part = self.folder / f"{_PART}{file.uuid}-{file.md5}"
            self.folder.mkdir(parents=True, exist_ok=True)
            fetched.unlink(missing_ok=True)
            if (answer := self.repository.fetch(file, fetched, part)) is None:
                return None
            second = http_second(answer.headers.get("last-modified"))
            metadata = Metadata(
                lastmod=self.feed.clock() if second is None else dt.datetime.fromtimestamp(second, dt.UTC),
                hash=f"md5:{answer.digests['md5']} sha-256:{answer.digests['sha-256']}",
                length=answer.octets,
                type=answer.headers.get("content-type"),
            )
        link = Link(rel="describedby", href=about)
        metadata = msgspec.structs.replace(metadata, type=file.type or metadata.type, links=(link,))
        if not is_acceptable(path, metadata):  # no media type
            metadata = msgspec.structs.replace(metadata, type=None)
        return Harvested(path=path, octets=None, file=fetched, metadata=metadata)

    def _fail(self, uuid: str, fault: BadAnswer) -> None:
        """Note that something of an item failed: its published state stays. Raises the fault where all fails."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise fault
        self._failed[uuid] = None
        self.listener(Notice(self.fault_code, f"something of an item failed: {fault.what}", fault.where))

    def _write(self, at: _Position) -> None:
        effects = Effects(positions=self._position(at))
        self.feed.attempt(lambda: self.feed.write([], effects))

    def _position(self, at: _Position) -> dict[str, bytes]:
        at.again = [*self._failed][:_MOST_AGAIN]
        return {_POSITION: msgspec.json.encode(at)}


def _item_path(uuid: str) -> str:
    return f"{_ITEMS}{uuid}.json"


def _is_of(path: str, file: Resource) -> bool:
    """Whether a file is still that of the item at this path: it may have moved to another one."""
    return any(one.rel == "describedby" and one.href.endswith(f"/{path}") for one in file.metadata.links)
