"""A set as a harvester of the DIT-ES protocol would have written it: `resource` and `change` documents, one a line.

The resources that have not changed since the set was loaded come first, then the whole log, each change followed by its
resource where that is still as the change has left it. Nothing of that needs the set to rest: what changes while it is
written comes once more, with its change, and whoever takes the lines in their order ends with the set as it is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.interface import Catalog, Change, Metadata, Resource
from headwater.errors import UsageFault
from headwater.ingest.dit.joining import read_note
from headwater.ingest.push.resource_locations import REL_PATH, URL, BadLocation, Location, Locations
from headwater.spec.records import ChangeKind, Link

_BATCH: Final = 1_000
_MD5: Final = "md5:"

Source = dict[str, Any]
"""One document as it is encoded."""


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
            **_digests(metadata.hash),
            "mime": metadata.type,
            "lastmod": manner.time(metadata.lastmod),
            "encoding": metadata.encoding,
            "changefreq": metadata.changefreq,
            "ln": [_link(one, manner) for one in metadata.links],
        }
    )


def _digests(text: str | None) -> Source:
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
            **_digests(link.hash),
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


_PATHS: Final = Locations("http://set/")
"""A prefix is needed to resolve a path, and which one makes no difference."""
