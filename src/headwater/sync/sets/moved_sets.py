"""Moved sets: which remembered set an offered one is, also after its Capability List has moved (DST-F10)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from headwater.sync.filters import Origin, Scope, origin_of
from headwater.sync.lists.documents import Documents
from headwater.sync.lists.entries import STAGE_LISTED, EntryFilter, StagedEntry
from headwater.sync.sets.relocation import LISTED, agreement, is_move, suffices
from headwater.sync.state import Move, Offer, SetRow

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
_MOST_TRIED = 1_000
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
        named = next((row for row in left.values() if row.name == offer.name), None)
        if named is not None:
            return named, _HALF
        is_only = len(left) == 1 and sum(one.identity not in rows for one in new) == 1
        return (next(iter(left.values())) if is_only else None), _NEARLY_ALL

    def by_content(offer: Offer) -> SetRow | None:
        row, least = likely(offer)
        return row if row is not None and alike is not None and alike(row, offer).same >= least else None

    def among_all(offer: Offer) -> SetRow | None:
        for row in left.values():
            if alike is None or next(tries) >= _MOST_TRIED:
                break
            if alike(row, offer).same >= _HALF:
                return row
        return None

    pair(_by_list(left.values(), known, offers))
    if said:
        pair(lambda offer: likely(offer)[0])
    pair(_by_redirect(left.values(), moved))
    pair(by_content)
    if said:
        pair(among_all)
    return SetMatches(rows, tuple(left.values()))


def _by_list(
    left: Iterable[SetRow], known: Sequence[SetRow], offers: Sequence[Offer]
) -> Callable[[Offer], SetRow | None]:
    """The set that has a list which the offer names as well, and nobody else does."""
    owners = Counter(uri for row in known for uri in _lists(row.offer)), Counter(u for o in offers for u in _lists(o))
    rows = {uri: row for row in left for uri in _lists(row.offer) if all(count[uri] == 1 for count in owners)}
    return lambda offer: next((rows[uri] for uri in sorted(_lists(offer)) if uri in rows), None)


def _by_redirect(left: Iterable[SetRow], moved: Moved) -> Callable[[Offer], SetRow | None]:
    """The set whose address redirects permanently to the offer; no more are asked than until that is found."""
    unasked = iter(list(left))
    targets: dict[str, SetRow] = {}

    def same(offer: Offer) -> SetRow | None:
        wanted = normalise(offer.identity)
        while wanted not in targets and (row := next(unasked, None)) is not None:
            if target := moved(row.offer.capability_list or row.offer.identity):
                targets.setdefault(normalise(target), row)
        return targets.get(wanted)

    return same


def is_of_another(known: Sequence[SetRow], identities: Iterable[str], matches: SetMatches) -> bool:
    """Whether a copy with these sets is that of another source: no set is the same, nor is the origin of any."""
    origins = {origin_of(row.offer.identity) for row in known}
    return bool(known) and not matches.rows and origins.isdisjoint(map(origin_of, identities))


def moved_command(url: str, where: str, root: Path) -> str | None:
    """The command that says by hand that the source behind `url` is at the origin of `where` by now, if it is another.

    What signs a user in is sent to the origin of the address given and to no other, whoever redirects there.
    """
    there = address_at(url, where)
    return None if there is None else shlex.join(["headwater", "sync", there, str(root), "--moved"])


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


def may_be_moved(known: Sequence[SetRow], url: str | None, way: tuple[str, str], moved: Mapping[str, str]) -> bool:
    """Whether sets that are left over may be told by what they list: the source is the one of before.

    `url`: an address that was not given before; `way`: the address, and where it led to. Where a temporary redirect
    leads to another origin nothing has moved.
    """
    came, at = map(origin_of, way)
    if came != at and at not in map(origin_of, moved.values()):
        return False
    return url is None or origin_of(url) in {origin_of(row.offer.identity) for row in known}


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
    transaction.run(
        "UPDATE sets SET identity = ?, offer = ? WHERE id = ?",
        (offer.identity, msgspec.json.encode(row.offer).decode(), row.id),
    )
    return row


def compare_lists(documents: Documents, database: Database, scope_of: Callable[[Offer], Scope]) -> Alike:
    """A function that compares the first document of a list with what is held; only one in scope is asked for."""
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
