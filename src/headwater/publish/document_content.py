"""The content of each document of a source: its head from the site, its entries from the catalog's rows.

Pure: rows in, records of the standard out. The writer turns records into octets.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import msgspec

from headwater.catalog.interface import Change, Resource, Segment
from headwater.publish.document_names import ARCHIVES, CHANNELS
from headwater.publish.publication_state import (
    ChangeDumpState,
    ChangePackage,
    PagePackages,
    ResourceDumpState,
    ResourcePackage,
)
from headwater.publish.site import (
    SOURCE_DESCRIPTION,
    SetSettings,
    Site,
    capability_list_name,
    change_dump_name,
    change_list_name,
    change_package_names,
    change_segment_name,
    classic_capability_list_name,
    dump_offer_of,
    oai_link,
    offered,
    resource_dump_name,
    resource_list_name,
    resource_package_names,
    resource_page_name,
    source_description_name,
    topic_url,
)
from headwater.spec.extensions import dump_link
from headwater.spec.kinds import RULES, Kind
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.writer import Profile
from headwater.storage.object_store import ZIP

ENDINGS = (b"</sitemapindex>", b"</urlset>")  # how every document ends


PageTimes = tuple[int, dt.datetime, dt.datetime]
"""The number of one component of a Resource List Index, with its document's `at` and `completed`."""


def source_descriptions(site: Site, published: Iterable[str]) -> Iterator[tuple[str, Document, list[Entry]]]:
    """The Source Description with its name; of a site with very many sets its parts, then their index (RS-SD-09).

    One entry for each published set (RS-SD-03…07); nothing is above it (RS-SD-10).
    """
    if len(site.sets) <= site.sets_per_description:
        yield SOURCE_DESCRIPTION, *_source_description(site, published, ())
        return
    parts: dict[str, list[str]] = {}
    for name in published:
        parts.setdefault(source_description_name(site, name), []).append(name)
    index = (Link(rel="index", href=site.url(SOURCE_DESCRIPTION)),)
    for part in sorted(parts):
        yield part, *_source_description(site, parts[part], index)
    head = head_of(Kind.SOURCE_DESCRIPTION_INDEX, _described(site.describedby))
    yield SOURCE_DESCRIPTION, head, [Entry(loc=site.url(part), capability="description") for part in sorted(parts)]


def _source_description(site: Site, published: Iterable[str], links: tuple[Link, ...]) -> tuple[Document, list[Entry]]:
    known = {one.name: one for one in site.sets}
    entries: list[Entry] = []
    for name in published:
        settings, own = known.get(name, SetSettings(name=name)), site.url(capability_list_name(name))
        about = (*_described(settings.describedby), *((oai_link(site, settings),) if settings.oai else ()))
        entries.append(Entry(loc=own, capability="capabilitylist", links=about))
        if settings.classic:  # the lists for old harvesters say that they are the same set's
            links = (*about, Link(rel="canonical", href=own))
            loc = site.url(classic_capability_list_name(name))
            entries.append(Entry(loc=loc, capability="capabilitylist", links=links))
    return head_of(Kind.SOURCE_DESCRIPTION, (*_described(site.describedby), *links)), entries


def group_description(site: Site, published: Iterable[str]) -> tuple[Document, list[Entry]]:
    """A Source Description of some sets alone; of as many as one holds."""
    return _source_description(site, list(published)[: site.sets_per_description], ())


def capability_list(site: Site, settings: SetSettings, *, with_later: bool) -> tuple[Document, list[Entry]]:
    """The Capability List of a set: exactly one entry for each capability (RS-CAP-05), no `lastmod` (RS-CAP-10).

    Packages made on demand are offered by a root link (docs/reference/addresses-and-additions.md); a channel of
    notifications has a link to each of its hubs (RS-CH-05).
    """
    up = Link(rel="up", href=site.url(source_description_name(site, settings.name)))
    entries = [
        Entry(loc=site.url(f"{settings.name}/{row.top.name}"), capability=row.name)
        for row in offered(settings, with_later=with_later)
        if row.is_listed
    ]
    if settings.hubs:
        hubs = tuple(Link(rel="hub", href=one) for one in settings.hubs)
        entries += [
            Entry(loc=topic_url(site, settings.name, one), capability=one.capability, links=hubs) for one in CHANNELS
        ]
    offer = dump_offer_of(site, settings)
    offers = [] if offer is None else [dump_link(offer)]
    offers += [oai_link(site, settings)] if settings.oai else []
    return head_of(Kind.CAPABILITY_LIST, (*_described(settings.describedby), up, *offers)), entries


