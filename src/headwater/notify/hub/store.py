"""Stores subscriptions, intents and messages of a hub in SQLite, and gives up messages where there are too many.

A message of a topic has a number; a subscription has the number of the last one that it has received, so that a message
is stored once however many are to receive it. Every method is one transaction or part of the one that it is given.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headwater.notify.http_client import NameAsker
from headwater.notify.hub.policy import MOST_LEASE, HubLimits, SubscriptionRequest
from headwater.spec import uris
from headwater.storage.database import Database, Schema
from headwater.storage.transaction import Transaction
from headwater.typed_decoding import from_json


def stranger(client: str) -> NameAsker:
    """Who has named something without a token."""
    return NameAsker("strangers", client)


UNKNOWN: Final = stranger("")  # after a restart nobody knows who has named something


def subscriber(host: str) -> NameAsker:
    """Who has confirmed a subscription with a callback at `host:port`: all names of one domain have one share."""
    return NameAsker("subscribers", ".".join(host.rpartition(":")[0].split(".")[-2:]))


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher has handed in, or what was fetched, for a topic. `links` are further values of `Link`."""

    topic: str
    media_type: str
    body: bytes
    links: tuple[str, ...] = ()


class Message(Payload, frozen=True, kw_only=True):
    """One payload of a topic, by its number among those of the topic."""

    seq: int


class HubTask(msgspec.Struct, kw_only=True):
    """Something that is due at a UNIX time (0: at once), at a callback or topic of `host` (`name:port`)."""

    host: str
    due_at: float = 0.0


class DueSubscription(HubTask, kw_only=True):
    """A subscription that has not received everything: the number of the last message it has, when it is to be tried.

    `failures` counts those in a row; `due_at` and `expires_at`, the end of the lease, are UNIX times; `is_busy` while a
    delivery is made or remembered.
    """

    id: int
    topic_id: int
    topic: str
    callback: str
    secret: bytes | None
    position: int
    failures: int
    expires_at: float
    is_busy: bool = False


class AddedMessage(msgspec.Struct, frozen=True):
    """A message that was added to a topic, and the subscriptions that were waiting for nothing before."""

    topic_id: int
    message: Message
    due: list[DueSubscription]


class ChangedTopic(HubTask, kw_only=True):
    """A topic that is to be fetched since `noted_at`; `is_trusted`: somebody known to the hub has said so.

    `client` has said so, where that is known, and `tries` have failed; no store keeps these.
    """

    topic: str
    noted_at: float
    is_trusted: bool
    client: str = ""
    tries: int = 0


class Intent(HubTask, kw_only=True):
    """A request that was answered 202 and whose intent is not verified yet, or that is denied for a `denial`.

    `asker` is whose names it has; no store keeps it.
    """

    id: int
    is_unsubscribe: bool
    topic: str
    callback: str
    lease_seconds: int
    secret: bytes | None
    tries: int
    denial: str | None = None
    asker: NameAsker = UNKNOWN


class HubCounts(msgspec.Struct, frozen=True):
    """How a hub stands."""

    topics: int
    subscriptions: int
    behind: int
    failing: int
    pending: int
    messages: int
    message_octets: int
    changed_topics: int


class TopicCounts(msgspec.Struct, frozen=True):
    """How one topic stands; `last_at` is the UNIX time of its last message."""

    topic: str
    subscriptions: int
    behind: int
    failing: int
    messages: int
    last_seq: int
    last_at: float | None


