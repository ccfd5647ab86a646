"""Finds the sets of a source from any address: a host, a page, or any of its documents (DST-A1…A7, RS-DISC).

What is at an address is decided by looking, not by what led there (DST-A7). Every way is bounded and remembered, so
that no loop of links keeps a destination busy (DST-A4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from headwater.errors import SourceFault, UsageFault
from headwater.spec.discovery import html_links, parse_link_header, robots_sitemaps
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.spec.uris import normalise, resolve
from headwater.sync.faults import NothingToCopy, NotResourceSync, PlainSitemap
from headwater.sync.reading.documents import Documents, Look
from headwater.sync.state import Offer

WELL_KNOWN = "/.well-known/resourcesync"
_HIGHEST = 4
_MOST_SETS = 10_000
_MOST_SITEMAPS = 50
_SITEMAPS = (Kind.SITEMAP, Kind.SITEMAP_INDEX)
_DESCRIPTIONS = (Kind.SOURCE_DESCRIPTION, Kind.SOURCE_DESCRIPTION_INDEX)
CAPABILITY_LISTS = (Kind.CAPABILITY_LIST, Kind.CAPABILITY_LIST_INDEX)
_RESOURCE_LISTS = (Kind.RESOURCE_LIST, Kind.RESOURCE_LIST_INDEX)
_CHANGE_LISTS = (Kind.CHANGE_LIST, Kind.CHANGE_LIST_INDEX)
_GENERIC = re.compile(
    r"(capability[-_]?list|capabilities|caps?|resource[-_]?list|change[-_]?list|sitemap|index|)\Z", re.I
)
_NO_HOST = re.compile(r"[@\s\x00-\x1f\x7f\"<>\\^`{|}]")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Found(msgspec.Struct, frozen=True):
    """What discovery has found: the sets, where it began, and the Source Description if one was seen."""

    url: str
    offers: tuple[Offer, ...]
    description: str | None = None
    description_etag: str | None = None
    description_modified: str | None = None
    final: str = ""
    faults: tuple[tuple[str, str], ...] = ()


class Discovery:
    """Finds what a source offers, over one `Documents`."""

    def __init__(self, documents: Documents, *, sitemap: bool = False) -> None:
        self._documents = documents
        self._sitemap = sitemap
        self._visited: set[str] = set()
        self._faults: list[SourceFault] = []
        self._set_faults: list[tuple[str, str]] = []
        self._plain: str | None = None
        self._description: Look | None = None
        self._final = ""

    def find(self, url: str) -> Found:
        """Find the sets behind `url`. Raises a SourceFault that says why when there are none."""
        url = starting_uri(url)
        offers: list[Offer] = []
        for look in self._ways(url):
            self._final = self._final or look.final
            offers = list(self._from(look, whole=_is_host(url)))
            if offers:
                break
        if not offers:
            raise self._nothing(url)
        description = self._description
        return Found(
            url,
            tuple(named(offers)),
            description.uri if description else None,
            description.etag if description else None,
            description.last_modified if description else None,
            self._final,
            tuple(self._set_faults),
        )

    def _ways(self, url: str) -> Iterator[Look]:
        """Everything that may lead in, the likeliest first (DST-A2)."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if _is_host(url):
            yield from self._look(origin + WELL_KNOWN)
            yield from self._look(url)
        else:
            yield from self._look(url)
            folder = parts.path if parts.path.endswith("/") else parts.path + "/"
            yield from self._look(origin + folder.rstrip("/") + WELL_KNOWN)
            yield from self._look(origin + WELL_KNOWN)
        for line in self._robots(origin):
            yield from self._look(line)

    def _look(self, uri: str) -> Iterator[Look]:
        if normalise(uri) in self._visited:
            return
        self._visited.add(normalise(uri))
        try:
            look = self._documents.look(uri)
        except SourceFault as fault:
            self._faults.append(fault)
            return
        if look.status == 200 or look.link_header:
            yield look
        else:
            self._faults.append(SourceFault(f"HTTP status {look.status}", where=uri, rule="DST-A1"))

    def _robots(self, origin: str) -> list[str]:
        for look in self._look(f"{origin}/robots.txt"):
            return list(robots_sitemaps(look.body, look.final))[:_MOST_SITEMAPS]
        return []

    # from what is there

    def _from(self, look: Look, *, whole: bool) -> Iterator[Offer]:
        """The sets that an address leads to; `whole`: the user named the source, not one of its sets."""
        document = look.document
        if document is None:
            yield from self._from_page(look, whole=whole)
        elif document.kind in _DESCRIPTIONS:
            self._remember(look)
            yield from self._from_description(look, 0)
        elif document.kind in CAPABILITY_LISTS:
            yield from self._from_capability_list(look, whole=whole)
        elif document.kind in _SITEMAPS:
            yield from self._from_sitemap(look)
        else:
            yield from self._from_below(look, document, whole=whole)

    def _remember(self, look: Look) -> None:
        if self._description is None:
            self._description = look

    def _from_page(self, look: Look, *, whole: bool) -> Iterator[Offer]:
        """A page or resource: its `Link` header, then the links of its head (RS-DISC-02, RS-DISC-03)."""
        if look.fault is not None:
            self._faults.append(look.fault)
        links = [*parse_link_header(look.link_header, look.final), *html_links(look.body, look.final)]
        for link in links:
            if link.is_resourcesync:
                for target in self._look(link.href):
                    yield from self._from(target, whole=whole)

    def _from_description(self, look: Look, depth: int) -> Iterator[Offer]:
        count = 0
        for entry in look.entries:
            count += 1
            if count > _MOST_SETS:
                self._documents.warn("RS-SD-05", "more sets than are looked at", look.final)
                return
            if normalise(entry.loc) in self._visited:
                continue
            found = False
            for target in self._look(entry.loc):
                found = True
                yield from self._below_description(target, entry, look, depth)
            if not found:
                self._set_faults.append((entry.loc, str(self._faults[-1])))

    def _below_description(self, target: Look, entry: Entry, above: Look, depth: int) -> Iterator[Offer]:
        document = target.document
        if document is None:
            reason = target.fault.what if target.fault is not None else "it is not a ResourceSync document"
            self._set_faults.append((entry.loc, reason))
            return
        if document.kind in _DESCRIPTIONS:
            if depth < _HIGHEST:
                yield from self._from_description(target, depth + 1)
            return
        if document.kind in CAPABILITY_LISTS:
            yield from self._offer(target, above.uri)
            return
        self._documents.warn("DST-A7", f"listed as a Capability List, but it is a {document.kind.value}", target.final)
        yield from self._from_below(target, document, whole=False)

    def _from_capability_list(self, look: Look, *, whole: bool) -> Iterator[Offer]:
        document = look.document
        up = document.link("up") if document is not None else None
        if up is not None and whole:
            for above in self._look(up.href):
                if above.document is not None and above.document.kind in _DESCRIPTIONS:
                    self._remember(above)
                    yield from self._offer(look, above.uri)
                    yield from self._from_description(above, 0)
                    return
        yield from self._offer(look, up.href if up is not None else None)

    def _from_sitemap(self, look: Look) -> Iterator[Offer]:
        if self._sitemap:
            yield Offer(identity=look.uri, name="", resource_list=look.uri, is_sitemap=True)
        else:
            self._plain = self._plain or look.uri

    def _from_below(self, look: Look, document: Document, *, whole: bool) -> Iterator[Offer]:
        """A capability document: climb to its Capability List; if there is none, it stands for itself (DST-A4)."""
        above = document
        for _ in range(_HIGHEST):
            up = above.link("up")
            target = next(self._look(up.href), None) if up is not None else None
            if target is None or target.document is None:
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
            self._documents.warn("RS-NAV-01", "no `up` link: the document stands for itself", look.final)
        yield from self._alone(look, document)

    def _alone(self, look: Look, document: Document) -> Iterator[Offer]:
        index = document.link("index")
        uri = index.href if index is not None else look.uri
        if document.kind in _RESOURCE_LISTS:
            yield Offer(identity=uri, name="", resource_list=uri)
        elif document.kind in _CHANGE_LISTS:
            yield Offer(identity=uri, name="", change_list=uri)
        else:
            self._faults.append(NothingToCopy(f"a {document.kind.value} alone cannot be copied yet", where=look.uri))

    def _offer(self, look: Look, description: str | None) -> Iterator[Offer]:
        offer = offer_of(look, description, self._documents)
        if offer.resource_list is None and offer.change_list is None:
            fault = NothingToCopy("the Capability List offers no Resource List and no Change List", where=look.uri)
            self._faults.append(fault)
            self._set_faults.append((look.uri, fault.what))
            return
        yield offer

    def _nothing(self, url: str) -> SourceFault:
        if self._plain is not None:
            return PlainSitemap("only a plain Sitemap was found, no ResourceSync", where=self._plain, rule="DST-A3")
        telling = [f for f in self._faults if type(f) is not SourceFault]
        documents = [f for f in telling if f.code.startswith("HW-DOC") and f.code != "HW-DOC-07"]
        named_first = [f for f in telling if isinstance(f, NothingToCopy)]
        answered = len(telling) < len(self._faults) or documents
        if named_first:
            return named_first[0]
        if telling and not answered:
            return telling[0]
        reasons = "; ".join(dict.fromkeys(str(fault) for fault in self._faults)) or "nothing there"
        return NotResourceSync(f"no ResourceSync document was found: {reasons[:1000]}", where=url, rule="DST-A2")