def resource_list(site: Site, name: str, at: dt.datetime, completed: dt.datetime, *, indexed: bool) -> Document:
    """The head of a Resource List, or of one page of it (`indexed`)."""
    links = current_links(site, name, Kind.RESOURCE_LIST, resource_list_name(name) if indexed else None)
    return head_of(Kind.RESOURCE_LIST, links, at=at, completed=completed)


def current_links(site: Site, name: str, kind: Kind, index: str | None = None) -> tuple[Link, ...]:
    """The links of a document that is current, to its archive as well where there is one (RS-ARC-05).

    That stands in the list, or in its index, never in what is closed, which would keep it for good.
    """
    links = set_links(site, name, index)
    if index is not None or not site.settings(name).archive:
        return links
    return (*links, Link(rel="archives", href=site.url(f"{name}/{ARCHIVES[kind].top.name}")))


def resource_list_index(site: Site, name: str, pages: Sequence[PageTimes]) -> tuple[Document, list[Entry]]:
    """The index of a Resource List's pages: its `at` is the earliest, `completed` the latest of them (AMB-24)."""
    head = head_of(
        Kind.RESOURCE_LIST_INDEX,
        current_links(site, name, Kind.RESOURCE_LIST),
        at=min(at for _number, at, _completed in pages),
        completed=max(completed for _number, _at, completed in pages),
    )
    return head, [
        Entry(loc=site.url(resource_page_name(name, number)), at=at, completed=completed)
        for number, at, completed in pages
    ]


def change_list(site: Site, name: str, segment: Segment, *, indexed: bool) -> Document:
    """The head of a Change List: `until` only when it is closed (RS-TIME-09)."""
    links = current_links(site, name, Kind.CHANGE_LIST, change_list_name(name) if indexed else None)
    return head_of(Kind.CHANGE_LIST, links, from_=segment.from_, until=segment.until)


def change_list_index(site: Site, name: str, segments: Sequence[Segment]) -> tuple[Document, list[Entry]]:
    """The index of a set's segments, oldest first (RS-CLI-02); open, because its last component is (RS-TIME-14)."""
    head = head_of(Kind.CHANGE_LIST_INDEX, current_links(site, name, Kind.CHANGE_LIST), from_=segments[0].from_)
    entries = [
        Entry(loc=site.url(change_segment_name(name, one.number)), from_=one.from_, until=one.until) for one in segments
    ]
    return head, entries


def resource_dump(site: Site, name: str, state: ResourceDumpState) -> tuple[str, Document, list[Entry]]:
    """A Resource Dump with its name: `at` is the earliest of the packages, `completed` the latest (AMB-24)."""
    at = min((page.at for page in state.pages), default=state.at)
    completed = max((page.completed for page in state.pages), default=at)
    links = current_links(site, name, Kind.RESOURCE_DUMP)
    packages = [
        resource_package_entry(site, name, page, part, one)
        for page in state.pages
        for part, one in enumerate(page.packages)
    ]
    return resource_dump_name(name), head_of(Kind.RESOURCE_DUMP, links, at=at, completed=completed), packages


def resource_package_entry(site: Site, name: str, page: PagePackages, part: int, one: ResourcePackage) -> Entry:
    """A package with its times, and the copy of its manifest (RS-RD-04…08)."""
    entry = _package_entry(site, resource_package_names(name, page.number, part, one.hash), one)
    return msgspec.structs.replace(entry, at=page.at, completed=page.completed)


