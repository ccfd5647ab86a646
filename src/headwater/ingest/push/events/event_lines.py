"""Events as lines of JSON: the one definition of what `POST /S/changes` and `headwater ingest events` take.

An announcement is our own format, so it is read strictly: an unknown field or a value that could not be published
refuses the line (BadEvent) and says why. Pure: octets in, values out. docs/ingest.md describes it.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, ClassVar, Final

import msgspec

from headwater.catalog.interface import Metadata
from headwater.errors import UsageFault
from headwater.ingest.push.events.decoding_faults import in_plain_words
from headwater.ingest.push.inverse_links import Statement, statements_of
from headwater.ingest.push.resource_locations import Locations
from headwater.spec.datetimes import Leniency, parse_datetime
from headwater.spec.hashes import parse_hash
from headwater.spec.records import ChangeKind, Link
from headwater.spec.timestamps import from_microseconds, to_microseconds
from headwater.typed_decoding import json_decoder

MOST_LINKS: Final = 500
MOST_ATTRIBUTES: Final = 100
Length = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Priority = Annotated[int, msgspec.Meta(ge=1, le=999_999)]


class BadEvent(UsageFault):
    """A line is not an announcement: not JSON, an unknown field, or a value that no document could have."""

    code: ClassVar[str] = "HW-ING-42"
    advice: ClassVar[str] = "docs/ingest.md describes the lines; correct this one and send it again."


class AnnouncedLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One link of the resource: `rel` leads to `href`; the rest is about what it leads to (RS-LN-01…06)."""

    rel: str
    href: str
    encoding: str | None = None
    hash: str | None = None
    length: Length | None = None
    modified: str | None = None
    pri: Priority | None = None
    type: str | None = None


class Announcement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line: a resource, by `uri` or by `path` below the set's prefix, and what is true of it now.

    Without `change` it exists from now on, and is logged when that is news. `created` and `updated` are always logged,
    as what they really were; `deleted` needs no more than the name. `hash` is written as in documents
    (`sha-256:… md5:…`); the fields named after algorithms hold bare hex. `attributes` are of other namespaces, by
    `{namespace}name` (RS-DOC-13).
    """

    uri: str | None = None
    path: str | None = None
    change: ChangeKind | None = None
    lastmod: str | None = None
    hash: str | None = None
    md5: str | None = None
    sha1: str | None = msgspec.field(default=None, name="sha-1")
    sha256: str | None = msgspec.field(default=None, name="sha-256")
    sha384: str | None = msgspec.field(default=None, name="sha-384")
    sha512: str | None = msgspec.field(default=None, name="sha-512")
    length: Length | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[AnnouncedLink, ...] | None = None
    attributes: dict[str, str] | None = None


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """One announcement in the catalog's terms: `metadata` None is a deletion."""

    uri: str
    change: ChangeKind | None
    metadata: Metadata | None
    statements: tuple[Statement, ...] = ()


_decode = json_decoder(Announcement)


def read_announcement(line: bytes, locations: Locations) -> Announced:
    """What a line announces. Raises BadEvent and BadLocation."""
    try:
        told = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadEvent(in_plain_words(str(cause), Announcement)[:300]) from cause
    if (told.uri is None) == (told.path is None):
        raise BadEvent("one of uri and path names the resource")
    uri = locations.url(told.uri) if told.uri is not None else locations.relative_path(told.path or "")
    if told.change is ChangeKind.DELETED:
        return Announced(uri=uri, change=told.change, metadata=None)
    if len(told.links or ()) > MOST_LINKS:
        raise BadEvent(f"more than {MOST_LINKS} links")
    if len(told.attributes or ()) > MOST_ATTRIBUTES:
        raise BadEvent(f"more than {MOST_ATTRIBUTES} attributes")
    links = tuple(_link(one, locations) for one in told.links or ())
    metadata = Metadata(
        lastmod=_time(told.lastmod),
        hash=_digests(told),
        length=told.length,
        type=told.type.partition(";")[0].strip().lower() if told.type is not None else None,
        encoding=told.encoding,
        changefreq=told.changefreq,
        links=links,
        extra=tuple((told.attributes or {}).items()),
    )
    return Announced(uri=uri, change=told.change, metadata=metadata, statements=statements_of(links, locations.link))


def _link(told: AnnouncedLink, locations: Locations) -> Link:
    return Link(
        rel=told.rel,
        href=locations.absolute(locations.link(told.href)),
        encoding=told.encoding,
        hash=_hash([told.hash] if told.hash else []),
        length=told.length,
        modified=_time(told.modified),
        pri=told.pri,
        type=told.type,
    )


def _digests(told: Announcement) -> str | None:
    named = {
        "md5": told.md5,
        "sha-1": told.sha1,
        "sha-256": told.sha256,
        "sha-384": told.sha384,
        "sha-512": told.sha512,
    }
    items = [] if told.hash is None else told.hash.split()
    items += [f"{algorithm}:{digest.strip()}" for algorithm, digest in named.items() if digest is not None]
    return _hash(items)


def _hash(items: list[str]) -> str | None:
    read = parse_hash(" ".join(items))
    if read.unreadable:
        raise BadEvent(f"not a digest: {read.unreadable[0][:100]!a}", rule="RS-MD-05")
    if read.contradictory:
        raise BadEvent(f"two different digests of one algorithm: {read.contradictory[0][:100]!a}", rule="AMB-32")
    return " ".join(map(str, read.digests)) or None


def _time(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        moment, forgiven = parse_datetime(text)
    except ValueError as cause:
        raise BadEvent(str(cause), rule="RS-TIME-01") from cause
    if Leniency.NO_ZONE in forgiven:
        raise BadEvent(f"a time without a zone: {text[:40]!a}", rule="RS-TIME-01")
    return from_microseconds(to_microseconds(moment))  # a coarse time is its start
