"""Events as lines of JSON: what `POST /S/changes` and `headwater ingest events` take, judged line by line and recorded.

An announcement is our own format, so it is read strictly: an unknown field or a value that could not be published
refuses the line (BadEvent) and says why. docs/how-to/publish-records-from-a-program.md describes it.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from headwater.catalog.interface import Metadata
from headwater.errors import UsageFault
from headwater.ingest.push.feed import Draft, Feed, Line, Outcome, statements_of, with_links
from headwater.ingest.push.ingest_state import MOST_LINKS, Effects, RequestProgress
from headwater.ingest.push.resource_locations import Locations
from headwater.spec.checks import why_unregistered
from headwater.spec.records import ChangeKind, Link, parse_hash
from headwater.spec.times import Leniency, from_microseconds, parse_datetime, to_microseconds
from headwater.typed_decoding import in_plain_words, json_decoder


def _complaint(words: str) -> str:
    what, _, place = words.partition(" - at `$.")
    fields = [one.encode_name for one in msgspec.structs.fields(Announcement)] if not place else []
    place = place.rstrip("`").replace("[...]", "")
    return f"{place}: {in_plain_words(what, fields)}" if place else in_plain_words(what, fields)


MOST_ATTRIBUTES: Final = 100
Length = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Priority = Annotated[int, msgspec.Meta(ge=1, le=999_999)]


class BadEvent(UsageFault):
    """A line is not an announcement: not JSON, an unknown field, or a value that no document could have."""

    code = "HW-ING-42"


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


_decode = json_decoder(Announcement)


def read_announcement(line: bytes, locations: Locations) -> tuple[ChangeKind | None, Draft]:
    """What a line announces, and the event that it comes to where that is news. Raises BadEvent and BadLocation."""
    try:
        told = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadEvent(_complaint(str(cause))[:300]) from cause
    if (told.uri is None) == (told.path is None):
        raise BadEvent("name the resource by either uri or path")
    uri = locations.url(told.uri) if told.uri is not None else locations.relative_path(told.path or "")
    if told.change is ChangeKind.DELETED:
        return told.change, Draft(uri=uri, metadata=None, statements=())
    if len(told.links or ()) > MOST_LINKS:
        raise BadEvent(f"more than {MOST_LINKS} links")
    if len(told.attributes or ()) > MOST_ATTRIBUTES:
        raise BadEvent(f"more than {MOST_ATTRIBUTES} attributes")
    links = tuple(
        Link(
            rel=one.rel,
            href=locations.absolute(locations.link(one.href)),
            encoding=one.encoding,
            hash=_hash([one.hash] if one.hash else []),
            length=one.length,
            modified=_time(one.modified),
            pri=one.pri,
            type=one.type,
        )
        for one in told.links or ()
    )
    named = (("md5", told.md5), ("sha-1", told.sha1), ("sha-256", told.sha256), ("sha-384", told.sha384))
    items = (told.hash or "").split()
    items += [f"{name}:{digest.strip()}" for name, digest in (*named, ("sha-512", told.sha512)) if digest is not None]
    metadata = Metadata(
        lastmod=_time(told.lastmod),
        hash=_hash(items),
        length=told.length,
        type=told.type.partition(";")[0].strip().lower() if told.type is not None else None,
        encoding=told.encoding,
        changefreq=told.changefreq,
        links=links,
        extra=tuple((told.attributes or {}).items()),
    )
    return told.change, Draft(uri=uri, metadata=metadata, statements=statements_of(links, locations.link))


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


NO_NEWS = "no change: the set has this already"
_LONGEST_REASON = 300
NOT_HELD = "the set does not hold the resource"


class LineTooLong(BadEvent):
    """A line is longer than a record may be."""

    code = "HW-ING-43"


def take_lines(
    feed: Feed, lines: Sequence[Line], progress: Callable[[list[Outcome]], RequestProgress] | None = None
) -> list[Outcome]:
    """Record what the lines announce as one batch and say of each, in order, what became of it.

    What `progress` makes of the outcomes is kept together with the batch. Raises what the catalog raises; then
    nothing was recorded.
    """
    announced, refused = read_lines(feed, lines)

    def take() -> list[Outcome]:
        held = feed.held(one.uri for _, _, one in announced)
        present: dict[str, Metadata | None] = {uri: one.metadata for uri, one in held.items()}
        implied, first = feed.implied_by(feed.state.about({one.uri for _, _, one in announced})), feed.next_seq()
        drafts, outcomes = list[Draft](), refused[:]
        for line, change, one in announced:
            new = None if one.metadata is None else with_links(one.metadata, implied.get(one.uri, ()))
            old, seq, reason = present.get(one.uri), None, None
            if new is None and old is None:
                reason = NOT_HELD
            elif change is None and new == old:
                reason = NO_NEWS
            else:
                present[one.uri] = new
                seq = None if first is None else first + len(drafts)
                drafts.append(Draft(uri=one.uri, metadata=new, statements=one.statements))
            links = () if one.metadata is None else one.metadata.links
            notice = next(filter(None, (why_unregistered(link.rel) for link in links)), None)
            outcomes.append(Outcome(line=line, status=200, seq=seq, reason=reason, notice=notice))
        outcomes.sort(key=lambda one: one.line)
        effects = Effects(progress=progress(outcomes) if progress is not None else None)
        if announced or progress is not None:  # that something is no news is as sure as what is recorded
            feed.write(drafts, effects)
        return outcomes

    return feed.attempt(take)


def read_lines(feed: Feed, lines: Sequence[Line]) -> tuple[list[tuple[int, ChangeKind | None, Draft]], list[Outcome]]:
    """The announcements of the good lines, and the outcomes of the others."""
    announced: list[tuple[int, ChangeKind | None, Draft]] = []
    refused: list[Outcome] = []
    for line in lines:
        try:
            if line.text is None:
                raise LineTooLong("the line is too long")
            change, one = read_announcement(line.text, feed.locations)
            feed.check(one.uri, one.metadata or Metadata())
            announced.append((line.number, change, one))
        except UsageFault as fault:
            refused.append(refusal(line.number, fault))
    return announced, refused


def refusal(line: int, fault: UsageFault) -> Outcome:
    """The outcome of a line that a fault refuses: 422 when it can be read and not taken."""
    status = 413 if isinstance(fault, LineTooLong) else 400 if isinstance(fault, BadEvent) else 422
    where = f" ({fault.where})" if fault.where else ""
    rule = f" [{fault.rule}]" if fault.rule else ""
    return Outcome(line=line, status=status, code=fault.code, reason=f"{fault.what}{where}"[:_LONGEST_REASON] + rule)


_DOCUMENTS = frozenset({"location", "resource_set", "_source", "hits", "index", "create", "responses"})
_EVENTS = frozenset({"uri", "path"})


def looks_like_events(line: bytes) -> bool | None:
    """Whether a line is an object that names a resource as an event does, and no document of the protocol or wrapper of
    some; None where it cannot be told."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    value = value[0] if isinstance(value, list) and value else value
    names = frozenset(value if isinstance(value, dict) else ())
    is_event, is_document = bool(names & _EVENTS), bool(names & _DOCUMENTS)
    return None if is_event == is_document else is_event
