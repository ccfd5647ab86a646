"""Ingest of one set of a copy: brings the catalog from what was read of the copy's state to what it holds now.

What is recorded and the position in the journal are one transaction, over the state of the set by which it was decided:
each change is recorded once, whatever is killed where. Nothing is hashed, and no file is read but for its stat.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, Delete, Event, Metadata, SetState, Unacceptable, UnknownSet, Upsert
from headwater.catalog.page_filling import LONGEST_URI
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
from headwater.files.folder_marks import leads_inside
from headwater.ingest.folder.comparison import note
from headwater.ingest.folder.walk import path_of
from headwater.ingest.recording import ChangeRecorder, is_acceptable
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Progress, silent
from headwater.spec.kinds import PATCH
from headwater.spec.records import HEX_LENGTH, Extra, Link, parse_hash
from headwater.spec.times import from_microseconds
from headwater.spec.uris import normalise, quote_path
from headwater.typed_decoding import from_msgpack, json_decoder

# What is said of a file of a copy: URI, metadata and links, by what the origin stated and what was verified

VIA: Final = "via"

NOT_OURS: Final = {
    "canonical": "our URI is no variant of the origin's generic one (RS-REL-03)",
    "collection": "whether it belongs to a collection is said of the origin's resource (RS-REL-11)",
    PATCH: "patches lead from one state to the next of the origin's own history (RS-REL-04)",
    "memento": "versions are those of the origin's URI (RS-REL-08)",
    "timegate": "the same (RS-REL-09)",
    "timemap": "the same (RS-REL-10)",
    "original": "the same (RFC 7089)",
    "first": "a place in a row of the origin's resources",
    "last": "the same",
    "prev": "the same",
    "next": "the same",
    "self": "our resource is not the origin's",
    "edit": "ours is not edited there",
    "edit-media": "the same",
    "up": "leads from document to document of the origin (RS-LN-01)",
    "index": "the same",
    "contents": "of packages of the origin (RS-REL-13)",
    "archives": "of documents of the origin",
    "resourcesync": "our resources lead to our own Capability List (RS-DISC-04)",
}
"""The relations that are not passed on, each with why; all others are: `duplicate` (mirrors have the same octets,
whoever lists them), `alternate`, `describedby`, `describes`, `profile`, and whatever else is said of the content."""

_LEADS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]")


def passed_on(links: Iterable[Link], came_from: Link, own_uri: str) -> tuple[Link, ...]:
    """The links of a resource of ours at `own_uri`, given those of the entry that it was copied by.

    `came_from` is the `via` that is added where there is none.
    """
    kept: list[Link] = []
    for link in links:
        relation = link.rel if ":" in link.rel else link.rel.lower()
        is_own = relation == "duplicate" and link.href == own_uri  # no mirror of itself
        if _LEADS.match(link.href) and relation not in NOT_OURS and not is_own:
            # a path in a package of the origin is none in ours (RS-MD-10)
            kept.append(link if link.path is None else msgspec.structs.replace(link, path=None))
    if not any(link.rel.lower() == VIA for link in kept):
        kept.append(came_from)
    return tuple(kept)


def leads_home(links: Iterable[Link], base_url: str) -> bool:
    """Whether a resource came from below this address in the end: then it goes in a circle."""
    home = normalise(base_url.rstrip("/") + "/")
    return any(link.rel.lower() == VIA and (normalise(link.href) + "/").startswith(home) for link in links)


_links = json_decoder(tuple[Link, ...])
_extra = json_decoder(Extra)
T = TypeVar("T")


def relative_path(path: bytes, folder: str) -> bytes | None:
    """The path of a file of a copy below the folder of its set; None for one that is no path of a resource there.

    The state may have been written by anybody: no name leads up, out of the folder, or to a state.
    """
    prefix = folder.encode("utf-8", "surrogateescape") + b"/" if folder else b""
    if not path.startswith(prefix):
        return None
    below = path[len(prefix) :]
    return below if leads_inside(below) else None


def relative_uri(path: bytes) -> str | None:
    """The URI of a file below its set's prefix; None for one that no document can hold."""
    uri = quote_path(path)
    return uri if len(uri) <= LONGEST_URI else None


def metadata_of(file: CopiedFile, own_uri: str) -> Metadata:
    """What our entry says: the origin's statements as far as they hold for our resource (RS-TIME-13, RS-REL-20)."""
    return Metadata(
        lastmod=_moment(file.lastmod),
        hash=verified_hash(file.listed_hash, file.digest),
        length=file.size,
        type=file.type,
        encoding=file.encoding,
        links=passed_on(_stated(file.links, _links), _came_from(file), own_uri),
        extra=_stated(file.extra, _extra),
    )


