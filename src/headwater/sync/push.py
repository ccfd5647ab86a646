"""A live copy: its folder, state and transport are kept open, so that payloads are applied in milliseconds.

Payloads of notifications are read within bounds, judged by the channel on which they came, and read as Change Lists.
What is done of a payload is what a run does of a Change List, by the same reader, plan, transfer, placing and records
(`update/increment`). What a run does besides is not done: nothing is discovered, no list is read, and the position of
the lists stays where it was, so that the next run reads in them what payloads have told, and compares (decision 054).
"""

import contextlib
import datetime as dt
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headwater.copy_state import NotificationChannel
from headwater.errors import HeadwaterError, SourceFault, StoreFault
from headwater.spec.kinds import Kind
from headwater.spec.reader import Reader, ReadLimits
from headwater.spec.records import Document, Entry
from headwater.storage.transaction import Transaction
from headwater.sync.connection import starting_uri
from headwater.sync.copy.destination_folder import DestinationFolder, readable_state
from headwater.sync.copy.file_tree import backup_of
from headwater.sync.lists.change_lists import ChangeListReader
from headwater.sync.lists.documents import MOST_ENTRIES, DocumentRead, Documents, EntryConsumer, Probe, take_whole
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import Position
from headwater.sync.reports import SyncReport, gravest_status, keep_fault, keep_report
from headwater.sync.run import SyncTask, begin_work, open_transport, working_copy
from headwater.sync.sets.registry import remembered_scope
from headwater.sync.source_times import format_micros, micros
from headwater.sync.state import CHANGE_LIST, HELD_UPDATE, sets
from headwater.sync.transfer.work_queue import RunContext
from headwater.sync.update.applier import Applier
from headwater.sync.update.difference import Difference, bound_times, note_payload
from headwater.sync.update.set_context import SetContext
from headwater.sync.update.set_sync import summarise

_LIMITS: Final = ReadLimits(octets=64 << 20, compressed_octets=16 << 20, entries=MOST_ENTRIES, gzip_members=100)
_SKEW: Final = dt.timedelta(hours=1)
"""How far the source's clock may be ahead of ours: a payload has no `Date` of its source (DST-C8)."""


_READ_AS: Final = {
    Kind.CHANGE_NOTIFICATION: frozenset({Kind.CHANGE_NOTIFICATION, Kind.CHANGE_LIST, Kind.SITEMAP}),
    Kind.FRAMEWORK_NOTIFICATION: frozenset({Kind.FRAMEWORK_NOTIFICATION}),
}
"""What a payload may be: old publishers post Change Lists, or documents without `rs:md` (section G of the rules)."""


class UnusablePayload(SourceFault):
    """A payload that was delivered is no notification of its channel, or cannot be read; nothing of it is applied."""

    code = "HW-SYN-27"


class ReadPayload(msgspec.Struct, frozen=True):
    """A payload that can be applied: its head, its entries, the interval that it states, and when it came."""

    document: Document
    entries: tuple[Entry, ...]
    came_at: dt.datetime

    @property
    def from_(self) -> int | None:
        """Where its interval begins, in microseconds."""
        return micros(self.document.from_)

    @property
    def until(self) -> int | None:
        """Where its interval ends; None where no clock can be so far ahead: else later payloads would seem past."""
        until = self.document.until
        return None if until is not None and until > self.came_at + _SKEW else micros(until)

    @property
    def changed_at(self) -> int:
        """When the last of its changes was, as far as it says; nothing that no clock can have reached; 0: unknown."""
        times = [at for one in self.entries if (at := one.datetime or one.lastmod) and at <= self.came_at + _SKEW]
        return micros(max(times, default=None)) or 0


def read_payload(
    body: bytes, topic: str, kind: Kind, came_at: dt.datetime, capability_list: str | None = None
) -> ReadPayload:
    """Read a payload that came for a topic. Raises UnusablePayload where it cannot be, or is one of another channel.

    `capability_list`: that of the set, which the payload's own `up` has to be where it states one (RS-CN-08).
    """
    reader = Reader(base_uri=topic, limits=_LIMITS)
    try:
        entries = reader.feed(body) + reader.close()
    except SourceFault as fault:
        raise UnusablePayload(f"the payload cannot be read: {fault.what}", where=topic, rule=fault.rule) from fault
    document = reader.document
    if document is None or document.kind not in _READ_AS[kind]:
        found = "no notification" if document is None else f"a document of kind {document.kind.value}"
        raise UnusablePayload(f"the payload is {found}, not a {kind.value}", where=topic, rule="RS-CH-02")
    up = document.link("up")
    of_set = kind is Kind.CHANGE_NOTIFICATION and capability_list is not None
    if of_set and up is not None and up.href != capability_list:
        raise UnusablePayload(f"the payload is of another set, that of {up.href}", where=topic, rule="RS-CH-01")
    return ReadPayload(document, tuple(entries), came_at)


