"""`headwater explore`: what a source offers, as a tree of documents, and one resource with what belongs to it.

Reads documents as streams, never resources. What other entries say of a resource (a metadata record that describes it,
a representation whose generic URI it is) belongs to it as well (RS-REL-01…12).
"""

from __future__ import annotations

import datetime as dt
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import Exit, SourceFault, Undetermined, UsageFault
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.extensions import DumpLimits
from headwater.spec.kinds import PATCH, RULES, Kind, Root
from headwater.spec.records import ChangeKind, Document, Entry, Link, ToDict
from headwater.spec.text_values import EmptyDocument
from headwater.spec.times import format_datetime, from_optional
from headwater.spec.uris import normalise
from headwater.sync.connection import Unreachable, starting_uri
from headwater.sync.copy.destination_folder import DestinationFolder, readable_state, state_copy
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.documents import DocumentRead, Documents, EntryConsumer, ListDocuments, MissingDocument
from headwater.sync.lists.entries import DEEPEST_INDEX, ListContext, all_links
from headwater.sync.lists.position import Position
from headwater.sync.options import SyncOptions, given_options
from headwater.sync.packages.dump_documents import DumpLists
from headwater.sync.run import begin_work, open_transport, utcnow
from headwater.sync.sets.discovery import DiscoveredSets, Discovery
from headwater.sync.sets.registry import offered_scope
from headwater.sync.sets.selection import MOST_SETS, SetSelection, unknown_set
from headwater.sync.source_times import micros, moment_of
from headwater.sync.state import CHANGE_DUMP, CHANGE_LIST, RESOURCE_DUMP, RESOURCE_LIST, Offer, add_set, fact
from headwater.transport.transport import Transport
from headwater.typed_decoding import from_json

_MOST_PARTS = 100_000


class ExploreWarning(msgspec.Struct, frozen=True):
    """A warning about a document: the rule, and how often it was broken."""

    rule: str
    message: str
    count: int


class ExploreNode(ToDict, msgspec.Struct, kw_only=True, omit_defaults=True):
    """One document of the source, and those below it."""

    uri: str
    title: str
    name: str | None = None
    capability: str | None = None
    kind: str | None = None
    entries: int | None = None
    octets: int | None = None
    resource_octets: int | None = None
    package_octets: int | None = None
    """Bytes of a dump's packages, as listed."""

    contents: str | None = None
    """Where a package's manifest is."""

    limits: DumpLimits | None = None
    """How much one request for a package may ask for."""

    at: str | None = None
    completed: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    until: str | None = None
    fault: str | None = None
    warnings: list[ExploreWarning] = []
    left_out: int = 0
    children: list[ExploreNode] = []


class ExploreReport(ToDict, msgspec.Struct, kw_only=True):
    """What was found; `exit_status` 1: something cannot be read."""

    source: str
    sets: int
    tree: ExploreNode
    requests: int = 0
    exit_status: int = Exit.DONE


def explore(
    url: str,
    options: SyncOptions | None = None,
    *,
    parts: int = 10,
    most: int = 100,
    listener: Listener = silent,
    transport: Transport | None = None,
) -> ExploreReport:
    """Read the documents of the source at `url`, from the top down; never resources.

    It opens the first `most` sets, and the first `parts` of an index. Raises SourceFault when there is no ResourceSync,
    and UsageFault when a wanted set does not exist.
    """
    options = given_options(options)
    url = starting_uri(url)

    def listen(event: Progress | Notice) -> None:
        if isinstance(event, Progress) or event.rule == "DST-A2":  # lapses are shown where they are
            listener(event)

    with open_transport(url, options, transport) as wire:
        documents = Documents(wire, listen, now=utcnow)
        found, offers = _find(documents, url, options, most)
        walk = _Walk(documents, min(parts, _MOST_PARTS))
        sets = []
        for done, offer in enumerate(offers):
            listener(Progress("sets", done, len(offers)))
            sets.append(walk.set(offer))
        if found.description is not None:
            tree = walk.document(found.description, "Source Description")
            tree.children = sets
            tree.left_out = found.left_out
        elif len(sets) == 1:
            tree = sets[0]
        else:
            tree = ExploreNode(uri=found.final, title="source", children=sets)
        tree.children += [walk.failed(where, "Capability List", what) for where, what in found.faults]
    count = len(found.offers) + found.left_out if found.listed is None else len(found.listed)
    status = Exit.FINDINGS if walk.has_failed else Exit.DONE
    return ExploreReport(source=url, sets=count, tree=tree, requests=documents.requests, exit_status=int(status))


