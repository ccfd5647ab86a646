"""What a source says of a file of a copy: URI, metadata and links, by what the origin stated and what was verified."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from headwater.catalog.interface import Metadata, Upsert
from headwater.catalog.page_filling import LONGEST_URI
from headwater.copy_state import CopiedFile
from headwater.files.folder_marks import leads_inside
from headwater.ingest.recording import is_acceptable
from headwater.spec.kinds import PATCH
from headwater.spec.records import HEX_LENGTH, Extra, Link, parse_hash
from headwater.spec.times import from_microseconds
from headwater.spec.uris import normalise, quote_path
from headwater.typed_decoding import json_decoder

VIA: Final = "via"

NOT_OURS: Final = {
    "canonical": "our URI is no variant of the origin's generic one (RS-REL-03)",
    "collection": "whether it belongs to a collection is said of the origin's resource (RS-REL-11)",
    PATCH: "patches lead from one state to the next of the origin's own history (RS-REL-04)",
    "memento": "versions are those of the origin's URI (RS-REL-08)",
    "timegate": "the same (RS-REL-09)",
    "timemap": "the same (RS-REL-10)",
    "original": "the same (RFC 7089)",
    "first": "a place in a row of the origin's resources",
    "last": "the same",
    "prev": "the same",
    "next": "the same",
    "self": "our resource is not the origin's",
    "edit": "ours is not edited there",
    "edit-media": "the same",
    "up": "leads from document to document of the origin (RS-LN-01)",
    "index": "the same",
    "contents": "of packages of the origin (RS-REL-13)",
    "archives": "of documents of the origin",
    "resourcesync": "our resources lead to our own Capability List (RS-DISC-04)",
}
"""The relations that are not passed on, each with why; all others are: `duplicate` (mirrors have the same octets,
whoever lists them), `alternate`, `describedby`, `describes`, `profile`, and whatever else is said of the content."""

_LEADS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]")


def passed_on(links: Iterable[Link], came_from: Link, own_uri: str) -> tuple[Link, ...]:
    """The links of a resource of ours at `own_uri`, given those of the entry that it was copied by.

    `came_from` is the `via` that is added where there is none.
    """
    given = [link for link in links if _LEADS.match(link.href)]
    kept = [_outside_packages(link) for link in given if _is_passed_on(link, own_uri)]
    if not any(link.rel.lower() == VIA for link in kept):
        kept.append(came_from)
    return tuple(kept)


def leads_home(links: Iterable[Link], base_url: str) -> bool:
    """Whether a resource came from below this address in the end: then it goes in a circle."""
    home = normalise(base_url.rstrip("/") + "/")
    return any(link.rel.lower() == VIA and (normalise(link.href) + "/").startswith(home) for link in links)


def _is_passed_on(link: Link, own_uri: str) -> bool:
    relation = link.rel if ":" in link.rel else link.rel.lower()
    if relation == "duplicate" and link.href == own_uri:
        return False  # no mirror of itself
    return relation not in NOT_OURS


def _outside_packages(link: Link) -> Link:
    """A path in a package of the origin is none in ours (RS-MD-10)."""
    return link if link.path is None else msgspec.structs.replace(link, path=None)


_links = json_decoder(tuple[Link, ...])
_extra = json_decoder(Extra)
T = TypeVar("T")


def relative_path(path: bytes, folder: str) -> bytes | None:
    """The path of a file of a copy below the folder of its set; None for one that is no path of a resource there.

    The state may have been written by anybody: no name leads up, out of the folder, or to a state.
    """
    prefix = folder.encode("utf-8", "surrogateescape") + b"/" if folder else b""
    if not path.startswith(prefix):
        return None
    below = path[len(prefix) :]
    return below if leads_inside(below) else None


def relative_uri(path: bytes) -> str | None:
    """The URI of a file below its set's prefix; None for one that no document can hold."""
    uri = quote_path(path)
    return uri if len(uri) <= LONGEST_URI else None


def metadata_of(file: CopiedFile, own_uri: str) -> Metadata:
    """What our entry says: the origin's statements as far as they hold for our resource (RS-TIME-13, RS-REL-20)."""
    return Metadata(
        lastmod=_moment(file.lastmod),
        hash=verified_hash(file.listed_hash, file.digest),
        length=file.size,
        type=file.type,
        encoding=file.encoding,
        links=passed_on(_stated(file.links, _links), _came_from(file), own_uri),
        extra=_stated(file.extra, _extra),
    )


def origin_of(file: CopiedFile) -> Link:
    """The `via` of the entry that a file was copied by, else its own resource there."""
    stated = _stated(file.links, _links)
    return next((one for one in stated if one.rel.lower() == VIA), _came_from(file))


def _came_from(file: CopiedFile) -> Link:
    return Link(
        rel=VIA,
        href=file.loc or file.uri,
        modified=_moment(file.lastmod),
        hash=file.listed_hash,
        length=file.listed_length,
        type=file.type,
    )


def _stated(text: str | None, decode: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
    """What the origin's entry had, links or attributes of other namespaces (RS-DOC-13); nothing if it is unreadable."""
    try:
        return decode(text) if text else ()
    except (msgspec.DecodeError, UnicodeError):
        return ()


def verified_hash(listed: str | None, digest: str | None) -> str | None:
    """The listed digests when the octets were verified by one of them, else the one that was computed meanwhile."""
    if digest is None:
        return None
    stated = parse_hash(listed).digests if listed else ()
    if digest in map(str, stated):
        return " ".join(str(one) for one in stated if one.algorithm in HEX_LENGTH)
    return digest


def acceptable(event: Upsert) -> Upsert | None:
    """The event without what no document of ours may hold; None when nothing is left that can be said.

    A source may state anything; one value that cannot be written must not hold up all others.
    """
    stated = event.metadata
    links = tuple(one for link in stated.links if (one := _acceptable_link(link)) is not None)
    metadata = Metadata(
        lastmod=stated.lastmod,
        hash=_if_taken(stated.hash, Metadata(hash=stated.hash)),
        length=stated.length,
        type=_if_taken(stated.type, Metadata(type=stated.type)),
        encoding=_if_taken(stated.encoding, Metadata(encoding=stated.encoding)),
        links=links,
        extra=stated.extra if is_acceptable("a", Metadata(extra=stated.extra)) else (),
    )
    taken = msgspec.structs.replace(event, metadata=metadata)
    return taken if is_acceptable(event.uri, metadata) else None


def _acceptable_link(link: Link) -> Link | None:
    if is_acceptable("a", Metadata(links=(link,))):
        return link
    plain = Link(rel=link.rel, href=link.href)  # an attribute is in the way, or else nothing can be done
    return plain if is_acceptable("a", Metadata(links=(plain,))) else None


def _if_taken(value: T, metadata: Metadata) -> T | None:
    return value if is_acceptable("a", metadata) else None


def _moment(microseconds: int | None) -> dt.datetime | None:
    try:
        return None if microseconds is None else from_microseconds(microseconds)
    except OverflowError:
        return None
