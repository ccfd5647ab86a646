"""Discovery: the sets of a source from any address, be it a host, a page or one of its documents (DST-A1…A7, RS-DISC).

What is at an address is decided by looking, not by what led there (DST-A7). Every way is bounded and remembered, so
that no loop of links keeps a destination busy (DST-A4). The Capability Lists that a Source Description names are read
many at a time; where the sets that are wanted can be told without (`selection`), only theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from urllib.parse import urlsplit

import msgspec

from headwater.errors import SourceFault
from headwater.progress import Progress
from headwater.spec.discovery import html_links, parse_link_header, robots_sitemaps
from headwater.spec.kinds import RULES, Kind
from headwater.spec.records import Document
from headwater.spec.uris import normalise
from headwater.sync.connection import CUSTOMARY_NAMES, Unreachable, advice_for, is_host, starting_uri
from headwater.sync.lists.documents import CAPABILITY_LISTS, UNITED, Documents, Probe, offer_of
from headwater.sync.sets.selection import MOST_SETS, SetSelection, choose_sets, names_of, own_entries
from headwater.sync.state import RESOURCE_LIST, Offer, Validators
from headwater.transport.scheduler import RETRIED_STATUSES

WELL_KNOWN = "/.well-known/resourcesync"
_HIGHEST = 4
_MOST_PAGES = 10_000
_MOST_LINKS = 100
_TOGETHER = 256
_MOST_SITEMAPS = 50
_SITEMAPS = (Kind.SITEMAP, Kind.SITEMAP_INDEX)
_DESCRIPTIONS = (Kind.SOURCE_DESCRIPTION, Kind.SOURCE_DESCRIPTION_INDEX)

_CAPABILITY_LIST = "capabilitylist"
_BROKEN_SETS = (
    "`headwater inspect` of this address says what is wrong with it; the operator of the source has to mend it."
)


class DiscoveredSets(msgspec.Struct, kw_only=True):
    """What discovery has found: the sets, where it began, and the Source Description if one was seen."""

    url: str
    offers: list[Offer] = []
    description: str | None = None
    validators: Validators = Validators()
    """Those of the Source Description."""

    final: str = ""
    faults: list[tuple[str, str]] = []
    """Capability Lists that could not be read, and why."""

    read: list[tuple[str, Validators]] = []
    """The Capability Lists that were read, and the validators that hold for what they offer."""

    pages: list[tuple[str, Validators]] = []
    """The Source Descriptions below the one that was seen, where that is an index of them."""

    detours: dict[str, str] = {}
    """Source Descriptions and Capability Lists that are none, or do not answer, and were gone around (DST-F4): why."""

    left_out: int = 0
    """How many more are listed than were to be looked at."""

    listed: list[str] | None = None
    """Where only the Capability Lists of the wanted sets were read: all that are listed. None: everything was read."""

    @property
    def several(self) -> bool:
        """Whether the source has more sets than one."""
        return len(self.offers if self.listed is None else self.listed) > 1


@dataclass
class Discovery:
    """Finds what a source offers, over one `Documents`.

    `wanted`: only these sets are asked for. `known`, by the URI of the Capability List: it is asked for conditionally,
    and what it has offered holds as long as it is unchanged. `description`: a look at the Source Description just had.
    `most`: so many of the sets that are listed are looked at.
    """

    documents: Documents
    _: KW_ONLY
    sitemap: bool = False
    wanted: SetSelection = field(default_factory=SetSelection)
    known: Mapping[str, tuple[Offer, Validators]] = field(default_factory=dict)
    description: Probe | None = None
    most: int = MOST_SETS

    def __post_init__(self) -> None:
        self._probes: dict[str, Probe | SourceFault] = {}
        if self.description is not None:
            self._probes[self.description.uri] = self.description
        self._count = self._pages = self._links = 0
        self._offered: set[str] = set()
        self._early: dict[str, list[Offer]] = {}
        self._visited: set[str] = set()
        self._faults: list[SourceFault] = []
        self._unusable: dict[str, str] = {}
        self._plain: str | None = None
        self._description: Probe | None = None
        self.found = DiscoveredSets(url="")

    def find(self, url: str) -> DiscoveredSets:
        """Find the sets behind `url`. Raises a SourceFault that says why when there are none."""
        found = self.found
        found.url = url = starting_uri(url)
        for probe in self._ways(url):
            found.final = found.final or probe.final
            found.offers = list(self._from(probe, whole=is_host(url)))
            if found.offers or found.listed or found.left_out:
                parts = urlsplit(url)
                well_known = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}"
                if self._description is None and probe.uri != well_known:
                    self._go_around(well_known)
                break
        else:
            raise self._nothing_found(url)
        if found.listed is None:
            found.offers = named(found.offers)
        if self._description is not None:
            found.description, found.validators = self._description.validated
        return found

    def unread(self, uris: Iterable[str]) -> list[tuple[str, str]]:
        """Of Capability Lists that could not be read those that still cannot, and why."""
        uris = list(uris)
        self._probe(uris)
        still = []
        for uri in uris:
            found = self._probes[uri]
            if isinstance(found, SourceFault):
                still.append((uri, str(found)))
            elif found.document is None:
                still.append((uri, str(found.status_fault) if found.status != 200 else found.unusable))
            elif found.document.kind in CAPABILITY_LISTS and next(self._offer(found, None), None) is None:
                still.append((uri, _nothing_offered(found)))
        return still

    def _nothing_found(self, url: str) -> SourceFault:
        description, unread = self._description, self.found.faults
        if self._plain is not None:
            return SourceFault(
                "only a plain Sitemap was found, no ResourceSync", code="HW-SYN-03", where=self._plain, rule="DST-A3"
            )
        if description is not None and not description.entries:
            return SourceFault("the Source Description lists no set", code="HW-SYN-05", where=description.uri)
        recognised = [fault for fault in self._faults if fault.code != SourceFault.code]
        documents = [fault for fault in recognised if fault.code.startswith("HW-DOC") and fault.code != "HW-DOC-07"]
        for code in ("HW-SYN-05", "HW-SYN-15"):
            if found := next((fault for fault in recognised if fault.code == code), None):
                return found
        if description is not None and unread and not any(isinstance(fault, Unreachable) for fault in recognised):
            (where, why), others = unread[0], f" ({len(unread):,} sets)" if len(unread) > 1 else ""
            what = f"no set that the Source Description lists can be read{others}: {why}"
            return SourceFault(what, code="HW-SYN-02", where=where, rule="DST-A2", advice=_BROKEN_SETS)
        if recognised and len(recognised) == len(self._faults) and not documents:
            return recognised[0]
        causes: dict[str, dict[str, None]] = {}
        for fault in self._faults:
            causes.setdefault(fault.what, {})[fault.where or ""] = None
        told = {what: ", ".join(filter(None, addresses)) for what, addresses in causes.items()}
        where = url
        if len(told) == 1:
            ((reasons, addresses),) = told.items()
            where = addresses[:1000] or url
        else:
            reasons = "; ".join(f"{what} ({addresses})" for what, addresses in told.items()) or "nothing there"
        what = f"no ResourceSync document was found: {reasons[:1000]}"
        todo = advice_for("HW-SYN-02", what, where)
        return SourceFault(what, code="HW-SYN-02", where=where, rule="DST-A2", advice=todo)

    def _ways(self, url: str) -> Iterator[Probe]:
        """Everything that may lead in, the likeliest first (DST-A2)."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if is_host(url):
            yield from self._look(origin + WELL_KNOWN)
            yield from self._look(url)
            yield from self._by_robots(origin)
        else:
            yield from self._look(url)
            yield from self._look(origin + parts.path.rstrip("/") + WELL_KNOWN)
            for probe in chain(self._look(origin + WELL_KNOWN), self._by_robots(origin)):
                if probe.document is not None:  # it may be more than was meant
                    self.documents.warn("DST-A2", f"{url} leads to nothing: what its host offers is taken", probe.uri)
                yield probe
        if not url.endswith("/") or (self._faults and all(isinstance(fault, Unreachable) for fault in self._faults)):
            return  # or nobody answers there at all
        for name in CUSTOMARY_NAMES:
            told = len(self._faults)
            probe_many = [probe for probe in self._look(url + name) if probe.document is not None]
            del self._faults[told:]  # that nothing is there is no fault
            for probe in probe_many:
                if self.sitemap or probe.document is None or probe.document.kind not in _SITEMAPS:
                    remark = "found under a customary name, to which no rule of the standard leads"
                    self.documents.warn("DST-A2", remark, probe.uri)
                yield probe

    def _by_robots(self, origin: str) -> Iterator[Probe]:
        for probe in self._look(f"{origin}/robots.txt"):
            self.documents.keep_crawl_delay(probe.uri, probe.body)
            for line in list(robots_sitemaps(probe.body, probe.final))[:_MOST_SITEMAPS]:
                yield from self._look(line)

    def _look(self, uri: str) -> Iterator[Probe]:
        if normalise(uri) in self._visited:
            return
        self._visited.add(normalise(uri))
        try:
            probe = self._take(uri)
        except SourceFault as fault:
            self._faults.append(fault)
            self._unusable[normalise(uri)] = fault.what
            return
        if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
            self._unusable[normalise(uri)] = probe.unusable
        if probe.status == 200 or probe.link_header:
            yield probe
        else:
            self._faults.append(probe.status_fault)

    def _go_around(self, *uris: str) -> None:
        """Note which of these documents were looked for, and are no ResourceSync or do not answer (DST-F4)."""
        self.found.detours |= {uri: why for uri in uris if (why := self._unusable.get(normalise(uri))) is not None}

    def _probe(self, uris: Iterable[str]) -> None:
        """Look at many Capability Lists at a time, each once and conditionally where its offer is remembered."""
        todo = [uri for uri in dict.fromkeys(uris) if uri not in self._probes]
        asked = [(uri, self.known[uri][1] if uri in self.known else None) for uri in todo]
        self._probes.update(zip(todo, self.documents.probe_many(asked), strict=True))

    def _take(self, uri: str) -> Probe:
        """Take the probe of a URI, made before or now. Raises SourceFault when nothing answers."""
        found = self._probes.pop(uri, None) or self.documents.probe(uri)
        if isinstance(found, SourceFault):
            raise found
        return found

    # from what is there

    def _from(self, probe: Probe, *, whole: bool, depth: int = 0) -> Iterator[Offer]:
        """The sets that an address leads to; `whole`: the user named the source, not one of its sets."""
        document = probe.document
        if document is None:
            if probe.fault is not None:
                self._faults.append(probe.fault)
            links = [*parse_link_header(probe.link_header, probe.final), *html_links(probe.body, probe.final)]
            for href in [link.href for link in links if link.is_resourcesync]:  # RS-DISC-02, RS-DISC-03
                self._links += 1
                if depth == _HIGHEST or self._links > _MOST_LINKS:
                    return
                for target in self._look(href):
                    yield from self._from(target, whole=whole, depth=depth + 1)
        elif document.kind in _DESCRIPTIONS:
            yield from self._described(probe)
        elif document.kind in CAPABILITY_LISTS:
            yield from self._from_capability_list(probe, whole=whole)
        elif document.kind not in _SITEMAPS:
            yield from self._from_below(probe, document, whole=whole)
        elif self.sitemap:
            yield Offer(identity=probe.uri, name="", documents={RESOURCE_LIST: probe.uri}, is_sitemap=True)
        else:
            self._plain = self._plain or probe.uri

    def _described(self, description: Probe, own: Probe | None = None) -> Iterator[Offer]:
        """The sets of a Source Description; `own` is the Capability List that has led to it.

        Where the description tells which of them are wanted, only their Capability Lists are read (DST-A6).
        """
        self._description = self._description or description
        if own is not None:
            self._probes[own.uri] = own
        pages = self._pages_of(description) if self.wanted.said else None
        listed = {} if pages is None else _listed_once(pages)
        names = choose_sets(list(listed), self.wanted) if listed else None
        self._probe(names or ())
        early: dict[str, list[Offer]] = {}
        for uri in names or ():
            self._visited.discard(normalise(uri))
            early[uri] = list(self._listed_at(uri, listed[uri], 0))
        found = {one.identity: one for offers in early.values() for one in offers}
        if names is not None and found.keys() <= names.keys():
            missing = [uri for uri in names if uri not in found]
            if set(missing) <= set(self.wanted.remembered.values()):
                told = dict(self.found.faults)
                self.found.faults = [(uri, told.get(uri, "it is no Capability List any more")) for uri in missing]
                self.found.pages = [page.validated for page in pages or () if page is not description]
                self.found.listed = list(listed)
                yield from (msgspec.structs.replace(one, name=names[uri]) for uri, one in found.items())
                return
        self._early = early
        if own is not None:
            yield from early.pop(own.uri) if own.uri in early else self._offer(own, description.uri)
        yield from self._listed_in(description, 0)

    def _pages_of(self, description: Probe) -> list[Probe] | None:
        """The Source Descriptions of an index, or the one itself; None where one is none, or there are too many sets.

        An index of Source Descriptions is followed to these (RS-SD-09, AMB-53).
        """
        if description.document is None or description.document.kind is Kind.SOURCE_DESCRIPTION:
            return [description]
        pages: list[Probe] = []
        for entry in description.entries:
            try:
                page = self._probes[entry.loc] = self._take(entry.loc)
            except SourceFault as fault:
                self._probes[entry.loc] = fault
                return None
            pages.append(page)
            is_page = page.document is not None and page.document.kind is Kind.SOURCE_DESCRIPTION
            if not is_page or sum(len(one.entries) for one in pages) > MOST_SETS:
                return None
        return pages

    def _listed_in(self, probe: Probe, depth: int) -> Iterator[Offer]:
        entries = own = own_entries(probe.entries)
        is_page = probe.document is not None and probe.document.kind is Kind.SOURCE_DESCRIPTION
        if is_page:
            entries = own[: max(0, min(self.most, MOST_SETS) - self._count)]
            self._count += len(entries)
            self.found.left_out += len(own) - len(entries)
            too_many = self.found.left_out > 0 and self._count >= MOST_SETS
        else:
            entries = entries[: max(0, _MOST_PAGES - self._pages)]
            self._pages += len(entries)
            too_many = len(entries) < len(own)
        if too_many:
            self.documents.warn("RS-SD-05", "more sets than the limit; the others are not read", probe.final)
        for start in range(0, len(entries), _TOGETHER):
            batch = entries[start : start + _TOGETHER]
            if is_page:
                self._probe(entry.loc for entry in batch if normalise(entry.loc) not in self._visited)
                self.documents.listener(Progress("reading sets", start + len(batch), len(entries)))
            for entry in batch:
                yield from self._early.pop(entry.loc, ())  # in its place, by which names are made
                if normalise(entry.loc) not in self._visited:
                    yield from self._listed_at(entry.loc, probe.uri, depth)

    def _listed_at(self, uri: str, above: str, depth: int) -> Iterator[Offer]:
        """The sets of one entry of the Source Description at `above`."""
        known, probed = self.known.get(uri), self._probes.get(uri)
        if known is not None and isinstance(probed, Probe) and probed.status == 304:
            self._visited.add(normalise(uri))
            self._offered.add(normalise(uri))
            yield msgspec.structs.replace(known[0], name="", description=above)
            return
        target = next(self._look(uri), None)
        document = None if target is None else target.document
        if target is None:
            self.found.faults.append((uri, str(self._faults[-1])))
        elif document is None:
            self.found.faults.append((uri, target.unusable))
        elif document.kind in _DESCRIPTIONS:
            self.found.pages.append(target.validated)
            if depth < _HIGHEST:
                yield from self._listed_in(target, depth + 1)
        elif document.kind in CAPABILITY_LISTS:
            yield from self._offer(target, above)
        else:
            self.documents.warn("DST-A7", f"listed as a Capability List, but it is {document.called}", target.final)
            yield from self._from_below(target, document, whole=False)

    def _from_capability_list(self, probe: Probe, *, whole: bool) -> Iterator[Offer]:
        document = probe.document
        up = document.link("up") if document is not None else None
        if up is not None and whole:
            for above in self._look(up.href):
                if above.document is not None and above.document.kind in _DESCRIPTIONS:
                    yield from self._described(above, probe)
                    return
            self._go_around(up.href)
        yield from self._offer(probe, up.href if up is not None else None)

    def _from_below(self, probe: Probe, document: Document, *, whole: bool) -> Iterator[Offer]:
        """A capability document: climb to its Capability List; if there is none, it stands for itself (DST-A4)."""
        above = document
        for _ in range(_HIGHEST):
            up = above.link("up")
            if up is not None and normalise(up.href) in self._offered:
                return  # its set has been found already
            target = next(self._look(up.href), None) if up is not None else None
            if target is None or target.document is None:
                self._go_around(*(up.href,) if up is not None else ())
                break
            if target.document.kind in CAPABILITY_LISTS:
                offers = list(self._from_capability_list(target, whole=whole))
                if offers:
                    yield from offers
                    return
                break
            if target.document.kind in _DESCRIPTIONS:
                break
            above = target.document
        if "up" not in {link.rel for link in document.links}:
            self.documents.warn("RS-NAV-01", "no `up` link: the document is used alone", probe.final)
        index = document.link("index")
        uri = index.href if index is not None else probe.uri
        if (capability := RULES[document.kind].capability) in UNITED:
            yield Offer(identity=uri, name="", documents={capability: uri})
            return
        said = f' (capability="{document.capability[:40]}")' if document.capability else ""
        what = f"of a single {RULES[document.kind].title.lower()}{said} nothing can be copied"
        self._faults.append(SourceFault(what, code="HW-SYN-05", where=probe.uri))

    def _offer(self, probe: Probe, description: str | None) -> Iterator[Offer]:
        offer = offer_of(probe, description, self.documents)
        if offer.baseline_document is None and offer.changes_document is None:
            fault = SourceFault(_nothing_offered(probe), code="HW-SYN-05", where=probe.uri)
            self._faults.append(fault)
            self.found.faults.append((probe.uri, fault.what))
            return
        self.found.read.append(probe.validated)
        self._offered.add(normalise(offer.identity))
        yield offer


