"""Harvests a DSpace repository into a set: what an anonymous reader sees there, and nothing else.

A *comparison* reads the lists of items, by collection, and looks at each item by its own address; then at each item of
the set that no list had, because only its own address says that an item is gone. Between comparisons, a poll looks at
the items that the search index tells as modified, and once a day lists are compared without files. A changed file does
not touch its item: comparisons find it by its MD5.

An item notes the number of the comparison that has seen it, and the files that it has no longer. So a comparison goes
on where it was stopped, and deletions, which wait for the end, are found by these notes: the guard judges all of them
at once, and again in each run as long as it holds them back.
"""

import datetime as dt
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from headwater.catalog.interface import Metadata, Resource
from headwater.errors import SourceFault
from headwater.ingest.deletion_guard import HoldReason
from headwater.ingest.dspace.repository import (
    BadAnswer,
    Repository,
    RestObject,
    item_octets,
    read_list,
    time_of,
)
from headwater.ingest.harvested import (
    Harvested,
    Harvester,
    HarvestEstimate,
    HarvestTally,
    NoAnswer,
    delete_unseen,
    file_name,
    http_time,
    remove_strangers,
    take_harvested,
)
from headwater.ingest.push.feed import BATCH, Feed
from headwater.ingest.recording import is_acceptable
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.records import Link
from headwater.spec.uris import quote_path
from headwater.typed_decoding import from_json, from_msgpack

_POSITION: Final = "dspace"
_ITEMS, _FILES = "items/", "bitstreams/"
_ASIDE: Final = ".headwater"  # for files on their way: a folder of this name is never published
LIST_SECONDS: Final = 86_400.0  # lists are compared so often at least
OVERLAP: Final = dt.timedelta(hours=1)  # so late the search index may be
_MOST_BAD, _MOST_SILENT = 20, 3  # failures in a row: then it is not the items that fail
_MOST_AGAIN: Final = 1_000
_BATCH_ITEMS, _BATCH_OCTETS = 50, 32 << 20  # recorded at once


class _Position(msgspec.Struct):
    """How far the repository at `url` was read.

    `number`: of the newest comparison, which reads the collections from `scope` on, None when it has ended; it began at
    `began`, and `has_files`: it compares files, too, those of `bundles`. `listed` and `compared`: when the last one
    with lists, and the last one with files, began. `since`: later modifications are news. `again`: items that failed.
    `has_gone`: something is to be deleted.
    """

    url: str
    number: int = 0
    scope: str | None = None
    has_files: bool = True
    bundles: tuple[str, ...] = ()
    began: dt.datetime | None = None
    listed: dt.datetime | None = None
    compared: dt.datetime | None = None
    since: dt.datetime | None = None
    again: list[str] = []
    has_gone: bool = False


class _Memo(msgspec.Struct, array_like=True, frozen=True):
    """What an item notes: the newest comparison that has seen it (0: it is gone), its `lastModified`, the paths of its
    files, and of those that it has no longer."""

    number: int = 0
    modified: str = ""
    files: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def _decoded(octets: bytes) -> _Memo:
    return from_msgpack(octets, _Memo) if octets else _Memo()


def _memo(item: Resource | None) -> _Memo:
    return _Memo() if item is None else _decoded(item.memo)


