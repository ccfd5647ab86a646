"""The documents of the DIT-ES protocol, `resource` and `change`: read into values, and written of a set of the catalog.

What names the resource or the change must be right, or the document is refused (BadDocument); what only describes it is
left out when it cannot be read, and said in `remarks`. Decoded JSON in, frozen values out (DIT-01…DIT-10).
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.structs import replace

from headwater.catalog.interface import Catalog, Change, Metadata, Resource
from headwater.errors import UsageFault
from headwater.ingest.dit.late_documents import read_note
from headwater.ingest.push.ingest_state import MOST_LINKS, ChangeDocument, ResourceDocument, UnresolvedLink
from headwater.ingest.push.resource_locations import REL_PATH, URL, BadLocation, Location, Locations
from headwater.spec import checks as grammar
from headwater.spec.checks import WriteRefused
from headwater.spec.records import HEX_LENGTH, ChangeKind, Link, parse_hash
from headwater.spec.times import from_microseconds, parse_datetime, to_microseconds
from headwater.spec.uris import to_ascii

RESOURCE: Final = "resource"
CHANGE: Final = "change"

MOST_REMARKS: Final = 20  # what is said of one document at most: a bad one may give cause for a remark in every octet
MOST_KEPT_OCTETS: Final = 16_384  # unknown fields of one document that are kept, as JSON (DIT-A19)

_LONGEST_LENGTH: Final = (1 << 63) - 1
_KNOWN: Final = frozenset(
    {"resource_set", "location", "length", "md5", "hash", "mime", "lastmod", "ln", "timestamp", "change", "datetime"}
    | {"encoding", "changefreq"}
)
_OTHER_DIGEST = re.compile(r"([a-z0-9][a-z0-9.\-]*):[0-9a-f]+").fullmatch
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII).fullmatch
_SPACE = re.compile(r"\s+")


class BadDocument(UsageFault):
    """A document is not of the DIT-ES protocol, or does not name its resource."""

    code = "HW-ING-41"


_DEEPEST = 100  # levels of a document: harvesters need four

DitDocument = ResourceDocument | ChangeDocument


def read_document(source: object, kind: str | None = None, stored_at: object = None) -> DitDocument:
    """What the decoded JSON of one document says; without a `kind` a document with `change` is a change.

    `stored_at` is the time that the index gives where it kept `_timestamp` itself (DIT-09). Raises BadDocument.
    """
    if not isinstance(source, dict):
        raise BadDocument("a document is a JSON object")
    level: list[Any] = [source]
    for _ in range(_DEEPEST):  # what can be decoded cannot always be kept
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    if level:
        raise BadDocument("the document has too many levels")
    remarks: list[str] = []
    name = source.get("resource_set")
    if name is not None and not isinstance(name, str):
        raise BadDocument("resource_set is a text", rule="DIT-05")
    try:
        (name or "").encode()
    except UnicodeEncodeError:
        raise BadDocument(f"resource_set is not Unicode: {name!a:.60}", rule="DIT-05") from None
    location = _location(source.get("location"))
    stored = _time("timestamp", source.get("timestamp", stored_at), remarks)
    if kind is None:
        # A null is nothing to an index; where there is one in place of a change, the other fields tell what was meant.
        is_change = source.get("change") is not None or source.get("datetime") is not None
        described = any(source.get(one) is not None for one in ("length", "md5", "hash", "mime", "ln"))
        kind = CHANGE if is_change or not (described or "change" not in source) else RESOURCE
    if kind == CHANGE:
        return _change_document(source, name, location, stored, remarks)
    return ResourceDocument(
        resource_set=name,
        location=location,
        metadata=_metadata(source, remarks),
        links=_links(source.get("ln"), remarks),
        stored_at=stored,
        kept=_kept(source, remarks),
        remarks=tuple(remarks[:MOST_REMARKS]),
    )


def _change_document(
    source: dict[str, Any], name: str | None, location: Location, stored: dt.datetime | None, remarks: list[str]
) -> ChangeDocument:
    if (value := source.get("change")) is None:
        raise BadDocument("a change document without change: created, updated or deleted", rule="DIT-06")
    try:
        change = ChangeKind(str(value).strip().lower())
    except ValueError:
        raise BadDocument(f"change is created, updated or deleted, not {value!a:.40}", rule="DIT-06") from None
    at = _time("datetime", source.get("datetime"), remarks) or stored
    seq = source.get("seq")
    if (
        not isinstance(seq, int)
        or not 1 <= seq <= _LONGEST_LENGTH
        or not (change is ChangeKind.DELETED or "ln" in source)
    ):
        seq = 0  # a harvester's, which describes nothing
    metadata = _metadata(source, remarks) if seq and change is not ChangeKind.DELETED else None
    return ChangeDocument(
        resource_set=name,
        location=location,
        change=change,
        lastmod=_time("lastmod", source.get("lastmod"), remarks) if metadata is None else metadata.lastmod,
        at=at,
        seq=seq,
        metadata=metadata,
        links=() if metadata is None else _links(source.get("ln"), remarks),
        remarks=tuple(remarks[:MOST_REMARKS]),
    )


def _location(value: object) -> Location:
    if isinstance(value, str):
        return Location(value, URL)
    if not isinstance(value, dict) or not isinstance(text := value.get("value"), str) or not text:
        raise BadDocument("location is an object with value and type", rule="DIT-05")
    kind = value.get("type")
    kind = URL if kind is None else kind
    if not isinstance(kind, str):
        raise BadDocument("the type of a location is a text", rule="DIT-07")
    return Location(text, kind.strip().lower())


def _metadata(source: dict[str, Any], remarks: list[str]) -> Metadata:
    return Metadata(
        lastmod=_time("lastmod", source.get("lastmod"), remarks),
        hash=_digests((*_texts(source.get("hash")), *_texts(source.get("md5"))), remarks),
        length=_length(source.get("length"), remarks),
        type=_written("mime", source.get("mime"), grammar.media_type, remarks),
        encoding=_written("encoding", source.get("encoding"), grammar.token, remarks),
        changefreq=_written("changefreq", source.get("changefreq"), grammar.frequency, remarks),
    )


def _time(name: str, value: object, remarks: list[str]) -> dt.datetime | None:
    """A time as a text of the seed's pattern or of W3C (DIT-08, DIT-A5), or as milliseconds since 1970."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            return from_microseconds(to_microseconds(parse_datetime(value)[0]))  # a coarse time is its start
        if isinstance(value, int | float) and not isinstance(value, bool):
            return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        pass
    remarks.append(f"{name} is not a time: {value!a:.60}")
    return None


