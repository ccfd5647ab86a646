"""Ingest of one set of a copy: brings the catalog from what was read of the copy's state to what it holds now.

What is recorded and the position in the journal are one transaction, over the state of the set by which it was decided:
each change is recorded once, whatever is killed where. Nothing is hashed, and no file is read but for its stat.
"""

from __future__ import annotations

import datetime as dt
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path

import msgspec

from headwater.catalog.interface import Catalog, Delete, Event, Resource, SetState, Unacceptable, UnknownSet, Upsert
from headwater.catalog.state import RowKey, StateRow, StateUpdate
from headwater.copy_state import (
    CopiedFile,
    CopiedSet,
    CopyStateReader,
    JournalEnd,
    copied_sets,
    count_noted_after,
    files_after,
    files_at,
    journal_end,
    noted_after,
    path_noted,
)
from headwater.errors import HeadwaterError, StoreFault
from headwater.ingest.copied_entries import acceptable, leads_home, metadata_of, relative_path, relative_uri
from headwater.ingest.folder.comparison import note
from headwater.ingest.folder.walk import path_of
from headwater.ingest.recording import ChangeRecorder
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Progress, silent
from headwater.typed_decoding import from_msgpack

KIND = "copy"
KEY: RowKey = (KIND, "position")


class CopyPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a set has been read: entry `seq`, of `path`, of the journal of this id, for the copy's set `set_id`.

    `is_partial`: what is not held has not been looked for yet, so a comparison has to follow. `origin` is the
    Capability List of the set at its source, `place` the copy's folder, for who wants to know.
    """

    journal: str
    set_id: int
    folder: str
    origin: str
    place: str = ""
    seq: int
    path: bytes | None = None
    is_partial: bool = False

    def row(self) -> StateRow:
        """The row that keeps it."""
        return StateRow(*KEY, msgspec.msgpack.encode(self))


def position_at(end: JournalEnd, copied: CopiedSet, place: str = "") -> CopyPosition:
    """The position of who has looked at everything that this state of the copy holds of a set."""
    return CopyPosition(
        journal=end.id,
        set_id=copied.id,
        folder=copied.folder,
        origin=copied.identity,
        place=place,
        seq=end.last,
        path=end.path,
    )


def leads_to(position: CopyPosition, end: JournalEnd, copied: CopiedSet | None, noted: bytes | None) -> bool:
    """Whether the journal leads from a position to what a copy now holds; else all of it is compared.

    `noted` is the path of the position's entry, if it is kept. A set that the copy has forgotten (`copied` None) is
    followed by the journal to its end.
    """
    if copied is not None:
        if (copied.id, copied.folder) != (position.set_id, position.folder):
            return False
        if position.is_partial and copied.is_whole:
            return False
    return leads_on(position, end, noted)


def leads_on(position: CopyPosition, end: JournalEnd, noted: bytes | None) -> bool:
    """Whether the journal has all that came after a position: it is that of the same state, and no entry is missing.

    A state that was brought back from a copy has the same id and another entry in the position's place, or none yet.
    """
    if position.journal != end.id or position.seq > end.last:
        return False
    if position.seq == 0:
        return end.first <= 1
    return position.seq >= end.first and noted == position.path


class CopyLag(msgspec.Struct, frozen=True, kw_only=True):
    """A set that publishes the copy in the folder `copy`, of the set whose Capability List at its source is `origin`.

    `waiting`: changes of the copy that are not recorded yet; None where that cannot be told from here, as `fault` says,
    or where all is to be compared.
    """

    set: str
    copy: str
    origin: str
    waiting: int | None
    fault: str | None = None


def copy_lags(catalog: Catalog, names: Collection[str] = ()) -> Iterator[CopyLag]:
    """The sets of a catalog that publish copies, by name; all, where none is named."""
    for name in sorted(catalog.sets_with_rows(KIND)):
        row = catalog.rows(name, [KEY]).get(KEY)
        if row is None or (names and name not in names):
            continue
        position = from_msgpack(row.value, CopyPosition)
        lag = CopyLag(set=name, copy=position.place, origin=position.origin, waiting=None)
        try:
            state = CopyStateReader(position.place)
        except HeadwaterError as fault:
            yield msgspec.structs.replace(lag, fault=fault.what)
            continue
        try:
            with state.read() as t:
                if leads_on(position, journal_end(t), path_noted(t, position.seq)):
                    lag = msgspec.structs.replace(lag, waiting=count_noted_after(t, position.set_id, position.seq))
        except HeadwaterError as fault:
            lag = msgspec.structs.replace(lag, fault=fault.what)
        finally:
            state.close()
        yield lag


class Omission(Enum):
    """Why a file of a copy is not published."""

    LOOP = "it came from ourselves"
    CHANGED = "the file is missing, or is not the one that was placed"
    UNCONFIRMED = "no list of the origin confirms the octets so far"
    UNUSABLE = "no resource of ours can have this name"


class LeftOut:
    """How many files of a copy are left out, for each reason, and the first of each: its URI at the origin, or path."""

    def __init__(self) -> None:
        self.counts: Counter[Omission] = Counter()
        self.examples: dict[Omission, str] = {}

    def add(self, why: Omission, example: str) -> None:
        """One more."""
        self.counts[why] += 1
        self.examples.setdefault(why, example[:300])

    def add_all(self, others: LeftOut) -> None:
        """These as well."""
        self.counts.update(others.counts)
        self.examples = others.examples | self.examples


class CopyBatch(msgspec.Struct):
    """What some paths of a copy come to: events to record, notes to remember, and what is left out."""

    events: list[Event] = msgspec.field(default_factory=list)
    memos: list[tuple[str, bytes]] = msgspec.field(default_factory=list)
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)


BATCH = 2_000
"""Files of one transaction."""
_LAG = 20_000
"""A set of which nothing is noted has its position moved after so many entries of others: the journal has an end."""


class CopyOutcome(msgspec.Struct):
    """What one round has recorded and left out; `is_held_back`: deletions wait for the end of the copy's baseline."""

    taken: int = 0
    deleted: int = 0
    held: int = 0
    is_compared: bool = False
    is_held_back: bool = False
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)


class CopyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a set of the source comes from and goes to: the copy in `root`, whose set has its files below `folder`.

    `wanted` is the name of the set in the copy, None for one of our name, or the only one. `base_url` is that of the
    source, `prefix` what URIs of the set's resources begin with.
    """

    name: str
    root: Path
    folder: str = ""
    wanted: str | None = None
    base_url: str
    prefix: str


class CopyIntake(ChangeRecorder):
    """One set of the source. One thread at a time.

    `may_record` is called before anything is recorded, and raises when this process must not. `stop` tells a round to
    end (Stopped).
    """

    def __init__(
        self,
        catalog: Catalog,
        place: CopyPlace,
        clock: Callable[[], dt.datetime],
        listener: Listener = silent,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(catalog, place.name, clock)
        self.may_record: Callable[[], None] = lambda: None
        self._root = os.fsencode(place.root)
        self._wanted = place.wanted
        self._listener = listener
        self._stop = stop
        self._place = place
        self.set_id: int | None = None
        """The set of the copy, by its number in the state, since it was read."""
        self.is_partial = False
        """Whether a comparison waits for the end of the copy's baseline."""

    def round(self, state: CopyStateReader) -> CopyOutcome:
        """Record whatever the copy holds by now. Raises HW-CPY-03, Stopped, and faults of the catalog or the state.

        What was recorded before that stays, and the next round goes on from there.
        """
        seen = self._seen()
        position = self._read_position()
        with state.read() as t:
            end = journal_end(t)
            copied = chosen(copied_sets(t), self._wanted, self.name, position)
            noted = path_noted(t, position.seq) if position is not None else None
        where = str(state.root)
        is_open = seen.opened_at is not None
        if copied is None and (position is None or position.journal != end.id or not is_open):
            raise StoreFault(f"the copy has no set {self._wanted or self.name!r} so far", code="HW-CPY-03", where=where)
        if copied is not None and copied.folder != self._place.folder:
            raise StoreFault("the set lies in another folder of the copy now: restart", code="HW-CPY-03", where=where)
        outcome = CopyOutcome()
        if copied is not None:
            self.set_id = copied.id
        if position is None or not is_open or not leads_to(position, end, copied, noted):
            self._compare(state, end, copied, outcome)
        else:
            self._follow(state, position, outcome)
        return outcome

    def _seen(self) -> SetState:
        try:
            return self.catalog.state(self.name)
        except UnknownSet:
            return self.catalog.create(self.name)

    def _read_position(self) -> CopyPosition | None:
        row = self.catalog.rows(self.name, [KEY]).get(KEY)
        return None if row is None else from_msgpack(row.value, CopyPosition)

    def _files_after(self, state: CopyStateReader, set_id: int, uri: str) -> list[CopiedFile]:
        self._pause()
        with state.read() as t:
            return files_after(t, set_id, uri, BATCH)

    def _follow(self, state: CopyStateReader, position: CopyPosition, outcome: CopyOutcome) -> None:
        seq = position.seq
        while True:
            self._pause()
            seen = self.catalog.state(self.name)
            if (found := self._read_position()) is not None and found.seq != position.seq:
                position, seq = found, max(seq, found.seq)
            with state.read() as t:
                entries = noted_after(t, seq, BATCH)
                paths = list(dict.fromkeys(path for _, set_id, path in entries if set_id == position.set_id))
                files = files_at(t, position.set_id, paths)
            if not entries:
                return
            seq = entries[-1][0]
            moved = msgspec.structs.replace(position, seq=seq, path=entries[-1][2])
            if paths or seq - position.seq >= _LAG:
                self._record(paths, files, moved, seen, outcome)
                position = moved

    def _compare(self, state: CopyStateReader, end: JournalEnd, copied: CopiedSet | None, outcome: CopyOutcome) -> None:
        """Compare everything, and open a set that is new.

        What is missing is deleted once a baseline of the copy has come to its end. Of a set that this very copy has
        forgotten, nothing is held any more.
        """
        outcome.is_compared = True
        began, seen = self.clock(), self.catalog.state(self.name)
        after, before = "", self._read_position()
        while copied is not None and (files := self._files_after(state, copied.id, after)):
            after = files[-1].uri
            self._record([one.path for one in files], {one.path: one for one in files}, None, None, outcome)
            self._listener(Progress("read", outcome.held))
        is_whole = copied is None or bool(copied.is_whole) or seen.opened_at is None
        if is_whole and seen.count:
            self._delete_missing(state, copied, outcome)
        elif not is_whole:
            outcome.is_held_back = self.catalog.state(self.name).count > outcome.held
        if copied is not None:
            position = msgspec.structs.replace(position_at(end, copied, str(state.root)), is_partial=not is_whole)
            self.is_partial = not is_whole
        else:
            assert before is not None
            position = msgspec.structs.replace(before, seq=end.last, path=end.path, is_partial=False)
        self._write([], position, self.catalog.state(self.name))
        if seen.opened_at is None:
            self.catalog.open(self.name, began)

    def _delete_missing(self, state: CopyStateReader, copied: CopiedSet | None, outcome: CopyOutcome) -> None:
        after = ""
        prefix = self._place.folder.encode("utf-8", "surrogateescape") + b"/" if self._place.folder else b""
        while rows := self.catalog.resources(self.name, after, BATCH):
            self._pause()
            after = rows[-1].uri
            paths = {prefix + path_of(row.uri): row.uri for row in rows}
            held: dict[bytes, CopiedFile] = {}
            if copied is not None:
                with state.read() as t:
                    held = files_at(t, copied.id, paths)
            gone: list[Event] = [Delete(uri) for path, uri in paths.items() if path not in held]
            if gone:
                self._write(gone, None, None)
                outcome.deleted += len(gone)

    def _record(
        self,
        paths: Sequence[bytes],
        files: dict[bytes, CopiedFile],
        position: CopyPosition | None,
        seen: SetState | None,
        outcome: CopyOutcome,
    ) -> None:
        uris = self._uris_of(paths)
        known = self.catalog.get(self.name, list(uris.values()))
        batch = self._compared(paths, uris, files, known)
        self._put(batch, known, position, seen)
        deleted = sum(isinstance(one, Delete) for one in batch.events)
        outcome.deleted += deleted
        outcome.taken += len(batch.events) - deleted
        outcome.held += len(files)
        outcome.left_out.add_all(batch.left_out)

    def _uris_of(self, paths: Iterable[bytes]) -> dict[bytes, str]:
        """The URIs of those of the paths that can be resources of the set."""
        found = ((path, relative_path(path, self._place.folder)) for path in paths)
        uris = ((path, relative_uri(below)) for path, below in found if below is not None)
        return {path: uri for path, uri in uris if uri is not None}

    def _compared(
        self,
        paths: Iterable[bytes],
        uris: Mapping[bytes, str],
        files: Mapping[bytes, CopiedFile],
        known: Mapping[str, Resource],
    ) -> CopyBatch:
        """What these paths come to: `files` are those of them that the copy holds, `known` the resources published."""
        batch = CopyBatch()
        for path in paths:
            uri, file = uris.get(path), files.get(path)
            if uri is None:
                batch.left_out.add(Omission.UNUSABLE, repr(path[:200]))
                continue
            resource = known.get(uri)
            if file is None:
                if resource is not None:
                    batch.events.append(Delete(uri))
                continue
            metadata = metadata_of(file, self._place.prefix + uri)
            if leads_home(metadata.links, self._place.base_url):
                batch.left_out.add(Omission.LOOP, file.uri)
                if resource is not None:
                    batch.events.append(Delete(uri))
            elif file.digest is None or file.unconfirmed:
                batch.left_out.add(Omission.UNCONFIRMED, file.uri)
            elif (note := self._note_of(file)) is None:
                batch.left_out.add(Omission.CHANGED, file.uri)
            elif resource is None or resource.metadata != metadata:
                batch.events.append(Upsert(uri, metadata, note))
            elif resource.memo != note:
                batch.memos.append((uri, note))
        return batch

    def _put(
        self, batch: CopyBatch, known: dict[str, Resource], position: CopyPosition | None, seen: SetState | None
    ) -> None:
        """Record a batch; what no document can hold is left out of it."""
        try:
            self._write(batch.events, position, seen)
        except Unacceptable:
            events = []
            for one in batch.events:
                taken = acceptable(one) if isinstance(one, Upsert) else one
                if taken is None:
                    batch.left_out.add(Omission.UNUSABLE, one.uri)
                elif isinstance(taken, Delete) or taken.uri not in known or known[one.uri].metadata != taken.metadata:
                    events.append(taken)
            batch.events = events
            self._write(batch.events, position, seen)
        if batch.memos:
            self.catalog.remember(self.name, batch.memos)

    def _write(self, events: Sequence[Event], position: CopyPosition | None, seen: SetState | None) -> None:
        if events or position is not None:
            self.may_record()
            self.record(events, StateUpdate(put=[] if position is None else [position.row()]), seen)

    def _note_of(self, file: CopiedFile) -> bytes | None:
        """The note of a file that is as it was placed, by size and time; inode and change time are noted with it."""
        try:
            found = os.lstat(self._root + b"/" + file.path)
        except (OSError, ValueError):
            return None
        is_placed = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)
        return note(0, found) if is_placed else None

    def _pause(self) -> None:
        if self._stop():
            raise Stopped


def chosen(sets: Iterable[CopiedSet], wanted: str | None, name: str, position: CopyPosition | None) -> CopiedSet | None:
    """Which set of a copy a set of the source publishes: the one that is named, else that of our name, or the only one.

    One that was renamed at its source is known again by its Capability List. Raises HW-CPY-03 where several could be.
    """
    held = list(sets)
    by_name = {one.name: one for one in held}
    if (found := by_name.get(wanted or name)) is not None:
        return found
    if position is not None and (same := [one for one in held if one.identity == position.origin]):
        return same[0]
    if wanted is not None or not held:
        return None
    if len(held) > 1:
        names = ", ".join(islice(by_name, 5))
        raise StoreFault(f"the copy holds several sets ({names} …), and none is named {name!r}", code="HW-CPY-03")
    return held[0]
