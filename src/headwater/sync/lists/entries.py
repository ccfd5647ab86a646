"""Staged rows from entries: the normalised URI, the metadata listed, and whether the scope lets it in.

Which links of an entry are kept is decided here alone (`KEPT_RELATIONS`). `ListContext` is what readers of lists share.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headwater.progress import Listener
from headwater.spec.extensions import CANONICAL, canonical_digest
from headwater.spec.kinds import PATCH
from headwater.spec.records import Entry, Extra, Link
from headwater.spec.uris import normalise
from headwater.storage.database import Database
from headwater.storage.transaction import Row, Transaction
from headwater.sync.filters import REFUSALS, Origin, Scope, origin_of
from headwater.sync.lists.documents import ListDocuments
from headwater.sync.source_times import micros
from headwater.typed_decoding import json_decoder

_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*\Z")
_PLAIN_LINES = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/?\n]*\Z")
_LOWEST_PRIORITY = 999_999
_ANY_HOST = Scope(frozenset(), any_host=True)  # mirrors are exempt from the scope, and from nothing else (DST-S12)

KEPT_RELATIONS = {"duplicate": 20, PATCH: 4}
"""The relations by which something is fetched, and how many links of each are kept at most; they come first, best `pri`
first. A relation by which something is to be fetched needs a line here, and no column anywhere.
"""

_OTHER_LINKS = 50
"""So many links of other relations are kept beside them, in document order, for whoever publishes the copy (DST-S9)."""

_LONGEST_KEPT = 1 << 16
"""Characters of all links of an entry together, and of its foreign attributes; further ones are not kept."""


def _as_text(value: object) -> str:
    """A time that was written coarser than a second, which the encoder does not know."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise NotImplementedError


_ENCODER = msgspec.json.Encoder(enc_hook=_as_text)
_links_from = json_decoder(list[Link])
_extra_from = json_decoder(Extra)


class StagedEntry(NamedTuple):
    """The staged row of one entry; the fields are columns of `temp.listed` and of `temp.changed`."""

    uri: str
    loc: str | None
    """None: as `uri`."""

    lastmod: int | None
    length: int | None
    hash: str | None
    type: str | None
    encoding: str | None
    links: str | None
    """The links that are kept, as JSON (`links_of`)."""

    extra: str | None
    """The attributes of other namespaces, as JSON (RS-MD-14)."""

    refused: int
    """0: it is not; else which of `REFUSALS` it is, from 1 on."""


STAGED_COLUMNS = ", ".join(StagedEntry._fields)
STAGED_VALUES = ", ".join("?" * len(StagedEntry._fields))
STAGE_LISTED = f"INSERT INTO temp.listed({STAGED_COLUMNS}) VALUES ({STAGED_VALUES})"  # noqa: S608  our own names


class ListContext(msgspec.Struct, frozen=True):
    """What the lists of one set are read with: from where, into which state, within which scope, and who is told."""

    documents: ListDocuments
    database: Database
    scope: Scope
    listener: Listener
    types: tuple[str, ...] = ()
    """Media types of alternates that are copied in place of their resources (DST-S3)."""

    restate: Callable[[Transaction, int], None] | None = None
    """Puts changes of a set into another form after they are staged, and before they are folded."""


