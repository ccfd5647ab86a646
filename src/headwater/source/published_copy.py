"""Publishes a copy: records what the copy of a destination holds by now, for all sets that publish it.

To find out whether a destination has committed anything costs next to nothing, so it is asked four times a second. Of
thousands of sets those are looked at whose files the journal names. A run of `headwater publish` does it once, and
places the files in a static tree: a link or a copy of every file that is as it was placed. A file that was changed in
the copy is not put there; what the tree has of it stays as it is, for the next run of `sync` mends the copy.

What is recorded and the position in the journal are one transaction, over the state of the set by which it was decided:
each change is recorded once, whatever is killed where. Nothing is hashed, and no file is read but for its stat.
"""

import datetime as dt
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from headwater.catalog.interface import Delete, Event, Resource, SetState, StateUpdate, UnknownSet, Upsert
from headwater.copy_state import (
    CopiedFile,
    CopiedSet,
    CopyStateReader,
    JournalEnd,
    copied_sets,
    files_after,
    files_at,
    journal_end,
    noted_after,
    noted_counts,
    path_noted,
)
from headwater.errors import HeadwaterError, StoreFault
from headwater.files.patterns import Selection
from headwater.ingest.copy_intake import (
    FAULT_KEY,
    KEY,
    VIA,
    CopyPosition,
    chosen,
    leads_home,
    leads_to,
    metadata_of,
    position_at,
    relative_path,
    relative_uri,
    sayable,
)
from headwater.ingest.folder.comparison import ScanResult, note
from headwater.ingest.folder.static_tree import SetTree
from headwater.ingest.folder.walk import Walk, path_of
from headwater.ingest.recording import ChangeRecorder
from headwater.progress import Listener, Notice, Progress
from headwater.source.config import SetConfig
from headwater.source.scheduler import Urgency
from headwater.source.worker import Intake, Looked, SetWorker, SourceContext
from headwater.spec.records import Link
from headwater.typed_decoding import from_msgpack

POLL_SECONDS: Final = 0.25  # between looks at the state of the copy
BATCH = 2_000  # files of one transaction


class Omission(Enum):
    """Why a file of a copy is not published: the code of the notice, and the reason."""

    LOOP = ("HW-CPY-11", "it came from this same source")
    CHANGED = ("HW-CPY-12", "the file is missing or was changed")
    UNCONFIRMED = ("HW-CPY-13", "no list of the origin confirms the content so far")
    UNUSABLE = ("HW-CPY-14", "no resource can have this name")


