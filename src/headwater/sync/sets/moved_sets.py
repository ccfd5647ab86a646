"""Moved sets (DST-F10): which remembered set an offered one is, and what is held goes along to its new URIs.

A set is known again also after its Capability List has moved. What is held goes along over what was listed at the new
place and before anything is planned: URIs are renamed in one transaction, together with the base of the names and where
the documents are; no file is touched. How much has to agree: the hashes decide, and where a list has none `lastmod` and
length.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from headwater.errors import UsageFault
from headwater.spec.uris import normalise, origin
from headwater.storage.transaction import Transaction
from headwater.sync.connection import MovedElsewhere, origin_of
from headwater.sync.lists.documents import Documents, Probe
from headwater.sync.lists.position import Position
from headwater.sync.sets.discovery import DiscoveredSets
from headwater.sync.sets.selection import SetNames
from headwater.sync.state import (
    Move,
    Offer,
    SetRow,
    add_set,
    fact,
    forget_documents,
    keep_offer,
    keep_position,
    moved_documents,
    remember_base,
)
from headwater.sync.transfer.verification import CopyState, ListedResource, LocalCopy, compare

# what is held goes along

_SAMPLE = 500
_MOST_NAMES = 10  # held files whose names are looked for in a list: each is a pass over it
_MOST_PLACES = 5  # where each of them is found

LISTED = "SELECT n, uri, hash, length, lastmod FROM temp.listed"
"""With what the scope refuses (DST-S12): to be fetched or not, it is listed there."""

CHANGED = (
    "SELECT max(n) AS n, uri, hash, length, lastmod FROM temp.changed"
    " WHERE pending AND change != 'deleted' GROUP BY uri"
)

_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS there(
  uri TEXT PRIMARY KEY, n INTEGER, hash TEXT, length INTEGER, lastmod INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS renamed(id INTEGER PRIMARY KEY, uri TEXT);
CREATE INDEX IF NOT EXISTS temp.renamed_uri ON renamed(uri);
"""

_LISTED_COLUMNS = 3
_COUNTERPARTS = """
SELECT l.hash, l.length, l.lastmod, r.digest, r.size, r.lastmod, r.listed_hash, r.newer
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

_LISTED_BEFORE = (
    "UPDATE OR REPLACE listing SET uri = :new || substr(uri, :size + 1)"
    " WHERE set_id = :set AND substr(uri, 1, :size) = :old",
    "UPDATE OR IGNORE temp.present SET uri = :new || substr(uri, :size + 1) WHERE substr(uri, 1, :size) = :old",
)


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
    t.run("INSERT OR REPLACE INTO temp.there(n, uri, hash, length, lastmod) " + listed)
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
    """The prefixes that the documents' new places suggest, and those below which names of held files are listed.

    Only such as take the base of the names along: files that went from one folder to another below it have new names.
    Names without a base begin with the host.
    """
    before, now = ((one.capability_list, one.baseline_document, one.changes_document) for one in (row.offer, offer))
    places = [(normalise(old), normalise(new)) for old, new in zip(before, now, strict=True) if old and new]
    longest = "SELECT uri FROM resources WHERE set_id = ? AND path IS NOT NULL ORDER BY length(uri) DESC LIMIT ?"
    for (uri,) in t.fetch(longest, (row.id, _MOST_NAMES)):
        name = uri[len(row.base) - 1 :] if row.base and uri.startswith(row.base) else "/" + uri.split("/", 3)[-1]
        listed = "SELECT uri FROM temp.there WHERE substr(uri, -?) = ? LIMIT ?"
        places += [(uri, there) for (there,) in t.fetch(listed, (len(name), name, _MOST_PLACES))]
    return [
        one
        for one in dict.fromkeys(prefixes_of(old, new) for old, new in places)
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
        for statement in _LISTED_BEFORE:
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

    At least half of the files, by their hashes, or so many as a guess needs; after a permanent redirect also what
    nothing speaks against; where the user says so, a single one.
    """
    if found.held == 0:
        return move is not None
    if move is not None and move.said:
        return found.same + found.open > 0
    if move is None or move.guessed:
        return found.same >= (_HALF if move is None else move.guessed) * found.held
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


_HALF, _NEARLY_ALL = 0.5, 0.9