class EntryFilter:
    """Turns entries into rows. Remembers the origins it has judged, so that the usual entry costs a look-up."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._prefix = self._normal_prefix = "\0"

    def uri(self, loc: str) -> str:
        """The form in which URIs are compared (AMB-08), whether they are in scope or not."""
        if loc.startswith(self._normal_prefix) and _PLAIN.match(loc) and "/." not in loc:
            return loc
        uri = normalise(loc)
        self._normal_prefix = _origin_prefix(uri) or self._normal_prefix
        return uri

    def row(self, entry: Entry) -> StagedEntry:
        """The staged row of one entry."""
        loc = entry.loc
        if loc.startswith(self._prefix) and _PLAIN.match(loc) and "/." not in loc:
            uri, refused = loc, 0
        else:
            uri = normalise(loc)
            refused = self._judge(loc, uri)
        lastmod = entry.lastmod
        return StagedEntry(
            uri,
            None if loc == uri else loc,
            None if lastmod is None else micros(lastmod),
            entry.length,
            entry.hash,
            entry.type,
            entry.encoding,
            kept_links(entry) if entry.links else None,
            _kept_attributes(entry) if entry.extra else None,
            refused,
        )

    def rows(self, entries: Sequence[Entry]) -> Sequence[Row]:
        """The staged rows of entries, quicker where all are usual: of one origin, with nothing to be normalised, and
        without links and foreign attributes."""
        if entries and not entries[0].loc.startswith(self._prefix):
            self._judge(entries[0].loc, normalise(entries[0].loc))  # learns the origin
        lines = "\n".join([entry.loc for entry in entries])
        if (
            not _PLAIN_LINES.match(lines)
            or "/." in lines
            or f"\n{lines}".count(f"\n{self._prefix}") != len(entries)
            or lines.count("\n") != len(entries) - 1
            or any(entry.links or entry.extra for entry in entries)
        ):
            return [self.row(entry) for entry in entries]
        return [(e.loc, None, micros(e.lastmod), e.length, e.hash, e.type, e.encoding, None, None, 0) for e in entries]

    def _judge(self, loc: str, uri: str) -> int:
        refusal = self._scope.refusal(loc)
        if refusal is not None:
            return 1 + REFUSALS.index(refusal)
        self._prefix = _origin_prefix(uri) or self._prefix  # that of the usual entry
        return 0


def _origin_prefix(uri: str) -> str:
    """The origin of a normalised URI, up to and with the slash; empty where there is no slash."""
    return uri[: uri.find("/", uri.find("://") + 3) + 1]


def kept_links(entry: Entry) -> str | None:
    """The links of an entry that are kept, whole, as JSON (RS-LN-03).

    Those by which something is fetched come first: as far as they can be asked for, best `pri` first, each URI once and
    never `loc` itself. Then the others.
    """
    kept: list[Link] = []
    for relation, most in KEPT_RELATIONS.items():
        found = [link for link in entry.links if link.rel == relation and link.href != entry.loc]
        if len(found) > 1:
            found.sort(key=_priority)
        hrefs: set[str] = set()
        for link in found:
            if len(hrefs) >= most:
                break
            if link.href not in hrefs and _ANY_HOST.refusal(link.href) is None:
                hrefs.add(link.href)
                kept.append(link)
    kept += [link for link in entry.links if link.rel not in KEPT_RELATIONS][:_OTHER_LINKS]
    while kept:
        encoded = encode_links(kept)
        if len(encoded) <= _LONGEST_KEPT:
            return encoded
        kept = kept[: len(kept) // 2]
    return None


def encode_links(links: list[Link]) -> str:
    """Links as they are kept."""
    return _ENCODER.encode(links).decode()


def _kept_attributes(entry: Entry) -> str | None:
    encoded = _ENCODER.encode(entry.extra).decode()
    return encoded if len(encoded) <= _LONGEST_KEPT else None


def with_dataset_flag(stated: str | None, held: str) -> str:
    """Attributes as they are kept, with the flag `isDataset` that is held of the resource (TIM-A5)."""
    flag = [pair for pair in _extra_from(held) if pair[0].endswith("isDataset")]
    return _ENCODER.encode([*(_extra_from(stated) if stated else ()), *flag]).decode()


def _priority(link: Link) -> int:
    return link.pri if link.pri is not None else _LOWEST_PRIORITY


def without_links(kept: str, relation: str) -> str | None:
    """What was kept, without the links of one relation."""
    links = [link for link in _links_from(kept) if link.rel != relation]
    return _ENCODER.encode(links).decode() if links else None


def all_links(kept: str) -> list[Link]:
    """The links that were kept."""
    return _links_from(kept)


def links_of(kept: str | None, relation: str) -> list[Link]:
    """The links of one relation among those that were kept, best `pri` first."""
    return [link for link in _links_from(kept) if link.rel == relation] if kept else []


def canonical_hash_of(kept: str | None) -> str | None:
    """The SHA-256 of canonical N-Quads that is stated among the attributes that were kept (docs/extensions.md)."""
    return canonical_digest(_extra_from(kept)) if kept and CANONICAL in kept else None


def scope_origins(*uris: str | None) -> frozenset[Origin]:
    """The origins of the source's documents (DST-S12)."""
    return frozenset(origin for uri in uris if uri and (origin := origin_of(uri)) is not None)


def redirected_origins(moved: Mapping[str, str], *uris: str | None) -> frozenset[Origin]:
    """The same, with the origins to which these documents have `moved` for good."""
    return scope_origins(*uris, *(moved.get(uri) for uri in uris if uri))
