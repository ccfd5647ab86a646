"""The ways to the octets that a resource had at a moment: which there are, in which order, and when one is believed.

Pure rules over values. A way is tried after the other until one brings what is wanted. Where the hash is known, it
decides; where it is not, a version is taken at its word, by the rules of RFC 7089, and told to be not verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from headwater.spec.discovery import HeaderLink, parse_link_header
from headwater.spec.uris import normalise
from headwater.sync.lists.entries import links_of
from headwater.sync.source_times import SECOND, http_date_micros

MOST_PAGES = 20
"""Documents of one TimeMap that are read for one resource."""

MOST_VERSIONS = 8
"""Versions within one second that are tried for one resource."""


def second_before(moment: int) -> int:
    """The end of the second before the one of the moment.

    TimeGates and TimeMaps know whole seconds, and of several versions within one the last is meant (RFC 7089, 2.1.1.1).
    What has not changed within that second up to the moment is asked for as it was at the end of the one before:
    what it became later within the second does not count.
    """
    return moment // SECOND * SECOND - 1


class WayKind(StrEnum):
    """What is asked."""

    LOC = "loc"
    """`loc` itself, which may be as it was."""

    MEMENTO = "memento"
    """The version of that very state (DST-S6)."""

    TIMEGATE = "TimeGate"
    """A TimeGate, for the version of the moment (DST-S7)."""

    TIMEMAP = "TimeMap"
    """A TimeMap, for its versions (DST-S8)."""

    LINKS = "links of loc"
    """`loc`, for its `Link` headers alone."""


class Way(msgspec.Struct, frozen=True, array_like=True):
    """One way: what is asked, where, and what is known of it."""

    kind: WayKind
    href: str
    stated_at: int | None = None
    """Of a memento from a TimeMap: its `datetime`."""

    found: tuple[tuple[str, int], ...] = ()
    """Of a page of a TimeMap: the best versions of the pages before it."""

    read: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    """Of a page of a TimeMap: the pages that were read before it, and those that come after it."""


class KnownOfState(msgspec.Struct, frozen=True, array_like=True):
    """What is known of the state that is wanted: the changes before and after it, and whether there was any."""

    changed_before: int | None = None
    changed_after: int | None = None
    existed: bool = True
    has_hash: bool = True
    asked_at: int | None = None
    """For when versions are asked, where that is not the moment itself: see `second_before`."""


def ways_of(loc: str, links: str | None, known: KnownOfState, *, tried_loc: bool) -> tuple[Way, ...]:
    """The ways to a state of a resource, by the links that lists give it (RS-REL-08…10), the shortest first.

    A TimeMap tells of no deletion: whether there was anything only a TimeGate can say.

    `tried_loc`: what `loc` has by now was asked for already; without a hash it is not asked for, for it proves nothing.
    """
    ways = [Way(WayKind.MEMENTO, link.href) for link in links_of(links, "memento")]
    ways += [Way(WayKind.TIMEGATE, link.href) for link in links_of(links, "timegate")]
    ways += [Way(WayKind.TIMEMAP, link.href) for link in links_of(links, "timemap") if known.existed]
    if not any(way.kind in (WayKind.TIMEGATE, WayKind.TIMEMAP) for way in ways):
        ways.append(Way(WayKind.LINKS, loc))
    if known.has_hash and not tried_loc:
        ways.append(Way(WayKind.LOC, loc))
    return tuple(ways)


def ways_by_links(headers: Mapping[str, str], base: str, known: KnownOfState) -> tuple[Way, ...]:
    """The TimeGate and the TimeMap that the `Link` headers of a resource name (RFC 7089, 2.2)."""
    links = parse_link_header(headers.get("link", ""), base)
    gates = [Way(WayKind.TIMEGATE, link.href) for link in links if "timegate" in link.rel]
    maps = [Way(WayKind.TIMEMAP, link.href) for link in links if "timemap" in link.rel]
    return (*gates[:1], *(maps[:1] if known.existed else ()))


class TimeMapPage(msgspec.Struct, frozen=True):
    """What a page of a TimeMap tells of a moment: the latest versions until then, and further pages."""

    best: tuple[tuple[str, int], ...] = ()
    """All of the same second, in their order; before those within the second of the moment, the latest earlier ones."""

    pages: tuple[str, ...] = ()


def read_timemap(links: Iterable[HeaderLink], moment: int, best: tuple[tuple[str, int], ...] = ()) -> TimeMapPage:
    """The versions with the greatest `datetime` that is not after the moment (DST-S8), of this page and those before.

    A `datetime` has whole seconds: what stands at the second of the moment may still be later than it. So those with
    the greatest `datetime` before that second are kept as well, before them.
    """
    start = moment - moment % SECOND
    within = [one for one in best if one[1] >= start]
    found = [one for one in best if one[1] < start]
    pages: list[str] = []
    for link in links:
        named = dict(reversed(link.params))
        if "memento" in link.rel:
            at = http_date_micros(named.get("datetime"))
            if at is None or at > moment:
                continue
            same = within if at >= start else found
            if same and at > same[0][1]:
                same.clear()
            if (not same or at == same[0][1]) and len(same) < MOST_VERSIONS:
                same.append((link.href, at))
        elif "timemap" in link.rel and "self" not in link.rel and len(pages) < MOST_PAGES:
            begins = http_date_micros(named.get("from"))
            if begins is None or begins <= moment:
                pages.append(link.href)
    return TimeMapPage((*found, *within), tuple(pages))


def after_timemap(way: Way, page: TimeMapPage, *, has_hash: bool) -> tuple[Way, ...]:
    """The ways after a page of a TimeMap: the next page that was not read, else the versions found.

    Of several versions within one second only a hash can tell which one it was.
    """
    read = (*way.read, way.href)
    queue = [uri for uri in dict.fromkeys((*way.queue, *page.pages)) if uri not in read]
    if queue and len(read) < MOST_PAGES:
        return (Way(WayKind.TIMEMAP, queue[0], None, page.best, read, tuple(queue[1:MOST_PAGES])),)
    latest = [one for one in page.best if one[1] == page.best[-1][1]]
    if len(latest) > 1 and not has_hash:
        return ()
    return tuple(Way(WayKind.MEMENTO, href, at) for href, at in reversed(page.best if has_hash else latest))


def objection(way: Way, headers: Mapping[str, str], loc: str, moment: int, known: KnownOfState) -> str | None:
    """Why a version that no hash verifies is not believed; None: it is what the resource was at the moment."""
    stated = headers.get("memento-datetime")
    at = http_date_micros(stated)
    if at is None and way.kind is WayKind.MEMENTO and stated is None:
        at = way.stated_at  # "check when sent" (DST-S6): the TimeMap, or the link of the change, has said of when it is
        if at is None:
            return None
    if at is None:
        return f"the {way.kind} answers without Memento-Datetime"
    if at > moment:
        return f"the {way.kind} answers with a version of {stated}, which is later"
    if not known.existed and at + SECOND > moment + 1:
        return f"the {way.kind} answers with a version of {stated}, which may be later within that second"
    if known.changed_before is not None and at + SECOND <= known.changed_before:
        return f"the {way.kind} answers with a version of {stated}, after which the resource has changed"
    if known.changed_after is not None and at <= known.changed_after < at + SECOND:
        return f"the {way.kind} answers with a version of {stated}, and there were several in that second"
    originals = [link for link in parse_link_header(headers.get("link", ""), loc) if "original" in link.rel]
    if originals and normalise(originals[0].href) != normalise(loc):
        return f"the {way.kind} answers with a version of another resource: {originals[0].href[:200]}"
    return None
