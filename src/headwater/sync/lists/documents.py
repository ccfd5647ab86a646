"""The documents of a source: conditional requests, streamed, with bounded retries; and the probe of an address.

A document that breaks off or is torn is an ordinary race (DST-F4): it is read again before it counts as broken. A probe
says what is at an address (DST-A1): a document with its first entries, a page with its links, or what went wrong, as
that the source wants credentials (DST-F2).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count, islice
from typing import Protocol, cast

import msgspec

from headwater.errors import HeadwaterError, SourceFault
from headwater.progress import Listener, Notice
from headwater.retry import Backoff
from headwater.spec.discovery import ROBOTS_OCTETS, crawl_delay
from headwater.spec.extensions import dump_offer
from headwater.spec.kinds import Kind, Root, kind_of
from headwater.spec.reader import Reader
from headwater.spec.records import Document, Entry
from headwater.spec.text_values import NotXml
from headwater.spec.times import from_optional
from headwater.spec.uris import resolve
from headwater.sync.connection import Origin, RedirectRefused, Unreachable, WrongDocument, cause_of, origin_of
from headwater.sync.source_times import http_date_micros, strong_last_modified
from headwater.sync.state import CHANGE_DUMP, CHANGE_LIST, RESOURCE_DUMP, RESOURCE_LIST, Offer, Validators
from headwater.transport.access import REFUSED, challenged
from headwater.transport.fetch import FailureKind, Fetch, Fetched, FetchFailure, Objection
from headwater.transport.scheduler import LONGEST_BACKOFF_SECONDS, LONGEST_PACE_SECONDS
from headwater.transport.transport import StreamBroken, Transport

# the probe of an address

_PAGE_OCTETS = 1 << 20
"""How much of a page that is no ResourceSync document is kept to look for links."""

_NAMESPACE = b"www.sitemaps.org/schemas/sitemap/"

_CREDENTIALS = (
    "Give --token or HEADWATER_TOKEN, --user or HEADWATER_USER, ~/.netrc or --header. Headwater sends it to this origin"
    " only: if the source moved, give that address."
)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What is at an address: a document (with its first entries), or a page with its links."""

    uri: str
    final: str
    status: int
    document: Document | None
    entries: tuple[Entry, ...]
    link_header: str
    body: bytes
    fault: SourceFault | None
    moved_to: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    refused: Unreachable | None = None

    @property
    def validated(self) -> tuple[str, Validators]:
        """The address, and the validators of this state of the document."""
        return self.uri, Validators(self.etag, self.last_modified)

    @property
    def unusable(self) -> str:
        """Why what is there cannot be used."""
        if self.status != 200:
            return f"HTTP status {self.status}"
        return self.fault.what if self.fault is not None else "it is not a ResourceSync document"


def _probed(uri: str, answer: Fetched, chunks: Iterable[bytes], most: int) -> Probe:
    """The probe of an answer; its body `chunks` is read as a document as far as needed, else its beginning is kept."""
    reader = Reader(base_uri=answer.uri, headers=answer.headers)
    document: Document | None = None
    entries: list[Entry] = []
    page, fault = bytearray(), None
    try:
        for chunk in chunks if answer.status == 200 else ():
            page += chunk[: _PAGE_OCTETS - len(page)]
            try:
                entries += () if fault else reader.feed(chunk)
            except SourceFault as found:
                fault = found
            if len(page) == _PAGE_OCTETS if fault else len(entries) > most and reader.document is not None:
                break
        else:
            entries += () if fault or answer.status != 200 else reader.close()
        document = None if fault else reader.document
    except SourceFault as found:
        fault = found
        page = page if not isinstance(found, StreamBroken) else bytearray()
    return Probe(
        uri=uri,
        final=answer.uri,
        status=answer.status,
        document=document,
        entries=tuple(entries) if document is not None else (),
        link_header=answer.headers.get("link", ""),
        body=b"" if document is not None else bytes(page) if answer.status == 200 else answer.body,
        fault=fault,
        moved_to=answer.moved_to,
        etag=answer.headers.get("etag"),
        last_modified=strong_last_modified(answer.headers),
        refused=sign_in_refused(uri, answer),
    )


def _may_pass(fault: SourceFault) -> bool:
    """Whether reading again may help: a torn or truncated document, but not a refused one."""
    return fault.passing if isinstance(fault, StreamBroken) else isinstance(fault, NotXml)