def offer_of(look: Look, description: str | None, documents: Documents) -> Offer:
    """What a Capability List offers. Of several entries of one kind the first counts (AMB-54)."""
    first: dict[str, str] = {}
    for entry in look.entries:
        capability = (entry.capability or "").strip().lower()
        if capability in first:
            documents.warn("AMB-54", f"more than one {capability} in a Capability List: the first counts", look.final)
            continue
        first[capability] = entry.loc
    others = tuple(sorted((name, uri) for name, uri in first.items() if name not in ("resourcelist", "changelist")))
    return Offer(
        identity=look.uri,
        name="",
        capability_list=look.uri,
        description=description,
        resource_list=first.get("resourcelist"),
        change_list=first.get("changelist"),
        others=others,
    )


def starting_uri(url: str) -> str:
    """The URI to begin with; a bare host is taken as `http://` (it may redirect). Raises UsageFault."""
    text = url.strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host = None
    if not host or parts.scheme.lower() not in ("http", "https") or _NO_HOST.search(parts.netloc):
        raise UsageFault("the source must be an http or https address, without a user name", where=url)
    text = text.partition("#")[0]
    return text if parts.path else resolve(text, "/")


def named(offers: list[Offer]) -> list[Offer]:
    """Give every set a name made of its address, unique among these and fit for a folder."""
    unique: dict[str, Offer] = {}
    for offer in offers:
        unique.setdefault(normalise(offer.identity), offer)
    taken: set[str] = set()
    found = []
    for offer in unique.values():
        name = next(name for name in _names(offer.identity) if name.lower() not in taken)
        taken.add(name.lower())
        found.append(msgspec.structs.replace(offer, name=name))
    return found


def _names(identity: str) -> Iterator[str]:
    path = urlsplit(identity).path
    folders = [_fit(part) for part in path.split("/")[:-1] if _fit(part)]
    stem = _fit(path.rpartition("/")[2].partition(".")[0])
    generic = _GENERIC.match(stem) is not None
    if generic and folders:
        yield folders[-1]
    if stem and not (generic and folders):
        yield stem
    yield "-".join([*folders, stem or "set"])
    number = 2
    while True:
        yield f"{(folders or [stem or 'set'])[-1]}-{number}"
        number += 1


def _fit(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("._")[:80]


def _is_host(url: str) -> bool:
    parts = urlsplit(url)
    return parts.path in ("", "/") and not parts.query
