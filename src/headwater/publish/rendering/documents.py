"""The content of each document of a source: its head from the site, its entries from the catalog's rows.

Pure: rows in, records of the standard out. The writer turns records into octets.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headwater.catalog.interface import Change, Resource, Segment
from headwater.publish.capabilities import CAPABILITIES
from headwater.publish.site import (
    SOURCE_DESCRIPTION,
    SetSettings,
    Site,
    capability_list_name,
    change_list_name,
    change_segment_name,
    resource_list_name,
    resource_page_name,
    source_description_name,
)
from headwater.spec.kinds import RULES, Kind
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.writer import Profile

ENDINGS = (b"</sitemapindex>", b"</urlset>")
"""How every document ends."""


class PageTimes(msgspec.Struct, frozen=True, gc=False):
    """One component of a Resource List Index and its document's times."""

    number: int
    at: dt.datetime
    completed: dt.datetime


def source_descriptions(site: Site, published: Iterable[str]) -> Iterator[tuple[str, Document, list[Entry]]]:
    """The Source Description with its name; of a site with very many sets its parts, then their index (RS-SD-09).

    One entry for each published set (RS-SD-03…07); nothing is above it (RS-SD-10).
    """
    if len(site.sets) <= site.description_entries:
        yield SOURCE_DESCRIPTION, *_source_description(site, published, ())
        return
    parts: dict[str, list[str]] = {}
    for name in published:
        parts.setdefault(source_description_name(site, name), []).append(name)
    index = (Link(rel="index", href=site.url(SOURCE_DESCRIPTION)),)
    for part in sorted(parts):
        yield part, *_source_description(site, parts[part], index)
    head = _head(Kind.SOURCE_DESCRIPTION_INDEX, _described(site.describedby))
    yield SOURCE_DESCRIPTION, head, [Entry(loc=site.url(part), capability="description") for part in sorted(parts)]


def _source_description(site: Site, published: Iterable[str], links: tuple[Link, ...]) -> tuple[Document, list[Entry]]:
    described = {one.name: one.describedby for one in site.sets}
    entries = [
        Entry(
            loc=site.url(capability_list_name(name)),
            capability="capabilitylist",
            links=_described(described.get(name)),
        )
        for name in published
    ]
    return _head(Kind.SOURCE_DESCRIPTION, (*_described(site.describedby), *links)), entries


def capability_list(site: Site, settings: SetSettings) -> tuple[Document, list[Entry]]:
    """The Capability List of a set: exactly one entry for each capability (RS-CAP-05), no `lastmod` (RS-CAP-10)."""
    up = Link(rel="up", href=site.url(source_description_name(site, settings.name)))
    entries = [
        Entry(loc=site.url(f"{settings.name}/{row.top.name}"), capability=row.name)
        for row in CAPABILITIES
        if row.is_listed
    ]
    return _head(Kind.CAPABILITY_LIST, (*_described(settings.describedby), up)), entries


def resource_list(site: Site, name: str, at: dt.datetime, completed: dt.datetime, *, indexed: bool) -> Document:
    """The head of a Resource List, or of one page of it (`indexed`)."""
    index = resource_list_name(name) if indexed else None
    return _head(Kind.RESOURCE_LIST, _leaf(site, name, index), at=at, completed=completed)


def resource_list_index(site: Site, name: str, pages: Sequence[PageTimes]) -> tuple[Document, list[Entry]]:
    """The index of a Resource List's pages: its `at` is the earliest, `completed` the latest of them (AMB-24)."""
    head = _head(
        Kind.RESOURCE_LIST_INDEX,
        _leaf(site, name, None),
        at=min(page.at for page in pages),
        completed=max(page.completed for page in pages),
    )
    entries = [
        Entry(loc=site.url(resource_page_name(name, page.number)), at=page.at, completed=page.completed)
        for page in pages
    ]
    return head, entries


def change_list(site: Site, name: str, segment: Segment, *, indexed: bool) -> Document:
    """The head of a Change List: `until` only when it is closed (RS-TIME-09)."""
    index = change_list_name(name) if indexed else None
    return _head(Kind.CHANGE_LIST, _leaf(site, name, index), from_=segment.from_, until=segment.until)


def change_list_index(site: Site, name: str, segments: Sequence[Segment]) -> tuple[Document, list[Entry]]:
    """The index of a set's segments, oldest first (RS-CLI-02); open, because its last component is (RS-TIME-14)."""
    head = _head(Kind.CHANGE_LIST_INDEX, _leaf(site, name, None), from_=segments[0].from_)
    entries = [
        Entry(loc=site.url(change_segment_name(name, one.number)), from_=one.from_, until=one.until) for one in segments
    ]
    return head, entries


def resource_entries(rows: Iterable[Resource], prefix: str) -> Iterator[Entry]:
    """The entries of a Resource List (RS-RL-07)."""
    for row in rows:
        uri, stated = row.uri, row.metadata
        yield Entry(
            loc=uri if "://" in uri else prefix + uri,  # as `_absolute`, without the cost of a call for each
            lastmod=stated.lastmod,
            changefreq=stated.changefreq,
            encoding=stated.encoding,
            hash=stated.hash,
            length=stated.length,
            type=stated.type,
            links=stated.links,
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
            yield Entry(loc=_absolute(row.uri, prefix), lastmod=lastmod, change=row.change, datetime=row.at)
            continue
        stated = row.metadata
        yield Entry(
            loc=_absolute(row.uri, prefix),
            lastmod=row.at if both else stated.lastmod,
            changefreq=stated.changefreq,
            change=row.change,
            datetime=row.at,
            encoding=stated.encoding,
            hash=stated.hash,
            length=stated.length,
            type=stated.type,
            links=stated.links,
        )


ROBOTS_MARK = "# Written by Headwater, and anew with each publication."
"""The first line of a robots.txt of ours: one without it is somebody else's, and is left alone."""


def robots(site: Site, published: Iterable[str]) -> bytes:
    """robots.txt: one absolute `Sitemap:` line for each Resource List (RS-DISC-05, RS-DISC-07)."""
    lines = [ROBOTS_MARK, "User-agent: *", "Disallow:", ""]
    lines += [f"Sitemap: {site.url(resource_list_name(name))}" for name in published]
    return ("\n".join(lines) + "\n").encode("ascii")


def _absolute(uri: str, prefix: str) -> str:
    # A relative URI has no empty segment, so "://" tells the two apart whatever a file is called.
    return uri if "://" in uri else prefix + uri


def _head(
    kind: Kind,
    links: tuple[Link, ...],
    *,
    at: dt.datetime | None = None,
    completed: dt.datetime | None = None,
    from_: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> Document:
    return Document(
        kind=kind,
        capability=RULES[kind].capability,
        links=links,
        at=at,
        completed=completed,
        from_=from_,
        until=until,
    )


def _leaf(site: Site, name: str, index: str | None) -> tuple[Link, ...]:
    """`up` leads to the Capability List from leaves and indexes (RS-NAV-01, AMB-45); `index` where there is one."""
    up = Link(rel="up", href=site.url(capability_list_name(name)))
    return (up,) if index is None else (up, Link(rel="index", href=site.url(index)))


def _described(url: str | None) -> tuple[Link, ...]:
    return () if url is None else (Link(rel="describedby", href=url),)
