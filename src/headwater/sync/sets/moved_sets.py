"""Moved sets (DST-F10): which remembered set an offered one is, and what is held goes along to its new URIs.

A set is known again also after its Capability List has moved. What is held goes along over what was listed at the new
place and before anything is planned: URIs are renamed in one transaction, together with the base of the names and where
the documents are; no file is touched. How much has to agree: the hashes decide, and where a list has none `lastmod` and
length.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from headwater.errors import SourceFault, UsageFault
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry
from headwater.spec.uris import normalise, origin
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.connection import MovedElsewhere, Origin, Scope, origin_of
from headwater.sync.lists.documents import Documents
from headwater.sync.lists.entries import STAGE_LISTED, EntryFilter, StagedEntry
from headwater.sync.lists.position import Position
from headwater.sync.state import Move, Offer, SetRow, fact, forget_documents, keep_offer, keep_position, remember_base
from headwater.sync.transfer.verification import CopyState, ListedResource, LocalCopy, compare

# what is held goes along

_SAMPLE = 500
_MOST_PAIRS = 5_000
_CANDIDATES = 6

LISTED = "SELECT n, uri, hash, length, lastmod, type, encoding FROM temp.listed"
"""With what the scope refuses (DST-S12): to be fetched or not, it is listed there."""

CHANGED = (
    "SELECT max(n) AS n, uri, hash, length, lastmod, type, encoding FROM temp.changed"
    " WHERE pending AND change != 'deleted' GROUP BY uri"
)

_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS there(
  uri TEXT PRIMARY KEY, n INTEGER, hash TEXT, length INTEGER, lastmod INTEGER, type TEXT, encoding TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS sample(uri TEXT, hash TEXT, length INTEGER, lastmod INTEGER);
CREATE INDEX IF NOT EXISTS temp.sample_hash ON sample(hash);
CREATE INDEX IF NOT EXISTS temp.sample_length ON sample(length, lastmod);
CREATE TEMP TABLE IF NOT EXISTS renamed(id INTEGER PRIMARY KEY, uri TEXT);
CREATE INDEX IF NOT EXISTS temp.renamed_uri ON renamed(uri);
"""

_PAIRS = (
    "SELECT l.uri, r.uri FROM resources r CROSS JOIN temp.sample l ON l.hash = r.listed_hash"
    " WHERE r.set_id = ? AND r.path IS NOT NULL AND r.uri != l.uri LIMIT ?",
    "SELECT l.uri, r.uri FROM resources r CROSS JOIN temp.sample l ON l.length = r.listed_length"
    " AND l.lastmod = r.lastmod"
    " WHERE r.set_id = ? AND l.hash IS NULL AND r.path IS NOT NULL AND r.uri != l.uri LIMIT ?",
)
"""One pass over what is held, in which the few that were listed are looked up."""

_LISTED_COLUMNS = 5
_COUNTERPARTS = """
SELECT l.hash, l.length, l.lastmod, l.type, l.encoding, r.digest, r.size, r.lastmod, r.listed_hash, r.newer
FROM resources r JOIN temp.there l ON l.uri = coalesce(
  (SELECT uri FROM temp.there WHERE uri = :new || substr(r.uri, :size + 1) AND substr(r.uri, 1, :size) = :old), r.uri)
WHERE r.set_id = :set AND r.path IS NOT NULL"""

_GOES_ALONG = """
substr({0}.uri, 1, :size) = :old AND (NOT EXISTS (SELECT 1 FROM temp.there l WHERE l.uri = {0}.uri)
  OR EXISTS (SELECT 1 FROM temp.there l WHERE l.uri = :new || substr({0}.uri, :size + 1)))"""
"""What is listed under its old URI alone keeps that: some of the resources may have stayed where they were."""

_RENAMED = f"""
INSERT INTO temp.renamed(id, uri) SELECT r.id, :new || substr(r.uri, :size + 1) FROM resources r
WHERE r.set_id = :set AND {_GOES_ALONG.format("r")}"""  # noqa: S608  our own names