class PublishedCopy(Intake, ChangeRecorder):
    """The copy of one set, whose files lie below `folder` of the copy; with a `tree`, its files are placed there."""

    waiting_phase = "waiting for the copy"
    fault_key = FAULT_KEY

    def __init__(
        self, context: SourceContext, config: SetConfig, folder: str, stop: Callable[[], bool], tree: SetTree | None
    ) -> None:
        Intake.__init__(self, context, config.name, stop)
        ChangeRecorder.__init__(self, context.catalog, config.name, context.clock)
        self._copy = Path(str(config.copy))
        self._folder = folder
        self._wanted = config.copy_set
        self._tree = tree
        self.set_id: int | None = None  # the set of the copy, by its number in the state, since it was read
        self._is_partial = False  # whether a comparison waits for the end of the copy's baseline
        self._is_current = False
        """Whether the last look went well: nothing is known of the time since the copy could be read last."""
        self._remarks: dict[str, int] = {}
        """How many files were left out since everything was compared last, by the code of the reason."""
        self._scanned = ScanResult()  # what this look has recorded

    def look(self) -> Looked:
        """Record whatever the copy holds by now. Raises HW-CPY-03, Stopped, and faults of the catalog or the state.

        What was recorded before that stays, and the next look goes on from there.
        """
        self._is_current = False
        at = self.clock()
        with closing(CopyStateReader(self._copy)) as state:
            try:
                seen = self.catalog.state(self.name)
            except UnknownSet:
                seen = self.catalog.create(self.name)
            self._scanned = scanned = ScanResult(opened=seen.opened_at is None)
            self._take(state, seen)
        self._is_current = True
        now = self.catalog.state(self.name)
        scanned.at, scanned.warnings = now.last_at, dict(self._remarks)
        scanned.created = now.count if scanned.opened else scanned.created
        scanned.unchanged = max(0, now.count - scanned.created - scanned.updated)
        return Looked(
            at=at,
            is_changed=scanned.opened or now.last_seq != seen.last_seq,
            held_back="the copy is not complete yet" if self._is_partial else None,
            scanned=scanned,
        )

    def known_at(self) -> dt.datetime | None:
        """Now: a copy that nobody has changed is as it was looked at last."""
        return self.clock() if self._is_current else None

    def place(self, looked: Looked) -> int:
        """Place the files that are as they were placed in the copy."""
        if self._tree is None:
            return 0
        root = os.fsencode(self._copy / self._folder)
        placed, left = self._tree.complete(lambda: Walk(root, Selection()))
        if placed:
            self._tree.settle(root)
        if left:
            text = f"{left:,} files of the copy were changed or are missing: they are not published"
            self._context.listener(Notice("HW-CPY-12", f"{self.name}: {text}", os.fsdecode(root)))
            looked.scanned.warnings["HW-CPY-12"] = left
        return placed

    def _take(self, state: CopyStateReader, seen: SetState) -> None:
        position = self._read_position()
        with state.read() as t:
            end = journal_end(t)
            copied = chosen(copied_sets(t), self._wanted, self.name, position)
            noted = path_noted(t, position.seq) if position is not None else None
        where, is_open = str(state.root), seen.opened_at is not None
        if copied is None and (position is None or position.journal != end.id or not is_open):
            raise StoreFault(f"the copy has no set {self._wanted or self.name!r} so far", code="HW-CPY-03", where=where)
        if copied is not None and copied.folder != self._folder:
            raise StoreFault("the set lies in another folder of the copy now: restart", code="HW-CPY-03", where=where)
        if copied is not None:
            self.set_id = copied.id
        if position is None or not is_open or not leads_to(position, end, copied, noted):
            self._compare(state, end, copied, seen, position)
        else:
            self._follow(state, position)

    def _read_position(self) -> CopyPosition | None:
        row = self.catalog.rows(self.name, [KEY]).get(KEY)
        return None if row is None else from_msgpack(row.value, CopyPosition)

    def _follow(self, state: CopyStateReader, position: CopyPosition) -> None:
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
            if paths:
                position = msgspec.structs.replace(position, seq=seq, path=entries[-1][2])
                self._record(paths, files, position, seen)

    def _compare(
        self,
        state: CopyStateReader,
        end: JournalEnd,
        copied: CopiedSet | None,
        seen: SetState,
        before: CopyPosition | None,
    ) -> None:
        """Compare everything, and open a set that is new.

        What is missing is deleted once a baseline of the copy has come to its end. Of a set that this very copy has
        forgotten, nothing is held any more.
        """
        began, after, held = self.clock(), "", 0
        while copied is not None:
            self._pause()
            with state.read() as t:
                files = files_after(t, copied.id, after, BATCH)
            if not files:
                break
            after, held = files[-1].uri, held + len(files)
            self._record([one.path for one in files], {one.path: one for one in files}, None, None)
            self._context.listener(Progress("read", held))
        is_whole = copied is None or bool(copied.is_whole) or seen.opened_at is None
        if is_whole and seen.count:
            self._delete_missing(state, copied)
        elif not is_whole and not self._is_partial and self.catalog.state(self.name).count > held:
            text = f"{self.name}: the copy is being made anew; deletions wait until it is complete"
            self._context.listener(Notice("HW-CPY-15", text))
        self._is_partial = not is_whole
        if copied is not None:
            position = msgspec.structs.replace(position_at(end, copied, str(state.root)), is_partial=not is_whole)
        else:
            assert before is not None
            position = msgspec.structs.replace(before, seq=end.last, path=end.path, is_partial=False)
        self._write([], position, self.catalog.state(self.name))
        if seen.opened_at is None:
            self.catalog.open(self.name, began)
        self._remarks = {}

    def _delete_missing(self, state: CopyStateReader, copied: CopiedSet | None) -> None:
        after = ""
        prefix = self._folder.encode("utf-8", "surrogateescape") + b"/" if self._folder else b""
        while rows := self.catalog.resources(self.name, after, BATCH):
            self._pause()
            after = rows[-1].uri
            paths = {prefix + path_of(row.uri): row for row in rows}
            held: dict[bytes, CopiedFile] = {}
            if copied is not None:
                with state.read() as t:
                    held = files_at(t, copied.id, paths)
            gone: list[Event] = [_deletion(row) for path, row in paths.items() if path not in held]
            self._write(gone, None, None)
            self._scanned.deleted += len(gone)

    def _record(
        self,
        paths: Sequence[bytes],
        files: dict[bytes, CopiedFile],
        position: CopyPosition | None,
        seen: SetState | None,
    ) -> None:
        """Record what these paths come to, with the position if there is one: `files` are those that the copy holds."""
        site = self._context.site
        found = ((path, relative_path(path, self._folder)) for path in paths)
        uris = {path: uri for path, below in found if below is not None and (uri := relative_uri(below)) is not None}
        known = self.catalog.get(self.name, list(uris.values()))
        events, memos = list[Event](), list[tuple[str, bytes]]()
        for path in paths:
            uri, file = uris.get(path), files.get(path)
            if uri is None:
                self._leave_out(Omission.UNUSABLE, repr(path[:200]))
                continue
            resource = known.get(uri)
            if file is None:
                events += [_deletion(resource)] if resource is not None else []
                continue
            metadata = sayable(uri, metadata_of(file, site.resource_prefix(self.name) + uri))
            if metadata is None:
                self._leave_out(Omission.UNUSABLE, file.uri)
            elif leads_home(metadata.links, site.base_url):
                self._leave_out(Omission.LOOP, file.uri)
                events += [_deletion(resource)] if resource is not None else []
            elif file.digest is None or file.unconfirmed:
                self._leave_out(Omission.UNCONFIRMED, file.uri)
            elif (memo := self._memo_of(file)) is None:
                self._leave_out(Omission.CHANGED, file.uri)
            elif resource is None or resource.metadata != metadata:
                events.append(Upsert(uri, metadata, memo))
            elif resource.memo != memo:
                memos.append((uri, memo))
        self._write(events, position, seen)
        if memos:
            self.catalog.remember(self.name, memos)
        updated = sum(isinstance(one, Upsert) and one.uri in known for one in events)
        deleted = sum(isinstance(one, Delete) for one in events)
        self._scanned.updated += updated
        self._scanned.deleted += deleted
        self._scanned.created += len(events) - updated - deleted

    def _leave_out(self, why: Omission, example: str) -> None:
        code, reason = why.value
        if code not in self._remarks:
            text = f"{self.name}: Headwater leaves out a file of the copy, and perhaps others: {reason}"
            self._context.listener(Notice(code, text, example[:300]))
        self._remarks[code] = self._remarks.get(code, 0) + 1

    def _write(self, events: Sequence[Event], position: CopyPosition | None, seen: SetState | None) -> None:
        if events or position is not None:
            self._context.may_record()
            self.record(events, StateUpdate(put=[] if position is None else [position.row()]), seen)

    def _memo_of(self, file: CopiedFile) -> bytes | None:
        """The memo of a file that is as it was placed, by size and time; inode and change time are noted with it."""
        try:
            found = os.lstat(os.fsencode(self._copy) + b"/" + file.path)
        except (OSError, ValueError):
            return None
        is_placed = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)
        return note(0, found) if is_placed else None