def changed_documents(payload: ReadPayload) -> frozenset[str]:
    """The documents that a Framework Notification names, and their indexes (RS-FN-05, RS-FN-10)."""
    found = {entry.loc for entry in payload.entries}
    found |= {link.href for entry in payload.entries if (link := entry.link("index")) is not None}
    return frozenset(found)


class PayloadLists:
    """Payloads of one channel, oldest first, as an index of Change Lists (`ListDocuments`): nothing is fetched.

    The index states no intervals, so that each of them is read whatever lies between them.
    """

    def __init__(self, topic: str, payloads: Sequence[ReadPayload]) -> None:
        self._payloads = {f"{topic}#{number}": payload for number, payload in enumerate(payloads)}

    def read(self, uri: str, consumer: EntryConsumer, *_validators: object, **_request: object) -> DocumentRead:
        """The index, or one payload."""
        payload = self._payloads.get(uri)
        if payload is None:
            index = Document(kind=Kind.CHANGE_LIST_INDEX, capability=CHANGE_LIST)
            entries = [Entry(loc=uri) for uri in self._payloads]
            return take_whole(uri, index, entries, consumer, dt.datetime.now(dt.UTC))
        document = msgspec.structs.replace(payload.document, kind=Kind.CHANGE_LIST)
        return take_whole(uri, document, list(payload.entries), consumer, payload.came_at + _SKEW)

    def probe(self, uri: str, **_request: object) -> Probe:
        """There is nothing else to look at. Raises SourceFault."""
        raise SourceFault("a payload leads to no other document", where=uri)

    def warn(self, rule: str, message: str, where: str | None = None) -> None:
        """What is odd in a payload is odd in the Change List too, and told there."""


class FollowedSet(msgspec.Struct, frozen=True):
    """A set of a copy: its Capability List, how far its lists have led, and its channels."""

    name: str
    identity: str
    position: Position
    channels: tuple[NotificationChannel, ...] = ()
    retry_at: int | None = None
    """When the first resource that could not be had may be asked for again, in microseconds since 1970."""

    @property
    def changes(self) -> str | None:
        """The topic of its Change Notifications."""
        return next((one.topic for one in self.channels if one.kind is Kind.CHANGE_NOTIFICATION), None)


def followed_sets(task: SyncTask, names: Collection[str] | None) -> list[FollowedSet]:
    """The sets with these names (None: those that the task wants) that have a position.

    A topic outside the scope of its set is left out (DST-S12)."""
    found: list[FollowedSet] = []
    with readable_state(DestinationFolder(Path(task.destination))) as database, database.read() as t:
        for row in sets(t):
            wanted = not task.options.sets or row.name in task.options.sets or row.offer.identity in task.options.sets
            if row.position is None or not (wanted if names is None else row.name in names):
                continue
            scope = remembered_scope(t, task.url, task.options, row.offer)
            channels = tuple(
                NotificationChannel(kind, row.offer.identity, topic, row.offer.hubs.get(kind.value, ()))
                for kind in _READ_AS
                if (topic := row.offer.documents.get(kind.value)) is not None and scope.refusal(topic) is None
            )
            retry_at = t.value(_RETRY_AT, (row.id, HELD_UPDATE))
            found.append(FollowedSet(row.name, row.offer.identity, row.position, channels, retry_at))
    return found


_RETRY_AT = "SELECT min(max(next_at, coalesce(wait_until, 0))) FROM failures WHERE set_id = ? AND reason <> ?"
_FORGET = "DELETE FROM failures WHERE set_id = ? AND first_at >= ?"
"""A payload is a hint: what it names and cannot be had is no failure until a list names it too (DST-F6)."""