def origin_of(file: CopiedFile) -> Link:
    """The `via` of the entry that a file was copied by, else its own resource there."""
    stated = _stated(file.links, _links)
    return next((one for one in stated if one.rel.lower() == VIA), _came_from(file))


def _came_from(file: CopiedFile) -> Link:
    return Link(
        rel=VIA,
        href=file.loc or file.uri,
        modified=_moment(file.lastmod),
        hash=file.listed_hash,
        length=file.listed_length,
        type=file.type,
    )


def _stated(text: str | None, decode: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
    """What the origin's entry had, links or attributes of other namespaces (RS-DOC-13); nothing if it is unreadable."""
    try:
        return decode(text) if text else ()
    except (msgspec.DecodeError, UnicodeError):
        return ()


def verified_hash(listed: str | None, digest: str | None) -> str | None:
    """The listed digests when the octets were verified by one of them, else the one that was computed meanwhile."""
    if digest is None:
        return None
    stated = parse_hash(listed).digests if listed else ()
    if digest in map(str, stated):
        return " ".join(str(one) for one in stated if one.algorithm in HEX_LENGTH)
    return digest


def acceptable(event: Upsert) -> Upsert | None:
    """The event without what no document of ours may hold; None when nothing is left that can be said.

    A source may state anything; one value that cannot be written must not hold up all others.
    """
    stated, links = event.metadata, list[Link]()
    for link in stated.links:
        plain = Link(rel=link.rel, href=link.href)  # an attribute is in the way, or else nothing can be done
        taken = next((one for one in (link, plain) if is_acceptable("a", Metadata(links=(one,)))), None)
        links += [] if taken is None else [taken]
    fields: dict[str, Any] = {"lastmod": stated.lastmod, "length": stated.length, "links": tuple(links)}
    for name in ("hash", "type", "encoding", "extra"):
        value = getattr(stated, name)
        if is_acceptable("a", Metadata(**{name: value})):
            fields[name] = value
    metadata = Metadata(**fields)
    return msgspec.structs.replace(event, metadata=metadata) if is_acceptable(event.uri, metadata) else None


def _moment(microseconds: int | None) -> dt.datetime | None:
    try:
        return None if microseconds is None else from_microseconds(microseconds)
    except OverflowError:
        return None


# The intake

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
        try:
            seen = self.catalog.state(self.name)
        except UnknownSet:
            seen = self.catalog.create(self.name)
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

    def _read_position(self) -> CopyPosition | None:
        row = self.catalog.rows(self.name, [KEY]).get(KEY)
        return None if row is None else from_msgpack(row.value, CopyPosition)

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
        while copied is not None:
            self._pause()
            with state.read() as t:
                files = files_after(t, copied.id, after, BATCH)
            if not files:
                break
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
        """Record what these paths come to, with the position if there is one: `files` are those that the copy holds."""
        found = ((path, relative_path(path, self._place.folder)) for path in paths)
        uris = {path: uri for path, below in found if below is not None and (uri := relative_uri(below)) is not None}
        known = self.catalog.get(self.name, list(uris.values()))
        events, memos = list[Event](), list[tuple[str, bytes]]()
        for path in paths:
            uri, file = uris.get(path), files.get(path)
            if uri is None:
                outcome.left_out.add(Omission.UNUSABLE, repr(path[:200]))
                continue
            resource = known.get(uri)
            if file is None:
                events += [Delete(uri)] if resource is not None else []
                continue
            metadata = metadata_of(file, self._place.prefix + uri)
            if leads_home(metadata.links, self._place.base_url):
                outcome.left_out.add(Omission.LOOP, file.uri)
                events += [Delete(uri)] if resource is not None else []
            elif file.digest is None or file.unconfirmed:
                outcome.left_out.add(Omission.UNCONFIRMED, file.uri)
            elif (note := self._note_of(file)) is None:
                outcome.left_out.add(Omission.CHANGED, file.uri)
            elif resource is None or resource.metadata != metadata:
                events.append(Upsert(uri, metadata, note))
            elif resource.memo != note:
                memos.append((uri, note))
        try:
            self._write(events, position, seen)
        except Unacceptable:  # what no document can hold is left out
            stated, events = events, []
            for one in stated:
                taken = acceptable(one) if isinstance(one, Upsert) else one
                if taken is None:
                    outcome.left_out.add(Omission.UNUSABLE, one.uri)
                elif isinstance(taken, Delete) or taken.uri not in known or known[one.uri].metadata != taken.metadata:
                    events.append(taken)
            self._write(events, position, seen)
        if memos:
            self.catalog.remember(self.name, memos)
        deleted = sum(isinstance(one, Delete) for one in events)
        outcome.deleted += deleted
        outcome.taken += len(events) - deleted
        outcome.held += len(files)

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
