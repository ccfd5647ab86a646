"""What the files of a copy come to in a set of the source, and how far the journal of the copy has been read for it.

Decisions over values and the rows of the position; `source.published_copy` reads the copy and records.
"""

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Final, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, Metadata, RowKey, StateRow
from headwater.catalog.page_filling import LONGEST_URI
from headwater.copy_state import (
    CopiedFile,
    CopiedSet,
    CopyStateReader,
    JournalEnd,
    journal_end,
    noted_counts,
    path_noted,
)
from headwater.errors import HeadwaterError, StoreFault
from headwater.files.folder_marks import leads_inside
from headwater.ingest.recording import is_acceptable
from headwater.spec.kinds import PATCH
from headwater.spec.records import HEX_LENGTH, Extra, Link, parse_hash
from headwater.spec.times import from_microseconds
from headwater.spec.uris import normalise, quote_path
from headwater.typed_decoding import from_msgpack, json_decoder

# What is said of a file of a copy: URI, metadata and links, by what the origin stated and what was verified

VIA: Final = "via"

NOT_OURS: Final = frozenset(
    # of the origin's own resource and its versions (RS-REL-03, 04, 08 to 11; RFC 7089)
    {"canonical", "collection", PATCH, "memento", "timegate", "timemap", "original", "self", "edit", "edit-media"}
    | {"first", "last", "prev", "next"}  # a place in a row of the origin's resources
    | {"up", "index", "contents", "archives"}  # from documents and packages of the origin (RS-LN-01, RS-REL-13)
    | {"resourcesync"}  # our resources lead to our own Capability List (RS-DISC-04)
)
"""The relations that are not passed on; all others are: `duplicate` (mirrors have the same octets, whoever lists them),
`alternate`, `describedby`, `describes`, `profile`, and whatever else is said of the content."""

_LEADS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]")


def passed_on(links: Iterable[Link], came_from: Link, own_uri: str) -> tuple[Link, ...]:
    """The links of a resource of ours at `own_uri`, given those of the entry that it was copied by.

    `came_from` is the `via` that is added where there is none.
    """
    kept: list[Link] = []
    for link in links:
        relation = link.rel if ":" in link.rel else link.rel.lower()
        is_own = relation == "duplicate" and link.href == own_uri  # no mirror of itself
        if _LEADS.match(link.href) and relation not in NOT_OURS and not is_own:
            # a path in a package of the origin is none in ours (RS-MD-10)
            kept.append(link if link.path is None else msgspec.structs.replace(link, path=None))
    if not any(link.rel.lower() == VIA for link in kept):
        kept.append(came_from)
    return tuple(kept)


def leads_home(links: Iterable[Link], base_url: str) -> bool:
    """Whether a resource came from below this address in the end: then it goes in a circle."""
    home = normalise(base_url.rstrip("/") + "/")
    return any(link.rel.lower() == VIA and (normalise(link.href) + "/").startswith(home) for link in links)


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


def sayable(uri: str, stated: Metadata) -> Metadata | None:
    """The metadata as a document of ours can hold them; None when not even the octets and where they came from can be.

    A source may state anything; one value that cannot be written must not hold up all others.
    """
    via = tuple(Link(rel=VIA, href=one.href) for one in stated.links if one.rel.lower() == VIA)[:1]
    plain = Metadata(lastmod=stated.lastmod, hash=stated.hash, length=stated.length)
    tried = (stated, msgspec.structs.replace(plain, links=via), plain)
    return next((one for one in tried if is_acceptable(uri, one)), None)


def _moment(microseconds: int | None) -> dt.datetime | None:
    try:
        return None if microseconds is None else from_microseconds(microseconds)
    except OverflowError:
        return None


# The position

KIND = "copy"
KEY: RowKey = (KIND, "position")
FAULT_KEY: RowKey = (KIND, "fault")


class CopyPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a set has been read: entry `seq`, of `path`, of the journal of this id, for the copy's set `set_id`.

    `is_partial`: what is not held has not been looked for yet, so a comparison has to follow. `origin` is the
    Capability List of the set at its source, `place` the copy's folder, for who wants to know.
    """

    journal: str
    set_id: int
    folder: str
    origin: str
    place: str = ""
    seq: int
    path: bytes | None = None
    is_partial: bool = False

    def row(self) -> StateRow:
        """The row that keeps it."""
        return StateRow(*KEY, msgspec.msgpack.encode(self))


def position_at(end: JournalEnd, copied: CopiedSet, place: str = "") -> CopyPosition:
    """The position of who has looked at everything that this state of the copy holds of a set."""
    return CopyPosition(
        journal=end.id,
        set_id=copied.id,
        folder=copied.folder,
        origin=copied.identity,
        place=place,
        seq=end.last,
        path=end.path,
    )


def leads_to(position: CopyPosition, end: JournalEnd, copied: CopiedSet | None, noted: bytes | None) -> bool:
    """Whether the journal leads from a position to what a copy now holds; else all of it is compared.

    `noted` is the path of the position's entry, if it is kept. A set that the copy has forgotten (`copied` None) is
    followed by the journal to its end.
    """
    if copied is not None:
        if (copied.id, copied.folder) != (position.set_id, position.folder):
            return False
        if position.is_partial and copied.is_whole:
            return False
    return leads_on(position, end, noted)


def leads_on(position: CopyPosition, end: JournalEnd, noted: bytes | None) -> bool:
    """Whether the journal has all that came after a position: it is that of the same state, and no entry is missing.

    A state that was brought back from a copy has the same id and another entry in the position's place, or none yet.
    """
    if position.journal != end.id or position.seq > end.last:
        return False
    if position.seq == 0:
        return end.first <= 1
    return position.seq >= end.first and noted == position.path


class CopyLag(msgspec.Struct, frozen=True, kw_only=True):
    """A set that publishes the copy in the folder `copy`, of the set whose Capability List at its source is `origin`.

    `waiting`: changes of the copy that are not recorded yet; None where that cannot be told from here, as `fault` says,
    or where all is to be compared. While none was ever read, `copy` and `origin` are empty.
    """

    set: str
    copy: str
    origin: str
    waiting: int | None
    fault: str | None = None


def copy_lags(catalog: Catalog, names: Collection[str] = ()) -> Iterator[CopyLag]:
    """The sets of a catalog that publish copies, by name; all, where none is named."""
    for name in sorted(catalog.sets_with_rows(KIND)):
        rows = catalog.rows(name, [KEY, FAULT_KEY])
        if not rows or (names and name not in names):
            continue
        told = rows[FAULT_KEY].value.decode("utf-8", "replace") if FAULT_KEY in rows else None
        if KEY not in rows:
            yield CopyLag(set=name, copy="", origin="", waiting=None, fault=told)
            continue
        position = from_msgpack(rows[KEY].value, CopyPosition)
        lag = CopyLag(set=name, copy=position.place, origin=position.origin, waiting=None, fault=told)
        try:
            with closing(CopyStateReader(position.place)) as state, state.read() as t:
                if leads_on(position, journal_end(t), path_noted(t, position.seq)):
                    lag = msgspec.structs.replace(lag, waiting=noted_counts(t, position.seq).get(position.set_id, 0))
        except HeadwaterError as fault:
            lag = msgspec.structs.replace(lag, fault=fault.what)
        yield lag


def chosen(sets: Iterable[CopiedSet], wanted: str | None, name: str, position: CopyPosition | None) -> CopiedSet | None:
    """Which set of a copy a set of the source publishes: the one that is named, else that of our name, or the only one.

    One that was renamed at its source is known again by its Capability List. Raises HW-CPY-03 where several could be.
    """
    held = list(sets)
    by_name = {one.name: one for one in held}
    if (found := by_name.get(wanted or name)) is not None:
        return found
    if position is not None and (same := [one for one in held if one.identity == position.origin]):
        return same[0]
    if wanted is not None or not held:
        return None
    if len(held) > 1:
        names = ", ".join(islice(by_name, 5))
        raise StoreFault(f"the copy holds several sets ({names} …), but none is named {name!r}", code="HW-CPY-03")
    return held[0]