_TOLD = (
    "SELECT change, coalesce(loc, uri), at, lastmod, length, hash, type, encoding, links FROM temp.changed"
    " WHERE pending OR folded ORDER BY list, ordinal"
)


class SourceChanges:
    """The changes in the Change Lists of the source at `url`, without a copy: iterate once, for entries.

    `since` is a time, or the `position` of an earlier complete iteration; None: all. `options` apply to sets, hosts and
    requests. Iterating raises Undetermined where the lists do not reach back so far, and SourceFault.
    """

    def __init__(
        self,
        url: str,
        since: str | dt.datetime | None = None,
        options: SyncOptions | None = None,
        *,
        listener: Listener = silent,
    ) -> None:
        self._url = starting_uri(url)
        self._options = given_options(options)
        self._listener = listener
        self._known: dict[str, Position] = {}
        self._begin = Position()
        if isinstance(since, str) and since.startswith("{"):
            try:
                self._known = from_json(since, dict[str, Position])
            except msgspec.MsgspecError as cause:
                raise UsageFault("`since` is no position of `changes`") from cause
        elif since is not None:
            self._begin = Position(time=micros(since) if isinstance(since, dt.datetime) else moment_of(since))

    @property
    def position(self) -> str:
        """Where this iteration ended: give it as `since` next time."""
        return msgspec.json.encode(self._known).decode()

    def __iter__(self) -> Iterator[Entry]:
        nowhere = DestinationFolder(Path(os.devnull, "copy"))
        with open_transport(self._url, self._options, None) as wire, state_copy(nowhere) as database:
            begin_work(wire, database)
            documents = Documents(wire, self._listener, now=utcnow)
            found, offers = _find(documents, self._url, self._options, MOST_SETS)
            if found.faults:
                where, what = found.faults[0]
                raise Unreachable(f"a Capability List cannot be read: {what}", where=where)
            for offer in offers:
                if offer.changes_document is not None:
                    scope = offered_scope(documents.moved, (self._url, found.final), self._options.choice, offer)
                    context = ListContext(DumpLists(documents), database, scope, self._listener)
                    yield from self._of_set(context, offer)

    def _of_set(self, context: ListContext, offer: Offer) -> Iterator[Entry]:
        known = self._known.get(offer.identity)
        with context.database.write() as t:
            number = add_set(t, msgspec.structs.replace(offer, name=offer.identity), offer.identity).id
        reading = ChangeListReader(context, number, offer, known or self._begin, before=known).read()
        if reading.fault is not None:
            raise reading.fault
        if reading.outcome not in (ReadingOutcome.READ, ReadingOutcome.UNCHANGED):
            what = f"the Change Lists do not have all changes since then: {reading.reason}"
            raise Undetermined(what, code="HW-SYN-11", where=offer.changes_document, rule="DST-C4")
        with context.database.write() as t:  # nobody else works in this copy of nothing
            for change, loc, at, lastmod, length, hash_, kind, encoding, links in t.rows(_TOLD):
                yield Entry(
                    loc=loc, change=ChangeKind(change), datetime=from_optional(at), lastmod=from_optional(lastmod),
                    length=length, hash=hash_, type=kind, encoding=encoding,
                    links=tuple(all_links(links)) if links else (),
                )  # fmt: skip
        self._known[offer.identity] = reading.position