def _deletion(resource: Resource) -> Delete:
    """What says that a resource is gone, and of which one at the origin that is true; its last hash is none of it."""
    came_from = (link.href for link in resource.metadata.links if link.rel.lower() == VIA)
    return Delete(resource.uri, links=tuple(Link(rel=VIA, href=href) for href in came_from)[:1])


class CopyWatch:
    """Tells the workers of the sets that publish one copy what a destination has committed, as a task."""

    urgency = Urgency.NEWS

    def __init__(
        self, root: Path, sets: Sequence[SetWorker], listener: Listener, known: frozenset[str] | None = None
    ) -> None:
        """Other sets than the `known` ones (None: than are there first) are told of, as new ones."""
        self._root = root
        self._sets = sets
        self._listener = listener
        self._state: CopyStateReader | None = None
        self._journal: tuple[str, int] = ("", 0)  # the id of the journal that was read, and up to which entry
        self.due_at = 0.0
        self._has_failed = False
        self._known_sets = known
        self._copies = {one.name: one.intake for one in sets if isinstance(one.intake, PublishedCopy)}

    def run(self) -> None:
        """Have the sets look at the copy for which it may have news, or which it cannot be read for any longer."""
        try:
            self._tell_sets()
            self._has_failed = False
        except HeadwaterError:  # each set says so, as long as it lasts
            self.close()
            for one in self._sets if not self._has_failed else ():
                one.look_now()
            self._has_failed = True
        self.due_at = time.monotonic() + POLL_SECONDS

    def close(self) -> None:
        """Give up the state."""
        state, self._state = self._state, None
        if state is not None:
            state.close()

    def _tell_sets(self) -> None:
        if self._state is not None and self._state.is_replaced:
            self.close()
        if self._state is None:  # for the first time, or another one has taken its place
            self._state = CopyStateReader(self._root)
            self._journal = ("", 0)
        state = self._state
        if not state.has_changed():
            return
        with state.read() as t:
            names = frozenset(one.name for one in copied_sets(t))
            if self._known_sets and (new := names - self._known_sets):  # those that we wait for are none
                text = f"the copy has sets that are not published: {', '.join(sorted(new)[:5])}"
                self._listener(Notice("HW-CPY-16", text, str(self._root)))
            self._known_sets = names | (self._known_sets or frozenset())
            end = journal_end(t)
            journal, seq = self._journal
            is_whole = journal != end.id or end.last < seq or end.first > seq + 1
            noted = noted_counts(t, seq) if not is_whole and end.last > seq else {}
        self._journal = end.id, end.last
        for one in self._sets:
            if is_whole or one.is_unsettled or self._copies[one.name].set_id in noted:
                one.look_now(is_other_input=True)  # what was missing may be there by now
