"""Decides when a page and a segment are full, and plans one batch of events: places, sizes, numbers, times and rows.

The size of an entry is an upper bound of its octets as any profile writes it (`lastmod` and `datetime` both,
RS-VER-20), with a URI whose prefix only `publish` knows. What the strict writer would refuse is refused here, before it
is in the catalog: one resource that cannot be written would hold up the document of fifty thousand.

Every backend asks this module what a batch does and then writes that down, so that all give the same answers. Times are
microseconds (`spec/times`).
"""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn

import msgspec

from headwater.catalog.interface import (
    LARGEST_VALUE,
    LONGEST_KEY,
    LONGEST_KIND,
    Event,
    Limits,
    Metadata,
    Moved,
    NumberedChange,
    Page,
    RowKey,
    Segment,
    SetState,
    StateUpdate,
    Unacceptable,
    Upsert,
)
from headwater.spec import checks as grammar
from headwater.spec.checks import WriteRefused
from headwater.spec.markup import MarkupWriter, added
from headwater.spec.records import ChangeKind, Link
from headwater.spec.text_values import URI_CHARACTERS
from headwater.spec.times import EPOCH, MICROSECOND, from_microseconds, from_optional

URI_PREFIX_OCTETS: Final = 300  # the longest URI of a set's folder of resources for which the bound holds
LONGEST_URI: Final = grammar.LONGEST_URI - URI_PREFIX_OCTETS  # the longest URI, percent-encoded, that a catalog takes

_MOMENT = "0000-00-00T00:00:00.000000Z"
FIXED_OCTETS: Final = URI_PREFIX_OCTETS + len(
    f"  <url>\n    <loc></loc>\n    <lastmod>{_MOMENT}</lastmod>\n    <changefreq></changefreq>\n"
    f'    <rs:md change="created" datetime="{_MOMENT}" encoding="" hash="" length="" type=""/>\n  </url>\n'
)
_LINK_MARGIN: Final = 16
DIGITS: Final = 20
LENGTH_END: Final = 1 << 63
_ANY_PREFIX: Final = "http://a/"

# A class of three runs is matched by one look into a bitmap, which is twice as fast: NUL is looked for on its own.
MD5, SHA_256 = r"md5:[0-9a-f\0]{32}", r"sha-256:[0-9a-f\0]{64}"
_usual_hash = re.compile(f"{MD5} {SHA_256}|{SHA_256}|{MD5}").fullmatch
_plain_uri = re.compile(f"[{URI_CHARACTERS}]*+").fullmatch
_markup = MarkupWriter("url")


def weight(uri: str, metadata: Metadata) -> int:
    """An upper bound of the octets of the entry. Raises Unacceptable for what no document can hold."""
    try:
        octets = FIXED_OCTETS + (len(uri) if len(uri) <= LONGEST_URI and _plain_uri(uri) else _odd_uri_octets(uri))
        text, type_, length = metadata.hash, metadata.type, metadata.length
        if text is not None:
            octets += len(text) if _usual_hash(text) and "\0" not in text else len(grammar.digests(text))
        if type_ is not None:
            octets += _type_octets(type_)
        if length is not None:
            octets += DIGITS if 0 <= length < LENGTH_END else _refuse_length(length)
        if metadata.encoding is not None:
            octets += len(grammar.token(metadata.encoding))
        if metadata.changefreq is not None:
            octets += len(grammar.frequency(metadata.changefreq))
        for link in metadata.links:
            if link.path is not None:
                what = "a link with a path, which stands only in manifests"
                raise Unacceptable(what, where=link.href, rule="RS-MD-10")
            if link.length is not None and not 0 <= link.length < LENGTH_END:
                _refuse_length(link.length)
            octets += link_octets(link)
        if metadata.extra:
            octets += len(added(metadata.extra).encode())
    except WriteRefused as cause:
        raise Unacceptable(cause.what, where=ascii(uri[:200]), rule=cause.rule) from cause
    return octets