def _find(documents: Documents, url: str, options: SyncOptions, most: int) -> tuple[DiscoveredSets, list[Offer]]:
    """The sets behind `url`, at most so many, and those of them that are wanted. Raises UsageFault for others."""
    sets = options.sets
    found = Discovery(documents, sitemap=True, wanted=SetSelection(sets), most=MOST_SETS if sets else most).find(url)
    told = {said for offer in found.offers for said in (offer.name, offer.identity)}
    if unknown := set(sets) - told:
        raise unknown_set(unknown, [offer.name for offer in found.offers], found.url)
    return found, [offer for offer in found.offers if not sets or offer.name in sets or offer.identity in sets]


def _read(documents: ListDocuments, uri: str, consumer: EntryConsumer) -> DocumentRead | SourceFault | str:
    """Read one document to its end; else why it cannot be read."""
    try:
        answer = documents.read(uri, consumer)
    except SourceFault as fault:
        return fault
    if isinstance(answer, MissingDocument):
        return f"HTTP status {answer.status}"
    return answer if isinstance(answer, DocumentRead) else "answered with 304 unasked"


_DUMPS = (Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP)
_LISTED = dict.fromkeys(_DUMPS, "package") | {
    Kind(f"{kind.value}-archive"): f"archived {RULES[kind].title}"
    for kind in (Kind.RESOURCE_LIST, Kind.CHANGE_LIST, *_DUMPS)
}
"""What the entries of some documents are; these are shown and not opened."""

_CHANNELS = {one.value: one for one in (Kind.CHANGE_NOTIFICATION, Kind.FRAMEWORK_NOTIFICATION)}
"""What answers with nothing until there is something to tell (RS-NT-02)."""

_ORDER = {RESOURCE_LIST: 0, CHANGE_LIST: 1, RESOURCE_DUMP: 2, CHANGE_DUMP: 3}
"""Which capabilities come first."""


@dataclass
class _Walk:
    documents: Documents
    parts: int
    has_failed: bool = False

    def set(self, offer: Offer) -> ExploreNode:
        """One set with its capabilities."""
        capabilities = sorted(offer.documents.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0]))
        if offer.capability_list is not None:
            node = self.document(offer.capability_list, "Capability List")
            node.children = [self._capability(name, uri) for name, uri in capabilities if uri]
            if (made := offer.on_demand) is not None:
                node.children.append(ExploreNode(uri=made.href, title="packages on demand", limits=made.limits))
        else:
            node = self._capability(*capabilities[0])
        node.name = offer.name
        return node

    def _capability(self, name: str, uri: str) -> ExploreNode:
        node = self.document(uri, name, open_parts=True)
        node.capability = name
        return node

    def document(self, uri: str, title: str, *, open_parts: bool = False) -> ExploreNode:
        """One document, read to its end; of an index the first documents as well."""
        tally = _Tally(self.parts if open_parts else 0)
        answer = _read(self.documents, uri, tally)
        if isinstance(answer, EmptyDocument) and (channel := _CHANNELS.get(title)) is not None:
            return ExploreNode(uri=uri, title=RULES[channel].title, kind=channel.value, entries=0, octets=0)
        if not isinstance(answer, DocumentRead):
            return self.failed(uri, title, str(answer))
        kind = answer.document.kind
        node = _node(uri, RULES[kind].title, answer.document)
        node.kind, node.entries, node.octets = kind.value, answer.count, answer.octets
        node.resource_octets = tally.octets if kind in (Kind.RESOURCE_LIST, Kind.SITEMAP) else None
        node.package_octets = tally.octets if kind in _DUMPS else None
        node.warnings = [ExploreWarning(rule, message, count) for rule, message, count in answer.warnings]
        if RULES[kind].root is Root.SITEMAPINDEX:
            node.children = [self.document(entry.loc, title) for entry in tally.entries]
        elif (listed := _LISTED.get(kind)) is not None:  # shown, not opened
            node.children = [_node(entry.loc, listed, entry) for entry in tally.entries]
        else:
            return node
        node.left_out = max(tally.count - len(tally.entries), 0) if open_parts else 0
        return node

    def failed(self, uri: str, title: str, what: str) -> ExploreNode:
        """A document that cannot be read, and why."""
        self.has_failed = True
        return ExploreNode(uri=uri, title=title, fault=what)