_TOMBSTONES_IN_THE_WAY = (
    "DELETE FROM resources WHERE set_id = ? AND path IS NULL AND id NOT IN (SELECT id FROM temp.renamed)"
    " AND uri IN (SELECT uri FROM temp.renamed)"
)
_TAKEN = (
    "DELETE FROM temp.renamed WHERE EXISTS (SELECT 1 FROM resources r WHERE r.set_id = ? AND r.uri = renamed.uri"
    " AND r.id NOT IN (SELECT id FROM temp.renamed))"
)
_FAILURES = f"""
UPDATE OR REPLACE failures SET uri = :new || substr(uri, :size + 1), loc = :new || substr(uri, :size + 1)
WHERE set_id = :set AND {_GOES_ALONG.format("failures")}"""  # noqa: S608  our own names

_CHOSEN_BY = tuple(
    f"UPDATE OR REPLACE {table} SET {name} = :new || substr({name}, :size + 1)"  # noqa: S608  our own names
    f" WHERE set_id = :set AND substr({name}, 1, :size) = :old"
    for table, name in (
        ("descriptions", "content"),
        ("descriptions", "record"),
        ("listing", "uri"),
        ("released", "uri"),
    )
)
"""What has chosen what is held: the list at the new place is compared with it."""


class UriPrefixes(msgspec.Struct, frozen=True):
    """What the URIs began with, and what they begin with by now; each ends in a slash."""

    old: str
    new: str


class ListAgreement(msgspec.Struct, frozen=True):
    """Of `held` files, how many are listed as the `same`, as something that only the source can tell (`open`)."""

    held: int
    same: int
    open: int = 0
    prefixes: UriPrefixes | None = None


def is_move(old: Offer, new: Offer) -> bool:
    """Whether an offer that stands for a known set has its lists elsewhere: then everything may be elsewhere."""
    lists = old.baseline_document, new.baseline_document
    before, after = lists if any(lists) else (old.changes_document, new.changes_document)
    return (before and normalise(before)) != (after and normalise(after))


def known_as(fresh: Offer, held: Offer, moved_to: str | None) -> Offer:
    """What the Capability List of a known set offers by now, and where that list is."""
    where = moved_to or fresh.capability_list
    return msgspec.structs.replace(fresh, name=held.name, identity=held.identity, capability_list=where)


def take_along(t: Transaction, row: SetRow, offer: Offer, listed: str) -> tuple[ListAgreement | None, bool]:
    """Take what is held along to where it is listed by now, if enough of it is; what was found, and whether it was.

    Without a move only where most of what is held is listed no more under the URIs that it has; else nothing is found.
    `listed` is the query that tells what is listed.
    """
    if row.move is None and not displaced(t, row):
        return None, False
    row = msgspec.structs.replace(row, offer=row.move.origin if row.move else offer)
    found = agreement(t, row, offer, listed)
    enough = suffices(found, row.move)
    if enough:
        rename(t, row, offer, found.prefixes)
    return found, enough


def agreement(t: Transaction, row: SetRow, offer: Offer, listed: str) -> ListAgreement:
    """How far what is listed at the new place is what is held, under the prefixes by which most of it is."""
    t.run(_TABLES)
    t.run("DELETE FROM temp.there")
    t.run("INSERT OR REPLACE INTO temp.there(n, uri, hash, length, lastmod, type, encoding) " + listed)
    held = int(t.value("SELECT count(*) FROM resources WHERE set_id = ? AND path IS NOT NULL", (row.id,)))
    found: list[ListAgreement] = []
    for prefixes in (None, *_candidates(t, row, offer)):
        counts: Counter[CopyState] = Counter()
        old, new = (prefixes.old, prefixes.new) if prefixes else ("\0", "\0")
        for values in t.rows(_COUNTERPARTS, {"set": row.id, "old": old, "new": new, "size": len(old)}):
            there, local = ListedResource(*values[:_LISTED_COLUMNS]), LocalCopy(*values[_LISTED_COLUMNS:])
            is_same = there.hash and there.hash == local.listed_hash and not local.newer
            counts[CopyState.YES if is_same else compare(there, local)] += 1
        found.append(ListAgreement(held, counts[CopyState.YES], counts[CopyState.ASK], prefixes))
    return max(found, key=lambda one: (one.same, one.open))


