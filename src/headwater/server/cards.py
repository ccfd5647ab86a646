"""What is said of a resource before its octets: looked up once, and good for as long as the file stays as it was.

A card is made for a file in one state (size, times, inode). Whoever asks again for the same file in the same state gets
the same headers, whatever else the catalog has learnt since; a file in another state is looked up again. Destinations
ask for resources in the order of the list, so a look-up brings the next ones along, as long as that pays.
"""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from functools import lru_cache

import msgspec

from headwater.catalog.interface import Catalog, Resource
from headwater.server.files import OpenFile
from headwater.server.replies import Head, line

KEPT = 4_096
AHEAD = 128
"""How many resources a look-up brings along."""
_TRIAL = 512
"""How many of them are brought before it is judged whether they are asked for."""
_PAYS = 8
"""One in so many must be: reading a row ahead costs about a tenth of a look-up."""

_UNCHANGED = b"etag: %s\r\nlast-modified: %s\r\ncache-control: public, max-age=60, must-revalidate\r\n%s"
_WHOLE = b"%scontent-length: %d\r\n%saccept-ranges: bytes\r\nx-content-type-options: nosniff\r\n"
_DIGEST = re.compile(r"sha-256:([0-9A-Za-z]{64})")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class Card(msgspec.Struct, frozen=True, gc=False):
    """The heads of one file in one state. `is_strong`: the tag is the digest of exactly these octets."""

    state: tuple[int, int, int, int]
    etag: bytes
    is_strong: bool
    modified_second: int
    head: Head
    unchanged: Head


class Cards:
    """The cards of a source's resources. Belongs to one thread."""

    def __init__(self, catalog: Catalog, links: dict[str, Head]) -> None:
        self._catalog = catalog
        self._links = links
        self._cards: dict[tuple[str, str], Card] = {}
        self._ahead: dict[tuple[str, str], Resource] = {}
        self._brought = 0
        self._used = 0
        self._misses = 0

    def find(self, set_name: str, relative: str) -> Card | Resource | None:
        """What is known of a resource, or None when the set does not hold it."""
        key = (set_name, relative)
        card = self._cards.get(key)
        if card is not None:
            return card
        resource = self._ahead.pop(key, None)
        if resource is not None:
            self._used += 1
            return resource
        return self._look_up(set_name, relative)

    def card(self, set_name: str, relative: str, found: Card | Resource, file: OpenFile) -> Card | None:
        """The card of an open file, given what `find` said; None when the set no longer holds the resource."""
        if isinstance(found, Card):
            if found.state == file.key:
                return found
            resource, matches = self._get(set_name, relative), False
        else:
            resource, matches = found, file.matches(found.memo)
            if not matches:  # what was read ahead may be old
                resource = self._get(set_name, relative)
        if resource is None:
            self._cards.pop((set_name, relative), None)
            return None
        made = _made(resource, file, self._links[set_name], known=matches or file.matches(resource.memo))
        if made.is_strong:
            if len(self._cards) >= KEPT:
                self._cards.clear()
            self._cards[set_name, relative] = made
        return made

    def _get(self, set_name: str, relative: str) -> Resource | None:
        return self._catalog.get(set_name, [relative]).get(relative)

    def _look_up(self, set_name: str, relative: str) -> Resource | None:
        resource = self._get(set_name, relative)
        self._misses += 1
        if resource is not None and self._ahead_pays():
            if len(self._ahead) >= KEPT:
                self._ahead.clear()
            following = self._catalog.resources(set_name, relative, AHEAD)
            self._ahead |= {(set_name, one.uri): one for one in following if (set_name, one.uri) not in self._cards}
            self._brought += len(following)
        return resource

    def _ahead_pays(self) -> bool:
        if self._brought > 4 * _TRIAL:  # old experience fades
            self._brought, self._used = self._brought // 2, self._used // 2
        return self._brought < _TRIAL or self._used * _PAYS >= self._brought or self._misses % 64 == 0


def _made(resource: Resource, file: OpenFile, link: Head, *, known: bool) -> Card:
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
    head = _WHOLE % (content_lines(stated.type, stated.encoding), state.st_size, unchanged)
    return Card(file.key, etag, digest is not None, second, head, unchanged)


@lru_cache(maxsize=1024)
def _http_date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode("ascii")


@lru_cache(maxsize=1024)
def content_lines(kind: str | None, encoding: str | None) -> Head:
    """What the catalog says of the content; what would end the line is no media type and no coding."""
    said = ((b"content-type", kind or "application/octet-stream"), (b"content-encoding", encoding or ""))
    values = ((name, text.encode("latin-1", "replace")) for name, text in said if text)
    return b"".join(line(name, value) for name, value in values if not _CONTROL.search(value))