def _odd_uri_octets(uri: str) -> int:
    """A URI that is written percent-encoded or escaped."""
    octets = len(grammar.uri(_ANY_PREFIX + uri))
    if octets > LONGEST_URI:
        raise Unacceptable(f"a URI of more than {LONGEST_URI:,} octets", where=ascii(uri[:200]), rule="RS-DOC-19")
    return octets


@lru_cache(maxsize=4096)
def _type_octets(text: str) -> int:
    return len(grammar.media_type(text))


def _refuse_length(length: int) -> NoReturn:
    raise Unacceptable(f"a length of {length} octets", rule="AMB-33")


@lru_cache(maxsize=4096)
def link_octets(link: Link) -> int:
    """An upper bound of the octets of a link. Raises WriteRefused for what cannot be written."""
    return len(_markup.link(link).encode()) + _LINK_MARGIN


# The plan of a batch


def is_text(text: str) -> bool:
    """Whether the text has UTF-8 octets; a lone surrogate cannot even be asked for."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_microseconds(moment: dt.datetime) -> int:
    """Microseconds since 1970. Raises Unacceptable for a time without a zone."""
    try:
        return (moment - EPOCH) // MICROSECOND
    except TypeError as cause:
        raise Unacceptable(f"a time without a zone: {moment.isoformat()}") from cause


NO_METADATA = Metadata()


def page_of(number: int, count: int, weight: int, touched: int, rendered: int, *times_us: int | None) -> Page:
    """A page as readers see it, from what every backend stores of it: the times are `at`, `completed`, `stale_at`."""
    return Page(number, count, weight, touched, rendered, *map(from_optional, times_us))


def segment_of(number: int, first: int, last: int, from_us: int, weight: int, until_us: int | None) -> Segment:
    """A segment as readers see it, from what every backend stores of it."""
    from_, until = from_microseconds(from_us), from_optional(until_us)
    return Segment(number=number, first=first, last=last, from_=from_, until=until, weight=weight)


class PageSlot(msgspec.Struct, frozen=True, gc=False):
    """Where one live resource lies, and what it weighs there."""

    slot: int
    page: int
    weight: int


@dataclass(slots=True)  # whose counters are added to in half the time of a Struct's
class PageFill:
    """How full one page is; `touches` counts the events of this batch on it, `first_us` is the first one's time."""

    number: int
    count: int = 0
    weight: int = 0
    touches: int = 0
    first_us: int | None = None
    first_slot: int | None = None  # for a page that this batch opens: its first slot


class SegmentRun(msgspec.Struct, gc=False):
    """One segment while it grows: changes `first`..`last` after `from_us` and, once closed, before `until_us`."""

    number: int
    first: int
    last: int
    from_us: int
    weight: int = 0
    until_us: int | None = None


class Logged(NumberedChange, frozen=True, gc=False):
    """One change as it goes into the log."""

    metadata: Metadata
    weight: int


class Put(msgspec.Struct, frozen=True, gc=False):
    """One resource as it is after the batch."""

    event: Upsert
    place: PageSlot
    seq: int


class BatchResult(msgspec.Struct, frozen=True):
    """What a backend writes down: `gone` first, so that a resource that moves leaves before it arrives."""

    gone: list[tuple[str, PageSlot]]
    kept: list[Put]
    fresh: list[Put]