def _length(value: object, remarks: list[str]) -> int | None:
    """Octets in 64 bits (DIT-A7), as a number or as its digits."""
    if value is None:
        return None
    if (isinstance(value, str) and _DIGITS(value.strip())) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LONGEST_LENGTH:
        return value
    remarks.append(f"length is not a number of bytes: {value!a:.40}")
    return None


def _texts(value: object) -> Iterable[str]:
    items = value if isinstance(value, list) else [value]
    return (part for item in items if item is not None for part in str(item).replace(",", " ").split())


def _digests(items: Iterable[str], remarks: list[str]) -> str | None:
    """One digest or several, bare or with the algorithm's name, written with it (DIT-A8, DIT-10)."""
    found: dict[str, str] = {}
    for item in items:
        read = parse_hash(item)
        if read.digests:
            found.setdefault(read.digests[0].algorithm, str(read.digests[0]))
        elif (other := _OTHER_DIGEST(item.lower())) and other[1] not in HEX_LENGTH:
            found.setdefault(other[1], other[0])
        else:
            remarks.append(f"md5 is not a digest: {item!a:.80}")
    return " ".join(found.values()) or None


def _written(name: str, value: object, check: Any, remarks: list[str]) -> str | None:
    """A value that a document can hold, or None and a remark; a media type is its essence (AMB-09)."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            check(value.strip())
            return value.partition(";")[0].strip().lower() if name == "mime" else value.strip()
    except WriteRefused:
        pass
    remarks.append(f"{name} cannot be published: {value!a:.60}")
    return None


def _links(value: object, remarks: list[str]) -> tuple[UnresolvedLink, ...]:
    links: list[UnresolvedLink] = []
    for item in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(item, dict):
            remarks.append(f"a link is an object: {item!a:.60}")
            continue
        try:
            href = _location(item.get("href"))
        except BadDocument:
            remarks.append(f"this link has no href: {item!a:.80}")
            continue
        described, pri = _metadata(item, remarks), item.get("pri")
        link = Link(
            rel="",
            href=href.value,
            type=described.type,
            encoding=described.encoding,
            length=described.length,
            hash=described.hash,
            modified=described.lastmod,
            pri=pri if isinstance(pri, int) and not isinstance(pri, bool) and 1 <= pri <= 999_999 else None,
        )
        relations = islice(_relations(item.get("rel"), remarks), MOST_LINKS + 1 - len(links))
        links += ((href, replace(link, rel=rel)) for rel in relations)
        if len(links) > MOST_LINKS:
            remarks.insert(0, f"more than {MOST_LINKS} links: the others were left out")
            break
    return tuple(links[:MOST_LINKS])


def _relations(value: object, remarks: list[str]) -> Iterable[str]:
    """The relations that `rel` names: `described by` is `describedby`, a comma parts two of them (DIT-A17)."""
    if isinstance(value, str):
        items = [value] if ":" in value else value.split(",")
    else:
        items = [one for one in value if isinstance(one, str)] if isinstance(value, list) else [""]
    for text in items:
        name = _SPACE.sub(" ", text.strip())
        if ":" not in name:
            name = name.lower()
        name = "describedby" if name == "described by" else name
        try:
            grammar.relation(name)
            yield to_ascii(name)
        except WriteRefused:
            remarks.append(f"rel is no relation: {text!a:.60}")


def _kept(source: dict[str, Any], remarks: list[str]) -> bytes:
    unknown = {name: value for name, value in source.items() if name not in _KNOWN}
    if not unknown:
        return b""
    try:
        kept = msgspec.json.encode(unknown, order="deterministic")
    except UnicodeEncodeError:
        remarks.append("unknown fields with a text that is not Unicode were not kept")
        return b""
    if len(kept) <= MOST_KEPT_OCTETS:
        return kept
    remarks.append(f"unknown fields of more than {MOST_KEPT_OCTETS:,} octets were not kept")
    return b""


# A set as a harvester would have written it
#
# The resources that have not changed since the set was loaded come first, then the whole log, each change followed by
# its resource where that is still as the change has left it. Nothing of that needs the set to rest: what changes while
# it is written comes once more, with its change, and whoever takes the lines in their order ends with the set as it is.

_BATCH: Final = 1_000
_MD5: Final = "md5:"

Source = dict[str, Any]  # one document as it is encoded


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How documents are written: `prefix` before relative URIs makes them complete URLs; None leaves them as paths.

    Dates have microseconds and `Z`, or with `seed_dates` the seed's pattern `yyyy-MM-dd'T'HH:mm:ssZ`, without a
    fraction (DIT-08, DIT-A5).
    """

    prefix: str | None = None
    seed_dates: bool = False

    def time(self, moment: dt.datetime | None) -> str | None:
        """A time as text."""
        if moment is None:
            return None
        text = moment.astimezone(dt.UTC).replace(tzinfo=None)
        if self.seed_dates:
            return text.isoformat(timespec="seconds") + "+0000"
        return text.isoformat(timespec="microseconds") + "Z"

    def location(self, uri: str) -> Source:
        """`url` when it is complete, else `rel_path`, not percent-encoded (DIT-07). Raises UsageFault."""
        if "://" in uri:
            return {"value": uri, "type": URL}
        if self.prefix is not None:
            return {"value": self.prefix.rstrip("/") + "/" + uri, "type": URL}
        try:
            path = unquote_to_bytes(uri).decode()
            if _PATHS.resolve(Location(path, REL_PATH)) == uri:
                return {"value": path, "type": REL_PATH}
        except (UnicodeDecodeError, BadLocation):
            pass
        raise UsageFault("no path in a document says where this resource is", code="HW-ING-54", where=uri[:200])


