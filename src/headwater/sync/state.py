"""The state of a destination, DEST/.headwater/state.sqlite: temporary tables, facts, validators, sets, refused entries.

The temporary tables are those of a run: what was listed, what is to be done. They are tables of the connection that
writes the state (`copy_state.py`), on disk and not in memory, so that a difference is one query and a killed run leaves
nothing behind. `facts` are single values of a copy as a whole or of one set; `documents` has the validators of
documents that have been dealt with, for conditional requests; `sets` what is remembered of each set, and its offer;
`refusals` the entries of lists that are refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headwater.quantities import consent_for
from headwater.spec.extensions import DumpOffer
from headwater.storage.transaction import Row, Transaction
from headwater.sync.connection import REFUSALS, Refusal, host_label
from headwater.sync.lists.position import NEVER, Position
from headwater.sync.options import Choice, Stated
from headwater.typed_decoding import from_json

LISTED = (
    "uri TEXT, loc TEXT, lastmod INTEGER, length INTEGER, hash TEXT, type TEXT, encoding TEXT, links TEXT, extra TEXT"
)
"""What a list says of a resource, in each of the tables below."""

LISTED_COLUMNS = "uri, loc, lastmod, length, hash, type, encoding, links, extra"
"""The names of these columns."""

_CACHE_KIB = 16_384
"""Of pages of these tables in memory: with SQLite's own 2 MB a baseline of 20,000 resources reads and writes pages
25,000 times."""

TEMPORARY = f"""
PRAGMA temp.cache_size = -{_CACHE_KIB};
CREATE TEMP TABLE IF NOT EXISTS listed(
  n INTEGER PRIMARY KEY, {LISTED}, refused INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS changed(
  n INTEGER PRIMARY KEY, list INTEGER, ordinal INTEGER, {LISTED}, change TEXT, at INTEGER, latest INTEGER,
  exact INTEGER, stated INTEGER, refused INTEGER, pending INTEGER, asked TEXT,
  folded INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS refused(
  n INTEGER PRIMARY KEY, uri TEXT, type TEXT, length INTEGER, lastmod INTEGER, links TEXT, change TEXT, at INTEGER,
  refused INTEGER
);
CREATE INDEX IF NOT EXISTS temp.changed_place ON changed(list, ordinal);
CREATE TEMP TABLE IF NOT EXISTS work(
  n INTEGER PRIMARY KEY, {LISTED}, path BLOB, held INTEGER, changed_at INTEGER, known_at INTEGER, etag TEXT,
  last_modified TEXT, tries INTEGER, attempt_json TEXT, round INTEGER NOT NULL DEFAULT 0, reason TEXT, UNIQUE(uri)
);
CREATE INDEX IF NOT EXISTS temp.work_path ON work(path);
CREATE INDEX IF NOT EXISTS temp.work_round ON work(round) WHERE round > 0;
CREATE TEMP TABLE IF NOT EXISTS present(
  n INTEGER PRIMARY KEY, {LISTED}, refused INTEGER, at INTEGER, latest INTEGER, exact INTEGER, is_change INTEGER,
  is_news INTEGER, UNIQUE(uri)
);
CREATE TEMP TABLE IF NOT EXISTS copied(
  n INTEGER, {LISTED}, refused INTEGER, at INTEGER, latest INTEGER, exact INTEGER, is_change INTEGER,
  is_news INTEGER, is_link INTEGER, UNIQUE(uri)
);
CREATE TEMP TABLE IF NOT EXISTS described(content TEXT, record TEXT, PRIMARY KEY(content, record)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS temp.described_record ON described(record);
CREATE TEMP TABLE IF NOT EXISTS folded(name BLOB PRIMARY KEY, path BLOB NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS stamps(id INTEGER PRIMARY KEY);
CREATE TEMP TABLE IF NOT EXISTS deletions(id INTEGER PRIMARY KEY, at INTEGER);
"""


# the table `facts`

IN_PUBLIC = "host seen in public"
"""A fact: the host of the source's address, where it was seen at a public address (DST-S12)."""


AS_OF = "as of"
"""A fact: of which moment the copy is, where it is one of the past (`--at`)."""


def fact(transaction: Transaction, name: str) -> str | None:
    """A remembered fact about the whole copy."""
    value = transaction.value("SELECT value FROM facts WHERE name = ?", (name,))
    return None if value is None else str(value)


def keep_fact(transaction: Transaction, name: str, value: str) -> None:
    """Remember a fact about the whole copy."""
    transaction.run("INSERT OR REPLACE INTO facts(name, value) VALUES (?, ?)", (name, value))


def remember_base(transaction: Transaction, set_id: int, base: str) -> None:
    """Remember that the names of a set were once made with this base: who goes on naming it means the present one."""
    known = former_bases(transaction, set_id)
    keep_fact(transaction, f"former bases {set_id}", msgspec.json.encode(sorted({*known, base})).decode())


def former_bases(transaction: Transaction, set_id: int) -> list[str]:
    """The bases of a set before its source moved (DST-F10)."""
    return from_json(fact(transaction, f"former bases {set_id}") or "[]", list[str])


AWAITS_CONSENT = "held when held back {}"
"""A fact: how many files a set held when deletions of it began to wait for consent (DST-B4)."""

AWAITS_UPDATE_CONSENT = "held when updates were held back {}"
"""The same of updates (`--max-update`)."""

HELD_UPDATE = "held back: the updates of this run overwrite too many files"
"""The reason of a failure that is none: an update that waits for consent."""


# the table `documents` (DST-C1)

SOURCE = 0
"""The number of the "set" whose documents are those of the source as a whole."""


class Validators(msgspec.Struct, frozen=True):
    """The validators of a document (`ETag`, `Last-Modified`) for a conditional request (DST-C1)."""

    etag: str | None = None
    last_modified: str | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The request headers."""
        return tuple(
            (name, value)
            for name, value in (("If-None-Match", self.etag), ("If-Modified-Since", self.last_modified))
            if value
        )


def validators(transaction: Transaction, set_id: int, uri: str) -> Validators | None:
    """The validators of a document whose content has been dealt with entirely; None when there are none."""
    row = transaction.one("SELECT etag, last_modified FROM documents WHERE set_id = ? AND uri = ?", (set_id, uri))
    return Validators(*row) if row and any(row) else None


def keep_validators(
    transaction: Transaction, set_id: int, uri: str, etag: str | None, modified: str | None, moved_to: str | None = None
) -> None:
    """Remember that this state of a document has been dealt with; set 0 holds those of the source as a whole.

    `moved_to`: where it is permanently redirected to (DST-F10).
    """
    transaction.run(
        "INSERT OR REPLACE INTO documents(set_id, uri, etag, last_modified, moved_to) VALUES (?, ?, ?, ?, ?)",
        (set_id, uri, etag, modified, moved_to),
    )


def moved_documents(transaction: Transaction) -> dict[str, str]:
    """Where documents of the source as a whole are permanently redirected to (DST-F10)."""
    query = "SELECT uri, moved_to FROM documents WHERE set_id = ? AND moved_to IS NOT NULL"
    return dict(transaction.rows(query, (SOURCE,)))


def forget_documents(transaction: Transaction, set_id: int) -> None:
    """Forget all validators of a set: its documents are to be read again."""
    transaction.run("DELETE FROM documents WHERE set_id = ?", (set_id,))


# the table `sets`

RESOURCE_LIST, CHANGE_LIST = "resourcelist", "changelist"
RESOURCE_DUMP, CHANGE_DUMP = "resourcedump", "changedump"
"""The capabilities that a copy is made from, as a Capability List names them."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The offer of one set by a source: the URI of the document of each capability."""

    identity: str  # the Capability List's URI; where there is none, the URI of the list itself
    name: str
    capability_list: str | None = None
    description: str | None = None
    documents: dict[str, str] = {}
    """The URI of the document of each capability, by the capability as a Capability List names it."""

    hubs: dict[str, tuple[str, ...]] = {}  # the hubs of channels, by their capability (RS-CH-05, RS-CH-06)
    is_sitemap: bool = False
    on_demand: DumpOffer | None = None  # where packages are made on demand, and within which limits

    @property
    def baseline_document(self) -> str | None:
        """What a baseline goes by: the Resource List, else the Resource Dump, whose manifests list the same."""
        return self.documents.get(RESOURCE_LIST) or self.documents.get(RESOURCE_DUMP)

    @property
    def changes_document(self) -> str | None:
        """What is followed: the Change List, else the Change Dump, whose manifests list the same (DST-D)."""
        return self.documents.get(CHANGE_LIST) or self.documents.get(CHANGE_DUMP)

    def with_document(self, capability: str, uri: str | None) -> Offer:
        """The same with another document of this capability, or with none."""
        documents = {name: where for name, where in self.documents.items() if name != capability}
        if uri is not None:
            documents[capability] = uri
        return msgspec.structs.replace(self, documents=documents)


class Move(msgspec.Struct, frozen=True):
    """A set's documents are elsewhere by now, and what is held of it is still to be taken along (DST-F10)."""

    origin: Offer  # where they were
    said: bool = False  # whether the user says so; else a permanent redirect, or what is listed there
    guessed: float = 0.0
    """Where only names say so: the share of the held files that has to be listed there; else it is another set."""


class SetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One set as remembered. With a `move`, `offer` is what is offered at the new place, and is not remembered yet."""

    id: int
    name: str
    folder: str
    offer: Offer
    base: str | None = None
    scope: str | None = None
    baseline_at: int | None = None
    baseline_uri: str | None = None
    baseline_done: bool = False
    position: Position | None = None
    move: Move | None = None
    is_offer_asked: bool = False
    """Whether the Capability List was asked in this run, beside a Change List that is polled; not remembered."""


_SET_COLUMNS = ", ".join(name for name in SetRow.__struct_fields__ if name not in ("move", "is_offer_asked"))


def _set_of(row: Row) -> SetRow:
    values = dict(zip(SetRow.__struct_fields__, row, strict=False))
    position = values["position"]
    values["offer"] = from_json(values["offer"], Offer)
    values["baseline_done"] = bool(values["baseline_done"])
    values["position"] = from_json(position, Position) if position else None
    return SetRow(**values)


def sets(transaction: Transaction) -> list[SetRow]:
    """All sets, in the order in which they were first seen."""
    return [_set_of(row) for row in transaction.rows(f"SELECT {_SET_COLUMNS} FROM sets ORDER BY id")]  # noqa: S608


def one_set(transaction: Transaction, set_id: int) -> SetRow:
    """One set as it now is."""
    row = transaction.one(f"SELECT {_SET_COLUMNS} FROM sets WHERE id = ?", (set_id,))  # noqa: S608
    assert row is not None
    return _set_of(row)


def add_set(transaction: Transaction, offer: Offer, folder: str) -> SetRow:
    """Remember a set that was not known."""
    transaction.run(
        "INSERT INTO sets(name, folder, identity, offer) VALUES (?, ?, ?, ?)",
        (offer.name, folder, offer.identity, msgspec.json.encode(offer).decode()),
    )
    return one_set(transaction, int(transaction.value("SELECT id FROM sets WHERE identity = ?", (offer.identity,))))


def keep_offer(transaction: Transaction, set_id: int, offer: Offer) -> None:
    """Remember where the documents of a set now are."""
    transaction.run("UPDATE sets SET offer = ? WHERE id = ?", (msgspec.json.encode(offer).decode(), set_id))


def keep_position(transaction: Transaction, set_id: int, position: Position) -> None:
    """Move the position: the last thing that a step does (DST-F6, DST-F7)."""
    encoded = msgspec.json.encode(position).decode()
    transaction.run("UPDATE sets SET position = ? WHERE id = ?", (encoded, set_id))


def held_count(t: Transaction, set_id: int) -> int:
    """How many files are held."""
    count = "SELECT count(*) FROM resources WHERE set_id = ?"  # by two indexes, without a look at each row of the table
    return int(t.value(count, (set_id,))) - int(t.value(f"{count} AND path IS NULL", (set_id,)))


_UNSETTLED = (
    "SELECT count(*) FILTER (WHERE reason <> ?2), count(*) FILTER (WHERE reason = ?2),"
    " (SELECT count(*) FROM resources WHERE set_id = ?1 AND doomed_at IS NOT NULL AND path IS NOT NULL),"
    " (SELECT count(*) FROM resources WHERE set_id = ?1 AND newer AND path IS NOT NULL)"
    " FROM failures WHERE set_id = ?1"
)


class Unsettled(NamedTuple):
    """How much of a set is unsettled: transfers that failed and are to be tried again, updates and deletions that wait
    for consent (DST-B4), files that are newer than any list tells."""

    failed: int
    updates: int
    deletions: int
    unconfirmed: int


def unsettled(t: Transaction, set_id: int) -> Unsettled:
    """How much of a set is unsettled by now."""
    return Unsettled(*(t.one(_UNSETTLED, (set_id, HELD_UPDATE)) or (0, 0, 0, 0)))


_HELD_AND_GONE = (
    "SELECT count(path), count(*) FILTER (WHERE path IS NULL AND changed_at > ?2) FROM resources WHERE set_id = ?1"
)
BROUGHT = (
    "SELECT count(*) FROM resources WHERE set_id = ? AND path IS NOT NULL AND changed_at > ? AND size BETWEEN 0 AND ?"
)
"""What was brought since lists were read to their end, of so many octets at most."""


def measured(t: Transaction, row: SetRow) -> tuple[int, int, int]:
    """Up to when lists of a set were read to their end, how many files it holds, how many were deleted since then."""
    until = NEVER if row.position is None or row.position.time is None else row.position.time
    held, gone = t.one(_HELD_AND_GONE, (row.id, until)) or (0, 0)
    return until, held, gone


def consent_commands(t: Transaction, row: SetRow, source: str, destination: str) -> dict[str, str]:
    """The commands that `delete` or `update` what waits of a set: the least shares, and the filters of its last run."""
    found, choice = dict[str, str](), from_json(row.scope, Choice) if row.scope else Choice()
    waits = unsettled(t, row.id)
    for what, waiting in {"delete": waits.deletions, "update": waits.updates}.items():
        if waiting:
            until, held, gone = measured(t, row)
            done = gone if what == "delete" else int(t.value(BROUGHT, (row.id, until, NEVER)))
            options = [f"--max-{what}", consent_for(waiting + done, held + gone), *choice.words]
            found[what] = shlex.join(["headwater", "sync", *options, source, destination])
    return found


# the table `refusals` (DST-S12)
#
# Entries outside the scope, and those that name no resource, are remembered until a list or a change settles them,
# because they are no deletions: as long as there are any, the list is not whole, nothing is deleted for being absent
# from it, and a run does not end as done. What the user leaves out by a choice of his own is not among them.

_SKIPPED = "skipped"
_MOST_HOSTS = 4
_KEEP = "INSERT OR REPLACE INTO refusals(set_id, uri, host, reason, count, changed_at) VALUES (?, ?, ?, ?, ?, ?)"
_HOSTS = (
    "SELECT host FROM refusals WHERE set_id = ? AND host IS NOT NULL GROUP BY host ORDER BY count(*) DESC, host LIMIT ?"
)
_BY_REASON = (
    "SELECT reason, sum(count), substr(min(uri), 1, 300) FROM refusals WHERE set_id = ? GROUP BY reason ORDER BY reason"
)
_OF_LISTS = "(?2 IS NULL OR changed_at IS NULL OR changed_at <= ?2)"

Takes = Callable[[str, Stated], bool]
"""Whether the user's choice lets a resource in, of which this is stated."""


class RefusedEntries(msgspec.Struct, frozen=True):
    """What is refused of one set by now: how many resources, and how many entries were skipped.

    `sentences`: what a person is told: the rule, what is refused and what to do, and an example.
    """

    refused: int = 0
    skipped: int = 0
    sentences: tuple[tuple[str, str, str | None], ...] = ()


def refused_entries(t: Transaction, set_id: int) -> RefusedEntries:
    """The refused entries of a set; of many hosts those are named of which most is refused."""
    counts = {reason: (count, example) for reason, count, example in t.rows(_BY_REASON, (set_id,))}
    skipped, _ = counts.pop(_SKIPPED, (0, None))
    sentences: list[tuple[str, str, str | None]] = []
    for reason, (count, example) in counts.items():
        resources = f"{count:,} resources are refused" if count != 1 else "1 resource is refused"
        told = f"{resources}: {Refusal[reason].value}. To leave them out, use --exclude"
        if reason == Refusal.HOST.name:
            found = [host for (host,) in t.rows(_HOSTS, (set_id, _MOST_HOSTS + 1))]
            names = found[:_MOST_HOSTS]
            where = ", ".join(names) + (" and other hosts" if len(found) > _MOST_HOSTS else "")
            allow, skip = (" ".join(f"--{verb}-host {name}" for name in names) for verb in ("allow", "skip"))
            told = (
                f"{resources}: on {where}, where the source has no documents; {allow} fetches them, {skip} leaves them"
                " out; until then, absence from a list deletes nothing"
            )
        sentences.append(("DST-S12", told, example))
    if skipped:
        entries = f"{skipped:,} entries" if skipped != 1 else "1 entry"
        told = f"{entries} cannot be used: the list is incomplete, so it deletes nothing"
        sentences.append(("DST-F5", told, None))
    return RefusedEntries(sum(count for count, _ in counts.values()), skipped, tuple(sentences))


def any_refused(t: Transaction, set_id: int) -> bool:
    """Whether anything is refused of a set by now."""
    return t.one("SELECT 1 FROM refusals WHERE set_id = ? LIMIT 1", (set_id,)) is not None


def keep_listed(
    t: Transaction, set_id: int, at: int | None, takes: Takes, *, complete: bool, skipped: tuple[tuple[str, int], ...]
) -> tuple[bool, int]:
    """Remember what the list in `temp.listed`, which is as of `at`, has that is refused.

    Returns whether the list is whole, and how many of the refused the user has left out. What an earlier list had is
    forgotten where this one was read to its end, and what a later change has said stays.
    """
    if complete:
        t.run(f"DELETE FROM refusals WHERE set_id = ?1 AND {_OF_LISTS}", (set_id, at))  # noqa: S608
    else:
        t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.listed)", (set_id,))
    refused = f"SELECT {_OF_ENTRY}, refused, NULL FROM temp.listed WHERE refused"  # noqa: S608  our own names
    kept, left_out = _keep_refused(t, set_id, takes, refused)
    t.many(_KEEP, [(set_id, uri, None, _SKIPPED, count, None) for uri, count in skipped if count])
    return not kept and not any(count for _, count in skipped), left_out


def keep_changed(
    t: Transaction, set_id: int, reached: int | None, takes: Takes, skipped: tuple[tuple[str, int], ...]
) -> int:
    """Remember what the changes in `temp.refused` have that is refused; how many of them the user has left out.

    A change that is let in settles what was refused before; so does a deletion, unless something is held that was
    allowed once. `reached`: how far the lists have led.
    """
    t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.changed WHERE pending)", (set_id,))
    t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.refused)", (set_id,))
    rows = (
        f"SELECT {_OF_ENTRY}, refused, at FROM temp.refused WHERE change != 'deleted'"  # noqa: S608  our own names
        f" OR uri IN (SELECT uri FROM resources WHERE set_id = {set_id} AND path IS NOT NULL)"
    )
    _, left_out = _keep_refused(t, set_id, takes, rows)
    t.many("DELETE FROM refusals WHERE set_id = ? AND uri = ?", [(set_id, uri) for uri, count in skipped if not count])
    t.many(_KEEP, [(set_id, uri, None, _SKIPPED, count, reached) for uri, count in skipped if count])
    return left_out


_OF_ENTRY = "uri, type, length, lastmod, links"
_LISTED_BEFORE = f"""
SELECT {_OF_ENTRY} FROM temp.listed WHERE (refused OR NOT ?)
AND uri IN (SELECT uri FROM temp.changed WHERE pending UNION ALL SELECT uri FROM temp.refused)"""  # noqa: S608


def left_out_before(t: Transaction, takes: Takes, *, refused_alone: bool = False) -> int:
    """How many entries of the list in `temp.listed` the user has left out, of which changes say something by now: each
    resource counts once, as in an audit."""
    return sum(not takes(uri, Stated(*stated)) for uri, *stated in t.rows(_LISTED_BEFORE, (refused_alone,)))


def _keep_refused(t: Transaction, set_id: int, takes: Takes, query: str) -> tuple[int, int]:
    """Remember the refused entries that a query finds: how many they are, and how many the user has left out."""
    kept = left_out = 0
    for uri, *stated, number, at in t.rows(query):
        if not takes(uri, Stated(*stated)):
            left_out += 1
            continue
        kept += 1
        refusal = REFUSALS[number - 1]
        host = host_label(uri) if refusal is Refusal.HOST else None
        t.run(_KEEP, (set_id, uri, host, refusal.name, 1, at))
    return kept, left_out
