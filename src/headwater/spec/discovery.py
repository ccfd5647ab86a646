"""Links outside of documents: to a Source Description (RS-DISC-02…08), and in a TimeMap (RFC 7089, 5; RFC 6690).

Link headers, `link` elements of web pages, robots.txt, and `application/link-format`, link by link in bounded memory.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from headwater.errors import SourceFault
from headwater.spec.uris import normalise, resolve

HTML_OCTETS: Final = 1 << 20
"""Octets of a web page that are looked at; `head` comes first."""

ROBOTS_OCTETS: Final = 1 << 20
"""Octets of a robots.txt that are looked at; RFC 9309 asks for 500 KiB."""

_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_HEADER_LENGTH: Final = 1 << 16
_LINKS: Final = 1_000
_RESOURCESYNC_AS_URI: Final = "http://www.openarchives.org/rs/terms/resourcesync"

_TARGET = re.compile(r"[ \t\r\n,]*<([^>]*)>")
_PARAMETER = re.compile(
    r"""[ \t\r\n]*;[ \t\r\n]*([!#$&+\-.^_`|~0-9A-Za-z]*\*?)"""
    r"""(?:[ \t\r\n]*=[ \t\r\n]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^ \t\r\n";,]*)))?""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TAG = re.compile(rb"<(?:!--|([a-z][^\t\n\f\r />]*))")
_IN_HEAD: Final = frozenset({b"html", b"head", b"meta", b"link", b"base", b"noscript", b"basefont", b"bgsound"})
_RAW_TEXT: Final = frozenset({b"script", b"style", b"title", b"noframes"})


class HeaderLink(msgspec.Struct, frozen=True):
    """A link from the resource looked at: its relations, its target, its other parameters in their order."""

    rel: tuple[str, ...]
    href: str
    params: tuple[tuple[str, str], ...] = ()

    @property
    def is_resourcesync(self) -> bool:
        """Whether it leads to a Capability List (RS-DISC-02, RS-DISC-03, RS-DISC-08; the URI form: AMB-51)."""
        return "resourcesync" in self.rel or _RESOURCESYNC_AS_URI in self.rel


def parse_link_header(value: str, base: str) -> list[HeaderLink]:
    """The links of `Link` headers joined by commas (RFC 8288). Links with another context (`anchor`) are left out.

    The first `rel` of a link counts, a link without one is left out; what cannot be read ends the reading.
    """
    value = value[:_HEADER_LENGTH]
    links: list[HeaderLink] = []
    at = 0
    while len(links) < _LINKS and (read := read_link(value, at, base)):
        link, at = read
        anchor = None if link is None else dict(reversed(link.params)).get("anchor")
        if link is not None and (anchor is None or normalise(resolve(base, anchor)) == normalise(base)):
            links.append(link)
        comma = value.find(",", at)
        if comma < 0:
            break
        at = comma
    return links


def read_link(value: str, at: int, base: str) -> tuple[HeaderLink | None, int] | None:
    """The link that stands at a place, None for one without `rel`, and where it ends; None where there is no link."""
    target = _TARGET.match(value, at)
    if target is None:
        return None
    params, end = [], target.end()
    while match := _PARAMETER.match(value, end):
        end = match.end()
        text = match[3] or "" if match[2] is None else _ESCAPED.sub(r"\1", match[2])
        if match[1]:
            params.append((match[1].lower(), text))
    named = dict(reversed(params))  # the first of each name counts
    relations = _relations(named.get("rel", ""))
    others = tuple((name, text) for name, text in params if name != "rel")
    return HeaderLink(relations, resolve(base, target[1].strip()), others) if relations else None, end


def html_links(html: bytes, base: str) -> list[HeaderLink]:
    """The `link` elements in the head of a web page, resolved by its `base`; the rest of the page is not read."""
    from selectolax.lexbor import LexborHTMLParser  # loaded where a web page is met, which is seldom

    html = html[:HTML_OCTETS]
    if html.startswith((b"\xff\xfe", b"\xfe\xff")):
        html = html.decode("utf-16", "replace").encode("utf-8")
    head = LexborHTMLParser(_head_of(html)).head
    if head is None:
        return []
    links: list[HeaderLink] = []
    based = False
    for element in head.css("base[href], link[rel][href]"):
        attributes = {name.lower(): value or "" for name, value in element.attributes.items()}
        href = attributes.pop("href").strip()
        if element.tag == "base":
            base, based = (base if based else resolve(base, href)), True
            continue
        relations = _relations(attributes.pop("rel"))
        if relations and href and len(links) < _LINKS:
            links.append(HeaderLink(relations, resolve(base, href), tuple(attributes.items())))
    return links


def _robots_lines(robots: bytes) -> Iterator[tuple[str, str]]:
    """The fields of a robots.txt (RFC 9309): names in lower case, and values without comments."""
    for line in robots[:ROBOTS_OCTETS].decode("utf-8-sig", "replace").splitlines():
        name, _, value = line.partition("#")[0].partition(":")
        yield name.strip().lower(), value.strip()


def robots_sitemaps(robots: bytes, base: str) -> list[str]:
    """The targets of the `Sitemap` lines of a robots.txt, each once, in their order (RS-DISC-05, RS-DISC-07)."""
    found = (resolve(base, value) for name, value in _robots_lines(robots) if name == "sitemap" and value)
    return list(dict.fromkeys(islice(found, _LINKS)))


def crawl_delay(robots: bytes) -> float | None:
    """The seconds between two requests that a robots.txt asks of us: in the group of our name, else in that of all."""
    delays: dict[str, float | None] = {}
    agents: list[str] = []
    begins = False
    for name, value in _robots_lines(robots):
        if name == "user-agent":
            agents = [*agents, value.lower()] if begins else [value.lower()]
            delays.setdefault(agents[-1], None)
        begins = name == "user-agent" or (begins and name in ("", "sitemap"))
        if name == "crawl-delay" and _SECONDS.fullmatch(value):
            delays.update((agent, float(value)) for agent in agents)
    return delays.get("headwater", delays.get("*"))


def _relations(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(relation.lower() for relation in text.split()))


def _head_of(html: bytes) -> bytes:
    """The page up to the first tag that cannot stand in a head: a tree of deeply nested elements is never built.

    (The parser's time grows with the square of the depth: 200,000 open `div` took it three minutes.)
    """
    html_lower = html.lower()  # octets: only ASCII letters change, so places stay the same
    at = 0
    while match := _TAG.search(html_lower, at):
        name = match[1]
        if name is None:
            at = html_lower.find(b"-->", match.start() + 2) + 1
        elif name in _RAW_TEXT:
            at = html_lower.find(b"</" + name, match.end()) + 1
        elif name in _IN_HEAD:
            at = match.end()
        else:
            at = 0
        if not at:
            return html[: match.start()]
    return html


LONGEST_LINK: Final = 1 << 16
"""Octets of one link; a URI has 32 KiB at most."""

_SEPARATORS = ", \t\r\n"


def timemap_links(chunks: Iterable[bytes], base: str) -> Iterator[HeaderLink]:
    """The links of a TimeMap whose address is `base`, in their order. Raises SourceFault where it is malformed."""
    text = ""
    for chunk in chain(chunks, (None,)):  # at last what is left
        text += "" if chunk is None else chunk.decode("ascii" if chunk.isascii() else "latin-1")
        at = 0
        while (found := _link(text, at, base, ended=chunk is None)) is not None:
            link, at = found
            if link is not None:
                yield link
        text = text[at:]
        if chunk is not None and len(text) > LONGEST_LINK + len(chunk):
            raise SourceFault("a link of a TimeMap has no end", where=base, rule="DST-S8")
    if text.strip(_SEPARATORS):
        raise SourceFault("the TimeMap is malformed", where=base, rule="DST-S8")


def _link(text: str, at: int, base: str, *, ended: bool) -> tuple[HeaderLink | None, int] | None:
    """The link at a place of the text and where the next one begins; None where it is not all there."""
    read = read_link(text, at, base)
    if read is None:
        return None
    link, end = read
    rest = text[end : end + 64].lstrip(" \t\r\n")
    if rest.startswith(","):
        return link, text.index(",", end) + 1
    if ended and not text[end:].strip(_SEPARATORS):
        return link, len(text)
    return None