class _Tally:
    """Counts the entries of one document, and keeps the first of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.begin()

    def begin(self) -> None:
        self.count = 0
        self.octets: int | None = None
        self.entries: list[Entry] = []

    def take(self, document: Document, entries: list[Entry]) -> None:
        self.count += len(entries)
        if RULES[document.kind].root is Root.SITEMAPINDEX or document.kind in _LISTED:
            self.entries += entries[: max(0, self._most - len(self.entries))]
        for entry in entries:
            if entry.length is not None:
                self.octets = (self.octets or 0) + entry.length


def _node(uri: str, title: str, told: Document | Entry) -> ExploreNode:
    """A document with its own times, or as an entry tells of it."""
    node = ExploreNode(uri=uri, title=title, **_shown(told, "at", "completed", "from_", "until"))
    if isinstance(told, Entry):
        contents = told.link("contents")
        node.octets, node.contents = told.length, contents.href if contents is not None else None
    return node


def _shown(told: Document | Entry | Link, *names: str) -> dict[str, Any]:
    """These attributes, with times and kinds as text."""
    values = {name: getattr(told, name) for name in names}
    times = {name: format_datetime(value) for name, value in values.items() if isinstance(value, dt.datetime)}
    kinds = {name: value.value for name, value in values.items() if isinstance(value, Enum)}
    return values | times | kinds


_MOST_STATEMENTS = 1_000
_RANKS = f"duplicate canonical alternate describedby describes profile memento timegate timemap {PATCH} collection via"


class LinkStatement(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One link: of the resource to `href`, or, with `stated_by`, of that entry to the resource."""

    rel: str
    href: str
    stated_by: str | None = None
    pri: int | None = None
    type: str | None = None
    length: int | None = None
    hash: str | None = None
    modified: str | None = None
    encoding: str | None = None


