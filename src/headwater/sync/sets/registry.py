"""The set registry: the sets of one run, offered or remembered, of which the user may have selected some.

The Source Description says which sets there are; it is asked for conditionally, and as long as it is what it was, what
is remembered holds (DST-C1, RS-DST-09). Who wants a few sets of thousands is given these without the others being read:
then only these are remembered, until a run wants more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Listener, Notice
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.connection import MovedElsewhere, Scope, Unreachable, cause_of, hosts_of, origin_of
from headwater.sync.lists.documents import Documents, Probe
from headwater.sync.lists.entries import redirected_origins
from headwater.sync.options import SyncOptions
from headwater.sync.sets.discovery import DiscoveredSets, Discovery
from headwater.sync.sets.moved_sets import (
    Alike,
    SetMatches,
    address_at,
    another_source,
    at_offer,
    compare_lists,
    is_of_another,
    match,
    may_be_moved,
    move_set,
    moved_command,
    redirects_of,
)
from headwater.sync.sets.polling import OfferRefresh, place_of
from headwater.sync.sets.selection import RememberedOffer, SetNames, pick, takes_sitemaps, wanted_of
from headwater.sync.state import (
    SOURCE,
    Offer,
    SetRow,
    add_set,
    all_validators,
    fact,
    keep_fact,
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


def remembered_scope(t: Transaction, url: str, options: SyncOptions, offer: Offer) -> Scope:
    """The scope of a set as the last run has left it (`SetRegistry.scope_of`), without asking the source."""
    final = (fact(t, "final") if fact(t, "url") == url else None) or url
    return offered_scope(moved_documents(t), (url, final), options, offer)


def offered_scope(moved: Mapping[str, str], way: tuple[str, str], options: SyncOptions, offer: Offer) -> Scope:
    """The hosts of the documents of a set, and those that the user allows (DST-S12).

    `moved`: where documents are permanently redirected to; `way`: the address of the source, and where it leads to.
    """
    origins = redirected_origins(moved, *way, offer.capability_list)
    return Scope(origins, hosts_of(options.allow_hosts), options.any_host)


class SetRegistry:
    """Finds and remembers the sets of one run. `faults` and `final` are told once `rows` has been asked."""

    def __init__(
        self, url: str, root: Path, options: SyncOptions, listener: Listener, database: Database, documents: Documents
    ) -> None:
        self._url = url
        self._root = root
        self._options = options
        self._listener = listener
        self._database = database
        self._documents = documents
        self._unread: set[str] = set()
        self._moving: list[SetRow] = []
        self._found: DiscoveredSets | None = None
        self._refresh: OfferRefresh | None = None
        self.changed_documents: frozenset[str] = frozenset()
        """Documents that are said to have changed, of which the Source Description does not tell (RS-CH-04)."""

        self.final = url
        """Where the address has led to."""

        self.faults: list[str] = []
        """Capability Lists that cannot be read, each with what is wrong."""

    def rows(self) -> list[SetRow]:
        """The sets to be brought up to date. Raises SourceFault where none are found, and UsageFault."""
        offered = self._offered()
        rows = self._remembered() if offered is None else offered
        return pick(rows, self._still_offered(rows), self._url) if self._options.sets else rows

    def _still_offered(self, rows: list[SetRow]) -> tuple[str, ...]:
        """What the user wants, without the sets that are remembered and not offered by now: of these it is told."""
        with self._database.read() as t:
            gone = {row.id: row for row in sets(t)}
        for row in rows:
            gone.pop(row.id, None)
        lost = {said: row for row in gone.values() for said in (row.name, row.offer.identity)}
        for said in self._options.sets:
            if said in lost:
                where = lost[said].offer.capability_list or lost[said].offer.identity
                self._unreadable("DST-Q", f"the source no longer offers the set {lost[said].name}", where)
        return tuple(said for said in self._options.sets if said not in lost)

    def _offered(self) -> list[SetRow] | None:
        """The sets that the source offers by now; None: what is remembered still holds."""
        with self._database.read() as t:
            known = sets(t)
            self._documents.moved |= moved_documents(t)
            same = fact(t, "url") == self._url
            self.final = (fact(t, "final") if same else None) or self._url
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
            probe = self._documents.probe(description, validators=held)
        except SourceFault as fault:
            self._make_do(known, fault, "DST-C5", f"the Source Description cannot be read: {fault.what}", description)
            return None
        self._tell_refused(probe.uri, probe.final, refused=probe.status in _REFUSED)
        if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
            self._keep_to_what_is_known(known, probe)
            return None
        if probe.status == 304 and origin_of(probe.final) != origin_of(description):
            self.final = probe.final  # the same document, which by now is elsewhere
        if probe.status == 304 and held is not None and self._pages_hold() and self._still_unread(known):
            return None
        return self._discover(known, probe)

    def _keep_to_what_is_known(self, known: list[SetRow], probe: Probe) -> None:
        """There is no Source Description where there was one: what is remembered stays as it is (DST-F4)."""
        why = f"the Source Description cannot be read: {probe.unusable}"
        fault = Unreachable(why, where=probe.uri, rule="DST-F4", cause=cause_of(probe.status))
        self._make_do(known, fault, "DST-F4", why, probe.uri)
        if probe.status == 200:
            self._unreadable("DST-F4", why, probe.uri)

    def _wants_more(self, known: list[SetRow]) -> bool:
        """Whether only some sets were read so far, and others are wanted."""
        with self._database.read() as t:
            some = bool(fact(t, _SOME))
            offered = self._offered_before(t, known)
        told = {row.name for row in offered} | {row.offer.identity for row in offered}
        return some and not (self._options.sets and told.issuperset(self._options.sets))

    def _pages_hold(self) -> bool:
        """Whether every Source Description of an index is what it was: the index itself tells nothing of that."""
        with self._database.read() as t:
            pages = from_json(fact(t, _PAGES) or "[]", list[str])
            asked = [(page, validators(t, SOURCE, page)) for page in pages]
        found = list(self._documents.probe_many(asked))
        for page, probe in zip(pages, found, strict=True):
            if isinstance(probe, SourceFault):
                fault = probe
            elif probe.status not in (200, 304):
                what = f"HTTP status {probe.status}"
                fault = probe.refused or Unreachable(what, where=page, cause=cause_of(probe.status))
            else:
                continue
            self._documents.warn("DST-C5", f"a Source Description cannot be read: {fault.what}", page, fault=fault)
        return all(isinstance(probe, SourceFault) or probe.status != 200 for probe in found)

    def _still_unread(self, known: list[SetRow]) -> bool:
        """Try the Capability Lists again that could not be read; False when one of them can by now."""
        with self._database.read() as t:
            uris = from_json(fact(t, _UNREAD) or "[]", list[str])
        wanted = self._options.sets
        if wanted and {row.name for row in known} | {row.offer.identity for row in known} >= set(wanted):
            meant = {row.offer.identity for row in known if row.name in wanted} | set(wanted)
            uris = [uri for uri in uris if uri in meant]
        still = Discovery(self._documents).unread(uris) if uris else ()
        for uri, what in still:
            self._unreadable("DST-A6", f"a set cannot be read: {what}", uri)
        return len(still) == len(uris)

    def _discover(self, known: list[SetRow], probe: Probe | None = None) -> list[SetRow] | None:
        same = self._is_same_url()
        probe = probe if probe is not None and probe.status == 200 else None
        discovery = Discovery(
            self._documents,
            sitemap=takes_sitemaps(self._options, known),
            wanted=wanted_of(self._options, known) if self._options.sets else None,
            known=self._known(known) if same else None,
            description=probe,
        )
        try:
            found = discovery.find(self._url)
        except SourceFault as fault:
            if not (known and same):
                raise
            what = f"{fault.what}: what is remembered is used"
            self._make_do(known, fault, fault.rule or fault.code, what, fault.where or self._url)
            self._tell_refused_sets(discovery.set_faults)
            return None
        self.final = found.final
        for where, what in found.faults:
            self._unreadable("DST-A6", f"a set cannot be read: {what}", where)
        for where, what in found.detours:
            self._unreadable("DST-F4", f"{what}; another way was taken, which may not lead to all sets", where)
        if known:
            self._tell_refused_sets(found.faults)
        return self._remember(known, found)

    def _make_do(self, known: list[SetRow], fault: SourceFault, rule: str, what: str, where: str) -> None:
        """Nothing new can be learnt: what is remembered has to do, where that can be all that is wanted."""
        if not self._wants_more(known):
            self._documents.warn(rule, what, where, fault=fault)
        elif self._options.sets:
            raise fault
        else:
            self._unreadable(rule, what, where, fault)

    def _known(self, known: list[SetRow]) -> dict[str, RememberedOffer]:
        """What is remembered of Capability Lists, to ask for them conditionally."""
        with self._database.read() as t:
            held = all_validators(t, SOURCE)
        offers = {row.offer.identity: row.offer for row in known if row.offer.capability_list == row.offer.identity}
        return {uri: RememberedOffer(offer, held[uri]) for uri, offer in offers.items() if uri in held}

    def _unreadable(self, rule: str, what: str, where: str, fault: SourceFault | None = None) -> None:
        """A fault of one set's Capability List: everything else goes on."""
        if where not in self._unread:
            self._unread.add(where)
            self._documents.warn(rule, what, where, fault=fault)
            self.faults.append(f"{where}: {what}")

    def _tell_refused_sets(self, faults: Sequence[tuple[str, str]]) -> None:
        for where, what in faults[:1]:
            refused = any(f"HTTP status {status}" in what for status in _REFUSED)
            self._tell_refused(where, where, refused=refused)

    def _tell_refused(self, uri: str, final: str, *, refused: bool) -> None:
        """Say what to do where the source of a copy is at another origin by now, and requires authentication there."""
        command = moved_command(self._url, final, self._root) if refused else None
        if command is not None:
            what = f"the source has moved to {final} and requires authentication there; credentials are sent to"
            what += f" {self._url} only. If you trust the new address: {command}"
            self._listener(Notice("DST-F10", what, uri))
            self.faults.append(f"{uri}: {what}")

    def _is_same_url(self) -> bool:
        """Whether the copy was made from this very address."""
        with self._database.read() as t:
            return fact(t, "url") == self._url

    def _remember(self, known: list[SetRow], found: DiscoveredSets) -> list[SetRow]:
        """Remember what was found, and give the sets: those known, also where they have moved, and those that are new.

        Known sets whose Capability List, or the Source Description that lists it, cannot be read now are among them, as
        they are remembered. Where only some were read, all that was remembered of the others stays.
        """
        some = found.listed is not None
        alike = self._alike(known, found) if known else None
        matches = self._matches(known, found, alike) if known else SetMatches({}, ())
        if self._options.moved and alike is not None:
            self._check_stated_move(known, found, matches, alike)
        with self._database.write() as t:
            before = self._offered_before(t, known) if some else []
            rows = self._rows(t, known, found, matches)
            rows += [row for row in matches.gone if self._is_unread(row.offer)]
            told = {row.id for row in rows}
            rows += [row for row in before if row.id not in told]
            self._keep(t, found, rows, some=some)
        if known and found.description:
            self._tell_missing(known, rows)
        return rows

    def _matches(self, known: list[SetRow], found: DiscoveredSets, alike: Alike | None) -> SetMatches:
        """Which remembered set each of those found is. Raises UsageFault where none is."""
        own = {offer.identity for offer in found.offers} | self._unread
        matches = match(
            [row for row in known if found.listed is None or row.offer.identity in own],
            found.offers,
            redirects_of(self._documents),
            alike,
            said=self._options.moved,
        )
        if is_of_another(known, found.listed or [offer.identity for offer in found.offers], matches):
            with self._database.read() as t:
                before = fact(t, "url")
            raise another_source(before, known, self._url, self._root)
        return matches

    def _check_stated_move(self, known: list[SetRow], found: DiscoveredSets, matches: SetMatches, alike: Alike) -> None:
        """Where the user says that the source has moved, all sets that are wanted have: else nothing is remembered.

        Raises MovedElsewhere where one is missing, or where nothing that is listed of it is held.
        """
        with self._database.read() as t:
            before = {row.id for row in self._offered_before(t, known)}
        gone = [row for row in matches.gone if row.id in before and not self._is_unread(row.offer)]
        if gone and not self._is_same_url() and not self._options.sets:
            raise sets_missing([row.name for row in gone], found.final, found.faults)
        if len(found.offers) > 1:  # one alone is compared before anything is done in any case
            for row, offer in moving_sets(matches, found.offers, self._options.sets):
                if not alike(row, offer).is_possible:
                    told = f"nothing that is listed there is held of the set {row.name}: this is another source"
                    raise MovedElsewhere(told, where=offer.identity, rule="DST-F10", advice=_ADVICE)

    def scope_of(self, offer: Offer) -> Scope:
        """The hosts whose resources are fetched of one set: those of its documents, and those allowed (DST-S12)."""
        return offered_scope(self._documents.moved, (self._url, self.final), self._options, offer)

    def _alike(self, known: list[SetRow], found: DiscoveredSets) -> Alike | None:
        """How sets that are left over are told by what they list; None where the address alone tells another source."""
        url = None if self._is_same_url() else self._url
        may = self._options.moved or may_be_moved(known, url, (self._url, found.final), self._documents.moved)
        return compare_lists(self._documents, self._database, self.scope_of) if may else None

    def _is_unread(self, offer: Offer) -> bool:
        return offer.capability_list in self._unread or offer.description in self._unread

    def _keep(self, t: Transaction, found: DiscoveredSets, rows: list[SetRow], *, some: bool) -> None:
        moved = self._documents.moved
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
        """Remember the address, and where it has led to."""
        keep_fact(t, "url", found.url)
        keep_fact(t, "final", found.final)
        if found.description:
            keep_fact(t, "description", found.description)
            etag, modified = found.description_etag, found.description_modified
            keep_validators(t, SOURCE, found.description, etag, modified, self._documents.moved.get(found.description))
        else:
            t.run("DELETE FROM facts WHERE name = 'description'")

    def conclude(self) -> None:
        """At the end of a run: where every set that has moved was taken along, its new address holds."""
        if self._found is None:
            return
        with self._database.write() as t:
            now = {row.id: row.offer.identity for row in sets(t)}
            if any(now[row.id] != row.offer.identity for row in self._moving):
                return
            self._keep_source(t, self._found)
        address = address_at(self._url, place_of(self._moving[0].offer) or self._url)
        if address is not None:
            told = f"the source has moved to {address}: use this address, the old one may stop redirecting"
            self._listener(Notice("DST-F10", told, self._url))

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
                self._listener(Notice("DST-F10", f"the set {row.name} is now at {offer.identity}", row.offer.identity))
            # with a move it is remembered there once it has turned out to be the same
            rows.append(at_offer(row, offer) if row.move is not None else move_set(t, row, offer))
        return rows

    def _remembered(self) -> list[SetRow]:
        """The sets that the source offered when it was last looked at."""
        with self._database.read() as t:
            known = sets(t)
            told = bool(fact(t, _GONE))
            rows = self._offered_before(t, known)
        if told:
            self._tell_missing(known, rows)
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
                self._listener(
                    Notice("DST-Q", f"the source no longer offers the set {row.name}: it stays as it is", where)
                )

    def with_fresh_offer(self, row: SetRow, now: int) -> SetRow:
        """What is offered of one set just now, where that has to be asked for. `now`: microseconds since 1970."""
        if self._refresh is None:
            self._refresh = OfferRefresh(self._documents, self._database, now, self._unread, self._unreadable)
        return self._refresh.of(row)


