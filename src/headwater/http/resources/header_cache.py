"""What is said of a resource before its octets: looked up once, and good for as long as the file stays as it was.

A card is made for a file in one state (size, times, inode). Whoever asks again for the same file in the same state gets
the same headers, whatever else the catalog has learnt since; a file in another state is looked up again. Destinations
ask for resources in the order of the list, so a look-up brings the next ones along, as long as that pays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache

import msgspec

from headwater.catalog.interface import Catalog, Resource
from headwater.http.resources.files import OpenFile
from headwater.http.responses import Head, line

KEPT = 32_768
"""ResourceHeaderCache of one generation; there are two, and a card takes about 900 octets."""
AHEAD = 128
"""How many resources a look-up brings along …"""
KEPT_AHEAD = 4_096
"""… and how many of these wait to be asked for."""
_TRIAL = 512
"""How many of them are brought before it is judged whether they are asked for."""
_PAYS = 8
"""One in so many must be: reading a row ahead costs about a tenth of a look-up."""

_UNCHANGED = b"etag: %s\r\nlast-modified: %s\r\ncache-control: public, max-age=60, must-revalidate\r\n%s"
_AFTER = b"accept-ranges: bytes\r\nx-content-type-options: nosniff\r\n"
_DIGEST = re.compile(r"sha-256:([0-9A-Za-z]{64})")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class ResourceHeaders(msgspec.Struct, frozen=True, gc=False):
    """The head of one file in one state. `is_strong`: the tag is the digest of exactly these octets."""

    state: tuple[int, int, int, int]
    is_strong: bool
    modified_second: int
    head: Head
    tag_at: tuple[int, int]
    unchanged_at: tuple[int, int]

    @property
    def etag(self) -> bytes:
        """The entity tag."""
        return self.head[self.tag_at[0] : self.tag_at[1]]

    @property
    def unchanged(self) -> Head:
        """The lines of a 304: a part of the head, which is not kept twice."""
        return self.head[self.unchanged_at[0] : self.unchanged_at[1]]


class LookupNeeded(Exception):
    """The catalog has to be asked, and that may wait for the network: ask `Lookups`, then come again."""


class LookupResult(msgspec.Struct, frozen=True, gc=False):
    """What the catalog has said of a resource since it was asked for; None: the set does not hold it."""

    resource: Resource | None


class ResourceHeaderCache:
    """The cards of a source's resources. Belongs to one thread."""

    def __init__(self, catalog: Catalog, links: dict[str, Head]) -> None:
        self._catalog = catalog
        self._links = links
        self._cards: dict[tuple[str, str], ResourceHeaders] = {}
        self._older: dict[tuple[str, str], ResourceHeaders] = {}
        self._ahead: dict[tuple[str, str], Resource] = {}
        self._brought = 0
        self._used = 0
        self._misses = 0

    def find(
        self, set_name: str, relative: str, answer: LookupResult | None = None
    ) -> ResourceHeaders | Resource | None:
        """What is known of a resource, or None when the set does not hold it. Raises LookupNeeded without an answer."""
        if answer is not None:
            return answer.resource
        key = (set_name, relative)
        card = self._cards.get(key) or self._from_older(key)
        if card is not None:
            return card
        resource = self._ahead.pop(key, None)
        if resource is not None:
            self._used += 1
            return resource
        return self._look_up(set_name, relative)

    def card(
        self,
        set_name: str,
        relative: str,
        found: ResourceHeaders | Resource,
        file: OpenFile,
        answer: LookupResult | None = None,
    ) -> ResourceHeaders | None:
        """The card of an open file, given what `find` said; None when the set no longer holds the resource.

        Raises LookupNeeded without an answer.
        """
        if isinstance(found, ResourceHeaders):
            if found.state == file.key:
                return found
            resource, matches = self._get(set_name, relative), False
        else:
            resource, matches = found, file.matches(found.memo)
            if not matches and answer is None:  # what was read ahead may be old
                resource = self._get(set_name, relative)
        if resource is None:
            self._cards.pop((set_name, relative), None)
            return None
        made = _made(resource, file, self._links[set_name], known=matches or file.matches(resource.memo))
        if made.is_strong:
            self._keep((set_name, relative), made)
        return made

    def _from_older(self, key: tuple[str, str]) -> ResourceHeaders | None:
        """Whatever is asked for again lives on; what is not goes with its generation."""
        card = self._older.pop(key, None)
        if card is not None:
            self._keep(key, card)
        return card

    def _keep(self, key: tuple[str, str], card: ResourceHeaders) -> None:
        if len(self._cards) >= KEPT:
            self._older, self._cards = self._cards, {}
        self._cards[key] = card

    def _get(self, set_name: str, relative: str) -> Resource | None:
        if self._catalog.is_remote:
            raise LookupNeeded
        return self._catalog.get(set_name, [relative]).get(relative)

    def _look_up(self, set_name: str, relative: str) -> Resource | None:
        resource = self._get(set_name, relative)
        if resource is not None and self.ahead_pays(1):
            self.keep_ahead(set_name, self._catalog.resources(set_name, relative, AHEAD))
        return resource

    def keep_ahead(self, set_name: str, following: Sequence[Resource]) -> None:
        """Keep what was read ahead until it is asked for."""
        if len(self._ahead) >= KEPT_AHEAD:
            self._ahead.clear()
        self._ahead |= {(set_name, one.uri): one for one in following if (set_name, one.uri) not in self._cards}
        self._brought += len(following)

    def taken_ahead(self, set_name: str, relative: str) -> Resource | None:
        """What was read ahead of a resource, which is asked for now."""
        resource = self._ahead.pop((set_name, relative), None)
        self._used += resource is not None
        return resource

    def ahead_pays(self, misses: int) -> bool:
        """Whether to read ahead after so many look-ups, by experience."""
        before = self._misses
        self._misses += misses
        if self._brought > 4 * _TRIAL:  # old experience fades
            self._brought, self._used = self._brought // 2, self._used // 2
        by_chance = before // 64 != self._misses // 64
        return self._brought < _TRIAL or self._used * _PAYS >= self._brought or by_chance