class LiveCopy:
    """The copy of one source, between runs. `apply` takes the folder's lock, `rest` gives it back, `close` ends all."""

    def __init__(self, task: SyncTask) -> None:
        root = Path(os.path.abspath(task.destination))
        for_payloads = {"prefer": "lists", "baseline": False, "repair": False, "deadline_seconds": None}
        options = msgspec.structs.replace(task.options, **for_payloads)
        self._task = msgspec.structs.replace(task, url=starting_uri(task.url), destination=root, options=options)
        self._home = DestinationFolder(root)
        self._stack: contextlib.ExitStack | None = None
        self._context: RunContext
        self._began_at = 0
        self._began = 0.0
        self._contexts: dict[int, tuple[SetContext, Applier]] = {}
        """What sets are worked with until the next report."""

        self._reached: dict[int, int] = {}

    def apply(self, identity: str, topic: str, payloads: Sequence[ReadPayload], since: int | None) -> int:
        """Apply payloads of the set whose Capability List is `identity`: what they tell that is not before `since`.

        Returns, when each change is done, how many resources could not be had. Raises DestinationLocked while another
        run works on the folder, StoreFaults, Interrupted, and KeyError where a poll has to tell.
        """
        self._open()
        if not self._contexts:  # what is done up to the next report is one run, whenever the copy was opened
            self._began, self._began_at = time.monotonic(), self._context.now()
        try:
            return self._apply(identity, topic, payloads, since)
        except (StoreFault, OSError) as fault:  # it is remembered as a run that comes to nothing
            self._contexts = {}
            keep_fault(self._context.database, self._task.url, self._began_at, self._context.now(), fault)
            raise

    def open(self) -> None:
        """Open everything, for the next payload to be applied without delay."""
        self._open()
        self.rest()

    def rest(self) -> None:
        """Let runs and other commands have the folder until the next payload."""
        self._home.release()

    def close(self) -> None:
        """End all that is open, as a run ends. After an error the next run finds out what was done, as after a kill."""
        try:
            if self._stack is not None:
                with contextlib.suppress(HeadwaterError), self._stack:
                    self.take_report()
        finally:
            self._stack = None
            self.rest()

    def _open(self) -> None:
        if self._stack is not None and self._home.lock is None:
            self._home.take()
            with self._context.database.read() as t:
                is_last = bool(t.value("SELECT max(id) FROM runs") == self._context.run_number)
                is_current = is_last and len(self._followed(t)) == len(self._contexts)
            if not is_current:
                self.close()  # another run has worked on it, or a set was forgotten: what is known of it may not hold
        if self._stack is not None:
            return
        self._home.prepare()
        task, root, options = self._task, Path(self._task.destination), self._task.options
        try:
            with contextlib.ExitStack() as stack:
                database = stack.enter_context(self._home.open())
                transport = stack.enter_context(open_transport(task.url, options, task.transport, task.stopped))
                begin_work(transport, database)
                backup = backup_of(options.backup_dir, root, task.now()) if options.backup_dir is not None else None
                documents = Documents(transport, task.listener, now=task.now)
                self._context = stack.enter_context(working_copy(task, transport, database, documents, backup=backup))
                self._contexts = {}
                self._reached = {}
                self._stack = stack.pop_all()
        except BaseException:
            self.rest()
            raise

    def _followed(self, t: Transaction) -> list[tuple[SetContext, Applier]]:
        """What was worked with, but for sets that were forgotten meanwhile."""
        known = {number for (number,) in t.rows("SELECT id FROM sets")}
        return [one for number, one in self._contexts.items() if number in known]

    def _apply(self, identity: str, topic: str, payloads: Sequence[ReadPayload], since: int | None) -> int:
        context, database = self._context, self._context.database
        found = next((one for one in self._contexts.values() if one[0].row.offer.identity == identity), None)
        if found is None:
            with database.read() as t:
                row = next((row for row in sets(t) if row.offer.identity == identity), None)
                if row is None or row.position is None or row.move is not None or self._task.options.choice.by_links:
                    raise KeyError(identity)
                scope = remembered_scope(t, self._task.url, self._task.options, row.offer)
            held = SetContext(context, row, scope)
            found = self._contexts[row.id] = (held, Applier(held))
        held, applier = found
        set_id = held.row.id
        lists = ListContext(PayloadLists(topic, payloads), database, held.scope, self._task.listener, held.choice)
        offer = held.offer.with_document(CHANGE_LIST, topic)
        reading = ChangeListReader(lists, set_id, offer, Position(time=since)).read()
        before, began = held.report.failed, context.now()

        def plan(t: Transaction, difference: Difference) -> None:
            """What a Change List leads to, but that what is out of scope is not remembered: only lists have that word.

            Nor do they go by what a payload has told: they decide once more.
            """
            note_payload(t, set_id)
            difference.increment(t)

        if reading.pending_count:
            held.report_process("push")
            applier.carry_out(plan, table="changed", retry_queue=False)
            with database.write() as t:
                bound_times(t, set_id, began)
                if held.report.failed > before:
                    t.run(_FORGET, (set_id, began))
        self._reached[set_id] = reading.position.time or 0
        return held.report.failed - before

    def take_report(self) -> SyncReport | None:
        """What was done since the last report, remembered as runs are; None: nothing."""
        if self._stack is None:
            return None
        database = self._context.database
        with database.read() as t:
            contexts = self._followed(t)
        self._contexts = {}
        if not contexts:
            return None
        report = SyncReport(source=self._task.url, destination=str(self._task.destination))
        for held, _ in contexts:
            held.reload()
            summarise(held)
            listed = held.row.position.time if held.row.position is not None else None
            held.report.position = format_micros(max(self._reached.get(held.row.id, 0), listed or 0) or None)
            report.sets.append(held.report)
        report.exit_status = gravest_status([one.exit_status for one in report.sets])
        report.seconds = round(time.monotonic() - self._began, 3)
        with database.write() as t:
            keep_report(t, self._began_at, self._context.now(), report)
        return report
