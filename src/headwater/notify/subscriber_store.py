"""Subscriptions and deliveries of a copy in SQLite: which is next, and how far a channel has led.

A file of its own, because a run may keep the state's writer for longer than a hub waits for an answer. A delivery is on
the disk before it is acknowledged, and leaves the queue together with the progress that it has brought. `push_status`
tells how the copy stands by it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from enum import Enum, StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headwater.copy_state import is_followed
from headwater.spec.kinds import Kind
from headwater.spec.times import from_optional
from headwater.storage.database import Database, Schema, opened_to_read
from headwater.storage.transaction import Transaction
from headwater.typed_decoding import from_json, from_values


class ChannelProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the payloads of a channel, and the lists of its set, have led. Times are in microseconds since 1970."""

    reached: int | None = None  # all changes before were told
    awaited: int = 0  # the time of a change that was told, and not applied: the lists have to lead as far
    needs_poll: bool = False  # something may be missing: the lists have to be read

    def joins(self, from_: int | None, until: int | None) -> bool:
        """Whether a payload of this interval goes on where the changes that were told end (RS-CN-07)."""
        if from_ is None or until is None or self.reached is None:
            return False
        return from_ <= until and from_ <= self.reached

    def is_past(self, from_: int | None, until: int | None) -> bool:
        """Whether a payload of this interval tells nothing that was not told: it came again, or late."""
        return self.joins(from_, until) and (until or 0) < (self.reached or 0)

    def raised(self, time: int | None) -> ChannelProgress:
        """The progress where all changes before `time` are told, which may be further already."""
        reached = time if self.reached is None else max(self.reached, time or 0)
        return msgspec.structs.replace(self, reached=reached)

    def awaiting(self, time: int = 0) -> ChannelProgress:
        """The progress where the lists have to be read, until they lead to `time`."""
        return msgspec.structs.replace(self, awaited=max(self.awaited, time), needs_poll=True)

    def polled(self, time: int | None) -> ChannelProgress:
        """The progress after the lists were read, which have led to `time`."""
        after = self.raised(time)
        return msgspec.structs.replace(after, needs_poll=after.awaited > (after.reached or 0))


_QUEUED_PAYLOADS: Final = 10_000
_QUEUED_OCTETS: Final = 256 << 20  # so much of a copy may wait to be applied; beyond, hubs are asked to come again