def _made(resource: Resource, file: OpenFile, link: Head, *, known: bool) -> ResourceHeaders:
    """The card of an open file; `known`: its octets are those that were hashed."""
    state, stated = file.state, resource.metadata
    # No date in the future (RFC 9110 8.8.2.1), which a file's time may well be.
    second = min(state.st_mtime_ns // 1_000_000_000, int(time.time()))
    digest = _DIGEST.search(stated.hash) if known and stated.hash else None
    if digest:
        etag = b'"%s"' % digest[1].encode("ascii")
    else:
        # With the change time: the same size under a restored modification time is another state.
        etag = b'W/"%x-%x-%x-%x"' % (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino)
    unchanged = _UNCHANGED % (etag, _http_date(second), link)
    before = b"%scontent-length: %d\r\n" % (content_lines(stated.type, stated.encoding), state.st_size)
    tag, start = len(before) + len(b"etag: "), len(before)
    return ResourceHeaders(
        file.key,
        digest is not None,
        second,
        before + unchanged + _AFTER,
        (tag, tag + len(etag)),
        (start, start + len(unchanged)),
    )


@lru_cache(maxsize=1024)
def _http_date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode("ascii")


@lru_cache(maxsize=1024)
def content_lines(kind: str | None, encoding: str | None) -> Head:
    """What the catalog says of the content; what would end the line is no media type and no coding."""
    said = ((b"content-type", kind or "application/octet-stream"), (b"content-encoding", encoding or ""))
    values = ((name, text.encode("latin-1", "replace")) for name, text in said if text)
    return b"".join(line(name, value) for name, value in values if not _CONTROL.search(value))
