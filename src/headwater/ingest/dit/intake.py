"""Takes documents of the DIT-ES protocol into a push set: resolves, joins, records."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from headwater.catalog.interface import Metadata
from headwater.errors import UsageFault
from headwater.ingest.dit.documents import DitDocument, read_document
from headwater.ingest.dit.late_documents import (
    Fate,
    JoinedBatch,
    KnownState,
    Note,
    Present,
    join,
    key_of,
    keys_of,
    read_note,
)
from headwater.ingest.dit.texts import Texts, Unwrapper, Wrapped, decoded
from headwater.ingest.push.events import LineTooLong, refusal
from headwater.ingest.push.feed import Draft, Feed, Line, Outcome, statements_of, with_links
from headwater.ingest.push.ingest_state import ChangeDocument, Effects, ResourceDocument
from headwater.ingest.push.resource_locations import BadLocation
from headwater.ingest.push.submission import Account, Progress, Record, Records
from headwater.progress import Listener, Notice, silent
from headwater.spec.records import Link

HISTORY = "a change from before the load: what it came to was loaded"


def take_documents(
    feed: Feed,
    documents: Iterable[tuple[int, DitDocument]],
    *,
    positions: Mapping[str, bytes] | None = None,
    snapshot: bool = False,
    in_order: bool = True,
) -> list[Outcome]:
    """Record what the documents say as one batch; the outcome of each, by line.

    Lines count from 1. `positions` of feeds are kept together with the batch. While the set is loading, `resource`
    documents are its snapshot (DIT-03), and `change` documents are history; with `snapshot` they are that in an open
    set, too. Documents that are not `in_order`, of several shards, are as an index shows them: resources are as the
    last of the changes has left them. Raises what the catalog raises; then nothing was recorded, and the same may be
    taken again.
    """
    items: list[DitDocument] = []
    refused: list[Outcome] = []
    for order, (line, document) in enumerate(documents):
        try:
            place = order if in_order else int(isinstance(document, ResourceDocument))
            items.append(_resolved(feed, document, line, place))
        except UsageFault as fault:
            refused.append(refusal(line, fault))

    def take() -> list[Outcome]:
        effects = Effects(positions=dict(positions or {}))
        if feed.next_seq() is None:
            return _load(feed, items, effects)
        joined = join(items, _known(feed, items), feed.clock(), snapshot=snapshot)
        joined.effects.positions = effects.positions
        return _record(feed, joined)

    outcomes = sorted([*refused, *feed.attempt(take)], key=lambda one: one.line)
    said = {one.line: one.remarks for one in items if one.remarks}
    return [replace(one, left_out=said[one.line]) if one.line in said else one for one in outcomes]


def _resolved(feed: Feed, document: DitDocument, line: int, order: int) -> DitDocument:
    uri = feed.locations.resolve(document.location)
    links, remarks = list[Link](), list(document.remarks)
    for location, link in document.links:
        try:
            href = feed.locations.absolute(feed.locations.resolve(location, is_link=True))
            links.append(replace(link, href=href))
        except BadLocation as fault:
            remarks.append(f"a link was left out: {fault.what}")
    metadata = None if document.metadata is None else replace(document.metadata, links=tuple(links))
    resolved = replace(document, uri=uri, metadata=metadata, remarks=tuple(remarks), order=order, line=line)
    if isinstance(resolved, ChangeDocument):
        feed.check(uri, metadata or Metadata(lastmod=resolved.lastmod))
        return resolved
    feed.check(uri, resolved.metadata)
    return replace(resolved, statements=statements_of(links, feed.locations.link))


def _known(feed: Feed, items: Sequence[DitDocument]) -> KnownState:
    uris = list(dict.fromkeys(one.uri for one in items))
    changed = {one.uri for one in items if isinstance(one, ChangeDocument)}
    rows = feed.state.remembered(uris, seen=[key for one in items for key in keys_of(one)], statements=changed)
    present = {uri: Present(one.metadata, read_note(one.memo)) for uri, one in feed.held(uris).items()}
    return KnownState(rows=rows, present=present, implied=feed.implied_by(rows.about))


def _record(feed: Feed, joined: JoinedBatch) -> list[Outcome]:
    first = feed.next_seq()
    assert first is not None
    newest = feed.write(joined.drafts, joined.effects)
    if joined.notes:
        notes = [(uri, note.memo()) for uri, note in joined.notes.items()]
        feed.catalog.remember(feed.name, notes, newest=newest)
    outcomes = []
    for line, (fate, place) in joined.fates.items():
        seq = None if place is None else first + place
        reason = None if fate is Fate.RECORDED else fate.value
        outcomes.append(Outcome(line=line, status=200, seq=seq, reason=reason))
    return outcomes


def _load(feed: Feed, items: Sequence[DitDocument], effects: Effects) -> list[Outcome]:
    """Take the states as the snapshot; changes of before are known again when they are sent once more."""
    drafts, outcomes = [], []
    implied = feed.implied_by(feed.state.about({one.uri for one in items if isinstance(one, ResourceDocument)}))
    for one in items:
        if isinstance(one, ChangeDocument):
            if (key := key_of(one)) is not None:
                effects.seen.add(key)
            outcomes.append(Outcome(line=one.line, status=200, reason=HISTORY))
            continue
        memo = Note(ahead=True, kept=one.kept).memo()
        metadata = with_links(one.metadata, implied.get(one.uri, ()))
        drafts.append(Draft(uri=one.uri, metadata=metadata, memo=memo, statements=one.statements))
        outcomes.append(Outcome(line=one.line, status=200))
    feed.write(drafts, effects)
    return outcomes


def tell(outcomes: Iterable[Outcome], listener: Listener) -> None:
    """Say what was left out of documents, and which were merged (DIT-A9)."""
    for one in outcomes:
        if one.reason == Fate.MERGED.value:
            listener(Notice("HW-ING-51", f"{one.reason}: that at line {one.line} is merged with a later one"))
        for remark in one.left_out:
            listener(Notice("HW-ING-50", f"left out of the document at line {one.line}: {remark}"))


WHOLE_OCTETS = 8 << 20  # one JSON text that is not in lines, at most

Route = Callable[[str | None], Feed | None]
"""The set that documents with this `resource_set` are for; None for those that are no matter of ours.

