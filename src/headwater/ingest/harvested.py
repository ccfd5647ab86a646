"""Harvests a repository into a set: in steps, with octets as files below the set's folder, then as changes.

A file is durable and in its place before the catalog has its digest. Whatever stops a batch between the two, the same
batch comes again: how far a repository was read is recorded in the batch's own transaction (`Effects.positions`).
"""

import datetime as dt
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.interface import Metadata, Resource
from headwater.errors import Interrupted, SourceFault, StoreFault
from headwater.files.file_copies import write_new
from headwater.files.folder_marks import is_reserved
from headwater.ingest.deletion_guard import DeletionHold
from headwater.ingest.push.feed import BATCH, INVERSE, Draft, Feed, statements_of, with_links
from headwater.ingest.push.ingest_state import ABOUT, Effects, Statement
from headwater.progress import Listener, Notice
from headwater.retry import http_second
from headwater.spec.records import Link
from headwater.spec.uris import quote_path
from headwater.storage.durable import make_folders, sync_many

_LONGEST_NAME: Final = 200  # octets: a file system takes 255, and copies add suffixes
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9._:@-]|^[.-]")
_SAFE: Final = re.compile(r"[A-Za-z0-9_:@][A-Za-z0-9._:@-]*").fullmatch


def http_time(text: str | None) -> dt.datetime | None:
    """The time that an HTTP header says; None where there is none."""
    second = http_second(text)
    return None if second is None else dt.datetime.fromtimestamp(second, dt.UTC)


def file_name(identifier: str, suffix: str = "") -> str:
    """The name of the file for an identifier; two identifiers never have the same.

    What is neither a letter, a digit nor one of `._:@-` is written as `~` and two hexadecimal digits for each octet. A
    name that is too long, or would be reserved, ends in a digest of the whole.
    """
    if len(identifier) + len(suffix) < _LONGEST_NAME and _SAFE(identifier) and "eadwa" not in identifier.lower():
        return identifier + suffix
    octets = identifier.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], octets).decode("ascii")
    if len(name) + len(suffix) > _LONGEST_NAME or not name or is_reserved(f"{name}{suffix}".encode()):
        digest = hashlib.sha256(octets).hexdigest()
        name = f"{name[: _LONGEST_NAME - len(suffix) - len(digest) - 2]}~-{digest}"
    return name + suffix


def uri_of(path: str) -> str:
    """The catalog's URI of a file."""
    return quote_path(path.encode())


def path_of(uri: str) -> str:
    """Where a resource of the catalog lies, below the set's folder."""
    return unquote_to_bytes(uri).decode()


def metadata_of(
    octets: bytes, type_: str, lastmod: dt.datetime | None = None, links: tuple[Link, ...] = ()
) -> Metadata:
    """The metadata of a resource with these octets."""
    digest = f"sha-256:{hashlib.sha256(octets).hexdigest()}"
    return Metadata(lastmod=lastmod, hash=digest, length=len(octets), type=type_, links=links)


class Harvested(msgspec.Struct, kw_only=True, gc=False):
    """One resource as the repository has it now, at this `path` below the set's folder.

    `octets` None: `file`, in the set's folder, has them and is moved to its place, or the file was placed already.
    `memo` is a private note, by which comparisons know what they have seen.
    """

    path: str
    octets: bytes | None
    metadata: Metadata
    memo: bytes = b""
    file: Path | str | None = None

    @property
    def uri(self) -> str:
        """The catalog's URI; paths are made of names that `file_name` gives."""
        return self.path.replace(":", "%3A").replace("@", "%40")


class HarvestTally(msgspec.Struct, kw_only=True):
    """What a harvest came to: resources, and how many records were read in how many requests.

    `repaired` records had characters that XML does not have, `unreadable` ones were left out, `lacking` ones were
    counted by the repository and did not come, `failed_files` could not be had. `held_back` says why deletions wait.
    """

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    requests: int = 0
    records: int = 0
    repaired: int = 0
    unreadable: int = 0
    lacking: int = 0
    failed_files: int = 0
    held_back: DeletionHold | None = None

    def add(self, batch: "HarvestTally") -> None:
        """Count what became of the resources of a batch."""
        for name in ("created", "updated", "unchanged", "deleted"):
            setattr(self, name, getattr(self, name) + getattr(batch, name))

    @property
    def faults(self) -> int:
        """How much did not come as it should."""
        return self.repaired + self.unreadable + self.lacking + self.failed_files


class HarvestEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a repository says of itself, and what the next harvest will take; None: the repository does not tell.

    `without_files`: the files of records take requests besides.
    """

    repository: str
    deletions: str
    granularity: str
    lists: int = 1
    lists_asked: int = 1
    records: int | None
    requests: int | None
    octets: int | None
    seconds: float | None
    without_files: bool = False


class NoAnswer(SourceFault):
    """The repository does not answer, or asks for a pause of `pause_seconds`: nothing more can be asked now."""

    pause_seconds = 0.0


class Harvester(ABC):
    """Harvests a repository into a set, in steps: each is recorded when it ends, and the next run goes on behind it.

    `poll` and `harvest` raise NoAnswer, SourceFault for wrong answers, and what the catalog raises. `tally` is what all
    steps came to; `fault_code` tells what could not be read.
    """

    tally: HarvestTally
    fault_code: ClassVar[str]
    _steps: Iterator[None] | None = None

    @abstractmethod
    def steps(self, *, compare: bool) -> Iterator[None]:
        """The harvest that is due, with a comparison of everything where that is wanted; left at any `yield`."""

    @abstractmethod
    def estimate(self, *, compare: bool = False) -> HarvestEstimate:
        """What a harvest will take; records nothing, and asks for little."""

    def poll(self, *, compare: bool = False) -> bool:
        """Do one step of the harvest that is due. True: it is not complete. A harvest that is stopped ends."""
        try:
            self._steps = self._steps or self.steps(compare=compare)
            next(self._steps)
        except (StopIteration, Interrupted):
            self.close()
            return False
        except BaseException:
            self.close()
            raise
        return True

    def harvest(self, *, compare: bool = False) -> HarvestTally:
        """Do a whole harvest, with a comparison of everything where that is wanted or due."""
        while self.poll(compare=compare):
            pass
        return self.tally

    def close(self) -> None:
        """Leave the harvest that is under way."""
        self._steps = None


def held_at(feed: Feed, paths: Iterable[str]) -> dict[str, Resource]:
    """The resources of the set among these paths."""
    uris = {uri_of(path): path for path in paths}
    return {uris[uri]: resource for uri, resource in feed.held(uris).items()}


def delete_unseen(
    feed: Feed, gone: Sequence[str], delete: Callable[[Sequence[str]], object], listener: Listener
) -> DeletionHold | None:
    """Delete what a comparison has not found: all of it or nothing, as the guard of the set judges.

    `delete` records the deletions of a batch of these paths. Returns what is held back, which is noted in the catalog
    and told when it is another than before, or that nothing is. Raises what `delete` and the catalog raise.
    """
    guard, hold = feed.guard if feed.is_open else None, None
    if guard is not None:
        hold = guard.judge(feed.catalog.state(feed.name).count, len(gone), found=1)
    if hold is None:
        if guard is not None and gone:
            feed.catalog.record(feed.name, (), feed.clock(), state=guard.counted(len(gone)))
        with feed.lock:
            kept, feed.guard = feed.guard, None  # it has judged all of them at once
            try:
                for start in range(0, len(gone), BATCH):
                    delete(gone[start : start + BATCH])
            finally:
                feed.guard = kept
    deleted = len(gone) if hold is None else 0
    if guard is not None and (noted := guard.after_scan(hold, is_whole=True, deleted=deleted)) is not None:
        feed.catalog.record(feed.name, (), feed.clock(), state=noted)
        if hold is not None:
            listener(Notice("HW-ING-21", f"deletions are held back: {hold}"))
    return hold


def take_harvested(
    feed: Feed, folder: Path, found: Sequence[Harvested], gone: Sequence[str], positions: dict[str, bytes]
) -> HarvestTally:
    """Record resources that were found, the paths that are gone, and how far was read, all or nothing.

    A resource with the same octets, type and links is no change, whatever its time is; where its memo is another, its
    file is looked at, and written again if it is not as it should be. Raises StoreFault, and what `Feed.write` raises:
    then nothing was recorded, and `positions` are as before.
    """
    uris, deleted = [one.uri for one in found], dict.fromkeys(map(uri_of, gone))

    def take() -> HarvestTally:
        held = feed.held([*uris, *deleted])
        is_described = bool(feed.catalog.rows_of(feed.name, ABOUT, limit=1))  # whether anything is said of others
        implied = feed.implied_by(feed.state.about(uris)) if is_described else {}
        drafts, taken, noted = list[Draft](), HarvestTally(), list[tuple[str, bytes]]()
        placed = [one for one in found if one.file is not None]
        for uri, one in zip(uris, found, strict=True):
            metadata, before = with_links(one.metadata, implied.get(uri, ())), held.get(uri)
            if before is not None and msgspec.structs.replace(before.metadata, lastmod=metadata.lastmod) == metadata:
                taken.unchanged += 1
                if before.memo != one.memo:
                    noted.append((uri, one.memo))
                    placed += [one] if one.octets is not None and not _has(folder / one.path, one.octets) else []
                continue
            if one.octets is not None and (before is None or before.metadata.hash != metadata.hash):
                placed.append(one)
            said: tuple[Statement, ...] | None = () if is_described else None
            if any(link.rel in INVERSE for link in one.metadata.links):
                said = statements_of(one.metadata.links, feed.locations.link)
            drafts.append(Draft(uri=uri, metadata=metadata, memo=one.memo, statements=said))
        deletions = [Draft(uri=uri, metadata=None, statements=()) for uri in deleted if uri in held]
        taken.created = sum(one.uri not in held for one in drafts)
        taken.updated, taken.deleted = len(drafts) - taken.created, len(deletions)
        _place(folder, placed)
        feed.write([*drafts, *deletions], Effects(positions=positions))
        if noted:  # not before the rest: a note says that everything of its record is here
            feed.catalog.remember(feed.name, noted)
        return taken

    taken = feed.attempt(take)
    for path in gone:
        _remove(folder / path)
    return taken


def remove_strangers(feed: Feed, folder: Path, below: Sequence[str]) -> None:
    """Remove files in these folders of the set's that the set does not have: a kill after a deletion has left them."""
    found = (Path(place, name) for top in below for place, _, names in os.walk(folder / top) for name in names)
    while some := [*islice(found, BATCH)]:
        paths = {quote_path(os.fsencode(path.relative_to(folder))): path for path in some}
        for uri in paths.keys() - feed.held(paths).keys():
            _remove(paths[uri])


def _has(path: Path, octets: bytes) -> bool:
    """Whether a file has these octets."""
    try:
        return path.read_bytes() == octets
    except OSError:
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
        path.parent.rmdir()  # where it was the last one


def _place(folder: Path, found: Sequence[Harvested]) -> None:
    """Write the octets of each to its path: all are durable before the catalog hears of them. Raises StoreFault."""
    if not found:
        return
    try:
        folders = {one.path.rpartition("/")[0] for one in found}
        for below in folders:
            make_folders(folder / below)
        root, written, moved = f"{folder}/", list[str](), dict[str, str]()
        for one in found:
            path = root + one.path
            aside = str(one.file or path) if one.octets is None else write_new(path, one.octets)
            if aside != path:
                moved[aside] = path
            written.append(aside)
        sync_many(written)
        for aside, path in moved.items():
            os.replace(aside, path)
        sync_many([folder / below for below in folders])
        for one in found:
            one.file = None  # it is in its place, if the batch is tried again
    except OSError as cause:
        raise StoreFault(f"harvested records cannot be written: {cause.strerror}", where=str(folder)) from cause
