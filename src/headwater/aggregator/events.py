"""Events of the journal: made of what runs have done, read by programs, and judged before a sink gets them.

A quarantine rule compares what a source says of a record with the file in the copy: repositories answer with error
pages, empty files and cut documents, and an index would take them for records.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import pyexpat
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, overload

import msgspec

from headwater.aggregator.sqlite_store import store_to_read
from headwater.aggregator.store import AggregatorStore, Event, NewEvent
from headwater.errors import Undetermined, UsageFault
from headwater.progress import Listener, silent
from headwater.quantities import human_octets, octets_from
from headwater.spec.xml_parser import WEB_PAGE
from headwater.sync.explore import SourceChanges
from headwater.sync.options import SyncOptions
from headwater.sync.reports import CopyRecord, Done
from headwater.typed_decoding import from_json

_ACTIONS: Final = {"created": "created", "adopted": "created", "updated": "updated", "deleted": "deleted"}


def new_events(source: str, batch: Iterable[Done]) -> list[NewEvent]:
    """The events of a batch of a run; failures and repairs of the copy are none."""
    return [
        held_event(source, done, _ACTIONS[done.action], done.reason)
        for done in batch
        if done.action in _ACTIONS and not done.repaired
    ]


def held_event(source: str, record: Done | CopyRecord, action: str = "created", reason: str = "") -> NewEvent:
    """The event that tells of a resource which the copy holds, or of what a run has done to it.

    `origin` is its address at the first source, where a source republishes.
    """
    return NewEvent(
        source=source,
        set_name=record.set_name,
        action=action,
        uri=record.uri,
        origin=next((link.href for link in record.links if link.rel == "via"), ""),
        path=record.path,
        hash=record.hash,
        length=record.length,
        type=record.type,
        lastmod=record.lastmod,
        links=record.links,
        reason=reason,
    )


def moved_events(store: AggregatorStore, source: str, records: Iterable[CopyRecord]) -> Iterator[NewEvent]:
    """For each resource whose URI is another one than the journal last told: where it has moved (after DST-F10).

    `reason` has the former URI. Of a resource older than what the journal keeps it is not known, but told all the same.
    """
    for record in records:
        moved = held_event(source, record, "moved")
        last = store.last_event(moved)
        if last is None:
            yield moved
        elif last.action != "deleted" and last.uri != record.uri:
            yield msgspec.structs.replace(moved, reason=f"formerly {last.uri}")


def event_lines(events: Iterable[Event]) -> bytes:
    """The events as JSON lines."""
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(event.to_dict()) + b"\n" for event in events)


# the journal, for programs

_BATCH: Final = 1_000
_POLL_SECONDS: Final = 0.5


class ServiceEvents:
    """The events of a service with numbers above `after`, by number: iterate with `for` or `async for`.

    `state` is the folder `state` of its configuration. Keep the number of your last event, and give it as `after` next
    time. With `follow` the iteration waits for more. Raises UsageFault, StoreFault, and Undetermined where events after
    `after` are no longer kept.
    """

    def __init__(self, state: str | os.PathLike[str], after: int = 0, *, follow: bool = False) -> None:
        self._state = Path(state)
        self._after, self._follow = after, follow

    def __iter__(self) -> Iterator[Event]:
        for batch in self._batches():
            yield from batch
            if not batch:
                time.sleep(_POLL_SECONDS)

    async def __aiter__(self) -> AsyncIterator[Event]:
        batches = self._batches()
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            for event in batch:
                yield event
            if not batch:
                await asyncio.sleep(_POLL_SECONDS)

    def _batches(self) -> Iterator[list[Event]]:
        """Events by their numbers; an empty batch: there are no more as yet."""
        after = self._after
        while True:
            with store_to_read(self._state) as store:
                while found := _next(store, after):
                    yield found
                    after = found[-1].number
            if not self._follow:
                return
            yield []


@overload
def changes(
    url: str,
    since: str | dt.datetime | None = None,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
) -> SourceChanges: ...
@overload
def changes(url: str | os.PathLike[str], *, after: int, follow: bool = False) -> ServiceEvents: ...
def changes(
    url: str | os.PathLike[str],
    since: str | dt.datetime | None = None,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
    after: int | None = None,
    follow: bool = False,
) -> SourceChanges | ServiceEvents:
    """The changes of the source at `url`, as `SourceChanges`; with `after`, those of a service, as `events`."""
    if after is not None:
        return ServiceEvents(url, after, follow=follow)
    return SourceChanges(os.fspath(url), since, options, listener=listener)


def _next(store: AggregatorStore, after: int) -> list[Event]:
    found = store.events(after, _BATCH)
    if 0 < after < store.trimmed_number():
        raise Undetermined(f"the events after {after} are no longer kept", code="HW-AGG-04")
    return found


# quarantine

_HEAD: Final = 1 << 12
_XML_LIMIT: Final = 64 << 20  # a larger document is judged by its beginning
_UNKNOWN_ENCODING: Final = 18  # XML_ERROR_UNKNOWN_ENCODING: well-formed or not, nobody here can say
_SPACE_AND_BOM: Final = b" \t\r\n\f\xef\xbb\xbf\0\xfe\xff"
_XML: Final = re.compile(rb"<(?:\?xml|!DOCTYPE|!--|[A-Za-z_][\w.:-]*[\s/>])")
_MARKS: Final = (
    (b"%PDF-", "pdf"), (b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"), (b"II*\0", "tiff"), (b"MM\0*", "tiff"),
)  # fmt: skip
_FAMILIES: Final = {
    "application/xml": "xml", "text/xml": "xml", "application/xhtml+xml": "html", "text/html": "html",
    "application/json": "json", "application/pdf": "pdf", "image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif",
    "image/tiff": "tiff", "application/zip": "zip", "application/gzip": "gzip", "application/x-gzip": "gzip",
}  # fmt: skip
RULES: Final = ("type", "well-formed", "html", "empty", "max:SIZE")
"""The quarantine rules by their names in a configuration."""


class Quarantine(NamedTuple):
    """Rules before a sink."""

    names: frozenset[str] = frozenset()
    most_octets: int | None = None

    @classmethod
    def of(cls, rules: Sequence[str]) -> Quarantine:
        """The rules that these names are. Raises UsageFault."""
        most = None
        for rule in rules:
            if rule.startswith("max:") and (octets := octets_from(rule[4:])) is not None:
                most = octets
            elif rule not in RULES[:-1]:
                advice = f"Rules are {', '.join(RULES)}; a size is as in max:10MB."
                raise UsageFault(f"no rule of quarantine: {rule!r:.100}", code="HW-AGG-11", advice=advice)
        return cls(frozenset(rules), most)

    def objection(self, event: NewEvent, file: Path) -> str | None:
        """Why the event is held back from the sink, by the file in the copy; None: it is not.

        A file that is not there (any more) is no reason: a later event tells of it.
        """
        if event.action not in ("created", "updated") or self == Quarantine():
            return None
        try:
            size = file.stat().st_size
            with file.open("rb") as opened:
                head = opened.read(_HEAD)
        except OSError:
            return None
        if size == 0:
            return "the file is empty" if "empty" in self.names else None
        if self.most_octets is not None and size > self.most_octets:
            return f"the file has {human_octets(size)}, more than {human_octets(self.most_octets)}"
        listed, found = _family(event.type), sniffed(head)
        if "html" in self.names and found == "html" and listed != "html" and not _is_html(event.path):
            return f"the file is an HTML page, listed is {event.type or 'no media type'}"
        if "type" in self.names and listed is not None and not _agrees(listed, found):
            return f"the file is {found or 'of another type'}, listed is {event.type}"
        if "well-formed" in self.names:
            return _malformation(listed or found, file, size)
        return None


def sniffed(head: bytes) -> str | None:
    """What the beginning of a file shows it to be (html, xml, json, pdf, png, …); None: it does not show."""
    for mark, family in _MARKS:
        if head.startswith(mark):
            return family
    text = head.lstrip(_SPACE_AND_BOM)
    if text[:2] in (b"<\0", b"{\0", b"[\0"):  # UTF-16
        text = text.replace(b"\0", b"")
    if WEB_PAGE.match(text):
        return "html"
    if _XML.match(text):
        return "xml"
    return "json" if text[:1] in (b"{", b"[") else None


def _family(type_: str | None) -> str | None:
    plain = (type_ or "").partition(";")[0].strip().lower()
    if plain.endswith(("+xml", "+json", "+zip")) and plain not in _FAMILIES:
        return plain.rpartition("+")[2]
    return _FAMILIES.get(plain)


def _agrees(listed: str, found: str | None) -> bool:
    if listed == "html":
        return found in ("html", "xml", None)  # a page may begin with anything
    if listed == "json":
        return found in ("json", None)  # a number or a text is JSON, too
    return listed == found


def _is_html(path: str) -> bool:
    return path.lower().endswith((".html", ".htm", ".xhtml"))


def _malformation(family: str | None, file: Path, size: int) -> str | None:
    """Why an XML or JSON document is none."""
    if family not in ("xml", "json") or size > _XML_LIMIT:
        return None
    try:
        with file.open("rb") as opened:
            if family == "xml":
                pyexpat.ParserCreate().ParseFile(opened)
            else:
                from_json(opened.read(), msgspec.Raw)
    except pyexpat.ExpatError as cause:
        return None if cause.code == _UNKNOWN_ENCODING else f"the file is not well-formed XML: {cause}"
    except (msgspec.DecodeError, RecursionError) as cause:
        return f"the file is not JSON: {cause}"
    except (OSError, ValueError, LookupError):  # gone by now, or in an encoding that expat does not know
        pass
    return None