class Harvest(msgspec.Struct, kw_only=True):
    """One set's documents as lines, and how many of each kind have been given."""

    name: str
    resources: int = 0
    changes: int = 0

    def lines(self, catalog: Catalog, manner: Manner) -> Iterator[bytes]:
        """Each document with its line's end; bounded memory. Raises UnknownSet, UsageFault, what the catalog raises."""
        snapshot, after = catalog.snapshot_of(self.name), ""
        opened_at = snapshot.state.opened_at
        seq = snapshot.segments[0].first - 1 if snapshot.segments else snapshot.state.last_seq
        while rows := catalog.resources(self.name, after, _BATCH):
            after = rows[-1].uri
            yield from (self._resource(one, opened_at, manner) for one in rows if one.seq <= seq)
        while changes := catalog.changes(self.name, seq, _BATCH):
            seq = changes[-1].seq
            held = catalog.get(self.name, list({one.uri for one in changes}))
            for change in changes:
                self.changes += 1
                yield _line(change_source(self.name, change, manner))
                if (found := held.get(change.uri)) is not None and found.seq == change.seq:
                    yield self._resource(found, change.at, manner)

    def _resource(self, resource: Resource, stored_at: dt.datetime | None, manner: Manner) -> bytes:
        self.resources += 1
        return _line(resource_source(self.name, resource, stored_at, manner))


