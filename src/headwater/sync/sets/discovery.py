"""Discovery: the sets of a source from any address, be it a host, a page or one of its documents (DST-A1…A7, RS-DISC).

What is at an address is decided by looking, not by what led there (DST-A7). Every way is bounded and remembered, so
that no loop of links keeps a destination busy (DST-A4). The Capability Lists that a Source Description names are read
many at a time; where the sets that are wanted can be told without (`selection`), only theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain, islice
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
_BROKEN_SETS = "`headwater inspect URL` shows what is wrong. The source's operator must fix it."


class DiscoveredSets(msgspec.Struct, kw_only=True):
    """What discovery has found: the sets, where it began, and the Source Description if one was seen."""

    url: str
    offers: list[Offer] = []
    description: str | None = None
    validators: Validators = Validators()  # those of the Source Description
    final: str = ""
    faults: list[tuple[str, str]] = []  # Capability Lists that could not be read, and why
    read: list[tuple[str, Validators]] = []
    """The Capability Lists that were read, and the validators that hold for what they offer."""

    pages: list[tuple[str, Validators]] = []
    """The Source Descriptions below the one that was seen, where that is an index of them."""

    detours: dict[str, str] = {}
    """Source Descriptions and Capability Lists that are none, or do not answer, and were gone around (DST-F4): why."""

    left_out: int = 0  # how many more are listed than were to be looked at
    listed: list[str] | None = None
    """Where only the Capability Lists of the wanted sets were read: all that are listed. None: everything was read."""


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
        self._is_told = True
        """Whether the Source Descriptions tell of each entry that it is a Capability List."""

        self._offered: set[str] = set()
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
            causes.setdefault(fault.what, {})[fault.where or url] = None
        where = url if len(causes) != 1 else ", ".join(*causes.values())[:1000]
        told = causes if len(causes) == 1 else [f"{what} ({', '.join(places)})" for what, places in causes.items()]
        what = f"no ResourceSync document was found: {'; '.join(told)[:1000] or 'nothing there'}"
        todo = advice_for("HW-SYN-02", what, where)
        return SourceFault(what, code="HW-SYN-02", where=where, rule="DST-A2", advice=todo)

    def _ways(self, url: str) -> Iterator[Probe]:
        """Everything that may lead in, the likeliest first (DST-A2)."""
        parts, is_whole = urlsplit(url), is_host(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        below = origin + parts.path.rstrip("/") + WELL_KNOWN
        own = (below, url) if is_whole else (url, below)
        for place in chain(own, (origin + WELL_KNOWN,), self._robots_sitemaps(origin)):
            if (probe := self._look(place)) is not None:
                if not is_whole and place not in own and probe.document is not None:  # it may be more than was meant
                    self.documents.warn("DST-A2", f"{url} leads to nothing: Headwater asks its host", probe.uri)
                yield probe
        if not url.endswith("/") or (self._faults and all(isinstance(fault, Unreachable) for fault in self._faults)):
            return  # or nobody answers there at all
        for name in CUSTOMARY_NAMES:
            told = len(self._faults)
            probe = self._look(url + name)
            del self._faults[told:]  # that nothing is there is no fault
            if probe is not None and probe.document is not None:
                if self.sitemap or probe.document.kind not in _SITEMAPS:
                    remark = "found under a customary name, to which no rule of the standard leads"
                    self.documents.warn("DST-A2", remark, probe.uri)
                yield probe

    def _robots_sitemaps(self, origin: str) -> Iterator[str]:
        if (probe := self._look(f"{origin}/robots.txt")) is not None:
            self.documents.keep_crawl_delay(probe.uri, probe.body)
            yield from list(robots_sitemaps(probe.body, probe.final))[:_MOST_SITEMAPS]

    def _look(self, uri: str) -> Probe | None:
        """What is at an address; None where it was looked at before, or there is nothing, which is noted."""
        form = normalise(uri)
        if form in self._visited:
            return None
        self._visited.add(form)
        try:
            probe = self._take(uri)
        except SourceFault as fault:
            self._faults.append(fault)
            self._unusable[form] = fault.what
            return None
        if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
            self._unusable[form] = probe.unusable
        if probe.status == 200 or probe.link_header:
            return probe
        self._faults.append(probe.refused or SourceFault(probe.unusable, where=probe.uri, rule="DST-A1"))
        return None

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
                if (target := self._look(href)) is not None:
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
        self._is_told = True
        listed = self._listing(description)
        above = dict(listed.values())
        names = choose_sets(list(above), self.wanted) if self.wanted.said and self._is_told else None
        self._probe(names or ())
        unread = [uri for uri in names or () if not self._is_set(uri)]
        if names is not None and set(unread) <= set(self.wanted.remembered.values()):
            self.found.listed = list(above)
            for uri, name in names.items():
                self._visited.discard(normalise(uri))
                if uri not in unread:
                    yield from (msgspec.structs.replace(one, name=name) for one in self._listed_at(uri, above[uri]))
                elif self._entry(uri) is not None:
                    self.found.faults.append((uri, "it is no longer a Capability List"))
            return
        if own is not None:
            yield from self._offer(own, description.uri)
        yield from self._sets_of(listed)

    def _listing(self, above: Probe, depth: int = 0) -> dict[str, tuple[str, str]]:
        """What a Source Description lists, each once by its normal form: its address, and where it is listed.

        An index of Source Descriptions is followed to these (RS-SD-09, AMB-53).
        """
        entries = own = own_entries(above.entries)
        listed: dict[str, tuple[str, str]] = {}
        if above.document is not None and above.document.kind is Kind.SOURCE_DESCRIPTION:
            entries = own[: max(0, min(self.most, MOST_SETS) - self._count)]
            self._count += len(entries)
            self.found.left_out += len(own) - len(entries)
            too_many = self.found.left_out > 0 and self._count >= MOST_SETS
            for entry in entries:
                self._is_told &= (entry.capability or _CAPABILITY_LIST).strip().lower() == _CAPABILITY_LIST
                listed.setdefault(normalise(entry.loc), (entry.loc, above.uri))
        else:
            entries = own[: max(0, _MOST_PAGES - self._pages)]
            self._pages += len(entries)
            too_many = len(entries) < len(own)
            for entry in entries:
                form = normalise(entry.loc)
                target = None if form in self._visited else self._entry(entry.loc)
                if target is None or target.document is None:
                    self._is_told = False
                elif target.document.kind in _DESCRIPTIONS:
                    self.found.pages.append(target.validated)
                    for below, one in self._listing(target, depth + 1).items() if depth < _HIGHEST else ():
                        listed.setdefault(below, one)
                else:
                    self._is_told = False
                    self._probes[entry.loc] = target
                    self._visited.discard(form)
                    listed.setdefault(form, (entry.loc, above.uri))
        if too_many:
            self.documents.warn("RS-SD-05", "more sets than the limit; the others stay unread", above.final)
        return listed

    def _sets_of(self, listed: Mapping[str, tuple[str, str]], depth: int = 0) -> Iterator[Offer]:
        """The sets of all that is listed, read many at a time."""
        addresses = iter(listed.items())
        count = 0
        while batch := list(islice(addresses, _TOGETHER)):
            self._probe(uri for form, (uri, _) in batch if form not in self._visited)
            count += len(batch)
            self.documents.listener(Progress("reading sets", count, len(listed)))
            for form, (uri, above) in batch:
                if form not in self._visited:
                    yield from self._listed_at(uri, above, depth)

    def _is_set(self, uri: str) -> bool:
        """Whether what was found at an address is a Capability List, perhaps the one that is known."""
        probe = self._probes[uri]
        if isinstance(probe, SourceFault):
            return False
        is_known = probe.status == 304 and uri in self.known
        return is_known or (probe.document is not None and probe.document.kind in CAPABILITY_LISTS)

    def _entry(self, uri: str) -> Probe | None:
        """The document of an entry that was not looked at yet; what cannot be read is noted."""
        target = self._look(uri)
        if target is not None and target.document is not None:
            return target
        self.found.faults.append((uri, str(self._faults[-1]) if target is None else target.unusable))
        return None

    def _listed_at(self, uri: str, above: str, depth: int = 0) -> Iterator[Offer]:
        """The sets of one entry of the Source Description at `above`."""
        known, probed = self.known.get(uri), self._probes.get(uri)
        if known is not None and isinstance(probed, Probe) and probed.status == 304:
            self._visited.add(normalise(uri))
            self._offered.add(normalise(uri))
            yield msgspec.structs.replace(known[0], name="", description=above)
            return
        target = self._entry(uri)
        document = None if target is None else target.document
        if target is None or document is None:
            return
        if document.kind in _DESCRIPTIONS:
            self.found.pages.append(target.validated)
            if depth < _HIGHEST:
                yield from self._sets_of(self._listing(target, depth + 1), depth + 1)
        elif document.kind in CAPABILITY_LISTS:
            yield from self._offer(target, above)
        else:
            self.documents.warn("DST-A7", f"listed as a Capability List, but it is {document.called}", target.final)
            yield from self._from_below(target, document, whole=False)

    def _from_capability_list(self, probe: Probe, *, whole: bool) -> Iterator[Offer]:
        document = probe.document
        up = document.link("up") if document is not None else None
        if up is not None and whole:
            above = self._look(up.href)
            if above is not None and above.document is not None and above.document.kind in _DESCRIPTIONS:
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
            target = self._look(up.href) if up is not None else None
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
            self.documents.warn("RS-NAV-01", "no `up` link: Headwater uses only this document", probe.final)
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
            what = "the Capability List offers no Resource List, no Change List and no dump"
            if probe.entries and not any(entry.capability for entry in probe.entries):
                what += ": its entries have no capability, which says what is listed (RS-CAP-06)"
            self._faults.append(SourceFault(what, code="HW-SYN-05", where=probe.uri))
            self.found.faults.append((probe.uri, what))
            return
        self.found.read.append(probe.validated)
        self._offered.add(normalise(offer.identity))
        yield offer


def named(offers: Iterable[Offer]) -> list[Offer]:
    """Every set once, with a name made of its address, unique among these and fit for a folder."""
    unique: dict[str, Offer] = {}
    for offer in offers:
        unique.setdefault(normalise(offer.identity), offer)
    names = names_of([offer.identity for offer in unique.values()])
    return [msgspec.structs.replace(offer, name=name) for offer, name in zip(unique.values(), names, strict=True)]