def _candidates(t: Transaction, row: SetRow, offer: Offer) -> list[UriPrefixes]:
    """The prefixes that the documents' new places suggest, and those by which files of one content have moved.

    Only such as take the base of the names along: files that went from one folder to another below it have new names.
    Names without a base begin with the host.
    """
    count = int(t.value("SELECT count(*) FROM temp.there"))
    votes: Counter[UriPrefixes] = Counter()
    t.run("DELETE FROM temp.sample")
    t.run(
        "INSERT INTO temp.sample SELECT uri, hash, length, lastmod FROM temp.there"
        " WHERE n % ? = 0 AND length IS NOT 0 LIMIT ?",
        (max(1, count // _SAMPLE), _SAMPLE),
    )
    t.run("DELETE FROM temp.sample WHERE hash IN (SELECT hash FROM temp.sample GROUP BY hash HAVING count(*) > 1)")
    for query in _PAIRS:
        for new, old in t.rows(query, (row.id, _MOST_PAIRS)):
            if old.rpartition("/")[2] == new.rpartition("/")[2] and (found := prefixes_of(old, new)):
                votes[found] += 1
    before, now = ((one.capability_list, one.baseline_document, one.changes_document) for one in (row.offer, offer))
    places = zip(before, now, strict=True)
    suggested = [prefixes_of(normalise(old), normalise(new)) for old, new in places if old and new]
    likely = [prefixes for prefixes, _ in votes.most_common(_CANDIDATES)]
    return [
        one
        for one in dict.fromkeys((*suggested, *likely))
        if one is not None
        and (one.old.count("/") == 3 if row.base == "" else row.base is None or row.base.startswith(one.old))
    ]


def prefixes_of(old: str, new: str) -> UriPrefixes | None:
    """What two URIs begin with before the names that they share at their ends; None when they do not differ."""
    before, after = old.split("/"), new.split("/")
    while len(before) > 3 and len(after) > 3 and before[-1] == after[-1]:
        before.pop()
        after.pop()
    if before == after or len(before) < 3 or len(after) < 3:
        return None
    # what is left ends in names that differ: a folder each, or nothing but the origins
    return UriPrefixes("/".join(before) + "/", "/".join(after) + "/")


def rename(t: Transaction, row: SetRow, offer: Offer, prefixes: UriPrefixes | None) -> None:
    """Remember everything of a set under its new URIs; what is still listed under its old one keeps that.

    Needs what `agreement` has left. The position stays; which entries of which list were done does not hold elsewhere.
    """
    base = row.base
    if prefixes is not None:
        names: dict[str, str | int] = {
            "set": row.id, "old": prefixes.old, "new": prefixes.new, "size": len(prefixes.old)
        }  # fmt: skip
        t.run("DELETE FROM temp.renamed")
        t.run(_RENAMED, names)
        t.run(_TOMBSTONES_IN_THE_WAY, (row.id,))
        while t.run(_TAKEN, (row.id,)):
            pass
        t.run("UPDATE resources SET uri = char(1) || id WHERE id IN (SELECT id FROM temp.renamed)")
        t.run("UPDATE resources SET uri = n.uri FROM temp.renamed n WHERE n.id = resources.id")
        t.run(_FAILURES, names)
        for statement in _CHOSEN_BY:
            t.run(statement, names)
        if base and base.startswith(prefixes.old):
            base = prefixes.new + base[len(prefixes.old) :]
    if base != row.base and row.base is not None:
        remember_base(t, row.id, row.base)
    t.run("UPDATE sets SET base = ? WHERE id = ?", (base, row.id))
    offer = move_set(t, row, offer).offer
    t.run("DELETE FROM refusals WHERE set_id = ?", (row.id,))  # what follows is read as a whole
    if is_move(row.offer, offer):
        forget_documents(t, row.id)
        if row.position is not None:
            keep_position(t, row.id, Position(time=row.position.time))


def suffices(found: ListAgreement, move: Move | None) -> bool:
    """Whether so much agrees that the set is the one that is held.

    At least half of the files, by their hashes; after a permanent redirect also what nothing speaks against; where the
    user says so, a single one.
    """
    if found.held == 0:
        return move is not None
    if move is None:
        return 2 * found.same >= found.held
    if move.said:
        return found.same + found.open > 0
    return 2 * (found.same + found.open) >= found.held


def displaced(t: Transaction, row: SetRow) -> bool:
    """Whether most of what is held is listed no more under its URIs, nor most of what is listed below their base."""
    if not row.base:
        return False
    held = t.fetch("SELECT uri FROM resources WHERE set_id = ? AND path IS NOT NULL LIMIT ?", (row.id, _SAMPLE))
    listed = sum(t.one("SELECT 1 FROM temp.listed WHERE uri = ?", uri) is not None for uri in held)
    if not held or 2 * listed >= len(held):
        return False
    count = int(t.value("SELECT count(*) FROM temp.listed WHERE NOT refused"))
    below = t.value("SELECT count(*) FROM temp.listed WHERE substr(uri, 1, ?) = ?", (len(row.base), row.base))
    return 2 * int(below) < count


def moved_elsewhere(row: SetRow, found: ListAgreement, source: str, destination: str) -> MovedElsewhere:
    """The error where what is listed at the new place of a set that has moved is not what is held.

    `row.offer` is what is offered there."""
    where, count = row.offer.identity, found.same + found.open
    what = f"{count:,} of the {found.held:,} files of the copy are listed at {where}"
    if row.move is not None and row.move.said:
        return MovedElsewhere(f"{what}: this is another source", where=where, rule="DST-F10")
    again = ["headwater", "sync", source, destination]
    command = shlex.join([*again, "--set", row.name, "--moved"])
    if not count:  # a move that is stated would be refused, too
        command = shlex.join(["headwater", "forget", destination, "--set", row.name]) + "; " + shlex.join(again)
    return MovedElsewhere(
        f"{source} now leads to {where}, which has other content: {what}",
        where=where,
        rule="DST-F10",
        advice="Nothing was changed. Ask the source's operator; if it is the same source with other content, run:"
        f" {command}",
    )


Moved = Callable[[str], str | None]
"""Says where a document's URI permanently redirects to; None when it does not, or when nothing answers there."""


class Likeness(NamedTuple):
    """How much of what an offer lists first is held of a set."""

    same: float
    """The share that is held with the same hash, 0 to 1; of Change Lists nothing is said."""

    is_possible: bool
    """Whether that is enough where the user says that it is the same set: anything, or there was nothing to compare."""


Alike = Callable[[SetRow, Offer], Likeness]
"""Compares what an offer lists first with what is held of a set."""

_LISTS = (Kind.RESOURCE_LIST, Kind.SITEMAP, Kind.CHANGE_LIST)
_INDEXES = (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX, Kind.CHANGE_LIST_INDEX)
_DUMPS = (Kind.RESOURCE_DUMP, Kind.RESOURCE_DUMP_INDEX, Kind.CHANGE_DUMP, Kind.CHANGE_DUMP_INDEX)
_HALF, _NEARLY_ALL = 0.5, 0.9
_MOST_TRIED = 1_000  # pairs of sets of different names; each set of the same name is compared
_DEAD = 2  # an origin where so many requests in a row come to nothing is asked for nothing more


class SetMatches(msgspec.Struct, frozen=True):
    """The remembered set of each offer, by the offer's identity, and the sets that are not offered any more."""

    rows: dict[str, SetRow]
    gone: tuple[SetRow, ...]


def match(
    known: Sequence[SetRow], offers: Sequence[Offer], moved: Moved, alike: Alike | None = None, *, said: bool = False
) -> SetMatches:
    """Match by identity; what is left by a list that both name and nobody else does, then by a permanent redirect.

    What then still is left on both sides is matched by what is listed (`alike`): half is enough where the names are the
    same, nearly everything where these are the only ones. Where the user says that the source has moved (`said`) the
    name is enough, or that these are the only ones; nothing is asked of the old address then but for the others.
    A set whose lists are elsewhere by now has a `move`.
    """
    by_identity = {row.offer.identity: row for row in known}
    rows = {offer.identity: by_identity[offer.identity] for offer in offers if offer.identity in by_identity}
    taken = {row.id for row in rows.values()}
    left = {row.id: row for row in known if row.id not in taken}
    by_name = {row.name: row for row in left.values()}
    new = [offer for offer in offers if offer.identity not in rows]
    tries = count()

    def pair(counterpart: Callable[[Offer], SetRow | None]) -> None:
        """Match each offer that is still new with the set that is its counterpart, if that is still left over."""
        for offer in new if left else ():
            row = counterpart(offer) if offer.identity not in rows else None
            if row is not None and left.pop(row.id, None) is not None:
                moving = is_move(row.offer, offer)
                rows[offer.identity] = msgspec.structs.replace(row, move=Move(row.offer, said)) if moving else row

    def likely(offer: Offer) -> tuple[SetRow | None, float]:
        """The set of the same name, else the only one for the only new offer; how much of it has to be there."""
        named = by_name.get(offer.name)
        if named is not None and named.id in left:
            return named, _HALF
        is_only = len(left) == 1 and sum(one.identity not in rows for one in new) == 1
        return (next(iter(left.values())) if is_only else None), _NEARLY_ALL

    def by_redirect(offer: Offer) -> SetRow | None:
        """The set whose address redirects permanently to the offer; no more are asked than until that is found."""
        wanted = normalise(offer.identity)
        while wanted not in targets and (row := next(unasked, None)) is not None:
            if target := moved(row.offer.capability_list or row.offer.identity):
                targets.setdefault(normalise(target), row)
        return targets.get(wanted)

    def by_content(offer: Offer) -> SetRow | None:
        row, least = likely(offer)
        if alike is None:
            return None
        if row is not None:
            return row if alike(row, offer).same >= (_HALF if said else least) else None
        others = (one for one in left.values() if said and next(tries) < _MOST_TRIED)
        return next((one for one in others if alike(one, offer).same >= _HALF), None)

    counts = Counter(uri for row in known for uri in _lists(row.offer)), Counter(u for o in offers for u in _lists(o))
    owners = {uri: row for row in left.values() for uri in _lists(row.offer) if all(one[uri] == 1 for one in counts)}
    pair(lambda offer: next((owners[uri] for uri in sorted(_lists(offer)) if uri in owners), None))
    if said:
        pair(lambda offer: likely(offer)[0])
    unasked, targets = iter(list(left.values())), dict[str, SetRow]()
    pair(by_redirect)
    pair(by_content)
    return SetMatches(rows, tuple(left.values()))


def is_of_another(known: Sequence[SetRow], identities: Iterable[str], matches: SetMatches) -> bool:
    """Whether a copy with these sets is that of another source: no set is the same, nor is the origin of any."""
    origins = {origin_of(row.offer.identity) for row in known}
    return bool(known) and not matches.rows and origins.isdisjoint(map(origin_of, identities))


def address_at(url: str, where: str) -> str | None:
    """The address `url` at the origin of `where`; None where that is the same."""
    old, new = urlsplit(url), urlsplit(where)
    if origin(url) == origin(where):
        return None
    return urlunsplit((new.scheme, new.netloc, old.path, old.query, ""))


def another_source(url: str | None, known: Sequence[SetRow], given: str, root: Path) -> UsageFault:
    """The error for a folder that is a copy of another source, with what to do if that one has moved."""
    held = url if url not in (None, given) else known[0].offer.identity
    command = shlex.join(["headwater", "sync", given, str(root), "--moved"])
    return UsageFault(
        f"the folder is a copy of {held}",
        code="HW-SYN-07",
        where=str(root),
        rule="DST-F10",
        advice=f"If this is the same source at a new address, run: {command} (the files are kept, and compared by"
        " hash). Else name another folder.",
    )


def at_offer(row: SetRow, offer: Offer) -> SetRow:
    """A set as it is offered now, under the name that it has here."""
    return msgspec.structs.replace(row, offer=msgspec.structs.replace(offer, name=row.name))


def _lists(offer: Offer) -> set[str]:
    return {normalise(uri) for uri in (offer.baseline_document, offer.changes_document) if uri is not None}


def redirects_of(documents: Documents) -> Moved:
    """Asks the source where a document has moved to; of an origin where nobody answers nothing more is asked."""
    failures: Counter[Origin | None] = Counter()

    def moved(uri: str) -> str | None:
        origin = origin_of(uri)
        if failures[origin] >= _DEAD:
            return None
        try:
            target = documents.probe(uri, most_entries=1).moved_to
        except SourceFault:
            failures[origin] += 1
            return None
        failures[origin] = 0
        return target

    return moved


def move_set(transaction: Transaction, row: SetRow, offer: Offer) -> SetRow:
    """Remember that a set is found elsewhere by now; its name, folder, base, files and position stay."""
    row = at_offer(row, offer)
    transaction.run("UPDATE sets SET identity = ? WHERE id = ?", (offer.identity, row.id))
    keep_offer(transaction, row.id, row.offer)
    return row


def compare_lists(
    documents: Documents,
    database: Database,
    known: Sequence[SetRow],
    way: tuple[str, str],
    scope_of: Callable[[Offer], Scope],
    *,
    said: bool = False,
) -> Alike | None:
    """A function that compares the first document of a list with what is held; only one in scope is asked for.

    `way`: the address given, and where it led to. None where the address alone tells that this is another source, or
    that nothing has moved: it was not given before, or a temporary redirect leads to another origin. What the user has
    `said` stands for that.
    """
    with database.read() as t:
        is_new = fact(t, "url") != way[0]
    came, at = map(origin_of, way)
    is_detour = came != at and at not in map(origin_of, documents.moved.values())
    is_other = is_new and came not in {origin_of(row.offer.identity) for row in known}
    if (is_detour or is_other) and not said:
        return None
    listed: dict[str, list[StagedEntry] | None] = {}

    def alike(row: SetRow, offer: Offer) -> Likeness:
        if offer.identity not in listed:
            listed.clear()
            everything = EntryFilter(Scope(frozenset(), any_host=True))
            entries = _beginning(documents, offer, scope_of(offer))
            listed[offer.identity] = None if entries is None else [everything.row(entry) for entry in entries]
        rows = listed[offer.identity]
        if rows is None:
            return Likeness(0.0, is_possible=True)
        with database.write() as t:
            t.run("DELETE FROM temp.listed")
            t.many(STAGE_LISTED, rows)
            found = agreement(t, row, offer, LISTED)
            t.run("DELETE FROM temp.listed")
        compared = min(found.held, len(rows)) if offer.baseline_document is not None else 0
        is_possible = suffices(found, Move(row.offer, said=True))
        return Likeness(found.same / compared if compared else 0.0, is_possible)

    return alike


def _beginning(documents: Documents, offer: Offer, scope: Scope) -> list[Entry] | None:
    """The first entries of what an offer's list lists; nothing where it cannot be read, None where that is a dump."""
    uri = offer.baseline_document or offer.changes_document
    for _ in range(3):  # an index, and an index in it (AMB-65)
        if uri is None or scope.refusal(uri) is not None:
            break
        try:
            probe = documents.probe(uri)
        except SourceFault:
            break
        kind = probe.document.kind if probe.document is not None else None
        if kind in _DUMPS:
            return None
        if kind in _LISTS:
            last = {entry.loc: entry for entry in probe.entries}
            return [entry for entry in last.values() if entry.change is not ChangeKind.DELETED]
        uri = probe.entries[0].loc if kind in _INDEXES and probe.entries else None
    return []