def sign_in_refused(uri: str, answer: Fetched) -> Unreachable | None:
    """The fault that an answer to `uri` is; None where it is none of this kind."""
    if answer.status not in REFUSED:
        return None
    what = {
        None: "the source requires authentication",
        False: f"no credentials are sent to {answer.uri}",
        True: "the credentials given did not give access",
    }[answer.signed_in]
    schemes = ", ".join(name[:40] for name in challenged(answer.headers.get("www-authenticate"))[:5])
    advice = _CREDENTIALS + (f" The server asks for: {schemes}." if schemes else "")
    what = f"{what} (HTTP status {answer.status})"
    return Unreachable(what, code="HW-SYN-15", where=uri, rule="DST-F2", advice=advice, cause=what)


# Capability Lists

CAPABILITY_LISTS = (Kind.CAPABILITY_LIST, Kind.CAPABILITY_LIST_INDEX)
UNITED = (RESOURCE_LIST, CHANGE_LIST, RESOURCE_DUMP, CHANGE_DUMP)
"""What a copy is made from: all lists of a capability are read (AMB-54), and a document of one may stand for itself."""

_MOST_HUBS = 16


def offer_of(probe: Probe, description: str | None, documents: ListDocuments) -> Offer:
    """The offer of a Capability List. Several lists of one kind are read as one index of them (AMB-54)."""
    first: dict[str, str] = {}
    hubs: dict[str, tuple[str, ...]] = {}
    for entry in probe.entries:
        capability = (entry.capability or "").strip().lower()
        if first.setdefault(capability, entry.loc) != entry.loc:
            if capability in UNITED:
                first[capability] = f"{probe.uri}#{capability}"
            if capability:
                told = "all are read" if capability in UNITED else "the first counts"
                documents.warn("AMB-54", f"more than one {capability} in a Capability List: {told}", probe.final)
            continue
        if found := tuple(dict.fromkeys(link.href for link in entry.links if link.rel == "hub"))[:_MOST_HUBS]:
            hubs[capability] = found
    return Offer(
        identity=probe.uri,
        name="",
        capability_list=probe.uri,
        description=description,
        documents=first,
        hubs=hubs,
        on_demand=dump_offer(probe.document) if probe.document is not None else None,
    )


# documents of a source

LARGEST_DOCUMENT = 4 << 30
"""Octets of one document. The standard says 50 MB; the reader streams, so larger ones do no harm."""

MOST_ENTRIES = 50_000
"""How many entries of a document are looked at where nothing else is said: as many as the standard lets it have."""

SMALL_OCTETS = 1 << 16
"""What a Capability List hardly exceeds: of documents that are read many at a time so much is held of each."""

_TOGETHER = 256
_AHEAD_SECONDS = 5.0  # how old a document may be when it is read: a set is brought to its present, not to a past
_AHEAD_UNCHANGED_SECONDS = 300.0  # that it is what it was says as much later: it was asked for in the same run
GONE = (404, 410)
_OF_A_HOST = frozenset({FailureKind.CONNECT, FailureKind.TIMEOUT, FailureKind.STALLED, FailureKind.TLS})
_TRIES = 3
MOST_UNDECIDED = MOST_ENTRIES  # entries that wait for the root's rs:md; those of a plain Sitemap, which has none

ConditionalRequest = tuple[str, Validators | None, Objection | None]
"""A conditional request: for what, with which validators, and what is said of its redirects."""