def _noted(items: list[Harvested], memo: _Memo) -> list[Harvested]:
    for one in items:
        one.memo = msgspec.msgpack.encode(memo)
    return items


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
        self._failed = dict[str, None]()
        self._failures = 0
        self._pause: SourceFault | None = None  # ends the step when what was found is recorded

    def close(self) -> None:
        """Leave the harvest that is under way."""
        super().close()
        self.tally.requests, self.tally.unreadable = self.repository.requests, len(self._failed)

    def estimate(self, *, compare: bool = False, samples: int = 3) -> HarvestEstimate:
        """What a first harvest, or a comparison, will take, by five requests; records nothing, and needs no account."""
        _, repository, began = compare, self.repository, time.monotonic()
        lists, page = repository.page("core/collections", "collections").total, repository.items(0)
        some = page.entries[:: max(1, len(page.entries) // samples)][:samples]
        found = [item[1] for one in some if (item := repository.item(one.uuid, self.bundles)) is not None]
        seconds = (time.monotonic() - began) / repository.requests
        files, items = [file.size_bytes or 0 for one in found for file in one], max(page.total, len(page.entries))
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

    def steps(self, *, compare: bool) -> Iterator[None]:
        """A comparison where one is due or under way, else the news; then the items that have failed before."""
        is_loading = not self.feed.is_open  # a new set is made by the question
        octets, url, now = self.feed.state.position(_POSITION), self.repository.url, self.feed.clock()
        at = _Position(url) if octets is None else from_json(octets, _Position)
        at = at if at.url == url else _Position(url, at.number)
        again, bundles = at.again, tuple(self.bundles)

        def is_over(since: dt.datetime | None, seconds: float) -> bool:
            return since is None or not 0 <= (now - since).total_seconds() < seconds

        is_changed, is_old = at.bundles != bundles, not at.has_files or is_over(at.began, self.compare_seconds)
        has_files = compare or is_changed or is_loading or is_over(at.compared, self.compare_seconds)
        is_due = has_files or is_over(at.listed, min(LIST_SECONDS, self.compare_seconds))
        if is_due and (at.scope is None or is_changed or (compare and is_old)):
            at.scope, at.has_files, at.bundles, at.began = "", has_files, bundles, now
            at.number, at.again, again = at.number + 1, [], []  # it looks at all of them
            self._write(at)  # no other comparison has this number
        self._failed, self._pause, is_comparison = dict.fromkeys(at.again), None, at.scope is not None
        for work in ((), self._compare(at) if is_comparison else self._news(at), self._look_at(again, at)):
            yield from work
            if at.has_gone and at.scope is None:  # also before the work: somebody may have consented
                self._judge(at)
        hold = self.tally.held_back
        if is_comparison and hold is not None and hold.reason is HoldReason.ALL_GONE:
            raise SourceFault("the repository shows nothing any more", code="HW-DSP-04", where=self.repository.url)

    def _judge(self, at: _Position) -> None:
        """Delete what is gone by the notes of the items, as far as the guard allows."""
        feed, gone = self.feed, list[str]()
        for memos in self._memos():
            owners = dict[str, str]()
            for uuid, memo in memos:
                is_gone, path = memo.number != at.number, _item_path(uuid)
                gone += [path] if is_gone else []
                owners |= dict.fromkeys((*memo.files, *memo.gone) if is_gone else memo.gone, path)
            gone += [path for path, file in self._present(owners).items() if _is_of(owners[path], file)]
        hold = delete_unseen(feed, gone, lambda part: self.tally.add(take_harvested(feed, self.folder, [], part, {})))
        at.has_gone, self.tally.held_back = hold is not None, hold
        self._write(at)

    def _compare(self, at: _Position) -> Iterator[None]:
        """Look at what the lists have, then at the items of the set that no list had."""
        feed, repository, has_items = self.feed, self.repository, False
        is_whole = repository.account is not None and at.has_files  # else what is hidden would not be missed
        for scope in [""] if is_whole else repository.collections():
            if scope and scope < (at.scope or ""):
                continue
            at.scope = scope
            for listed in read_list(repository.all_items if is_whole else partial(repository.items, scope=scope)):
                at.since = at.since or repository.answered_at
                yield from self._look_at(self._chosen(listed, at, all_unseen=at.has_files), at)
        for memos in self._memos():
            has_items, unseen = True, [uuid for uuid, memo in memos if memo.number != at.number]
            yield from self._look_at([one for one in unseen if one not in self._failed], at)
        at.scope = None
        if not feed.is_open and not has_items:
            self._write(at)
            raise SourceFault("the repository shows no items", code="HW-DSP-04", where=repository.url)
        at.listed, at.compared, at.has_gone = at.began, at.began if at.has_files else at.compared, True
        feed.open()
        self._write(at)
        remove_strangers(feed, self.folder, (_ASIDE, _ITEMS, _FILES))

    def _news(self, at: _Position) -> Iterator[None]:
        """Look at the items modified since the last poll."""
        since, began = f"{(at.since or self.feed.clock()) - OVERLAP:%Y-%m-%dT%H:%M:%SZ}", None
        try:
            for listed in read_list(partial(self.repository.items, since=since)):
                began = began or self.repository.answered_at
                yield from self._look_at(self._chosen(listed, at, all_unseen=False), at)
        except BadAnswer as fault:
            if fault.status not in (400, 422):
                raise
            self.listener(Notice("HW-DSP-05", "the search index cannot tell what was modified", self.repository.url))
        at.since = began or at.since
        self._write(at)

    def _chosen(self, listed: Sequence[RestObject], at: _Position, *, all_unseen: bool) -> list[str]:
        """The items of a list to look at: those that were modified, the others are seen by that; or `all_unseen`."""
        held = self.feed.held(_item_path(one.uuid) for one in listed)
        chosen, marked = list[str](), list[tuple[str, bytes]]()
        for one in listed:
            path = _item_path(one.uuid)
            memo = _memo(held.get(path))
            if one.uuid in self._failed:
                continue
            if memo.number != at.number if all_unseen else memo.modified != one.last_modified:
                chosen.append(one.uuid)
            elif memo.number != at.number:
                marked.append((path, msgspec.msgpack.encode(msgspec.structs.replace(memo, number=at.number))))
        self.feed.catalog.remember(self.feed.name, marked)
        return chosen

    def _memos(self) -> Iterator[list[tuple[str, _Memo]]]:
        """The items of the set with their memos."""
        last = _ITEMS
        while memos := [
            one for one in self.feed.catalog.memos(self.feed.name, last, BATCH) if one[0].startswith(_ITEMS)
        ]:
            last = memos[-1][0]
            yield [(uri.removeprefix(_ITEMS).removesuffix(".json"), _decoded(memo)) for uri, memo in memos]

    # items

    def _look_at(self, uuids: Sequence[str], at: _Position) -> Iterator[None]:
        """Look at items by their addresses and record them; yields after each batch."""
        held, found, octets = self.feed.held(map(_item_path, uuids)), dict[str, Harvested](), 0
        for number, uuid in enumerate(uuids, 1):
            here = self._look(uuid, held.get(_item_path(uuid)), at)
            found |= {one.path: one for one in here}  # a file may have moved between two items meanwhile
            octets += sum(len(one.octets or b"") + (one.metadata.length or 0 if one.file else 0) for one in here)
            if self._pause is None and number % _BATCH_ITEMS and number < len(uuids) and octets < _BATCH_OCTETS:
                continue
            self.tally.add(take_harvested(self.feed, self.folder, [*found.values()], [], self._position(at)))
            self.listener(Progress("records", self.tally.records))
            pause, self._pause = self._pause, None
            if pause is not None:
                raise pause
            found, octets = {}, 0
            yield

    def _look(self, uuid: str, held: Resource | None, at: _Position) -> list[Harvested]:
        """What an item has now, with a note of what it has no longer. What cannot be read stays as it is."""
        before, path = _memo(held), _item_path(uuid)
        same = [] if held is None else [Harvested(path=path, octets=None, metadata=held.metadata)]
        self.tally.records += 1
        self._failed.pop(uuid, None)
        try:
            read = self.repository.item(uuid, self.bundles)
        except (BadAnswer, NoAnswer) as fault:
            self._fail(uuid, fault)
            return _noted(same, msgspec.structs.replace(before, number=at.number, modified=""))
        if read is None:
            self._failures, at.has_gone = 0, True
            return _noted(same, msgspec.structs.replace(before, number=0))
        item, files = read[0], {f"{_FILES}{one.uuid}/{file_name(one.name or one.uuid)}": one for one in read[1]}
        known, kept, found = self._present((*files, *before.files, *before.gone)), list[str](), list[Harvested]()
        for name, file in files.items():
            is_kept = name in known
            if self._pause is None:
                try:
                    resource = self._resource(file, name, known.get(name), self.feed.locations.absolute(path))
                except (BadAnswer, NoAnswer) as fault:
                    self._fail(uuid, fault)
                else:
                    is_kept = resource is not None
                    found += [] if resource is None else [resource]
            kept += [name] if is_kept else []
        gone = [name for name, file in known.items() if name not in kept and _is_of(path, file)]
        is_whole, at.has_gone = uuid not in self._failed, at.has_gone or bool(gone)
        self._failures = 0 if is_whole else self._failures
        owner = item.part("owningCollection")
        address = f"{self.repository.url}/core/collections/{owner.uuid}" if owner and owner.uuid else None
        links = () if address is None else (Link(rel="collection", href=address),)
        metadata = Metadata(lastmod=time_of(item.last_modified), type="application/json", links=links)
        own = [Harvested(path=path, octets=item_octets(item), metadata=metadata)]
        modified = (item.last_modified or "") if is_whole else ""
        return [*_noted(own, _Memo(at.number, modified, tuple(kept), tuple(gone))), *found]

    def _resource(self, file: RestObject, path: str, held: Resource | None, about: str) -> Harvested | None:
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

    def _present(self, paths: Iterable[str]) -> dict[str, Resource]:
        """The resources of the set among these paths."""
        uris = {quote_path(path.encode()): path for path in paths}
        return {uris[uri]: resource for uri, resource in self.feed.held(uris).items()}

    def _fail(self, uuid: str, fault: BadAnswer | NoAnswer) -> None:
        """Note that something of an item failed: its published state stays. Where all fails, or the repository asks for
        a pause, the step ends with the fault."""
        self._failures += 1
        seconds, most = (fault.pause_seconds, _MOST_SILENT) if isinstance(fault, NoAnswer) else (0.0, _MOST_BAD)
        if seconds or self._failures >= most:
            self._pause = fault
        self._failed[uuid] = None
        self.listener(Notice(self.fault_code, f"something of an item failed: {fault.what}", fault.where))

    def _write(self, at: _Position) -> None:
        take_harvested(self.feed, self.folder, [], [], self._position(at))

    def _position(self, at: _Position) -> dict[str, bytes]:
        at.again = [*self._failed][:_MOST_AGAIN]
        return {_POSITION: msgspec.json.encode(at)}


def _item_path(uuid: str) -> str:
    return f"{_ITEMS}{uuid}.json"


def _is_of(path: str, file: Resource) -> bool:
    """Whether a file is still that of the item at this path: it may have moved to another one."""
    return any(one.rel == "describedby" and one.href.endswith(f"/{path}") for one in file.metadata.links)
