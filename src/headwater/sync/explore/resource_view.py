"""One resource with all that belongs to it, as a source lists it: for `headwater explore --resource`.

Reads lists as streams, never resources. What other entries say of the resource (a metadata record that describes it, a
representation whose generic URI it is) belongs to it as well (RS-REL-01…12).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from headwater.copies.schema import FOLDER
from headwater.errors import Exit, SourceFault, UsageFault
from headwater.progress import Listener, silent
from headwater.spec.kinds import PATCH, RULES, Root
from headwater.spec.records import Document, Entry, Link
from headwater.spec.times import format_datetime
from headwater.spec.uris import normalise
from headwater.sync.connection import starting_uri
from headwater.sync.copy.destination_folder import DestinationFolder, state_copy
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.explore.offer_tree import wanted_offers
from headwater.sync.lists.documents import DocumentRead, Documents
from headwater.sync.options import SyncOptions, given_options
from headwater.sync.packages.dump_lists import DumpLists
from headwater.sync.run import open_transport, utcnow
from headwater.sync.sets.discovery import Discovery
from headwater.sync.sets.selection import MOST_SETS, SetSelection
from headwater.sync.state.facts import fact
from headwater.sync.state.set_rows import Offer
from headwater.transport.transport import Transport

_MOST_DOCUMENTS = 100_000
_MOST_STATEMENTS = 1_000
_DEEPEST = 2
_ORDER = (
    "duplicate", "canonical", "alternate", "describedby", "describes", "profile", "memento", "timegate", "timemap",
    PATCH, "collection", "via",
)  # fmt: skip
"""Relations in the order in which they are told; then all others."""


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
    document: str
    """The list that says so."""

    lastmod: str | None = None
    length: int | None = None
    hash: str | None = None
    type: str | None = None
    encoding: str | None = None
    change: str | None = None
    datetime: str | None = None
    links: list[LinkStatement] = []
    stated_elsewhere: list[LinkStatement] = []
    """Links of other entries to the resource."""


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
    transport: Transport | None = None,
) -> ResourceReport:
    """What the source at `where` lists of the resource `uri`; `where` may be the folder of a copy, whose source it is.

    Raises SourceFault when there is no ResourceSync, UsageFault when `where` is a folder and no copy.
    """
    options = given_options(options)
    wanted = normalise(uri)
    url, held = _of_copy(Path(where), wanted) if Path(where).is_dir() else (where, [])
    report = ResourceReport(source=starting_uri(url), uri=uri, held=held)
    with open_transport(report.source, options, transport) as wire:
        documents = Documents(wire, listener, now=utcnow)
        found = Discovery(documents, sitemap=True, wanted=SetSelection(options.sets), most=MOST_SETS).find(
            report.source
        )
        report.faults += [f"{place}: {what}" for place, what in found.faults]
        for offer in wanted_offers(found, options.sets):
            state = _SetView(documents, wanted, report.faults).read(offer)
            if state is not None:
                report.sets.append(state)
        report.requests = documents.requests
    if report.faults or not report.sets:
        report.exit_status = int(Exit.FINDINGS)
    return report


def _of_copy(root: Path, uri: str) -> tuple[str, list[HeldFile]]:
    """The source of a copy, and the files that it holds of the resource."""
    if not (root / FOLDER / "state.sqlite").is_file():
        raise UsageFault("this folder is no copy", where=str(root), advice="Name a copy, or the address of a source.")
    with state_copy(DestinationFolder(root)) as database, database.read() as t:
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


class _SetView:
    """Reads the lists of one set, and keeps what they say of one resource."""

    def __init__(self, documents: Documents, uri: str, faults: list[str]) -> None:
        self._documents = DumpLists(documents)
        self._uri = uri
        self._faults = faults
        self._visited: set[str] = set()
        self._entry: tuple[str, Entry] | None = None
        self._others: dict[str, list[LinkStatement]] = {}

    def read(self, offer: Offer) -> ListedState | None:
        """What the set says of it; None: nothing."""
        for document in (offer.baseline_document, offer.changes_document):
            if document is not None:
                self._read(document, 0)
        others = [statement for statements in self._others.values() for statement in statements]
        if self._entry is None:
            if not others:
                return None
            return ListedState(set=offer.name, document="", stated_elsewhere=others)
        place, entry = self._entry
        return ListedState(
            set=offer.name,
            document=place,
            lastmod=None if entry.lastmod is None else format_datetime(entry.lastmod),
            length=entry.length,
            hash=entry.hash,
            type=entry.type,
            encoding=entry.encoding,
            change=None if entry.change is None else entry.change.value,
            datetime=None if entry.datetime is None else format_datetime(entry.datetime),
            links=sorted(map(_statement, entry.links), key=_rank),
            stated_elsewhere=sorted(others, key=_rank),
        )

    def _read(self, uri: str, depth: int) -> None:
        if uri in self._visited or len(self._visited) >= _MOST_DOCUMENTS:
            return
        self._visited.add(uri)
        taken = _Taken(self._uri)
        try:
            answer = self._documents.read(uri, taken)
        except SourceFault as fault:
            self._faults.append(f"{uri}: {fault}")
            return
        if not isinstance(answer, DocumentRead):
            self._faults.append(f"{uri}: cannot be had")
            return
        if taken.entry is not None:
            self._entry = (uri, taken.entry)
        self._others.update(taken.others)
        for part in taken.parts if depth < _DEEPEST else ():
            self._read(part, depth + 1)


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
            self.parts += [entry.loc for entry in entries[: _MOST_DOCUMENTS - len(self.parts)]]
            return
        for entry in entries:
            if entry.loc == self._uri or normalise(entry.loc) == self._uri:
                self.entry = entry
            elif entry.links or entry.loc in self.others:
                said = [_statement(link, entry.loc) for link in entry.links if normalise(link.href) == self._uri]
                if said or entry.loc in self.others:
                    self._keep(entry.loc, said)

    def _keep(self, loc: str, said: list[LinkStatement]) -> None:
        if loc in self.others or len(self.others) < _MOST_STATEMENTS:
            self.others[loc] = said[:_MOST_STATEMENTS]


def _statement(link: Link, stated_by: str | None = None) -> LinkStatement:
    return LinkStatement(
        rel=link.rel,
        href=link.href,
        stated_by=stated_by,
        pri=link.pri,
        type=link.type,
        length=link.length,
        hash=link.hash,
        modified=None if link.modified is None else format_datetime(link.modified),
        encoding=link.encoding,
    )


def _rank(statement: LinkStatement) -> tuple[int, str, int]:
    order = _ORDER.index(statement.rel) if statement.rel in _ORDER else len(_ORDER)
    return order, statement.rel, statement.pri or 999_999