class Places:
    """The places of a set's resources during one batch.

    `held` gives the place of every URI of the batch that the set holds, `pages` the pages of these and the last page
    (none when the set has no page), `next_slot` the first slot never used.
    """

    def __init__(self, limits: Limits, held: dict[str, PageSlot], pages: dict[int, PageFill], next_slot: int) -> None:
        self.limits = limits
        self._most_entries, self._most_octets = limits.page_entries, limits.page_octets
        self.held = held
        self.pages = pages
        self.next_slot = next_slot
        self.added = 0
        self._now = dict(held)
        self._last = pages[max(pages)] if pages else None
        self._latest: dict[str, Put | None] = {}

    def known(self, uri: str) -> bool:
        """Whether the set holds the URI at this point of the batch."""
        return uri in self._now

    def upsert(self, event: Upsert, octets: int, seq: int, at_us: int | None) -> None:
        """Give the resource its place: the one it has, or a new slot at the end."""
        uri = event.uri
        place = self._now.get(uri)
        if place is None:
            self.added += 1
            place = self._append(octets, at_us)
        else:
            place = self._replace(place, octets, at_us)
        self._now[uri] = place
        self._latest[uri] = Put(event, place, seq)

    def delete(self, uri: str, at_us: int | None) -> None:
        """Take a known resource from its page."""
        self.added -= 1
        self._leave(self._now.pop(uri), at_us)
        self._latest[uri] = None

    def outcome(self) -> BatchResult:
        """The net effect of the batch on the resources."""
        result = BatchResult([], [], [])
        held, fresh = self.held, result.fresh
        for uri, put in self._latest.items():
            old = held.get(uri)
            if old is None:
                if put is not None:
                    fresh.append(put)
            elif put is not None and old.slot == put.place.slot:
                result.kept.append(put)
            else:
                result.gone.append((uri, old))
                if put is not None:
                    fresh.append(put)
        return result

    def _replace(self, place: PageSlot, octets: int, at_us: int | None) -> PageSlot:
        page = self.pages[place.page]
        after = page.weight - place.weight + octets
        if after > self._most_octets and octets > place.weight:
            self._leave(place, at_us)
            return self._append(octets, at_us)
        page.weight = after
        _touch(page, at_us)
        return PageSlot(place.slot, place.page, octets)

    def _append(self, octets: int, at_us: int | None) -> PageSlot:
        """A new slot on the last page, or on a new one when that is full."""
        page, slot = self._last, self.next_slot
        if page is None or page.count >= self._most_entries or page.weight + octets > self._most_octets:
            page = PageFill(0 if page is None else page.number + 1, first_slot=slot)
            self._last = self.pages[page.number] = page
        page.count += 1
        page.weight += octets
        page.touches += 1
        if at_us is not None and page.first_us is None:
            page.first_us = at_us
        self.next_slot = slot + 1
        return PageSlot(slot, page.number, octets)

    def _leave(self, place: PageSlot, at_us: int | None) -> None:
        page = self.pages[place.page]
        page.count -= 1
        page.weight -= place.weight
        _touch(page, at_us)


def _touch(page: PageFill, at_us: int | None) -> None:
    page.touches += 1
    if page.first_us is None:
        page.first_us = at_us


@dataclass(slots=True)
class Log:
    """The end of a set's change log during one batch: hands out numbers and times, closes full segments."""

    limits: Limits
    last_seq: int
    last_us: int
    run: SegmentRun
    closed: list[SegmentRun] = field(default_factory=list)
    changes: list[Logged] = field(default_factory=list)

    def append(self, uri: str, change: ChangeKind, metadata: Metadata, octets: int, at_us: int) -> Logged:
        """Log one change with the next number and a time later than all before it (AMB-20), `at_us` if that is."""
        run = self.run
        limits = self.limits
        count = run.last - run.first + 1
        if count and (count >= limits.segment_entries or run.weight + octets > limits.segment_octets):
            self.close(self.last_us + 1)
            run = self.run
        self.last_seq += 1
        self.last_us = max(at_us, self.last_us + 1)
        run.last = self.last_seq
        run.weight += octets
        logged = Logged(self.last_seq, self.last_us, uri, change, metadata, octets)
        self.changes.append(logged)
        return logged

    def close(self, until_us: int) -> SegmentRun:
        """Close the open segment at a time later than all before it; the next begins there (AMB-11, AMB-23)."""
        run = self.run
        run.until_us = self.last_us = until_us
        self.closed.append(run)
        self.run = SegmentRun(run.number + 1, self.last_seq + 1, self.last_seq, until_us)
        return run