class EntryConsumer(Protocol):
    """Takes the entries of one document as they come. `begin` is called again when the document is read again."""

    def begin(self) -> None:
        """Forget what an earlier try has brought."""
        ...

    def take(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries, in document order."""
        ...


class DocumentRead(msgspec.Struct, frozen=True, kw_only=True):
    """One document that was read to its end."""

    uri: str
    final: str
    document: Document
    read_at: dt.datetime  # the source's own clock when it answered (`Date`), else ours (DST-C8)
    etag: str | None = None
    last_modified: str | None = None
    count: int = 0
    skipped: int = 0  # entries that name no resource (DST-F5)
    octets: int = 0
    warnings: tuple[tuple[str, str, int], ...] = ()
    digest: str = ""  # tells these octets, as received, from any others
    own_kind: Kind | None = None
    """The kind of the document itself, where it was read as the list that it replaces (DST-D)."""


class UnchangedDocument(msgspec.Struct, frozen=True):
    """The source says that the document is what it was (304)."""


class MissingDocument(msgspec.Struct, frozen=True):
    """The source has no such document (404, 410)."""

    status: int


def is_union(uri: str) -> bool:
    """Whether a URI (`CAPABILITY LIST#CAPABILITY`) stands for an index of all its lists of that capability (AMB-54)."""
    return uri.rpartition("#")[2] in UNITED and "#" in uri


class _OfCapability(msgspec.Struct, frozen=True):
    """Passes the entries of a Capability List on that are of one capability, as those of an index."""

    consumer: EntryConsumer
    capability: str
    kind: Kind

    def begin(self) -> None:
        self.consumer.begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind not in (Kind.CAPABILITY_LIST, Kind.CAPABILITY_LIST_INDEX):
            raise WrongDocument(f"this is a {document.kind.value}, not a Capability List", rule="DST-A7")
        chosen = [one for one in entries if (one.capability or "").strip().lower() == self.capability]
        self.consumer.take(msgspec.structs.replace(document, kind=self.kind), chosen)


class Documents:
    """The source's documents over one transport; counts requests and passes warnings on, each once."""

    def __init__(
        self,
        transport: Transport,
        listener: Listener,
        *,
        now: Callable[[], dt.datetime],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.transport = transport
        self.listener = listener
        self._now = now
        self._sleep = sleep
        self._said: set[tuple[object, str | None]] = set()
        self._ahead: dict[tuple[str, Validators | None], tuple[float, Fetched]] = {}
        self._clock = transport.options.monotonic
        self.moved: dict[str, str] = {}
        """Where documents were once permanently redirected to: asked there, when they are gone from here (DST-F10)."""

        self.redirected: set[str] = set()
        """Lists that were read where they are permanently redirected to: then their set may have moved."""

        self._paced: set[Origin] = set()
        self.requests = 0
        self.octets = 0

    def warn(self, rule: str, message: str, where: str | None = None, *, fault: HeadwaterError | None = None) -> None:
        """Tell a person once; of a fault that holds for all of a host, only the first time, and what to do with it."""
        told: tuple[object, str | None] = rule + message, where
        if isinstance(fault, Unreachable) and fault.cause is not None and where is not None:
            told = origin_of(where), fault.cause
            message = message if fault.todo in message else f"{message}. {fault.todo}"
        if told not in self._said and len(self._said) < 1000:
            self._said.add(told)
            self.listener(Notice(rule, message, where))

    def read(
        self,
        uri: str,
        consumer: EntryConsumer,
        validators: Validators | None = None,
        *,
        fresh: bool = False,
        objection: Objection | None = None,
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        """Read a document to its end, feeding `consumer`. Raises SourceFault when it cannot be read.

        `objection`: what the scope says of it and of every redirect (DST-S12).
        """
        if objection is not None and (refused := objection(uri)):
            raise Unreachable(f"not requested: {refused}", where=uri, rule="DST-S12")
        if is_union(uri):  # what a Capability List lists of one capability is its index (AMB-54); never conditionally
            address, _, capability = uri.partition("#")
            kind = kind_of(Root.SITEMAPINDEX, capability)
            answer = self.read(address, _OfCapability(consumer, capability, kind), objection=objection)
            if not isinstance(answer, DocumentRead):
                return answer
            document = msgspec.structs.replace(answer.document, kind=kind)
            return msgspec.structs.replace(answer, uri=uri, document=document, etag=None, last_modified=None)
        for attempt in count(1):
            consumer.begin()
            try:
                return self._read(uri, consumer, validators, objection, fresh=fresh or attempt > 1)
            except Unreachable:
                raise  # the transport has tried again itself
            except SourceFault as fault:
                if not (_may_pass(fault) and self._rested(attempt)):
                    fault.where = fault.where or uri
                    raise
        raise AssertionError("unreachable")

    def _rested(self, attempt: int) -> bool:
        """Wait before another try (DST-F1); False when there were enough."""
        options = self.transport.options
        if attempt >= max(_TRIES, options.retries + 1):
            return False
        first = options.first_backoff_seconds
        self._sleep(Backoff(first, LONGEST_BACKOFF_SECONDS).seconds(attempt, options.chance()))
        return True

    def _read(
        self,
        uri: str,
        consumer: EntryConsumer,
        validators: Validators | None,
        objection: Objection | None,
        *,
        fresh: bool,
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        held = None if fresh else validators
        with self._answer(uri, _headers(held, fresh=fresh), held, objection) as (answer, chunks):
            if answer.failure is not None and answer.failure.kind is FailureKind.REDIRECT_REFUSED:
                raise RedirectRefused(f"cannot be fetched: {answer.failure.text}", where=uri, rule="DST-S12")
            if answer.failure is not None:
                raise _unanswered(uri, answer.failure)
            if answer.status == 304 and held is not None and held.headers():
                return UnchangedDocument()
            if answer.status in GONE:
                return MissingDocument(answer.status)
            if refused := sign_in_refused(uri, answer):
                raise refused
            if answer.status != 200:
                what = f"cannot be fetched: HTTP status {answer.status}"
                raise Unreachable(what, where=uri, rule="DST-F1", cause=cause_of(answer.status))
            reader = Reader(base_uri=answer.uri, headers=answer.headers)
            digest = self._feed(reader, chunks, answer.uri, consumer)
            self.octets += answer.octets
            if answer.moved_to is not None:
                self.redirected.add(uri)
            document = reader.document
            assert document is not None
            for warned in reader.warnings:
                times = f" ({warned.count} times)" if warned.count > 1 else ""
                self.warn(warned.rule, warned.message + times, answer.uri)
            return DocumentRead(
                uri=uri,
                final=answer.uri,
                document=document,
                etag=answer.headers.get("etag"),
                last_modified=strong_last_modified(answer.headers),
                read_at=from_optional(http_date_micros(answer.headers.get("date"))) or self._now(),
                count=reader.entry_count,
                skipped=reader.skipped_count,
                octets=answer.octets,
                digest=digest,
                warnings=tuple((w.rule, w.message, w.count) for w in reader.warnings),
            )

    @contextmanager
    def _answer(
        self, uri: str, headers: tuple[tuple[str, str], ...], held: Validators | None, objection: Objection | None
    ) -> Iterator[tuple[Fetched, Iterable[bytes]]]:
        """The answer to one request and the chunks of its body: the one asked for ahead while it is fresh, or now."""
        fresh_until, ahead = self._ahead.pop((uri, held), (0.0, None))
        if ahead is not None and self._clock() < fresh_until:
            yield ahead, (ahead.body,)
            return
        self.requests += 1
        fetch = Fetch(uri, headers, max_octets=LARGEST_DOCUMENT, objection=objection)
        with self.transport.stream(fetch) as answer_and_chunks:
            yield answer_and_chunks

    def ask_ahead(self, asked: Sequence[ConditionalRequest], fresh_seconds: float = _AHEAD_SECONDS) -> None:
        """Ask many at a time for small documents that will be asked for in just this way in a moment.

        What has not been wanted while it is fresh, or until the next call, is forgotten and asked for anew.
        """
        self.requests += len(asked)
        fetches = [
            Fetch(uri, _headers(held), max_octets=SMALL_OCTETS, key=n, objection=objection)
            for n, (uri, held, objection) in enumerate(asked)
        ]
        self._ahead = {}
        for answer in self.transport.many(fetches):
            self.transport.heard(answer.fetch.uri, answer)
            if answer.failure is None or answer.failure.kind is not FailureKind.TOO_LARGE:
                uri, held, _ = asked[cast(int, answer.fetch.key)]
                seconds = _AHEAD_UNCHANGED_SECONDS if answer.status == 304 else fresh_seconds
                self._ahead[uri, held] = self._clock() + seconds, answer

    def _feed(self, reader: Reader, chunks: Iterable[bytes], final: str, consumer: EntryConsumer) -> str:
        """Read a body to its end; returns a digest of its octets."""
        waiting: list[Entry] = []
        digest = blake2b(digest_size=16)
        for chunk in chunks:
            digest.update(chunk)
            entries = reader.feed(chunk)
            if not entries and not waiting:
                continue
            if reader.document is None:
                waiting.extend(entries)
                if len(waiting) > MOST_UNDECIDED:
                    raise SourceFault("the root's rs:md comes after too many entries", where=final, rule="AMB-04")
                continue
            consumer.take(reader.document, waiting + entries if waiting else entries)
            waiting = []
        rest = waiting + reader.close()
        if rest and reader.document is not None:
            consumer.take(reader.document, rest)
        return digest.hexdigest()

    def probe(
        self,
        uri: str,
        *,
        most_entries: int = MOST_ENTRIES,
        validators: Validators | None = None,
        objection: Objection | None = None,
    ) -> Probe:
        """Fetch whatever is at an address and say what it is (DST-A1). Raises Unreachable when nothing answers.

        `objection`: what the scope says of every redirect (DST-S12).
        """
        moved = self.moved.get(uri)
        probe = None
        try:
            probe = self._look_there(uri, most_entries, validators, objection)
        except Unreachable:
            if moved is None:
                raise
        if probe is None or (moved is not None and probe.status in GONE):
            there = self._look_there(moved or uri, most_entries, validators, objection)
            probe = msgspec.structs.replace(there, uri=uri, moved_to=moved)
        if probe.moved_to is not None and (probe.document is not None or probe.status == 304):
            self.moved[uri] = probe.moved_to
        return probe

    def _look_there(
        self, uri: str, most_entries: int, validators: Validators | None, objection: Objection | None
    ) -> Probe:
        for attempt in count(1):
            with self._answer(uri, _headers(validators, fresh=attempt > 1), validators, objection) as (answer, chunks):
                if answer.failure is not None:
                    raise _unanswered(uri, answer.failure)
                probe = _probed(uri, answer, chunks, most_entries)
            fault = probe.fault  # an answer that was cut short, or that began as a document and broke off, may pass
            is_torn = fault is not None and (isinstance(fault, StreamBroken) or _NAMESPACE in probe.body)
            if fault is None or not (is_torn and _may_pass(fault) and self._rested(attempt)):
                return probe
        raise AssertionError("unreachable")

    def probe_many(self, asked: Iterable[tuple[str, Validators | None]]) -> Iterator[Probe | SourceFault]:
        """`probe` at many addresses, many at a time: what is there, or why nothing answers, in their order.

        What is not as small as a Capability List is looked at by itself, in its turn.
        """
        addresses = iter(asked)
        while batch := list(islice(addresses, _TOGETHER)):
            self.ask_ahead([(uri, held, None) for uri, held in batch], _AHEAD_UNCHANGED_SECONDS)
            for uri, held in batch:
                try:
                    yield self.probe(uri, validators=held)
                except SourceFault as fault:
                    yield fault

    def ask_for_pace(self, uri: str) -> None:
        """Ask the host of a URI, once, how long a pause it wants between two requests."""
        origin = origin_of(uri)
        if origin is None or origin in self._paced:
            return
        self._paced.add(origin)
        self.requests += 1
        answer = self.transport.one(Fetch(resolve(uri, "/robots.txt"), max_octets=ROBOTS_OCTETS, retries=0))
        if answer.ok:
            self.keep_crawl_delay(answer.fetch.uri, answer.body)

    def keep_crawl_delay(self, uri: str, robots: bytes) -> None:
        """Keep to the pause that the robots.txt of a host asks for, up to a bound, and say so (AMB-61)."""
        if (origin := origin_of(uri)) is not None:
            self._paced.add(origin)
        delay = crawl_delay(robots)
        if not delay or self.transport.options.rate_per_second is not None:
            return
        self.transport.queue.keep_pace(uri, delay)
        kept = f"one in {min(delay, LONGEST_PACE_SECONDS):g} s is sent"
        if delay > LONGEST_PACE_SECONDS:
            kept += ", since all that is listed is offered for copying; --rate sends fewer"
        self.warn("AMB-61", f"robots.txt asks for a Crawl-delay of {delay:g} s between two requests: {kept}", uri)


def _unanswered(uri: str, failure: FetchFailure) -> Unreachable:
    cause = failure.text if failure.kind in _OF_A_HOST else None
    return Unreachable(f"cannot be fetched: {failure.text}", where=uri, rule="DST-F1", cause=cause)


def _headers(validators: Validators | None, *, fresh: bool = False) -> tuple[tuple[str, str], ...]:
    past_caches = (("Cache-Control", "no-cache"),) if fresh else ()
    return (("Accept-Encoding", "gzip"), *(validators.headers() if validators else ()), *past_caches)


def take_whole(
    uri: str, document: Document, entries: list[Entry], consumer: EntryConsumer, read_at: dt.datetime
) -> DocumentRead:
    """Pass a document that is at hand, with its entries, to `consumer` as one that was read."""
    consumer.begin()
    if entries:
        consumer.take(document, entries)
    return DocumentRead(uri=uri, final=uri, document=document, read_at=read_at, count=len(entries))


class ListDocuments(Protocol):
    """The part of `Documents` that readers of lists use."""

    def read(
        self,
        uri: str,
        consumer: EntryConsumer,
        validators: Validators | None = None,
        *,
        fresh: bool = False,
        objection: Objection | None = None,
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        """Read a document to its end, feeding `consumer`. Raises SourceFault when it cannot be read."""
        ...

    def probe(
        self,
        uri: str,
        *,
        most_entries: int = MOST_ENTRIES,
        validators: Validators | None = None,
        objection: Objection | None = None,
    ) -> Probe:
        """Fetch whatever is at an address and say what it is (DST-A1)."""
        ...

    def warn(self, rule: str, message: str, where: str | None = None) -> None:
        """Tell a person once."""
        ...
