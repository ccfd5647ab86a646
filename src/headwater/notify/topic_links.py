"""Finds hub and canonical address of a topic: in `Link` headers, else in a feed or in the head of a web page (WS-S-01).

Each function takes whatever a server sent, reads a bounded part of it, and never raises.
"""

from __future__ import annotations

import pyexpat
from collections.abc import Iterable
from typing import Final

import msgspec

from headwater.spec.discovery import HeaderLink, html_links, parse_link_header
from headwater.spec.uris import resolve

_FEED_OCTETS: Final = 256 << 10
_LINKS: Final = 1_000
_ATOM: Final = "http://www.w3.org/2005/Atom"
_DEPTH: Final = 8


class TopicLinks(msgspec.Struct, frozen=True):
    """The hubs of a topic in their order, its canonical address and its Capability List where it says them."""

    hubs: tuple[str, ...] = ()
    canonical: str | None = None
    capability_list: str | None = None


def topic_links(header: str, body: bytes, media_type: str, base: str) -> TopicLinks:
    """The links of a topic that was fetched from `base`: those of its `Link` headers, and only without those others.

    `header` are the values of `Link` joined by commas.
    """
    found = _of(parse_link_header(header, base))
    if found.hubs or found.canonical is not None:
        return found
    if _is_page(media_type):
        return _of(html_links(body, base))
    if _is_feed(media_type):
        return _of(_feed_links(body, base))
    return found


def are_in_head(header: str, media_type: str, base: str) -> bool:
    """Whether the head of a topic tells its links, or that it has none: its body is a web page or a feed if not."""
    found = _of(parse_link_header(header, base))
    return bool(found.hubs) or found.canonical is not None or not (_is_page(media_type) or _is_feed(media_type))


def _is_page(media_type: str) -> bool:
    return _essence(media_type) in ("text/html", "application/xhtml+xml")


def _is_feed(media_type: str) -> bool:
    return _essence(media_type).endswith(("/xml", "+xml"))


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _of(links: Iterable[HeaderLink]) -> TopicLinks:
    hubs: dict[str, None] = {}
    canonical: str | None = None
    capability_list: str | None = None
    for link in links:
        if "hub" in link.rel:
            hubs.setdefault(link.href)
        if "self" in link.rel and canonical is None:
            canonical = link.href
        if "resourcesync" in link.rel and capability_list is None:
            capability_list = link.href
    return TopicLinks(tuple(hubs), canonical, capability_list)


class _EnoughError(Exception):
    """What is looked for has come."""


def _feed_links(body: bytes, base: str) -> list[HeaderLink]:
    """The `link` elements of Atom's namespace that stand before the first entry, at a feed or a channel."""
    links: list[HeaderLink] = []
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        namespace, _, local = name.rpartition(" ")
        if local in ("entry", "item") or depth > _DEPTH or len(links) >= _LINKS:
            raise _EnoughError
        if namespace == _ATOM and local == "link" and "href" in attributes:
            relations = tuple(attributes.get("rel", "alternate").lower().split())
            links.append(HeaderLink(relations, resolve(base, attributes["href"].strip())))

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise _EnoughError

    parser = pyexpat.ParserCreate(None, " ")
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body[:_FEED_OCTETS], False)  # noqa: FBT003 (takes no name)
    except (pyexpat.ExpatError, _EnoughError, ValueError, LookupError):
        return links
    return links