_FIRST: Final = """
CREATE TABLE topics(
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, url TEXT NOT NULL,
  last_seq INTEGER NOT NULL DEFAULT 0, last_at REAL, digest BLOB, changed_at REAL, is_trusted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX changed_topics ON topics(changed_at) WHERE changed_at IS NOT NULL;
CREATE TABLE messages(
  id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL,
  type TEXT NOT NULL, links TEXT NOT NULL, octets INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(topic_id, seq)
);
CREATE TABLE subscriptions(
  id INTEGER PRIMARY KEY AUTOINCREMENT, topic_id INTEGER NOT NULL, topic TEXT NOT NULL,
  callback_key TEXT NOT NULL, callback TEXT NOT NULL, host TEXT NOT NULL,
  secret BLOB, expires_at REAL NOT NULL, position INTEGER NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0, due_at REAL, error TEXT,
  UNIQUE(topic_id, callback_key)
);
CREATE INDEX due_subscriptions ON subscriptions(due_at) WHERE due_at IS NOT NULL;
CREATE INDEX leases ON subscriptions(expires_at);
CREATE TABLE hosts(host TEXT PRIMARY KEY, subscriptions INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER subscribed AFTER INSERT ON subscriptions BEGIN
  INSERT INTO hosts VALUES(new.host, 1) ON CONFLICT DO UPDATE SET subscriptions = subscriptions + 1;
END;
CREATE TRIGGER unsubscribed AFTER DELETE ON subscriptions BEGIN
  UPDATE hosts SET subscriptions = subscriptions - 1 WHERE host = old.host;
  DELETE FROM hosts WHERE host = old.host AND subscriptions < 1;
END;
CREATE TABLE intents(
  id INTEGER PRIMARY KEY AUTOINCREMENT, is_unsubscribe INTEGER NOT NULL,
  topic_key TEXT NOT NULL, topic TEXT NOT NULL, callback_key TEXT NOT NULL, callback TEXT NOT NULL,
  host TEXT NOT NULL, lease_seconds INTEGER NOT NULL, secret BLOB,
  tries INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL, denial TEXT
);
CREATE INDEX intents_of_pair ON intents(topic_key, callback_key);
"""

SCHEMA = Schema(application_id=0x48574842, migrations=(_FIRST,))
FILE: Final = "hub.sqlite"


_DUE_FIELDS: Final = (
    "id", "topic_id", "topic", "host", "callback", "secret", "position", "failures", "due_at", "expires_at",
)  # fmt: skip
_DUE: Final = ", ".join(_DUE_FIELDS)
_INTENT_FIELDS: Final = (
    "id", "is_unsubscribe", "topic", "callback", "host", "lease_seconds", "secret", "tries", "due_at", "denial",
)  # fmt: skip
_INTENT: Final = ", ".join(_INTENT_FIELDS)
_INTENTS: Final = f"SELECT {_INTENT} FROM intents ORDER BY id"  # noqa: S608  our own names
_WAITING: Final = "WHERE topic_id = ? AND due_at IS NULL AND expires_at > ?"
_OF_TOPIC: Final = "(SELECT {} FROM topics WHERE id = topic_id)"
_ALL_DUE: Final = f"SELECT {_DUE} FROM subscriptions WHERE due_at IS NOT NULL"  # noqa: S608  our own names
_DROP_OLDEST: Final = (
    "DELETE FROM messages WHERE id = (SELECT id FROM messages WHERE topic_id = ? ORDER BY seq LIMIT 1) RETURNING octets"
)
"""Of one topic."""
_TOPICS: Final = """
SELECT url, count(subscriptions.id), count(due_at), coalesce(sum(due_at NOT NULL AND failures > 0), 0),
  (SELECT count(*) FROM messages WHERE messages.topic_id = topics.id), last_seq, last_at
FROM topics LEFT JOIN subscriptions ON subscriptions.topic_id = topics.id
GROUP BY topics.id ORDER BY 2 DESC, url LIMIT ?
"""


_COUNTS: Final = (
    "count(*) FROM topics",
    "sum(subscriptions) FROM hosts",
    "count(*) FROM subscriptions WHERE due_at IS NOT NULL",
    "count(*) FROM subscriptions WHERE due_at IS NOT NULL AND failures > 0",
    "count(*) FROM intents",
    "count(*) FROM messages",
    "sum(octets) FROM messages",
    "count(*) FROM topics WHERE changed_at IS NOT NULL",
)
"""Those of `HubCounts`, in its order."""


def host_of(url: str) -> str:
    """What of a URL requests are shared out by: host and port."""
    origin = uris.origin(url)
    return f"{origin.host}:{origin.port}"