def match(
    documents: Documents, known: Sequence[SetRow], found: DiscoveredSets, url: str | None, said: Collection[int] = ()
) -> dict[str, SetRow]:
    """The remembered set of each of those found, by the identity of its offer; `url`: where these were found before.

    Matched by identity; what is left by a list that both name and nobody else does, then by a permanent redirect. What
    then still is left on both sides is matched by the name, or as the only set of each, where the user says that it has
    moved (`said`, by its number), or as a guess: then half of its files have to be listed there, or nearly all where it
    is but the only one that is left. A set whose lists are elsewhere by now has a `move`.
    """
    offers, unread = found.offers, dict(found.faults)
    by_identity = {row.offer.identity: row for row in known}
    rows = {offer.identity: by_identity[offer.identity] for offer in offers if offer.identity in by_identity}
    new = [offer for offer in offers if offer.identity not in rows]
    left: dict[int, SetRow] = {}
    for row in known if found.listed is None else ():
        if row.offer.identity not in rows and row.offer.capability_list not in unread:
            left[row.id] = row

    def pair(counterpart: Callable[[Offer], SetRow | None], guessed: float = 0.0) -> None:
        """Match each offer that is still new with the set that is its counterpart, if that is still left over."""
        for offer in new if left else ():
            row = counterpart(offer) if offer.identity not in rows else None
            if row is not None and left.pop(row.id, None) is not None:
                move = Move(row.offer, row.id in said, guessed) if is_move(row.offer, offer) else None
                rows[offer.identity] = msgspec.structs.replace(row, move=move)

    def by_redirect() -> dict[str, SetRow]:
        """The sets that are left, by where their addresses redirect to permanently."""
        asked = [(row.offer.capability_list or row.offer.identity, None) for row in left.values()]
        probes = zip(left.values(), documents.probe_many(asked), strict=True)
        return {normalise(one.moved_to): row for row, one in probes if isinstance(one, Probe) and one.moved_to}

    def pair_only(guessed: float = 0.0) -> None:
        able = [row for row in left.values() if not said or row.id in said]
        if len(able) == sum(offer.identity not in rows for offer in new) == 1:
            pair(lambda _offer: able[0], guessed)

    counts = Counter(uri for row in known for uri in _lists(row.offer)), Counter(u for o in offers for u in _lists(o))
    owners = {uri: row for row in left.values() for uri in _lists(row.offer) if all(one[uri] == 1 for one in counts)}
    by_name = {row.name: row for row in left.values()}
    pair(lambda offer: next((owners[uri] for uri in sorted(_lists(offer)) if uri in owners), None))
    pair(lambda offer: row if (row := by_name.get(offer.name)) is not None and row.id in said else None)
    if len(said) == 1:
        pair_only()
    if left and any(offer.identity not in rows for offer in new):
        targets = by_redirect()
        pair(lambda offer: targets.get(normalise(offer.identity)))
    # no guess where the address is that of another source, or where a temporary redirect leads to another origin
    came, at = origin_of(found.url), origin_of(found.final)
    is_detour = came != at and at not in map(origin_of, documents.moved.values())
    if not is_detour and (url == found.url or came in {origin_of(row.offer.identity) for row in known}):
        pair(lambda offer: by_name.get(offer.name), _HALF)
        pair_only(_NEARLY_ALL)
    return rows


def rows_of(
    t: Transaction, documents: Documents, known: Sequence[SetRow], found: DiscoveredSets, matches: Mapping[str, SetRow]
) -> list[SetRow]:
    """Every offer's set: the one that is known, or a new one, each in its own folder when there are several."""
    names = SetNames(row.name for row in known)
    folders = {row.folder.lower() for row in known}
    count = len(found.offers if found.listed is None else found.listed)
    several = count > 1 or len(known) > 1 or bool(known and not matches)
    rows = []
    for offer in found.offers:
        row = matches.get(offer.identity)
        if row is None:
            offer = msgspec.structs.replace(offer, name=names.free(offer.name))
            folder = offer.name if several else ""
            rows.append(add_set(t, offer, folder if folder.lower() not in folders else offer.name))
            continue
        if row.offer.identity != offer.identity and row.move is None:  # of a move it is told how it ends
            documents.warn("DST-F10", f"the set {row.name} is now at {offer.identity}", row.offer.identity)
        # with a move it is remembered there once it has turned out to be the same
        rows.append(at_offer(row, offer) if row.move is not None else move_set(t, row, offer))
    return rows


def check_source(
    known: Sequence[SetRow], found: DiscoveredSets, matches: Mapping[str, SetRow], url: str | None, root: Path
) -> None:
    """Raise UsageFault where the copy is of another source: no set is the same, nor is the origin of any.

    It says what to do if that one has moved.
    """
    origins = {origin_of(row.offer.identity) for row in known}
    identities = found.listed or [offer.identity for offer in found.offers]
    if not known or matches or not origins.isdisjoint(map(origin_of, identities)):
        return
    held = url if url not in (None, found.url) else known[0].offer.identity
    command = shlex.join(["headwater", "sync", found.url, str(root), "--moved"])
    raise UsageFault(
        f"the folder is a copy of {held}",
        code="HW-SYN-07",
        where=str(root),
        rule="DST-F10",
        advice=f"If this is the same source at a new address, run: {command} (the files are kept, and compared by"
        " hash). Else name another folder.",
    )


def to_forget(row: SetRow, destination: Path | str) -> str:
    """How the user ends a set that the source has given up: until then runs and audits tell of it."""
    command = shlex.join(["headwater", "forget", str(destination), "--set", row.name])
    return f"if it is gone for good, end that by: {command} (its files stay)"


def address_at(url: str, where: str) -> str | None:
    """The address `url` at the origin of `where`; None where that is the same."""
    old, new = urlsplit(url), urlsplit(where)
    if origin(url) == origin(where):
        return None
    return urlunsplit((new.scheme, new.netloc, old.path, old.query, ""))


def moved_address(t: Transaction, url: str) -> str | None:
    """The address in place of a copy's `url`, which is permanently redirected there (DST-F10); None: it is not."""
    moved, description = moved_documents(t), fact(t, "description") or url
    there = moved.get(description, url) if origin(description) == origin(url) else url
    return moved.get(url) or address_at(url, there)


def at_offer(row: SetRow, offer: Offer) -> SetRow:
    """A set as it is offered now, under the name that it has here."""
    return msgspec.structs.replace(row, offer=msgspec.structs.replace(offer, name=row.name))


def _lists(offer: Offer) -> set[str]:
    return {normalise(uri) for uri in (offer.baseline_document, offer.changes_document) if uri is not None}


def move_set(transaction: Transaction, row: SetRow, offer: Offer) -> SetRow:
    """Remember that a set is found elsewhere by now; its name, folder, base, files and position stay."""
    row = at_offer(row, offer)
    transaction.run("UPDATE sets SET identity = ? WHERE id = ?", (offer.identity, row.id))
    keep_offer(transaction, row.id, row.offer)
    return row