class ListedState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one set lists of the resource: the Resource List, or the last change after it."""

    set: str
    document: str  # the list that says so
    lastmod: str | None = None
    length: int | None = None
    hash: str | None = None
    type: str | None = None
    encoding: str | None = None
    change: str | None = None
    datetime: str | None = None
    links: list[LinkStatement] = []
    stated_elsewhere: list[LinkStatement] = []  # links of other entries to the resource


class HeldFile(msgspec.Struct, frozen=True):
    """What a copy holds of the resource."""

    set: str
    path: str
    octets: int
    digest: str | None


class ResourceReport(msgspec.Struct, kw_only=True):
    """What was found. `exit_status` 1: no list has the resource, or something cannot be read."""

    source: str
    uri: str
    sets: list[ListedState] = []
    held: list[HeldFile] = []
    faults: list[str] = []
    requests: int = 0
    exit_status: int = Exit.DONE


def view_resource(
    where: str,
    uri: str,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
) -> ResourceReport:
    """What the source at `where` lists of the resource `uri`; `where` may be the folder of a copy, whose source it is.

    Raises SourceFault when there is no ResourceSync, UsageFault when `where` is a folder and no copy.
    """
    options = given_options(options)
    wanted = normalise(uri)
    url, held = _of_copy(Path(where), wanted) if Path(where).is_dir() else (where, [])
    report = ResourceReport(source=starting_uri(url), uri=uri, held=held)
    with open_transport(report.source, options, None) as wire:
        documents = Documents(wire, listener, now=utcnow)
        found, offers = _find(documents, report.source, options, MOST_SETS)
        report.faults += [f"{place}: {what}" for place, what in found.faults]
        for offer in offers:
            state = _listed_state(documents, offer, wanted, report.faults)
            if state is not None:
                report.sets.append(state)
        report.requests = documents.requests
    if report.faults or not report.sets:
        report.exit_status = int(Exit.FINDINGS)
    return report


def _of_copy(root: Path, uri: str) -> tuple[str, list[HeldFile]]:
    """The source of a copy, and the files that it holds of the resource."""
    with readable_state(DestinationFolder(root)) as database, database.read() as t:
        url = fact(t, "url")
        rows = t.rows(
            "SELECT s.name, r.path, r.size, r.digest FROM resources r JOIN sets s ON s.id = r.set_id"
            " WHERE r.uri = ? AND r.path IS NOT NULL",
            (uri,),
        )
        held = [HeldFile(name, printable_path(path), size, digest) for name, path, size, digest in rows]
    if url is None:
        raise UsageFault("this copy has no source yet", where=str(root), advice="Name the address of the source.")
    return url, held


def _listed_state(documents: Documents, offer: Offer, uri: str, faults: list[str]) -> ListedState | None:
    """What the lists of one set say of one resource, the last of them last; None: nothing."""
    lists, visited = DumpLists(documents), set[str]()
    place, entry = "", None
    told: dict[str, list[LinkStatement]] = {}
    pending = deque((one, 0) for one in (offer.baseline_document, offer.changes_document) if one is not None)
    while pending and len(visited) < _MOST_PARTS:
        where, depth = pending.popleft()
        if where in visited:
            continue
        visited.add(where)
        taken = _Taken(uri)
        answer = _read(lists, where, taken)
        if not isinstance(answer, DocumentRead):
            faults.append(f"{where}: {answer}")
            continue
        if taken.entry is not None:
            place, entry = where, taken.entry
        told.update(taken.others)
        if depth < DEEPEST_INDEX:
            pending.extendleft((part, depth + 1) for part in reversed(taken.parts))
    others = [statement for statements in told.values() for statement in statements]
    if entry is None:
        return ListedState(set=offer.name, document="", stated_elsewhere=others) if others else None
    return ListedState(
        set=offer.name,
        document=place,
        **_shown(entry, "lastmod", "length", "hash", "type", "encoding", "change", "datetime"),
        links=sorted(map(_statement, entry.links), key=_rank),
        stated_elsewhere=sorted(others, key=_rank),
    )


class _Taken:
    """What one document says: of the resource its last entry; of every other one its links to the resource."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.begin()

    def begin(self) -> None:
        self.entry: Entry | None = None
        self.parts: list[str] = []
        self.others: dict[str, list[LinkStatement]] = {}

    def take(self, document: Document, entries: list[Entry]) -> None:
        if RULES[document.kind].root is Root.SITEMAPINDEX:
            self.parts += [entry.loc for entry in entries[: _MOST_PARTS - len(self.parts)]]
            return
        for entry in entries:
            if entry.loc == self._uri or normalise(entry.loc) == self._uri:
                self.entry = entry
            elif entry.links or entry.loc in self.others:
                said = [_statement(link, entry.loc) for link in entry.links if normalise(link.href) == self._uri]
                if entry.loc in self.others or (said and len(self.others) < _MOST_STATEMENTS):
                    self.others[entry.loc] = said[:_MOST_STATEMENTS]


def _statement(link: Link, stated_by: str | None = None) -> LinkStatement:
    said = _shown(link, "rel", "href", "pri", "type", "length", "hash", "modified", "encoding")
    return LinkStatement(stated_by=stated_by, **said)


def _rank(statement: LinkStatement) -> tuple[int, str, int]:
    return [*_RANKS.split(), statement.rel].index(statement.rel), statement.rel, statement.pri or 999_999