Raises UsageFault: there is no such set, or it may not be announced to.
"""


class DocumentRecords(Records):
    """The lines of a submission are DIT-ES documents: one a line, or JSON texts over several lines with any number.

    There is no idempotency key: a change document is known again by itself, and a resource document that says what is
    known already does nothing (DIT-A12), so that sending the same again is harmless.
    """

    def __init__(
        self, route: Route, *, whole_octets: int = WHOLE_OCTETS, dry_run: bool = False, listener: Listener = silent
    ) -> None:
        super().__init__(None)
        self._route = route
        self._texts = Texts(whole_octets)
        self._unwrapper = Unwrapper()
        self._number = 0
        self._dry_run = dry_run
        self._listener = listener

    def told(self, counts: Account) -> Mapping[str, int | None]:
        """The counts as they are answered."""
        return counts.of_documents

    def texts(self, line: Line | None) -> list[Line]:
        """The texts that a line completes; with None those that are left at the end."""
        return self._texts.finish() if line is None else self._texts.push(line)

    def read(self, text: Line) -> list[Record | Outcome | None]:
        """The documents of one text, each with its set; None for each that is no matter of ours."""
        self._number = text.number
        try:
            if text.text is None:
                raise LineTooLong("the line is too long")
            value = decoded(text.text)
        except UsageFault as fault:
            self._unwrapper.skip()
            return [refusal(text.number, fault)]
        try:
            found = self._unwrapper.push(value)
        except UsageFault as fault:
            return [refusal(text.number, fault)]
        return [self._record(text.number, item if len(found) > 1 else None, one) for item, one in enumerate(found, 1)]

    def _record(self, line: int, item: int | None, wrapped: Wrapped) -> Record | Outcome | None:
        try:
            document = read_document(wrapped.source, wrapped.kind, wrapped.stored_at)
            feed = self._route(document.resource_set)
        except UsageFault as fault:
            return replace(refusal(line, fault), item=item)
        return None if feed is None else Record(line, item, feed, document)

    def end(self) -> list[Outcome]:
        """A bulk action without its document."""
        try:
            self._unwrapper.finish()
        except UsageFault as fault:
            return [refusal(self._number, fault)]
        return []

    def take(self, feed: Feed, records: Sequence[Record], progress: Progress | None) -> list[Outcome]:
        """Record the documents; they have numbers of their own meanwhile, as several may come in one line."""
        documents = [(number, one.value) for number, one in enumerate(records, 1)]
        outcomes = [] if self._dry_run else take_documents(feed, documents)
        for number, document in documents if self._dry_run else ():  # as far as each is judged alone
            try:
                _resolved(feed, document, number, 0)
                outcomes.append(Outcome(line=number, status=200))
            except UsageFault as fault:
                outcomes.append(refusal(number, fault))
        places = [(one, records[one.line - 1]) for one in outcomes]
        outcomes = [replace(one, line=place.line, item=place.item) for one, place in places]
        tell(outcomes, self._listener)
        return outcomes
