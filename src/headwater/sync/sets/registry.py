"""The set registry: the sets of a run, offered or remembered, which are selected, whose Capability List is due.

The Source Description says which sets there are; it is asked for conditionally, and as long as it is what it was, what
is remembered holds (DST-C1, RS-DST-09). Who wants a few sets of thousands is given these without the others being read:
then only these are remembered, until a run wants more.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.connection import MovedElsewhere, Scope, Unreachable, cause_of, hosts_of, origin_of
from headwater.sync.lists.documents import Documents, Probe
from headwater.sync.lists.entries import scope_origins
from headwater.sync.options import Choice, SyncOptions
from headwater.sync.sets.discovery import DiscoveredSets, Discovery
from headwater.sync.sets.moved_sets import address_at, check_source, is_move, match, moved_address, rows_of, to_forget
from headwater.sync.sets.polling import ask_for_offer, place_of
from headwater.sync.sets.selection import SetNames, names_of, pick, takes_sitemaps, wanted_of
from headwater.sync.source_times import DAY
from headwater.sync.state import (
    CHANGE_LIST,
    SOURCE,
    Move,
    Offer,
    SetRow,
    Validators,
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

_LISTED = "listed by the source"
_REFUSED = (401, 403)
_ASKED = "all offers asked for at"
"""A fact, for each choice of sets: when a run began that asked for the Capability List of each of them."""


def remembered_scope(t: Transaction, url: str, options: SyncOptions, offer: Offer) -> Scope:
    """The scope of a set as the last run has left it (`SetRegistry.scope_of`), without asking the source."""
    final = (fact(t, "final") if fact(t, "url") == url else None) or url
    return offered_scope(moved_documents(t), (url, final), options.choice, offer)


def offered_scope(moved: Mapping[str, str], way: tuple[str, str], choice: Choice, offer: Offer) -> Scope:
    """The hosts of the documents of a set, and those that the user allows (DST-S12).

    `moved`: where documents are permanently redirected to; `way`: the address of the source, and where it leads to.
    """
    origins = scope_origins(moved, *way, offer.capability_list)
    return Scope(origins, hosts_of(choice.allow_hosts), choice.any_host)


class RememberedListing(msgspec.Struct, frozen=True):
    """What the source listed when it was last asked, as a fact of the copy."""

    listed: frozenset[str]
    """The identities of sets; where only some were looked at, the addresses of all Capability Lists."""

    pages: list[str] = []  # the Source Descriptions of an index: the index itself tells nothing of their changes


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

    now: int  # when the run began, in microseconds since 1970

    def __post_init__(self) -> None:
        self._unread: set[str] = set()
        self._moving: list[SetRow] = []
        self._found: tuple[DiscoveredSets, RememberedListing] | None = None
        self.faults: list[str] = []
        """Capability Lists that cannot be read, each with what is wrong."""

        self._daily = " ".join((_ASKED, *sorted(self.options.sets)))
        with self.database.read() as t:
            self._known = sets(t)
            self.documents.moved |= moved_documents(t)
            self._is_same = bool(self._known) and fact(t, "url") == self.url
            self.final = (fact(t, "final") if self._is_same else None) or self.url
            """Where the address has led to."""

            self._description = fact(t, "description") if self._is_same else None
            held, asked_at = fact(t, _LISTED), fact(t, self._daily)
            places = {address_at(self.url, place_of(row.offer) or self.url) for row in self._known}
            self._moved_to = {moved_address(t, self.url), *places}
        self._listing = from_json(held, RememberedListing) if held else None
        self._asked_at = None if asked_at is None else int(asked_at)
        self.is_daily = self._asked_at is not None and not self.now - DAY < self._asked_at <= self.now
        """Whether a day has passed since all Capability Lists were asked for (DST-C5)."""

    def rows(self) -> list[SetRow]:
        """The sets to be brought up to date. Raises SourceFault where none are found, and UsageFault.

        Of sets that are remembered and not offered by now it is told: they are kept, and no longer brought up to date.
        """
        wanted = self.options.sets
        rows, description = [row for row in self._known if self._is_listed(row)], self._description
        try:
            found = self._look()
        except SourceFault as fault:
            if not self._is_same or (self._wants_more() and wanted):
                raise
            found = None  # nothing new can be learnt: what is remembered has to do, where that can be all
            what, where = f"the Source Description cannot be read: {fault.what}", fault.where or self.url
            rule = "DST-F4" if fault.rule == "DST-F4" else "DST-C5"
            if self._wants_more() or (rule == "DST-F4" and not isinstance(fault, Unreachable)):
                self._unreadable(rule, what, where, fault)
            else:
                self.documents.warn(rule, what, where, fault=fault)
        if found is not None:
            rows, description = self._take(found, rows), found.description
        offered, lost = {row.id for row in rows}, set[str]()
        for row in self._known:
            if row.id in offered:
                continue
            if said := {row.name, row.offer.identity}.intersection(wanted):
                lost |= said
                where = row.offer.capability_list or row.offer.identity
                told = f"the source no longer offers the set {row.name}; {to_forget(row, self.root)}"
                self._unreadable("DST-Q", told, where)
            elif description is not None:
                self._tell_gone(row)
        return pick(rows, tuple(said for said in wanted if said not in lost), self.url) if wanted else rows

    def _is_listed(self, row: SetRow) -> bool:
        return self._listing is None or row.offer.identity in self._listing.listed

    def _wants_more(self) -> bool:
        """Whether only some sets were looked at so far, and others are wanted."""
        if self._listing is None:
            return False
        told = {said for row in self._known if self._is_listed(row) for said in (row.name, row.offer.identity)}
        return not self._listing.listed <= told and not (self.options.sets and told.issuperset(self.options.sets))

    def _look(self) -> DiscoveredSets | None:
        """What the source offers by now; None: what is remembered still holds. Raises SourceFault."""
        has_changed = not self.changed_documents.isdisjoint(row.offer.identity for row in self._known)
        is_current = self._is_same and self._listing is not None and not has_changed and not self._wants_more()
        probe = None
        if self._description is not None:
            with self.database.read() as t:
                held = validators(t, SOURCE, self._description) if is_current else None
            probe = self.documents.probe(self._description, validators=held)
            self._tell_refused(probe.uri, probe.final, f"HTTP status {probe.status}")
            if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
                if probe.status == 200:
                    raise SourceFault(probe.unusable, where=probe.uri, rule="DST-F4")
                raise Unreachable(probe.unusable, where=probe.uri, rule="DST-F4", cause=cause_of(probe.status))
            is_current = probe.status == 304 and held is not None
            if is_current and origin_of(probe.final) != origin_of(self._description):
                self.final = probe.final  # the same document, which by now is elsewhere
        if is_current and self._still_holds():
            return None
        return self._discover(probe if probe is not None and probe.status == 200 else None)

    def _still_holds(self) -> bool:
        """Whether each Source Description of an index is what it was, or cannot be read now."""
        assert self._listing is not None
        with self.database.read() as t:
            pages = [(page, validators(t, SOURCE, page)) for page in self._listing.pages]
        is_same = True
        for (uri, _), probe in zip(pages, self.documents.probe_many(pages), strict=True):
            if isinstance(probe, Probe) and probe.status in (200, 304):
                is_same = is_same and probe.status == 304
                continue
            what = probe.what if isinstance(probe, SourceFault) else probe.unusable
            self.documents.warn("DST-C5", f"a Source Description cannot be read: {what}", uri)
        return is_same

    def _discover(self, description: Probe | None) -> DiscoveredSets:
        offers = [row.offer for row in self._known if self._is_same and row.offer.capability_list == row.offer.identity]
        with self.database.read() as t:
            held = {one.identity: (one, last) for one in offers if (last := validators(t, SOURCE, one.identity))}
        discovery = Discovery(
            self.documents,
            sitemap=takes_sitemaps(self.options, self._known),
            wanted=wanted_of(self.options, self._known),
            known=held,
            description=description,
        )
        try:
            return discovery.find(self.url)
        finally:
            for uri, why in discovery.found.faults[:1] if self._known else ():
                self._tell_refused(uri, uri, why)

    def _take(self, found: DiscoveredSets, before: list[SetRow]) -> list[SetRow]:
        """The sets that were found, and those that hold as they are remembered (`before`: what was offered last).

        These are the known ones whose Capability List, or the Source Description that lists it, cannot be read now;
        and, where only some were looked at, all others.
        """
        self.final = found.final
        for where, what in found.faults:
            self._unreadable("DST-A6", f"a set cannot be read: {what}", where)
        for where, what in found.detours.items():
            self._unreadable("DST-F4", f"{what}; Headwater took another way, which may not lead to all sets", where)
        matches = self._matches(found, before)
        with self.database.write() as t:
            rows = rows_of(t, self.documents, self._known, found, matches)
            told = {row.id for row in rows}
            held = [row for row in self._known if self._is_unread(row.offer)]
            held += before if found.listed is not None else []
            rows += {row.id: row for row in held if row.id not in told}.values()
            self._keep(t, found, rows)
        return rows

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

    def _matches(self, found: DiscoveredSets, offered: list[SetRow]) -> dict[str, SetRow]:
        """Which remembered set each of those found is, by its identity there. Raises UsageFault where none is.

        Where the user says that the source has moved, all sets have. Raises MovedElsewhere where one is missing.
        """
        known, options = self._known, self.options
        with self.database.read() as t:
            url = fact(t, "url")
        wanted = [row for row in known if {row.name, row.offer.identity}.intersection(options.sets)]
        said = [row.id for row in (wanted if options.sets else known) if options.moved]
        matches = match(self.documents, known, found, url, said)
        told = {row.id for row in matches.values()}
        gone = [row.name for row in offered if row.id not in told and not self._is_unread(row.offer)]
        if options.moved and gone and url != self.url and not options.sets:
            names = ", ".join(gone[:3]) + (", …" if len(gone) > 3 else "")
            what = f"{'a set' if len(gone) == 1 else f'{len(gone):,} sets'} of the copy cannot be found there: {names}"
            if found.faults:
                what += f"; {found.faults[0][0]} cannot be read: {found.faults[0][1]}"
            raise MovedElsewhere(what, where=found.final, rule="DST-F10", advice=_ADVICE)
        check_source(known, found, matches, url, self.root)
        return matches

    def scope_of(self, offer: Offer) -> Scope:
        """The hosts whose resources are fetched of one set: those of its documents, and those allowed (DST-S12)."""
        return offered_scope(self.documents.moved, (self.url, self.final), self.options.choice, offer)

    def _is_unread(self, offer: Offer) -> bool:
        return offer.capability_list in self._unread or offer.description in self._unread

    def _keep(self, t: Transaction, found: DiscoveredSets, rows: list[SetRow]) -> None:
        for uri, held in (*found.read, *found.pages):
            keep_validators(t, SOURCE, uri, held.etag, held.last_modified, self.documents.moved.get(uri))
        listed = frozenset((row.offer.identity for row in rows) if found.listed is None else found.listed)
        listing = RememberedListing(listed, [uri for uri, _ in found.pages])
        self._moving = [row for row in rows if row.move is not None]
        if not self._moving:
            self._keep_source(t, found, listing)
            return
        self._found = found, listing  # a run that ends before all is taken along finds out anew what has moved
        keep_fact(t, _LISTED, "")
        if found.description:
            keep_validators(t, SOURCE, found.description, None, None, self.documents.moved.get(found.description))

    def _keep_source(self, t: Transaction, found: DiscoveredSets, listing: RememberedListing) -> None:
        keep_fact(t, "url", found.url)
        keep_fact(t, "final", found.final)
        # what was found around a broken document, or beside one, is looked for anew (DST-F4, DST-A6)
        if found.description:
            held, moved = Validators() if found.faults else found.validators, self.documents.moved
            keep_validators(t, SOURCE, found.description, held.etag, held.last_modified, moved.get(found.description))
            keep_fact(t, "description", found.description)
        else:
            t.run("DELETE FROM facts WHERE name = 'description'")
        is_known = not (found.detours or (found.faults and not found.description))
        keep_fact(t, _LISTED, msgspec.json.encode(listing).decode() if is_known else "")

    def conclude(self) -> None:
        """At the end of a run: where every set that has moved was taken along, its new address holds."""
        if self._asked_at is None or self.is_daily:
            with self.database.write() as t:
                keep_fact(t, self._daily, str(self.now))
        if self._found is None:
            with self.database.read() as t:
                address = moved_address(t, self.url)
            self._tell_moved(None if address in self._moved_to else address)
            return
        with self.database.write() as t:
            now = {row.id: row.offer.identity for row in sets(t)}
            if any(now[row.id] != row.offer.identity for row in self._moving):
                return
            self._keep_source(t, *self._found)
        self._tell_moved(address_at(self.url, next((place_of(row.offer) for row in self._moving), None) or self.url))

    def _tell_moved(self, address: str | None) -> None:
        if address is not None:
            told = f"the source has moved to {address}: use this address, the old one may stop redirecting"
            self.documents.warn("DST-F10", told, self.url)

    def as_another(self, row: SetRow) -> SetRow:
        """The new set that is offered where a known one was thought to be by now."""
        self._moving = [one for one in self._moving if one.id != row.id]
        self._tell_gone(row)
        with self.database.write() as t:
            name = SetNames(one.name for one in sets(t)).free(names_of([row.offer.identity])[0])
            return add_set(t, msgspec.structs.replace(row.offer, name=name), name)

    def _tell_gone(self, row: SetRow) -> None:
        told = f"the source no longer offers the set {row.name}: it stays as it is; {to_forget(row, self.root)}"
        self.documents.warn("DST-Q", told, row.offer.capability_list or row.offer.identity)

    # the Capability List of one set, asked for anew

    def with_fresh_offer(self, row: SetRow) -> SetRow:
        """What is offered of one set just now, where that has to be asked for.

        Where there is no Change List to poll, the Capability List is: it may name one, or another dump, by now. Beside
        one that is polled it is asked for once a day: it may name another, while the former says nothing new.
        """
        place, uri, is_polled = place_of(row.offer), row.offer.capability_list, CHANGE_LIST in row.offer.documents
        # whether the address that the user gave still redirects there (DST-F10): who could answer in the source's place
        # once, over plain http perhaps, does not keep the copy for good
        has_moved = place not in (None, row.offer.identity)
        is_due = uri is not None and row.position is not None and (self.is_daily or not is_polled)
        if row.move is not None or uri in self._unread or not (has_moved or is_due):
            return row  # with a move it was just read
        where = row.offer.identity
        with self.database.read() as t:
            held = None if has_moved else validators(t, SOURCE, where)
        row = msgspec.structs.replace(row, is_offer_asked=is_polled and is_due)
        try:
            fresh, probe = ask_for_offer(self.documents, row.offer, where, held)
        except SourceFault as fault:
            rule, what = fault.rule or fault.code, f"the Capability List cannot be read: {fault.what}"
            if is_polled:  # a Change List that is polled tells of changes all the same: then it is no fault of the run
                self.documents.warn(rule, what, where)
            else:
                self._unreadable(rule, what, where, fault)
            return row
        if fresh is None:
            return row
        if is_move(row.offer, fresh) and probe.moved_to != (place if has_moved else None):
            return msgspec.structs.replace(row, offer=fresh, move=Move(row.offer))
        with self.database.write() as t:
            keep_offer(t, row.id, fresh)
            keep_validators(t, SOURCE, where, probe.etag, probe.last_modified, self.documents.moved.get(where))
        return msgspec.structs.replace(row, offer=fresh)


_ADVICE = (
    "Nothing was changed. Name an address where all sets of the copy are, or with --set those that have moved; a set"
    " that the source has given up, or filled with other content, is dropped by `headwater forget DEST --set NAME`:"
    " its files stay, and where the set is still offered, the next run compares them."
)