_ADVICE = (
    "Nothing was changed. Name an address where all sets of the copy are, or with --set those that have moved; a set"
    " that the source has given up, or filled with other content, is dropped by `headwater forget DEST --set NAME`:"
    " its files stay, and where the set is still offered, the next run compares them."
)


def sets_missing(names: Sequence[str], url: str, faults: Sequence[tuple[str, str]]) -> MovedElsewhere:
    """The error where sets of the copy are not at `url`. `faults`: Capability Lists there that cannot be read."""
    told = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    what = f"{'a set' if len(names) == 1 else f'{len(names):,} sets'} of the copy cannot be found there: {told}"
    if faults:
        what += f"; {faults[0][0]} cannot be read: {faults[0][1]}"
    return MovedElsewhere(what, where=url, rule="DST-F10", advice=_ADVICE)


def moving_sets(matches: SetMatches, offers: Sequence[Offer], wanted: Sequence[str]) -> list[tuple[SetRow, Offer]]:
    """The remembered sets whose lists are elsewhere by now, each with its offer; only those `wanted`, if any are."""
    found = [(matches.rows.get(offer.identity), offer) for offer in offers]
    moving = [(row, offer) for row, offer in found if row is not None and row.move is not None]
    if not wanted:
        return moving
    return [(row, offer) for row, offer in moving if {row.name, row.offer.identity, offer.identity} & set(wanted)]
