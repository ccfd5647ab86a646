"""`headwater explore`: what a source offers, as a tree of sets, capabilities and documents with times and counts."""

from __future__ import annotations

import datetime as dt

import msgspec

from headwater.errors import Exit, SourceFault
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.extensions import DumpLimits
from headwater.spec.faults import EmptyDocument
from headwater.spec.kinds import RULES, Kind, Root
from headwater.spec.records import Document, Entry
from headwater.spec.times import format_datetime
from headwater.sync.connection import starting_uri
from headwater.sync.lists.documents import DocumentRead, Documents, MissingDocument
from headwater.sync.options import SyncOptions, given_options
from headwater.sync.run import open_transport, utcnow
from headwater.sync.sets.discovery import DiscoveredSets, Discovery
from headwater.sync.sets.selection import MOST_SETS, SetSelection, unknown_set
from headwater.sync.state.set_rows import CHANGE_DUMP, CHANGE_LIST, RESOURCE_DUMP, RESOURCE_LIST, Offer
from headwater.transport.transport import Transport

_MOST_PARTS = 100_000


class ExploreWarning(msgspec.Struct, frozen=True):
    """A warning about a document: the rule, and how often it was broken."""

    rule: str
    message: str
    count: int


class ExploreNode(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One document of the source, and what it leads to."""

    uri: str
    title: str
    name: str | None = None
    capability: str | None = None
    kind: str | None = None
    entries: int | None = None
    octets: int | None = None
    resource_octets: int | None = None
    package_octets: int | None = None
    """Of a dump: the listed lengths of its packages together."""

    contents: str | None = None
    """Of a package: where a copy of its manifest is."""

    limits: DumpLimits | None = None
    """Of packages on demand: how much may be asked for."""

    at: str | None = None
    completed: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    until: str | None = None
    fault: str | None = None
    warnings: list[ExploreWarning] = []
    left_out: int = 0
    children: list[ExploreNode] = []


class ExploreReport(msgspec.Struct, kw_only=True):
    """What was found. `exit_status` 1: something cannot be read."""

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
    """Walk what the source behind `url` offers, downwards.

    Opened are of sets the first `most`, of an index the first `parts`; of a dump as many packages are shown. Reads
    documents as streams, never resources. Raises SourceFault when there is no ResourceSync, and UsageFault when a set
    that is wanted is not there.
    """
    options = given_options(options)
    url = starting_uri(url)
    faults: list[str] = []

    def listen(event: Progress | Notice) -> None:
        if isinstance(event, Progress) or event.rule == "DST-A2":  # lapses are shown where they are
            listener(event)

    with open_transport(url, options, transport) as wire:
        documents = Documents(wire, listen, now=utcnow)
        wanted = SetSelection(options.sets)
        found = Discovery(documents, sitemap=True, wanted=wanted, most=MOST_SETS if options.sets else most).find(url)
        offers = wanted_offers(found, options.sets)
        walk = _Walk(documents, parts, faults)
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
        for where, what in found.faults:
            tree.children.append(ExploreNode(uri=where, title="Capability List", fault=what))
            faults.append(what)
    status = Exit.FINDINGS if faults else Exit.DONE
    count = len(found.offers) + found.left_out if found.listed is None else len(found.listed)
    return ExploreReport(source=url, sets=count, tree=tree, requests=documents.requests, exit_status=int(status))


def wanted_offers(found: DiscoveredSets, sets: tuple[str, ...]) -> list[Offer]:
    """The sets that were found, or those of them that are named. Raises UsageFault for a name that none has."""
    if not sets:
        return list(found.offers)
    told = {said for offer in found.offers for said in (offer.name, offer.identity)}
    if unknown := set(sets) - told:
        raise unknown_set(unknown, [offer.name for offer in found.offers], found.url)
    return [offer for offer in found.offers if offer.name in sets or offer.identity in sets]


_DUMPS = (Kind.RESOURCE_DUMP, Kind.CHANGE_DUMP)
_ARCHIVED = {
    Kind.RESOURCE_LIST_ARCHIVE: Kind.RESOURCE_LIST,
    Kind.CHANGE_LIST_ARCHIVE: Kind.CHANGE_LIST,
    Kind.RESOURCE_DUMP_ARCHIVE: Kind.RESOURCE_DUMP,
    Kind.CHANGE_DUMP_ARCHIVE: Kind.CHANGE_DUMP,
}
_LISTED = dict.fromkeys(_DUMPS, "package") | {
    archive: f"archived {RULES[kind].title}" for archive, kind in _ARCHIVED.items()
}
"""What the entries of some documents are; these are shown and not opened."""

_CHANNELS = {one.value: one for one in (Kind.CHANGE_NOTIFICATION, Kind.FRAMEWORK_NOTIFICATION)}
"""What answers with nothing until there is something to tell (RS-NT-02)."""

_ORDER = {RESOURCE_LIST: 0, CHANGE_LIST: 1, RESOURCE_DUMP: 2, CHANGE_DUMP: 3}
"""Which capabilities come first."""


class _Walk:
    def __init__(self, documents: Documents, parts: int, faults: list[str]) -> None:
        self._documents = documents
        self._parts = parts
        self._faults = faults

    def set(self, offer: Offer) -> ExploreNode:
        """One set with its capabilities."""
        capabilities = sorted(offer.documents.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0]))
        if offer.capability_list is not None:
            node = self.document(offer.capability_list, "Capability List")
            node.children = [self.capability(name, uri) for name, uri in capabilities if uri]
            if (made := offer.on_demand) is not None:
                node.children.append(ExploreNode(uri=made.href, title="packages on demand", limits=made.limits))
        else:
            node = self.capability(*capabilities[0])
        node.name = offer.name
        return node

    def capability(self, name: str, uri: str) -> ExploreNode:
        """One capability: a list, or an index with its first documents."""
        node = self.document(uri, name, open_parts=True)
        node.capability = name
        return node

    def document(self, uri: str, title: str, *, open_parts: bool = False) -> ExploreNode:
        """One document, read to its end."""
        tally = _Tally(self._parts if open_parts else 0)
        try:
            answer = self._documents.read(uri, tally)
        except EmptyDocument as fault:
            if (channel := _CHANNELS.get(title)) is None:
                return self._failed(uri, title, str(fault))
            return ExploreNode(uri=uri, title=RULES[channel].title, kind=channel.value, entries=0, octets=0)
        except SourceFault as fault:
            return self._failed(uri, title, str(fault))
        if isinstance(answer, MissingDocument):
            return self._failed(uri, title, f"HTTP status {answer.status}")
        if not isinstance(answer, DocumentRead):
            return self._failed(uri, title, "answered with 304 unasked")
        node = _node(uri, answer, tally)
        if open_parts and RULES[answer.document.kind].root is Root.SITEMAPINDEX:
            node.children = [self.document(part, title) for part in tally.parts]
            node.left_out = max(tally.count - len(tally.parts), 0)
        elif open_parts and (listed := _LISTED.get(answer.document.kind)) is not None:
            node.children = [_child(entry, listed) for entry in tally.entries]
            node.left_out = max(tally.count - len(tally.entries), 0)
        return node

    def _failed(self, uri: str, title: str, what: str) -> ExploreNode:
        self._faults.append(f"{uri}: {what}")
        return ExploreNode(uri=uri, title=title, fault=what)


class _Tally:
    """Counts the entries of one document."""

    def __init__(self, parts: int) -> None:
        self._most = min(parts, _MOST_PARTS)
        self.begin()

    def begin(self) -> None:
        self.count = 0
        self.octets: int | None = None
        self.parts: list[str] = []
        self.entries: list[Entry] = []

    def take(self, document: Document, entries: list[Entry]) -> None:
        self.count += len(entries)
        if document.kind in _LISTED:
            self.entries += entries[: max(0, self._most - len(self.entries))]
        if len(self.parts) < self._most:
            self.parts += [entry.loc for entry in entries[: self._most - len(self.parts)]]
        for entry in entries:
            if entry.length is not None:
                self.octets = (self.octets or 0) + entry.length


def _node(uri: str, answer: DocumentRead, tally: _Tally) -> ExploreNode:
    document = answer.document
    lists = document.kind in (Kind.RESOURCE_LIST, Kind.SITEMAP)
    return ExploreNode(
        uri=uri,
        title=RULES[document.kind].title,
        kind=document.kind.value,
        entries=answer.count,
        octets=answer.octets,
        resource_octets=tally.octets if lists else None,
        package_octets=tally.octets if document.kind in _DUMPS else None,
        at=_text(document.at),
        completed=_text(document.completed),
        from_=_text(document.from_),
        until=_text(document.until),
        warnings=[ExploreWarning(rule, message, count) for rule, message, count in answer.warnings],
    )


def _child(entry: Entry, title: str) -> ExploreNode:
    """A package as its dump lists it, an archived document as its archive does; it is not opened."""
    contents = entry.link("contents")
    return ExploreNode(
        uri=entry.loc,
        title=title,
        octets=entry.length,
        at=_text(entry.at),
        completed=_text(entry.completed),
        from_=_text(entry.from_),
        until=_text(entry.until),
        contents=contents.href if contents is not None else None,
    )


def _text(moment: dt.datetime | None) -> str | None:
    return None if moment is None else format_datetime(moment)