class SubscriptionState(StrEnum):
    """How far a subscription has come."""

    REQUESTED = "requested"  # its intent is not verified yet
    ACTIVE = "active"
    RETIRED = "retired"  # it is to be ended: another one has taken its place, or the channel is not wanted any more
    DENIED = "denied"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription at one hub. Times are in seconds since 1970, by the local clock.

    `channel` is the topic as it is advertised, `topic` what the topic itself says that its address is (WS-S-03).
    """

    kind: Kind
    identity: str
    channel: str
    topic: str
    hub: str
    callback: str
    token: str  # the part of the callback's path that nobody can guess (WS-S-05)
    secret: bytes
    state: SubscriptionState
    asked_at: float | None = None  # when the hub was last asked for it
    ends_at: float | None = None  # when the lease ends
    next_at: float = 0.0  # when something is to be done for it: to ask, to ask again, to renew, to end it
    failures: int = 0
    heard_at: float | None = None  # when a delivery was last accepted
    fault: str | None = None  # what went wrong last

    @property
    def is_replaced(self) -> bool:
        """Whether another one is asked for in its place: nothing is done for this one until its lease ends."""
        return self.state is SubscriptionState.ACTIVE and self.next_at == self.ends_at


class QueuedDelivery(NamedTuple):
    """A delivery that was acknowledged and is not applied yet."""

    seq: int
    channel: str
    came_at: float
    body: bytes


FILE: Final = "push.sqlite"
MODE: Final = "mode"  # a fact: `push` where push was at work when this was last looked at, else `poll`

_FIRST: Final = """
CREATE TABLE subscriptions(
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, identity TEXT NOT NULL, channel TEXT NOT NULL,
  topic TEXT NOT NULL, hub TEXT NOT NULL, callback TEXT NOT NULL, token TEXT NOT NULL UNIQUE, secret BLOB NOT NULL,
  state TEXT NOT NULL, asked_at REAL, ends_at REAL, next_at REAL NOT NULL, failures INTEGER NOT NULL, heard_at REAL,
  fault TEXT
);
CREATE TABLE deliveries(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, identity TEXT NOT NULL, channel TEXT NOT NULL,
  came_at REAL NOT NULL, digest BLOB NOT NULL, octets INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(channel, digest)
);
CREATE TABLE progress(channel TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
SCHEMA: Final = Schema(application_id=0x48575355, migrations=(_FIRST,))

_COLUMNS: Final = Subscription.__struct_fields__
_NAMES: Final = ", ".join(_COLUMNS)
_ADD: Final = f"INSERT INTO subscriptions({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_CHANGE: Final = f"UPDATE subscriptions SET {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE token = ?"  # noqa: S608
_CACHE_OCTETS: Final = 1 << 20
_BATCH: Final = 200
_BATCH_OCTETS: Final = 16 << 20
_NEXT: Final = (
    "SELECT seq, channel, came_at, body FROM deliveries WHERE channel ="
    " (SELECT channel FROM deliveries ORDER BY seq LIMIT 1) ORDER BY seq LIMIT ?"
)


class SubscriberStore:
    """The file of one copy; `folder` is that of the copy's state. Safe for several threads."""

    def __init__(self, folder: Path | Database, *, stays_open: bool = True) -> None:
        """Without `stays_open` the file is opened for each use: those of thousands of copies take no memory.

        A database that is open stands for its folder.
        """
        self._folder = folder
        self._database: Database | None = self._opened()
        if not stays_open:
            self.close()

    def _opened(self) -> Database:
        if isinstance(self._folder, Database):
            return self._folder
        return Database(self._folder / FILE, SCHEMA, cache_octets=_CACHE_OCTETS)

    def _lent(self) -> AbstractContextManager[Database]:
        return closing(self._opened()) if self._database is None else nullcontext(self._database)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """`Database.read`."""
        with self._lent() as database, database.read() as t:
            yield t

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """`Database.write`."""
        with self._lent() as database, database.write() as t:
            yield t

    def close(self) -> None:
        """Give it up; what was committed is on disk."""
        if self._database is not None:
            self._database.close()
            self._database = None

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def subscriptions(self) -> list[Subscription]:
        """All of them, oldest first."""
        with self.read() as t:
            rows = t.fetch(f"SELECT {_NAMES} FROM subscriptions ORDER BY id")  # noqa: S608
        return [from_values(dict(zip(_COLUMNS, row, strict=True)), Subscription) for row in rows]

    def add(self, t: Transaction, subscription: Subscription) -> None:
        """Remember a new one."""
        t.run(_ADD, _values(subscription))

    def change(self, t: Transaction, subscription: Subscription) -> None:
        """Remember what has become of one."""
        t.run(_CHANGE, (*_values(subscription), subscription.token))

    def drop(self, t: Transaction, token: str) -> None:
        """Forget one."""
        t.run("DELETE FROM subscriptions WHERE token = ?", (token,))

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def queue(self, t: Transaction, held: Subscription, body: bytes, now: float) -> bool:
        """Queue a delivery, each payload once; False where there is no room for it."""
        count, octets = t.one("SELECT count(*), coalesce(sum(octets), 0) FROM deliveries") or (0, 0)
        if count >= _QUEUED_PAYLOADS or octets + len(body) > _QUEUED_OCTETS:
            return False
        t.run(
            "INSERT OR IGNORE INTO deliveries(kind, identity, channel, came_at, digest, octets, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (held.kind.value, held.identity, held.channel, now, sha256(body).digest(), len(body), body),
        )
        t.run("UPDATE subscriptions SET heard_at = ?, fault = NULL WHERE token = ?", (now, held.token))
        return True

    def waiting(self) -> int:
        """How many deliveries wait to be applied."""
        with self.read() as t:
            return int(t.value("SELECT count(*) FROM deliveries"))

    def next_deliveries(self) -> list[QueuedDelivery]:
        """The oldest ones, as many as are applied together: those of one channel."""
        found: list[QueuedDelivery] = []
        octets = 0
        with self.read() as t:
            for one in map(QueuedDelivery._make, t.rows(_NEXT, (_BATCH,))):
                octets += len(one.body)
                if found and octets > _BATCH_OCTETS:
                    break
                found.append(one)
        return found

    def applied(self, numbers: Sequence[int], channel: str, progress: ChannelProgress) -> None:
        """Take deliveries out of the queue, and remember the progress with them."""
        with self.write() as t:
            t.many("DELETE FROM deliveries WHERE seq = ?", [(number,) for number in numbers])
            _keep(t, channel, progress)

    # -- progress -----------------------------------------------------------------------------------------------------

    def progress(self, channel: str) -> ChannelProgress:
        """How far a channel has led."""
        with self.read() as t:
            value = t.value("SELECT value FROM progress WHERE channel = ?", (channel,))
        return ChannelProgress() if value is None else from_json(value, ChannelProgress)

    def keep_progress(self, channels: dict[str, ChannelProgress]) -> None:
        """Remember how far channels have led."""
        with self.write() as t:
            for channel, progress in channels.items():
                _keep(t, channel, progress)

    # -- facts --------------------------------------------------------------------------------------------------------

    def fact(self, name: str) -> str | None:
        """A single value that is remembered."""
        with self.read() as t:
            value = t.value("SELECT value FROM facts WHERE name = ?", (name,))
        return None if value is None else str(value)

    def keep_fact(self, name: str, value: str) -> None:
        """Remember it."""
        with self.write() as t:
            t.run("INSERT OR REPLACE INTO facts(name, value) VALUES (?, ?)", (name, value))


def _keep(t: Transaction, channel: str, progress: ChannelProgress) -> None:
    told = msgspec.json.encode(progress).decode()
    t.run("INSERT OR REPLACE INTO progress(channel, value) VALUES (?, ?)", (channel, told))


def _values(subscription: Subscription) -> list[Any]:
    return [value.value if isinstance(value, Enum) else value for value in msgspec.structs.astuple(subscription)]


# how the copy stands


class SubscriptionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription. `state` is requested, active, retired or denied; `fault` is what went wrong last."""

    channel: str
    capability_list: str
    topic: str
    hub: str
    state: str
    lease_ends: dt.datetime | None
    next_request: dt.datetime | None  # when the hub is asked next: to subscribe, to renew, to end it
    last_delivery: dt.datetime | None
    fault: str | None


class ChannelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far the payloads of a channel have led, in the source's time, and whether one may be missing."""

    topic: str
    capability_list: str
    reached: dt.datetime | None
    has_gap: bool


class PushStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`mode` is `push` where notifications keep the copy current and polls are a back-up, else `poll`.

    It is as the process has left it that was the last to follow the copy.
    """

    mode: str
    is_followed: bool | None  # whether a process follows the copy at present; null where that cannot be seen
    waiting: int  # deliveries that are acknowledged and not applied yet
    last_delivery: dt.datetime | None
    subscriptions: tuple[SubscriptionStatus, ...]
    channels: tuple[ChannelStatus, ...]

    def reached(self, capability_list: str | None) -> dt.datetime | None:
        """How far payloads have led in the set with this Capability List; None where one may be missing."""
        found = [one for one in self.channels if one.capability_list == capability_list and not one.has_gap]
        return max((one.reached for one in found if one.reached is not None), default=None)


def push_status(folder: Path) -> PushStatus | None:
    """How the copy stands whose state is in `folder`; None where it was never followed by push."""
    if not (folder / FILE).is_file():
        return None
    with opened_to_read(folder / FILE, SCHEMA) as database:
        store = SubscriberStore(database)
        held = [one for one in store.subscriptions() if one.state is not SubscriptionState.RETIRED]
        topics = sorted({(one.channel, one.identity) for one in held})
        progress = {(topic, identity): store.progress(topic) for topic, identity in topics}
        return PushStatus(
            mode=store.fact(MODE) or "poll",
            is_followed=is_followed(folder),
            waiting=store.waiting(),
            last_delivery=_moment(max((one.heard_at or 0.0 for one in held), default=0.0)),
            subscriptions=tuple(
                SubscriptionStatus(
                    channel=one.kind.value,
                    capability_list=one.identity,
                    topic=one.topic,
                    hub=one.hub,
                    state=one.state.value,
                    lease_ends=_moment(one.ends_at),
                    next_request=_moment(one.next_at),
                    last_delivery=_moment(one.heard_at),
                    fault=one.fault,
                )
                for one in held
            ),
            channels=tuple(
                ChannelStatus(
                    topic=topic, capability_list=identity, reached=from_optional(one.reached), has_gap=one.needs_poll
                )
                for (topic, identity), one in progress.items()
            ),
        )


def _moment(seconds: float | None) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(seconds, dt.UTC) if seconds else None