def resource_source(name: str, resource: Resource, stored_at: dt.datetime | None, manner: Manner) -> Source:
    """The `resource` document (DIT-05) with the unknown fields that the harvester's had (DIT-A19)."""
    kept = read_note(resource.memo).kept
    return {
        **(msgspec.json.decode(kept) if kept else {}),
        "resource_set": name,
        "location": manner.location(resource.uri),
        **_described(resource.metadata, manner),
        **_filled({"timestamp": manner.time(stored_at)}),
    }


def change_source(name: str, change: Change, manner: Manner) -> Source:
    """The `change` document (DIT-06) with its number, and what its resource was at that time (DIT-A13).

    The description and the `seq` say that nothing has to be waited for; a deletion has none (DIT-A21).
    """
    described = {} if change.change is ChangeKind.DELETED else _described(change.metadata, manner)
    return {
        "resource_set": name,
        "location": manner.location(change.uri),
        "change": change.change.value,
        **described,
        "datetime": manner.time(change.at),
        "timestamp": manner.time(change.at),
        "seq": change.seq,
    }


def _described(metadata: Metadata, manner: Manner) -> Source:
    return _filled(
        {
            "length": metadata.length,
            **_stated_digests(metadata.hash),
            "mime": metadata.type,
            "lastmod": manner.time(metadata.lastmod),
            "encoding": metadata.encoding,
            "changefreq": metadata.changefreq,
            "ln": [_link(one, manner) for one in metadata.links],
        }
    )


def _stated_digests(text: str | None) -> Source:
    """The MD5 as `md5`, bare, as the seed has it; `hash` as well where there are others (DIT-A8)."""
    items = (text or "").split()
    md5 = next((one.removeprefix(_MD5) for one in items if one.startswith(_MD5)), None)
    return {"md5": md5, "hash": None if md5 is not None and len(items) == 1 else text}


def _link(link: Link, manner: Manner) -> Source:
    return _filled(
        {
            "rel": link.rel,
            "href": {"value": link.href, "type": URL},
            "length": link.length,
            **_stated_digests(link.hash),
            "mime": link.type,
            "lastmod": manner.time(link.modified),
            "encoding": link.encoding,
            "pri": link.pri,
        }
    )


def _filled(source: Source) -> Source:
    return {name: value for name, value in source.items() if value is not None}


def _line(source: Source) -> bytes:
    return msgspec.json.encode(source) + b"\n"


_PATHS: Final = Locations("http://set/")  # a prefix is needed to resolve a path, and which one makes no difference
