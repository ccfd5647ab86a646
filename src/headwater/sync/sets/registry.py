"""The set registry: the sets of a run, offered or remembered, which are selected, whose Capability List is due.

The Source Description says which sets there are; it is asked for conditionally, and as long as it is what it was, what
is remembered holds (DST-C1, RS-DST-09). Who wants a few sets of thousands is given these without the others being read:
then only these are remembered, until a run wants more.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.connection import MovedElsewhere, Scope, Unreachable, cause_of, hosts_of, origin_of
from headwater.sync.lists.documents import CAPABILITY_LISTS, Documents, Probe, offer_of
from headwater.sync.lists.entries import scope_origins
from headwater.sync.options import SyncOptions
from headwater.sync.sets.discovery import DiscoveredSets, Discovery
from headwater.sync.sets.moved_sets import (
    SetMatches,
    address_at,
    another_source,
    at_offer,
    compare_lists,
    is_move,
    is_of_another,
    known_as,
    match,
    move_set,
    redirects_of,
)
from headwater.sync.sets.polling import place_of, refreshed_offer
from headwater.sync.sets.selection import SetNames, SetSelection, pick, takes_sitemaps, wanted_of
from headwater.sync.source_times import DAY, SECOND
from headwater.sync.state import (
    SOURCE,
    Move,
    Offer,
    SetRow,
    add_set,
    fact,
    keep_fact,
    keep_offer,
    keep_validators,
    moved_documents,
    sets,
    validators,
)
from headwater.transport.scheduler import RETRIED_STATUSES
from headwater.typed_decoding import from_json

_OFFERED, _GONE = "offered", "offered by a description"  # facts: the sets last offered, and whether all were named
_UNREAD, _SOME = "unread", "only some were read"  # facts: Capability Lists that failed, and whether all were tried
_PAGES = "descriptions of the index"
_DETOUR = "found around a broken document"
_REFUSED = (401, 403)
_ASKED = "offer asked for at"
_SINCE = f"{_ASKED} all"
"""The fact from which the first times of all sets follow."""

_MINUTES = 1_440
_STRIDE = 719
"""Minutes between the times of day of one set and the next: they are spread over the day."""


def remembered_scope(t: Transaction, url: str, options: SyncOptions, offer: Offer) -> Scope:
    """The scope of a set as the last run has left it (`SetRegistry.scope_of`), without asking the source."""
    final = (fact(t, "final") if fact(t, "url") == url else None) or url
    return offered_scope(moved_documents(t), (url, final), options, offer)


def offered_scope(moved: Mapping[str, str], way: tuple[str, str], options: SyncOptions, offer: Offer) -> Scope:
    """The hosts of the documents of a set, and those that the user allows (DST-S12).

    `moved`: where documents are permanently redirected to; `way`: the address of the source, and where it leads to.
    """
    origins = scope_origins(moved, *way, offer.capability_list)
    return Scope(origins, hosts_of(options.allow_hosts), options.any_host)


@dataclass
class SetRegistry:
    """Finds and remembers the sets of one run. `faults` and `final` are told once `rows` has been asked."""

    url: str
    root: Path
    options: SyncOptions
    database: Database
    documents: Documents
    changed_documents: frozenset[str]
    """Those that are said to have changed, of which the Source Description does not tell (RS-CH-04)."""

    def __post_init__(self) -> None:
        self._unread: set[str] = set()
        self._moving: list[SetRow] = []
        self._found: DiscoveredSets | None = None
        self._asked_at: dict[str, int] | None = None
        self.final = self.url
        """Where the address has led to."""

        self.faults: list[str] = []
        """Capability Lists that cannot be read, each with what is wrong."""

    def rows(self) -> list[SetRow]:
        """The sets to be brought up to date. Raises SourceFault where none are found, and UsageFault.

        Of sets that the user wants, that are remembered and not offered by now, it is told.
        """
        offered = self._offered()
        if offered is None:  # what is remembered still holds
            with self.database.read() as t:
                known, is_told = sets(t), bool(fact(t, _GONE))
                offered = self._offered_before(t, known)
            if is_told:
                self._tell_missing(known, offered)
        if not self.options.sets:
            return offered
        with self.database.read() as t:
            told = {row.id for row in offered}
            gone = [row for row in sets(t) if row.id not in told]
        lost = {said: row for row in gone for said in (row.name, row.offer.identity) if said in self.options.sets}
        for row in lost.values():
            where = row.offer.capability_list or row.offer.identity
            self._unreadable("DST-Q", f"the source no longer offers the set {row.name}", where)
        return pick(offered, tuple(said for said in self.options.sets if said not in lost), self.url)

    def _offered(self) -> list[SetRow] | None:
        """The sets that the source offers by now; None: what is remembered still holds."""
        with self.database.read() as t:
            known = sets(t)
            self.documents.moved |= moved_documents(t)
            same = fact(t, "url") == self.url
            self.final = (fact(t, "final") if same else None) or self.url
            description = fact(t, "description") if same else None
            detour = bool(fact(t, _DETOUR)) and same
            held = validators(t, SOURCE, description) if description else None
        if not (known and same):
            return self._discover(known)
        has_changed = not self.changed_documents.isdisjoint(row.offer.identity for row in known)
        if description is None:
            return self._discover(known) if detour or has_changed else None
        if self._wants_more(known) or has_changed:
            held = None
        try:
            probe = self.documents.probe(description, validators=held)
        except SourceFault as fault:
            self._make_do(known, fault, "DST-C5", f"the Source Description cannot be read: {fault.what}", description)
            return None
        self._tell_refused(probe.uri, probe.final, f"HTTP status {probe.status}")
        if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
            why = f"the Source Description cannot be read: {probe.unusable}"
            unreachable = Unreachable(why, where=probe.uri, rule="DST-F4", cause=cause_of(probe.status))
            self._make_do(known, unreachable, "DST-F4", why, probe.uri)
            if probe.status == 200:
                self._unreadable("DST-F4", why, probe.uri)
            return None
        if probe.status == 304 and origin_of(probe.final) != origin_of(description):
            self.final = probe.final  # the same document, which by now is elsewhere
        if probe.status == 304 and held is not None and self._pages_hold() and self._still_unread(known):
            return None
        return self._discover(known, probe)

    def _wants_more(self, known: list[SetRow]) -> bool:
        """Whether only some sets were read so far, and others are wanted."""
        with self.database.read() as t:
            some = bool(fact(t, _SOME))
            offered = self._offered_before(t, known)
        told = {row.name for row in offered} | {row.offer.identity for row in offered}
        return some and not (self.options.sets and told.issuperset(self.options.sets))

    def _pages_hold(self) -> bool:
        """Whether every Source Description of an index is what it was: the index itself tells nothing of that."""
        with self.database.read() as t:
            pages = from_json(fact(t, _PAGES) or "[]", list[str])
            asked = [(page, validators(t, SOURCE, page)) for page in pages]
        found = list(self.documents.probe_many(asked))
        for page, probe in zip(pages, found, strict=True):
            if isinstance(probe, SourceFault):
                fault = probe
            elif probe.status not in (200, 304):
                what = f"HTTP status {probe.status}"
                fault = probe.refused or Unreachable(what, where=page, cause=cause_of(probe.status))
            else:
                continue
            self.documents.warn("DST-C5", f"a Source Description cannot be read: {fault.what}", page, fault=fault)
        return all(isinstance(probe, SourceFault) or probe.status != 200 for probe in found)

    def _still_unread(self, known: list[SetRow]) -> bool:
        """Try the Capability Lists again that could not be read; False when one of them can by now."""
        with self.database.read() as t:
            uris = from_json(fact(t, _UNREAD) or "[]", list[str])
        wanted = self.options.sets
        if wanted and {row.name for row in known} | {row.offer.identity for row in known} >= set(wanted):
            meant = {row.offer.identity for row in known if row.name in wanted} | set(wanted)
            uris = [uri for uri in uris if uri in meant]
        still = Discovery(self.documents).unread(uris) if uris else ()
        for uri, what in still:
            self._unreadable("DST-A6", f"a set cannot be read: {what}", uri)
        return len(still) == len(uris)

    def _discover(self, known: list[SetRow], probe: Probe | None = None) -> list[SetRow] | None:
        with self.database.read() as t:
            same = fact(t, "url") == self.url
            offers = [row.offer for row in known if same and row.offer.capability_list == row.offer.identity]
            held = {one.identity: (one, last) for one in offers if (last := validators(t, SOURCE, one.identity))}
        discovery = Discovery(
            self.documents,
            sitemap=takes_sitemaps(self.options, known),
            wanted=wanted_of(self.options, known) if self.options.sets else SetSelection(),
            known=held,
            description=probe if probe is not None and probe.status == 200 else None,
        )
        try:
            found = discovery.find(self.url)
        except SourceFault as fault:
            if not (known and same):
                raise
            what = f"{fault.what}: what is remembered is used"
            self._make_do(known, fault, fault.rule or fault.code, what, fault.where or self.url)
            for uri, why in discovery.found.faults[:1]:
                self._tell_refused(uri, uri, why)
            return None
        self.final = found.final
        for where, what in found.faults:
            self._unreadable("DST-A6", f"a set cannot be read: {what}", where)
        for where, what in found.detours.items():
            self._unreadable("DST-F4", f"{what}; another way was taken, which may not lead to all sets", where)
        for uri, why in found.faults[:1] if known else ():
            self._tell_refused(uri, uri, why)
        # known sets whose Capability List, or the Source Description that lists it, cannot be read now are given as
        # they are remembered; where only some were read, all that was remembered of the others stays
        some = found.listed is not None
        matches = self._matches(known, found) if known else SetMatches({}, ())
        with self.database.write() as t:
            before = self._offered_before(t, known) if some else []
            rows = self._rows(t, known, found, matches)
            rows += [row for row in matches.gone if self._is_unread(row.offer)]
            told = {row.id for row in rows}
            rows += [row for row in before if row.id not in told]
            self._keep(t, found, rows, some=some)
        if known and found.description:
            self._tell_missing(known, rows)
        return rows

    def _make_do(self, known: list[SetRow], fault: SourceFault, rule: str, what: str, where: str) -> None:
        """Nothing new can be learnt: what is remembered has to do, where that can be all that is wanted."""
        if not self._wants_more(known):
            self.documents.warn(rule, what, where, fault=fault)
        elif self.options.sets:
            raise fault
        else:
            self._unreadable(rule, what, where, fault)

    def _unreadable(self, rule: str, what: str, where: str, fault: SourceFault | None = None) -> None:
        """A fault of one set's Capability List: everything else goes on."""
        if where not in self._unread:
            self._unread.add(where)
            self.documents.warn(rule, what, where, fault=fault)
            self.faults.append(f"{where}: {what}")

    def _tell_refused(self, uri: str, final: str, why: str) -> None:
        """Say what to do where the source of a copy is at another origin by now, and requires authentication there."""
        is_refused = any(f"HTTP status {status}" in why for status in _REFUSED)
        if is_refused and (there := address_at(self.url, final)) is not None:
            # what signs a user in is sent to the origin of the address given and to no other, whoever redirects there
            command = shlex.join(["headwater", "sync", there, str(self.root), "--moved"])
            what = f"the source has moved to {final} and requires authentication there; credentials are sent to"
            what += f" {self.url} only. If you trust the new address: {command}"
            self.documents.warn("DST-F10", what, uri)
            self.faults.append(f"{uri}: {what}")

    def _matches(self, known: list[SetRow], found: DiscoveredSets) -> SetMatches:
        """Which remembered set each of those found is. Raises UsageFault where none is.

        Where the user says that the source has moved, all sets that are wanted have: else nothing is remembered. Raises
        MovedElsewhere where one is missing, or where nothing that is listed of it is held.
        """
        documents, options, way = self.documents, self.options, (self.url, found.final)
        alike = compare_lists(documents, self.database, known, way, self.scope_of, said=options.moved)
        own = {offer.identity for offer in found.offers} | self._unread
        asked = [row for row in known if found.listed is None or row.offer.identity in own]
        matches = match(asked, found.offers, redirects_of(documents), alike, said=options.moved)
        with self.database.read() as t:
            url = fact(t, "url")
            before = {row.id for row in self._offered_before(t, known)}
        if is_of_another(known, found.listed or [offer.identity for offer in found.offers], matches):
            raise another_source(url, known, self.url, self.root)
        if not options.moved or alike is None:
            return matches
        gone = [row.name for row in matches.gone if row.id in before and not self._is_unread(row.offer)]
        if gone and url != self.url and not options.sets:
            told = ", ".join(gone[:3]) + (", …" if len(gone) > 3 else "")
            what = f"{'a set' if len(gone) == 1 else f'{len(gone):,} sets'} of the copy cannot be found there: {told}"
            if found.faults:
                what += f"; {found.faults[0][0]} cannot be read: {found.faults[0][1]}"
            raise MovedElsewhere(what, where=found.final, rule="DST-F10", advice=_ADVICE)
        for offer in found.offers if len(found.offers) > 1 else ():  # one alone is compared before anything is done
            row = matches.rows.get(offer.identity)
            if row is None or row.move is None:
                continue
            is_wanted = not options.sets or {row.name, row.offer.identity, offer.identity} & set(options.sets)
            if is_wanted and not alike(row, offer).is_possible:
                what = f"nothing that is listed there is held of the set {row.name}: this is another source"
                raise MovedElsewhere(what, where=offer.identity, rule="DST-F10", advice=_ADVICE)
        return matches

    def scope_of(self, offer: Offer) -> Scope:
        """The hosts whose resources are fetched of one set: those of its documents, and those allowed (DST-S12)."""
        return offered_scope(self.documents.moved, (self.url, self.final), self.options, offer)

    def _is_unread(self, offer: Offer) -> bool:
        return offer.capability_list in self._unread or offer.description in self._unread

    def _keep(self, t: Transaction, found: DiscoveredSets, rows: list[SetRow], *, some: bool) -> None:
        moved = self.documents.moved
        self._moving = [row for row in rows if row.move is not None]
        if self._moving:
            self._found = found  # a run that ends before all is taken along finds out anew what has moved
            if found.description:
                keep_validators(t, SOURCE, found.description, None, None, moved.get(found.description))
        else:
            self._keep_source(t, found)
        keep_fact(t, _PAGES, msgspec.json.encode([uri for uri, _ in found.pages]).decode())
        for uri, held in (*found.read, *found.pages):
            keep_validators(t, SOURCE, uri, held.etag, held.last_modified, moved.get(uri))
        unread = set(from_json(fact(t, _UNREAD) or "[]", list[str])) if some else set()
        unread = (unread - {offer.identity for offer in found.offers}) | {uri for uri, _ in found.faults}
        keep_fact(t, _UNREAD, msgspec.json.encode(sorted(unread)).decode())
        keep_fact(t, _SOME, "yes" if some else "")
        keep_fact(t, _OFFERED, msgspec.json.encode([row.id for row in rows]).decode())
        keep_fact(t, _GONE, "yes" if found.description else "")
        keep_fact(t, _DETOUR, "yes" if found.detours else "")

    def _keep_source(self, t: Transaction, found: DiscoveredSets) -> None:
        keep_fact(t, "url", found.url)
        keep_fact(t, "final", found.final)
        if found.description:
            keep_fact(t, "description", found.description)
            etag, modified, moved = found.validators.etag, found.validators.last_modified, self.documents.moved
            keep_validators(t, SOURCE, found.description, etag, modified, moved.get(found.description))
        else:
            t.run("DELETE FROM facts WHERE name = 'description'")

    def conclude(self) -> None:
        """At the end of a run: where every set that has moved was taken along, its new address holds."""
        if self._found is None:
            return
        with self.database.write() as t:
            now = {row.id: row.offer.identity for row in sets(t)}
            if any(now[row.id] != row.offer.identity for row in self._moving):
                return
            self._keep_source(t, self._found)
        address = address_at(self.url, place_of(self._moving[0].offer) or self.url)
        if address is not None:
            told = f"the source has moved to {address}: use this address, the old one may stop redirecting"
            self.documents.warn("DST-F10", told, self.url)

    def _rows(self, t: Transaction, known: list[SetRow], found: DiscoveredSets, matches: SetMatches) -> list[SetRow]:
        """Every offer's set: the one that is known, or a new one, each in its own folder when there are several."""
        names = SetNames(row.name for row in known)
        folders = {row.folder.lower() for row in known}
        several = found.several or len(known) > 1 or bool(known and not matches.rows)
        rows = []
        for offer in found.offers:
            row = matches.rows.get(offer.identity)
            if row is None:
                offer = msgspec.structs.replace(offer, name=names.free(offer.name))
                folder = offer.name if several else ""
                rows.append(add_set(t, offer, folder if folder.lower() not in folders else offer.name))
                continue
            if row.offer.identity != offer.identity and row.move is None:  # of a move it is told how it ends
                self.documents.warn("DST-F10", f"the set {row.name} is now at {offer.identity}", row.offer.identity)
            # with a move it is remembered there once it has turned out to be the same
            rows.append(at_offer(row, offer) if row.move is not None else move_set(t, row, offer))
        return rows

    def _offered_before(self, t: Transaction, known: list[SetRow]) -> list[SetRow]:
        kept = fact(t, _OFFERED)
        numbers = None if kept is None else set(from_json(kept, list[int]))
        return [row for row in known if numbers is None or row.id in numbers]

    def _tell_missing(self, known: list[SetRow], rows: list[SetRow]) -> None:
        """Say which sets the Source Description lists no longer: they are kept, and no longer brought up to date."""
        offered = {row.id for row in rows}
        for row in known:
            if row.id not in offered:
                where = row.offer.capability_list or row.offer.identity
                told = f"the source no longer offers the set {row.name}: it stays as it is"
                self.documents.warn("DST-Q", told, where)

    # the Capability List of one set, asked for anew

    def with_fresh_offer(self, row: SetRow, now: int) -> SetRow:
        """What is offered of one set just now, where that has to be asked for. `now`: microseconds since 1970.

        Where there is no Change List to poll, the Capability List is: it may name one, or another dump, by now. Beside
        one that is polled it is asked for once a day: it may name another, while the former says nothing new.
        """
        documents, place = self.documents, place_of(row.offer)
        if row.move is None and place not in (None, row.offer.identity):
            # whether the address that the user gave still redirects there (DST-F10): who could answer in the source's
            # place once, over plain http perhaps, does not keep the copy for good
            found = refreshed_offer(documents, row.offer, row.offer.identity)
            if found is not None and found[1] != place and is_move(row.offer, found[0]):
                row = msgspec.structs.replace(row, offer=found[0], move=Move(row.offer))
        uri = row.offer.capability_list
        if row.move is not None or row.position is None or uri is None or uri in self._unread:
            return row  # with a move it was just read
        is_polled = row.offer.change_list is not None
        if is_polled and not self._is_due(row.id, now):
            return row
        with self.database.read() as t:
            held = validators(t, SOURCE, uri)
        row = msgspec.structs.replace(row, is_offer_asked=is_polled)
        try:
            probe = documents.probe(uri, validators=held)
        except SourceFault as fault:
            refused, rule, why = fault, fault.rule or fault.code, fault.what
        else:
            if probe.status == 304:
                return row
            if probe.document is not None and probe.document.kind in CAPABILITY_LISTS:
                offer = known_as(offer_of(probe, row.offer.description, documents), row.offer, probe.moved_to)
                if probe.moved_to is not None and is_move(row.offer, offer):
                    return msgspec.structs.replace(row, offer=offer, move=Move(row.offer))
                moved_to = documents.moved.get(probe.uri)
                with self.database.write() as t:
                    keep_offer(t, row.id, offer)
                    keep_validators(t, SOURCE, probe.uri, probe.etag, probe.last_modified, moved_to)
                return msgspec.structs.replace(row, offer=offer)
            why = f"it is {probe.document.called}" if probe.document is not None else probe.unusable
            rule = "DST-A6"
            refused = probe.refused or Unreachable(why, where=uri, cause=cause_of(probe.status))
        what = f"the Capability List cannot be read: {why}"
        if is_polled:  # a Change List that is polled tells of changes all the same: then it is no fault of the run
            documents.warn(rule, what, uri)
        else:
            self._unreadable(rule, what, uri, refused)
        return row

    def _is_due(self, set_id: int, now: int) -> bool:
        """Whether a day has passed since the set was asked for, which is noted.

        The first day is a part of one, so that the sets are spread over the day.
        """
        if self._asked_at is None:
            with self.database.read() as t:
                rows = t.fetch("SELECT name, value FROM facts WHERE name GLOB ?", (f"{_ASKED} *",))
            self._asked_at = {name: int(value) for name, value in rows}
        name = f"{_ASKED} {set_id}"
        first = self._asked_at.get(_SINCE, now) - set_id * _STRIDE % _MINUTES * 60 * SECOND
        is_due = not now - DAY < self._asked_at.get(name, first) <= now
        noted = name if is_due else _SINCE
        if is_due or noted not in self._asked_at:
            self._asked_at[noted] = now
            with self.database.write() as t:
                keep_fact(t, noted, str(now))
        return is_due


_ADVICE = (
    "Nothing was changed. Name an address where all sets of the copy are, or with --set those that have moved; a set"
    " that the source has given up, or filled with other content, is dropped by `headwater forget DEST --set NAME`:"
    " its files stay, and where the set is still offered, the next run compares them."
)