def _nothing_offered(probe: Probe) -> str:
    nothing = "the Capability List offers no Resource List, no Change List and no dump"
    is_unnamed = bool(probe.entries) and not any(entry.capability for entry in probe.entries)
    return (
        f"{nothing}: its entries have no capability, which says what is listed (RS-CAP-06)" if is_unnamed else nothing
    )


def _listed_once(pages: Iterable[Probe]) -> dict[str, str]:
    """What Source Descriptions list, each once, and which of them; nothing where it is not all Capability Lists."""
    listed: dict[str, str] = {}
    forms: set[str] = set()
    for page in pages:
        for entry in own_entries(page.entries):
            if (entry.capability or _CAPABILITY_LIST).strip().lower() != _CAPABILITY_LIST:
                return {}
            if (form := normalise(entry.loc)) not in forms:
                forms.add(form)
                listed[entry.loc] = page.uri
    return listed


def named(offers: Iterable[Offer]) -> list[Offer]:
    """Every set once, with a name made of its address, unique among these and fit for a folder."""
    unique: dict[str, Offer] = {}
    for offer in offers:
        unique.setdefault(normalise(offer.identity), offer)
    names = names_of([offer.identity for offer in unique.values()])
    return [msgspec.structs.replace(offer, name=name) for offer, name in zip(unique.values(), names, strict=True)]