def load(places: Places, events: Sequence[Event]) -> None:
    """Apply events without logging them."""
    largest = places.limits.page_octets
    for event in events:
        if isinstance(event, Upsert):
            places.upsert(event, octets_of(event, largest), event.seq, None)
        elif places.known(event.uri):
            places.delete(event.uri, None)


def record(places: Places, log: Log, events: Sequence[Event], now_us: int) -> list[str]:
    """Apply and log events in order; the URIs of deletions that are no event, because nothing was there (DST-5.3)."""
    largest = min(places.limits.page_octets, places.limits.segment_octets)
    ignored: list[str] = []
    for event in events:
        uri = event.uri
        at_us = now_us if event.at is None else min(to_microseconds(event.at), now_us)
        if isinstance(event, Upsert):
            octets = octets_of(event, largest)
            change = event.change or (ChangeKind.UPDATED if places.known(uri) else ChangeKind.CREATED)
            logged = log.append(uri, change, event.metadata, octets, at_us)
            places.upsert(event, octets, logged.seq, logged.at_us)
        elif places.known(uri):
            stated = Metadata(links=event.links) if event.links else NO_METADATA
            logged = log.append(uri, ChangeKind.DELETED, stated, weight(uri, stated), at_us)
            places.delete(uri, logged.at_us)
        else:
            ignored.append(uri)
    return ignored


def octets_of(event: Upsert, largest: int) -> int:
    """What the resource weighs. Raises Unacceptable for what cannot be written, or is heavier than `largest`."""
    if not event.uri:
        raise Unacceptable("an empty URI")
    if event.change is ChangeKind.DELETED:
        raise Unacceptable("an Upsert with change `deleted`", where=event.uri)
    octets = weight(event.uri, event.metadata)
    if octets > largest:
        raise Unacceptable(f"an entry of up to {octets} octets: a document has room for {largest}", where=event.uri)
    return octets


def uris_of(events: Sequence[Event]) -> list[str]:
    """The URIs of a batch, each once, in the order of their first event."""
    return list(dict.fromkeys(event.uri for event in events))


class RowWrite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What becomes of one row: `value` None, it is deleted."""

    kind: str
    key: str
    value: bytes | None = None
    rank: int = 0


def row_writes(update: StateUpdate, changes: Sequence[NumberedChange] = ()) -> tuple[RowWrite, ...]:
    """What becomes of each row that an update touches with what a batch logs. Raises Unacceptable."""
    writes = {key: RowWrite(*key) for key in update.delete if is_row_key(key)}
    of_changes = update.of_changes(changes) if update.of_changes is not None and changes else ()
    for row in (*update.put, *of_changes):
        key = (row.kind, row.key)
        if not is_row_key(key):
            raise Unacceptable(f"no kind and key of a row: {row.kind[:200]!a}, {row.key[:200]!a}")
        if len(row.value) > LARGEST_VALUE or not -(1 << 63) <= row.rank < 1 << 63:
            raise Unacceptable(f"a row of {len(row.value)} octets and rank {row.rank}", where=f"{row.kind} {row.key}")
        writes[key] = RowWrite(*key, row.value, row.rank)
    return tuple(writes.values())


def is_row_key(key: RowKey) -> bool:
    """Whether a row may have this kind and key."""
    kind, text = key
    if not 0 < len(kind) <= LONGEST_KIND or "\0" in kind or not is_text(kind) or not 0 < len(text) <= LONGEST_KEY:
        return False
    return text.isascii() or (is_text(text) and len(text.encode()) <= LONGEST_KEY)


def check_after(now: SetState, after: SetState | None) -> None:
    """Raise Moved when the set is not as it was seen.

    It was opened, changes or rows were written, or a fence was put up since.
    """
    seen = ("opened_at", "last_seq", "fence", "state_version")
    other = () if after is None else tuple(one for one in seen if getattr(now, one) != getattr(after, one))
    if other:
        raise Moved(f"somebody else has written to the set: {', '.join(other)}", where=now.name)
