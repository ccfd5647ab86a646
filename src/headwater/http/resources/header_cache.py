"""The cache of response headers of files: looked up once, good for as long as the file stays as it was.

They are made for a file in one state (size, times, inode). Whoever asks again for the same file in the same state gets
the same headers, whatever else the catalog has learnt since; a file in another state is looked up again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from functools import lru_cache

import msgspec

from headwater.catalog.interface import Catalog, Resource
from headwater.http.resources.read_ahead_buffer import AHEAD, ReadAheadBuffer
from headwater.http.responses import Head, line
from headwater.ingest.content import OpenFile

KEPT = 32_768
"""Entries of one generation; there are two, and an entry takes about 900 octets."""

_UNCHANGED = b"etag: %s\r\nlast-modified: %s\r\ncache-control: public, max-age=60, must-revalidate\r\n%s"
_AFTER = b"accept-ranges: bytes\r\nx-content-type-options: nosniff\r\n"
_DIGEST = re.compile(r"sha-256:([0-9A-Za-z]{64})")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class ResourceHeaders(msgspec.Struct, frozen=True, gc=False):
    """The head of one file in one state. `is_strong`: the tag is the digest of exactly these octets.

    `is_known`: the octets are those that were recorded.
    """

    state: tuple[int, int, int, int]
    is_known: bool
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
    """The catalog has to be asked, and that may wait for the network: ask `BatchLookup`, then come again."""


class LookupResult(msgspec.Struct, frozen=True, gc=False):
    """What the catalog has said of a resource since it was asked for; None: the set does not hold it."""

    resource: Resource | None
    verified: tuple[int, int, int, int] | None = None
    """The state of the file that was compared with the recorded digest, and is the recorded one."""


class ResourceHeaderCache:
    """The headers of a source's resources. Belongs to one thread."""

    def __init__(self, catalog: Catalog, links: dict[str, Head]) -> None:
        self.own_links: Callable[[str, str], Head] = lambda _set_name, _relative: b""
        """The header lines of one resource alone."""
        self._catalog = catalog
        self._links = links
        self._headers: dict[tuple[str, str], ResourceHeaders] = {}
        self._older: dict[tuple[str, str], ResourceHeaders] = {}
        self.read_ahead = ReadAheadBuffer()

    def find(
        self, set_name: str, relative: str, answer: LookupResult | None = None
    ) -> ResourceHeaders | Resource | None:
        """What is known of a resource, or None when the set does not hold it. Raises LookupNeeded without an answer."""
        if answer is not None:
            return answer.resource
        key = (set_name, relative)
        headers = self._headers.get(key) or self._from_older(key)
        if headers is not None:
            return headers
        return self.read_ahead.take(set_name, relative) or self._look_up(set_name, relative)

    def headers_of(
        self,
        set_name: str,
        relative: str,
        found: ResourceHeaders | Resource,
        file: OpenFile,
        answer: LookupResult | None = None,
    ) -> ResourceHeaders | None:
        """The headers of an open file, given what `find` said; None when the set no longer holds the resource.

        Raises LookupNeeded without an answer. `is_verified` of an answer: the octets were compared with the digest.
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
            self._headers.pop((set_name, relative), None)
            return None
        is_verified = answer is not None and answer.verified == file.key
        known = matches or is_verified or file.matches(resource.memo)
        links = self._links[set_name] + self.own_links(set_name, relative)
        made = _made(resource, file, links, known=known)
        if made.is_known and (made.is_strong or is_verified):
            self._keep((set_name, relative), made)
        return made

    def _from_older(self, key: tuple[str, str]) -> ResourceHeaders | None:
        """Whatever is asked for again lives on; what is not goes with its generation."""
        headers = self._older.pop(key, None)
        if headers is not None:
            self._keep(key, headers)
        return headers

    def _keep(self, key: tuple[str, str], headers: ResourceHeaders) -> None:
        if len(self._headers) >= KEPT:
            self._older, self._headers = self._headers, {}
        self._headers[key] = headers

    def _get(self, set_name: str, relative: str) -> Resource | None:
        if self._catalog.is_remote:
            raise LookupNeeded
        return self._catalog.get(set_name, [relative]).get(relative)

    def _look_up(self, set_name: str, relative: str) -> Resource | None:
        resource = self._get(set_name, relative)
        if resource is not None and self.read_ahead.pays(1):
            self.keep_ahead(set_name, self._catalog.resources(set_name, relative, AHEAD))
        return resource

    def keep_ahead(self, set_name: str, rows: Sequence[Resource]) -> None:
        """Keep what was read ahead until it is asked for, unless its headers are there."""
        self.read_ahead.keep(set_name, rows, self._headers)


def _made(resource: Resource, file: OpenFile, link: Head, *, known: bool) -> ResourceHeaders:
    """The headers of an open file; `known`: its octets are those that were hashed."""
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
        known,
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