class HubStore:
    """The file. Safe for several threads; one process at a time works on it, others may read the counts."""

    def __init__(self, folder: Path, limits: HubLimits) -> None:
        self.database = Database(folder / FILE, SCHEMA)
        self._limits = limits

    def close(self) -> None:
        """Give it up; what was committed is on disk."""
        self.database.close()

    # -- intents ------------------------------------------------------------------------------------------------------

    def ask(self, tx: Transaction, request: SubscriptionRequest, now: float, asker: NameAsker = UNKNOWN) -> Intent:
        """Remember a request until its intent is verified; one of the same topic and callback gives way to it.

        The names of one that is subscribed already are looked up as a subscriber's, others as those of the `asker`.
        """
        lease = 0 if request.is_unsubscribe else self._limits.lease(request.lease_seconds)
        keys = (request.topic_key, request.callback_key)
        is_known = self._is_subscribed(tx, keys)
        denial = None if request.is_unsubscribe or is_known else self._denial(tx, host_of(request.callback))
        tx.run("DELETE FROM intents WHERE topic_key = ? AND callback_key = ?", keys)
        row = tx.one(
            "INSERT INTO intents(is_unsubscribe, topic_key, topic, callback_key, callback, host, lease_seconds, secret,"
            f" due_at, denial) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_INTENT}",
            (
                request.is_unsubscribe,
                request.topic_key,
                request.topic,
                request.callback_key,
                request.callback,
                host_of(request.callback),
                lease,
                request.secret,
                now,
                denial,
            ),
        )
        assert row is not None
        intent = _intent(row)
        return msgspec.structs.replace(intent, asker=subscriber(intent.host) if is_known else asker)

    def _is_subscribed(self, tx: Transaction, keys: tuple[str, str]) -> bool:
        found = tx.value(
            "SELECT 1 FROM subscriptions JOIN topics ON topics.id = topic_id WHERE key = ? AND callback_key = ?", keys
        )
        return bool(found)

    def _denial(self, tx: Transaction, host: str) -> str | None:
        """Why there is no room for one more subscription; a renewal is none."""
        if (tx.value("SELECT sum(subscriptions) FROM hosts") or 0) >= self._limits.subscriptions:
            return "this hub has as many subscriptions as it may have"
        of_host = tx.value("SELECT subscriptions FROM hosts WHERE host = ?", (host,)) or 0
        if of_host >= self._limits.host_subscriptions:
            return "this host has as many subscriptions as one may have"
        return None

    def intents(self) -> list[Intent]:
        """All of them."""
        with self.database.read() as tx:
            return [_intent(row) for row in tx.rows(_INTENTS)]

    def put_off(self, tx: Transaction, intent: Intent) -> None:
        """Remember when an intent is asked for again."""
        tx.run("UPDATE intents SET tries = ?, due_at = ? WHERE id = ?", (intent.tries, intent.due_at, intent.id))

    def settle(
        self, tx: Transaction, intent: Intent, *, is_confirmed: bool, asked_at: float
    ) -> DueSubscription | Intent | int | None:
        """Forget an intent; a confirmed one takes effect, its lease counts from `asked_at` (WS-H-04, WS-H-09).

        Returns the subscription as something due when there is something for it, its id when it is gone; the intent as
        one that is denied, when others have come first to the last subscription there is room for; else None.
        """
        topic_key, callback_key = uris.normalise(intent.topic), uris.normalise(intent.callback)
        is_new = not intent.is_unsubscribe and not self._is_subscribed(tx, (topic_key, callback_key))
        if is_confirmed and is_new and (denial := self._denial(tx, intent.host)):
            row = tx.one(
                f"UPDATE intents SET denial = ?, tries = 0 WHERE id = ? RETURNING {_INTENT}",  # noqa: S608  our own names
                (denial, intent.id),
            )
            return None if row is None else _intent(row)
        if not tx.run("DELETE FROM intents WHERE id = ?", (intent.id,)) or not is_confirmed:
            return None  # a later request has taken its place
        if intent.is_unsubscribe:
            return tx.value(  # type: ignore[no-any-return]
                "DELETE FROM subscriptions WHERE callback_key = ? AND topic_id = (SELECT id FROM topics WHERE key = ?)"
                " RETURNING id",
                (callback_key, topic_key),
            )
        topic_id, last = self._topic(tx, topic_key, intent.topic)
        row = tx.one(
            "INSERT INTO subscriptions(topic_id, topic, callback_key, callback, host, secret, expires_at, position)"
            " VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(topic_id, callback_key) DO UPDATE SET topic = excluded.topic,"
            " callback = excluded.callback, secret = excluded.secret, expires_at = excluded.expires_at"
            f" RETURNING {_DUE}",
            (
                topic_id,
                intent.topic,
                callback_key,
                intent.callback,
                intent.host,
                intent.secret,
                asked_at + intent.lease_seconds,
                last,
            ),
        )
        assert row is not None
        return None if row[-2] is None else _due(row)

    def _topic(self, tx: Transaction, key: str, url: str) -> tuple[int, int]:
        row = tx.one("SELECT id, last_seq FROM topics WHERE key = ?", (key,))
        if row is None:
            row = tx.one("INSERT INTO topics(key, url) VALUES(?, ?) RETURNING id, last_seq", (key, url))
        assert row is not None
        return row[0], row[1]

    # -- messages -----------------------------------------------------------------------------------------------------

    def add(self, tx: Transaction, payload: Payload, now: float, *, once: bool) -> AddedMessage | None:
        """Keep a payload for all subscribers of its topic.

        With `once`, one of the same octets as the last one of the topic is not kept again: None.
        """
        topic_id, last = self._topic(tx, uris.normalise(payload.topic), payload.topic)
        digest = hashlib.sha256(payload.body).digest()
        if once and tx.value("SELECT digest FROM topics WHERE id = ?", (topic_id,)) == digest:
            return None
        tx.run(
            "UPDATE topics SET last_seq = ?, last_at = ?, digest = ?, url = ? WHERE id = ?",
            (last + 1, now, digest, payload.topic, topic_id),
        )
        due = [
            _due(row)
            for row in tx.fetch(
                f"UPDATE subscriptions SET due_at = ? {_WAITING} RETURNING {_DUE}",  # noqa: S608  our own names
                (now, topic_id, now),
            )
        ]
        if due or tx.value("SELECT 1 FROM subscriptions WHERE topic_id = ? AND due_at IS NOT NULL", (topic_id,)):
            links, octets = msgspec.json.encode(payload.links).decode(), len(payload.body)
            tx.run(
                "INSERT INTO messages(topic_id, seq, at, type, links, octets, body) VALUES(?, ?, ?, ?, ?, ?, ?)",
                (topic_id, last + 1, now, payload.media_type, links, octets, payload.body),
            )
            self._bound(tx, topic_id)
        return AddedMessage(topic_id, Message(**msgspec.structs.asdict(payload), seq=last + 1), due)

    def _bound(self, tx: Transaction, topic_id: int) -> None:
        count, octets = tx.one("SELECT count(*), sum(octets) FROM messages WHERE topic_id = ?", (topic_id,)) or (0, 0)
        while count > self._limits.topic_messages or (count > 1 and octets > self._limits.topic_octets):
            octets -= tx.value(_DROP_OLDEST, (topic_id,))
            count -= 1

    def message_after(self, topic_id: int, position: int) -> Message | int:
        """The first message of a topic after this number; when there is none, the number of the last there was."""
        with self.database.read() as tx:
            row = tx.one(
                "SELECT url, seq, type, links, body FROM messages JOIN topics ON topics.id = topic_id"
                " WHERE topic_id = ? AND seq > ? ORDER BY seq LIMIT 1",
                (topic_id, position),
            )
            if row is None:
                return int(tx.value("SELECT last_seq FROM topics WHERE id = ?", (topic_id,)) or 0)
        links = from_json(row[3], tuple[str, ...])
        return Message(topic=row[0], seq=row[1], media_type=row[2], links=links, body=row[4])

    # -- topics that are to be fetched --------------------------------------------------------------------------------

    def note_changed(
        self, tx: Transaction, topics: Iterable[str], now: float, *, is_trusted: bool
    ) -> list[ChangedTopic]:
        """Remember that these topics are to be fetched; `is_trusted`: whoever says so is known to the hub.

        What somebody known has said, and is not done, is not taken back by somebody who is not (RS-NT-07).
        """
        changed = []
        for topic in topics:
            topic_id, _last = self._topic(tx, uris.normalise(topic), topic)
            trusted = tx.value(
                "UPDATE topics SET changed_at = ?1, is_trusted = ?2 OR (changed_at NOT NULL AND is_trusted)"
                " WHERE id = ?3 RETURNING is_trusted",
                (now, is_trusted, topic_id),
            )
            changed.append(ChangedTopic(host=host_of(topic), topic=topic, noted_at=now, is_trusted=bool(trusted)))
        return changed

    def changed(self) -> list[ChangedTopic]:
        """The topics that are to be fetched."""
        with self.database.read() as tx:
            rows = tx.fetch("SELECT url, changed_at, is_trusted FROM topics WHERE changed_at IS NOT NULL")
        return [
            ChangedTopic(host=host_of(topic), topic=topic, noted_at=noted_at, is_trusted=bool(is_trusted))
            for topic, noted_at, is_trusted in rows
        ]

    def fetched(self, tx: Transaction, topic: str, noted_at: float) -> None:
        """A topic was fetched, or given up; what was noted since stays."""
        tx.run(
            "UPDATE topics SET changed_at = NULL WHERE key = ? AND changed_at <= ?", (uris.normalise(topic), noted_at)
        )

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def due(self) -> Iterator[DueSubscription]:
        """All subscriptions that have not received everything."""
        with self.database.read() as tx:
            for row in tx.rows(_ALL_DUE):
                yield _due(row)

    def record(
        self, tx: Transaction, one: DueSubscription, due_at: float | None, error: str | None = None
    ) -> list[DueSubscription]:
        """Remember what came of a delivery; one that has all (`due_at` None) is returned where more has come since."""
        tx.run(
            "UPDATE subscriptions SET position = ?, failures = ?, due_at = ?, error = ? WHERE id = ?",
            (one.position, one.failures, due_at, error, one.id),
        )
        found = tx.fetch(
            f"UPDATE subscriptions SET due_at = {_OF_TOPIC.format('last_at')} WHERE id = ? AND due_at IS NULL"  # noqa: S608  our own names
            f" AND position < {_OF_TOPIC.format('last_seq')} RETURNING {_DUE}",
            (one.id,),
        )
        return [_due(row) for row in found]

    def end(self, tx: Transaction, number: int, expires_at: float) -> list[DueSubscription]:
        """End the lease that ends at this time, and return the subscription where it was confirmed again since."""
        tx.run("DELETE FROM subscriptions WHERE id = ? AND expires_at = ?", (number, expires_at))
        return [_due(row) for row in tx.fetch(f"{_ALL_DUE} AND id = ?", (number,))]

    def tidy(self, tx: Transaction, now: float) -> list[int]:
        """End leases that are over (WS-H-09), and drop messages that nobody waits for, that are too old or too many.

        No lease is to end later than the longest there may be: the clock may have been set back since. Topics of which
        nothing is left go, too. Gives the ids of the subscriptions that have ended.
        """
        longest = now + max(self._limits.most_lease, MOST_LEASE)
        tx.run("UPDATE subscriptions SET expires_at = ?1 WHERE expires_at > ?1", (longest,))
        ended = [row[0] for row in tx.fetch("DELETE FROM subscriptions WHERE expires_at <= ? RETURNING id", (now,))]
        tx.run("DELETE FROM messages WHERE at < ?", (now - self._limits.message_seconds,))
        waited: dict[int, int] = dict(
            tx.fetch("SELECT topic_id, min(position) FROM subscriptions WHERE due_at IS NOT NULL GROUP BY topic_id")
        )
        for (topic_id,) in tx.fetch("SELECT DISTINCT topic_id FROM messages"):
            received = waited.get(topic_id, 1 << 62)
            tx.run("DELETE FROM messages WHERE topic_id = ? AND seq <= ?", (topic_id, received))
        tx.run(
            "DELETE FROM topics WHERE changed_at IS NULL AND coalesce(last_at, 0) < ?"
            " AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE topic_id = topics.id)"
            " AND NOT EXISTS (SELECT 1 FROM messages WHERE topic_id = topics.id)",
            (now - self._limits.message_seconds,),
        )
        octets: dict[int, int] = dict(tx.fetch("SELECT topic_id, sum(octets) FROM messages GROUP BY topic_id"))
        beyond = sum(octets.values()) - self._limits.message_octets
        while beyond > 0:
            most = max(octets, key=octets.__getitem__)
            dropped = tx.value(_DROP_OLDEST, (most,))
            octets[most] -= dropped
            beyond -= dropped
        return ended

    # -- how it stands ------------------------------------------------------------------------------------------------

    def counts(self) -> HubCounts:
        """How the hub stands."""
        with self.database.read() as tx:
            return HubCounts(*(int(tx.value(f"SELECT {sql}") or 0) for sql in _COUNTS))

    def topics(self, limit: int) -> list[TopicCounts]:
        """How topics stand, those with most subscriptions first."""
        with self.database.read() as tx:
            return [TopicCounts(*row) for row in tx.rows(_TOPICS, (limit,))]


def _due(row: Sequence[Any]) -> DueSubscription:
    return DueSubscription(**dict(zip(_DUE_FIELDS, row, strict=True)))


def _intent(row: Sequence[Any]) -> Intent:
    return Intent(**dict(zip(_INTENT_FIELDS, row, strict=True)))
