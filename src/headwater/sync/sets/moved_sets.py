"""Moved sets: which remembered set an offered one is, also after its Capability List has moved (DST-F10)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from headwater.errors import SourceFault, UsageFault
from headwater.spec.kinds import Kind
from headwater.spec.records import Entry
from headwater.spec.uris import normalise, origin
from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.filters import Origin, Scope, origin_of
from headwater.sync.lists.documents import Documents
from headwater.sync.lists.entries import STAGE_LISTED, EntryFilter, StagedEntry, scope_origins
from headwater.sync.sets.relocation import LISTED, agreement, is_move
from headwater.sync.state.set_rows import Move, Offer, SetRow

Moved = Callable[[str], str | None]
"""Says where a document's URI permanently redirects to; None when it does not, or when nothing answers there."""

Alike = Callable[[SetRow, Offer], float]
"""Says how much of what an offer lists first is held of a set, with the same hash: 0 to 1."""

_HALF, _NEARLY_ALL = 0.5, 0.9
_MOST_TRIED = 1_000
_MOST_LISTED = 2_000  # entries of a list that are compared with what is held
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
    ways = [_by_list(left, new, known, offers), _by_redirect(left, moved)]
    if said:
        ways.insert(1, _by_name(left, new, rows, None))
    if alike is not None:
        ways.append(_by_name(left, new, rows, alike))
    if said and alike is not None:
        ways.append(_by_content(left, alike))
    for same in ways:
        for offer in new:
            row = same(offer) if left and offer.identity not in rows else None
            if row is not None:
                moving = is_move(row.offer, offer)
                rows[offer.identity] = msgspec.structs.replace(row, move=Move(row.offer, said)) if moving else row
                del left[row.id]
    return SetMatches(rows, tuple(left.values()))


def _by_name(
    left: dict[int, SetRow], new: Sequence[Offer], rows: Mapping[str, SetRow], alike: Alike | None
) -> Callable[[Offer], SetRow | None]:
    def same(offer: Offer) -> SetRow | None:
        named = [row for row in left.values() if row.name == offer.name]
        if named:
            return named[0] if alike is None or alike(named[0], offer) >= _HALF else None
        if len(left) > 1 or sum(one.identity not in rows for one in new) > 1:
            return None
        only = next(iter(left.values()))
        return only if alike is None or alike(only, offer) >= _NEARLY_ALL else None

    return same


def _by_content(left: dict[int, SetRow], alike: Alike) -> Callable[[Offer], SetRow | None]:
    tried = 0

    def same(offer: Offer) -> SetRow | None:
        nonlocal tried
        for row in list(left.values()):
            tried += 1
            if tried > _MOST_TRIED:
                return None
            if alike(row, offer) >= _HALF:
                return row
        return None

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


def _by_list(
    left: dict[int, SetRow], new: Sequence[Offer], known: Sequence[SetRow], offers: Sequence[Offer]
) -> Callable[[Offer], SetRow | None]:
    if not left or not new:
        return lambda _offer: None
    owners = Counter(uri for row in known for uri in _lists(row.offer)), Counter(u for o in offers for u in _lists(o))
    rows = {uri: row for row in left.values() for uri in _lists(row.offer)}

    def same(offer: Offer) -> SetRow | None:
        own = (uri for uri in _lists(offer) if all(count[uri] == 1 for count in owners))
        found = sorted({rows[uri].id for uri in own if uri in rows and rows[uri].id in left})
        return left[found[0]] if found else None

    return same


def _by_redirect(left: dict[int, SetRow], moved: Moved) -> Callable[[Offer], SetRow | None]:
    unasked = iter(list(left.values()))
    targets: dict[str, SetRow] = {}

    def same(offer: Offer) -> SetRow | None:
        wanted = normalise(offer.identity)
        while wanted not in targets:
            row = next(unasked, None)
            if row is None:
                return None
            uri = (row.offer.capability_list or row.offer.identity) if row.id in left else None
            target = moved(uri) if uri else None
            if target:
                targets.setdefault(normalise(target), row)
        found = targets[wanted]
        return found if found.id in left else None

    return same


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


def compare_lists(documents: Documents, database: Database, *given: str) -> Callable[[SetRow, Offer], float]:
    """A function that says how much of what is listed first is held, with the same hash.

    Only lists on the hosts of the source's documents are asked for: the addresses `given`, and the Capability List.
    """
    listed: dict[str, list[StagedEntry]] = {}

    def alike(row: SetRow, offer: Offer) -> float:
        if offer.identity not in listed:
            listed.clear()
            scope = Scope(scope_origins(*given, offer.capability_list))
            everything = EntryFilter(Scope(frozenset(), any_host=True))
            listed[offer.identity] = [everything.row(entry) for entry in _beginning(documents, offer, scope)]
        rows = listed[offer.identity]
        with database.write() as t:
            t.run("DELETE FROM temp.listed")
            t.many(STAGE_LISTED, rows)
            found = agreement(t, row, offer, LISTED)
            t.run("DELETE FROM temp.listed")
        compared = min(found.held, len(rows))
        return found.same / compared if compared else 0.0

    return alike


def _beginning(documents: Documents, offer: Offer, scope: Scope) -> list[Entry]:
    """The first entries of what an offer's Resource List lists; nothing where it cannot be read."""
    uri = offer.baseline_document
    for _ in range(3):  # an index, and an index in it (AMB-65)
        if uri is None or scope.refusal(uri) is not None:
            break
        try:
            probe = documents.probe(uri, most_entries=_MOST_LISTED)
        except SourceFault:
            break
        kind = probe.document.kind if probe.document is not None else None
        if kind in (Kind.RESOURCE_LIST, Kind.SITEMAP):
            return list(probe.entries[:_MOST_LISTED])
        uri = probe.entries[0].loc if kind in (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX) and probe.entries else None
    return []