def _package_entry(site: Site, names: tuple[str, str], one: ResourcePackage | ChangePackage) -> Entry:
    """A package without its times; `names` are its own and that of its manifest."""
    package, manifest = names
    return Entry(
        loc=site.url(package),
        hash=f"sha-256:{one.hash}",
        length=one.octets,
        type=ZIP.media_type,
        links=(Link(rel="contents", href=site.url(manifest), type="application/xml"),),
    )


def change_dump(site: Site, name: str, state: ChangeDumpState) -> tuple[str, Document, list[Entry]]:
    """A Change Dump with its name: never closed, because packages are added (RS-CD-04).

    Its packages follow each other without a gap, so its `from` is that of the first (RS-CD-01).
    """
    links = current_links(site, name, Kind.CHANGE_DUMP)
    packages = [change_package_entry(site, name, one) for one in state.packages]
    return change_dump_name(name), head_of(Kind.CHANGE_DUMP, links, from_=state.from_), packages


def change_package_entry(site: Site, name: str, one: ChangePackage) -> Entry:
    """A package with its times (half-open, AMB-11), and the copy of its manifest (RS-CD-05…08)."""
    entry = _package_entry(site, change_package_names(name, one.segment, one.hash), one)
    return msgspec.structs.replace(entry, from_=one.from_, until=one.until)


def resource_entries(
    rows: Iterable[Resource], prefix: str, paths: Iterable[str | None] = repeat(None)
) -> Iterator[Entry]:
    """The entries of a Resource List (RS-RL-07), or of a manifest with these `paths`."""
    for row, path in zip(rows, paths, strict=False):
        uri, stated = row.uri, row.metadata
        yield Entry(
            loc=uri if "://" in uri else prefix + uri,  # as `absolute_uri`, without the cost of a call for each
            lastmod=stated.lastmod,
            changefreq=stated.changefreq,
            encoding=stated.encoding,
            hash=stated.hash,
            length=stated.length,
            path=path,
            type=stated.type,
            links=stated.links,
            extra=stated.extra,
        )


def change_entries(rows: Iterable[Change], prefix: str, profile: Profile) -> Iterator[Entry]:
    """The entries of a Change List, each with its `datetime` (AMB-17).

    In profile 1.1 `lastmod` is the time of modification (RS-TIME-12); in `both` it equals `datetime`, also on
    deletions, because 1.0 orders by it (AMB-19). A deletion states nothing of a representation (AMB-34).
    """
    both = profile is Profile.BOTH
    for row in rows:
        if row.change is ChangeKind.DELETED:
            lastmod = row.at if both else None
            loc, links = absolute_uri(row.uri, prefix), row.metadata.links
            yield Entry(loc=loc, lastmod=lastmod, change=row.change, datetime=row.at, links=links)
            continue
        stated = row.metadata
        yield Entry(
            loc=absolute_uri(row.uri, prefix),
            lastmod=row.at if both else stated.lastmod,
            changefreq=stated.changefreq,
            change=row.change,
            datetime=row.at,
            encoding=stated.encoding,
            hash=stated.hash,
            length=stated.length,
            type=stated.type,
            links=stated.links,
            extra=stated.extra,
        )


def absolute_uri(uri: str, prefix: str) -> str:
    """The absolute form of a URI of the catalog."""
    # A relative URI has no empty segment, so "://" tells the two apart whatever a file is called.
    return uri if "://" in uri else prefix + uri


def head_of(
    kind: Kind,
    links: tuple[Link, ...],
    *,
    at: dt.datetime | None = None,
    completed: dt.datetime | None = None,
    from_: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> Document:
    return Document(
        kind=kind, capability=RULES[kind].capability, links=links, at=at, completed=completed, from_=from_, until=until
    )


def set_links(site: Site, name: str, index: str | None) -> tuple[Link, ...]:
    """`up` leads to the Capability List from leaves and indexes (RS-NAV-01, AMB-45); `index` where there is one."""
    up = Link(rel="up", href=site.url(capability_list_name(name)))
    return (up,) if index is None else (up, Link(rel="index", href=site.url(index)))


def _described(url: str | None) -> tuple[Link, ...]:
    return () if url is None else (Link(rel="describedby", href=url),)
