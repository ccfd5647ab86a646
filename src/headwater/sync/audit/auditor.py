"""The audit of a whole copy: every file is compared by hash with what the source lists; nothing is modified (DST-Q).

What is expected is the Resource List as of its `at`, with all later changes applied. Only documents are fetched, no
content. The state is read from a private copy; without one, as for a copy that another tool has made, names follow the
same rule.
"""

import datetime as dt
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.copy_state import FOLDER, STATE
from headwater.errors import UsageFault
from headwater.progress import Listener, Notice, silent
from headwater.spec.records import HASHLIB
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.audit.comparison import TABLES, SetComparison
from headwater.sync.audit.verdicts import judge_copy, judge_set, judge_stores
from headwater.sync.connection import Scope, starting_uri
from headwater.sync.copy.destination_folder import DestinationFolder, no_set, state_copy
from headwater.sync.copy.file_names import base_folder
from headwater.sync.copy.held_files import digest_of_file
from headwater.sync.copy_status import copy_records
from headwater.sync.lists.documents import Documents
from headwater.sync.lists.entries import ListContext, any_patches_alone
from headwater.sync.options import Choice, SyncOptions, given_options
from headwater.sync.packages.dump_documents import DumpLists
from headwater.sync.reports import DIFFERENT, EXTRA, MISSING, SAME, UNVERIFIABLE, AuditReport, Finding, SetAudit
from headwater.sync.run import begin_work, open_transport, utcnow
from headwater.sync.sets.discovery import DiscoveredSets, Discovery
from headwater.sync.sets.moved_sets import check_source, match, rows_of, to_forget
from headwater.sync.sets.registry import offered_scope
from headwater.sync.sets.selection import pick, takes_sitemaps, wanted_of
from headwater.sync.source_times import check_past, format_micros, micros
from headwater.sync.state import AS_OF, SetRow, fact, moved_documents, sets
from headwater.transport.transport import Transport
from headwater.typed_decoding import from_json


def audit(
    url: str | None,
    destination: Path | str,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
    each: Callable[[Finding], object] | None = None,
    transport: Transport | None = None,
    now: Callable[[], dt.datetime] = utcnow,
) -> AuditReport:
    """Compare the copy in `destination` with the lists of the source at `url`; changes nothing.

    It hashes every file, and compares with the listed hash, or without one with the copy's own record. With
    `options.at` it compares with the source at that time. Without `url` it asks no source, and compares with the
    record. `each` gets every file: first those that are the same, then the findings of the set.

    Raises UsageFault, SourceFault when the source cannot be read, StoreFault when the copy cannot be read, and
    Undetermined when there is no Resource List.
    """
    options = given_options(options)
    began, began_at = time.monotonic(), now()
    root = Path(os.path.abspath(destination))
    url = None if url is None else starting_uri(url)
    if options.base is not None:
        base_folder(options.base)
    if not root.is_dir():
        raise UsageFault(
            "there is no such folder",
            code="HW-SYN-13",
            where=str(root),
            advice="Name the folder of a copy; `headwater sync URL DEST` makes one.",
        )
    home = DestinationFolder(root)
    with home.at_rest(), open_transport(url or "", options, transport) as wire, state_copy(home) as database:
        begin_work(wire, database)
        documents = Documents(wire, listener, now=now)
        moment = None if options.at is None else check_past(options.at, micros(now()) or 0)
        report = _Audit(url, root, options, listener, documents, database, moment, each).run()
    report.time = began_at
    report.seconds = round(time.monotonic() - began, 3)
    return report


@dataclass
class _Audit:
    """The audit of all sets, in a private copy of the state of the copy."""

    url: str | None
    root: Path
    options: SyncOptions
    listener: Listener
    documents: Documents
    database: Database
    moment: int | None
    each: Callable[[Finding], object] | None

    def run(self) -> AuditReport:
        """Compare with what is, or with what was at a moment."""
        report = AuditReport(source=self.url or "", destination=str(self.root), as_of=format_micros(self.moment))
        with self.database.write() as t:
            t.run(TABLES)
            known = sets(t)
            copied, url = fact(t, AS_OF), fact(t, "url")
            self.documents.moved |= moved_documents(t)
        report.copy_as_of = None if copied is None else format_micros(int(copied))
        if self.url is None:
            return self._by_record(report, known, url)
        wanted, sitemap = wanted_of(self.options, known), takes_sitemaps(self.options, known)
        found = Discovery(self.documents, sitemap=sitemap, wanted=wanted).find(self.url)
        matches = match(self.documents, known, found, url)
        check_source(known, found, matches, url, self.root)
        with self.database.write() as t:  # the set of every offer, as it is held or as a run would begin it
            offered = rows_of(t, self.documents, known, found, matches)
        told = {row.id for row in offered}
        gone = [row for row in known if row.id not in told]
        every = [*offered, *gone]
        meant = {row.id for row in (pick(every, self.options.sets, self.url) if self.options.sets else every)}
        rows = [row for row in offered if row.id in meant]
        for row in rows:
            report.sets.append(self._set(row, found.final, [one.folder for one in every if one.id != row.id]))
        if self.options.store is not None or self.options.sparql is not None:
            from headwater.sync.dataset_sync import audit_stores  # takes the RDF library along, which few use

            for row, result in zip(rows, report.sets, strict=True):
                with self.database.read() as t:
                    result.stores = audit_stores(t, row, self.root, self.options)
                judge_stores(result)
        report.sets += self._not_offered([row for row in gone if row.id in meant], found)
        report.requests = self.documents.requests
        for where, what in found.detours.items():
            self.documents.warn("DST-F4", f"{what}; Headwater took another way, which may not lead to all sets", where)
        judge_copy(report, whole=not found.faults and not found.detours)
        return report

    def _by_record(self, report: AuditReport, known: list[SetRow], source: str | None) -> AuditReport:
        """Compare with what the copy has recorded of the files that it has placed."""
        if not known and (self.root / FOLDER / STATE).is_file():
            raise no_set(str(self.root))
        if not known or self.moment is not None:
            what = "its own record is of the present" if known else "this folder is not a copy"
            raise UsageFault(what, code="HW-SYN-20", where=str(self.root))
        report.source, report.local = source or "", True
        for row in pick(known, self.options.sets, str(self.root)) if self.options.sets else known:
            context = ListContext(self.documents, self.database, Scope(frozenset()), self.listener)
            root, choice = Path(os.path.realpath(self.root)), SyncOptions().choice
            comparison = SetComparison(context, row, choice, root, self.options, None, self.each, is_by_record=True)
            report.sets.append(comparison.run([one.folder for one in known if one.id != row.id]))
        judge_copy(report, whole=True)
        return report

    def _set(self, row: SetRow, final: str, others: list[str]) -> SetAudit:
        """The audit of one set, of what the last run has chosen, with the hosts that are let in or left out here."""
        options = self.options
        chosen = from_json(row.scope, Choice) if row.scope else SyncOptions().choice
        chosen = msgspec.structs.replace(
            chosen,
            allow_hosts=(*chosen.allow_hosts, *options.allow_hosts),
            any_host=chosen.any_host or options.any_host,
            skip_hosts=(*chosen.skip_hosts, *options.skip_hosts),
        )
        if self.moment is not None and chosen.by_links:
            what = "a choice by metadata or media types can only be compared with the present"
            raise UsageFault(what, where=str(self.root), advice="Leave out --at.")
        scope = offered_scope(self.documents.moved, (self.url or "", final), chosen, row.offer)
        lists = DumpLists(self.documents)
        context = ListContext(lists, self.database, scope, self.listener, chosen, self._restate)
        root = Path(os.path.realpath(self.root))
        comparison = SetComparison(context, row, chosen, root, options, self.moment, self.each)
        return comparison.run(others)

    def _restate(self, t: Transaction, set_id: int) -> None:
        """Changes that are told by their patches alone are those of the dataset (TIM-A1)."""
        if any_patches_alone(t):
            from headwater.sync.dataset_sync import restate_patches  # takes the RDF library along

            restate_patches(t, set_id, self.options.dataset, listed=True)

    def _not_offered(self, gone: list[SetRow], found: DiscoveredSets) -> Iterator[SetAudit]:
        unread = dict(found.faults)
        for row in gone:
            reason = f"the source no longer offers this set; {to_forget(row, self.root)}"
            if (why := unread.get(row.offer.capability_list or "")) is not None:
                reason = f"its Capability List cannot be read: {why}"
            elif found.description is None:
                continue
            self.listener(Notice("DST-Q", f"{row.name}: {reason}", row.offer.identity))
            yield SetAudit(name=row.name, folder=row.folder, reason=reason)


# the audit of a copy of a copy against the first source: by the `via` links of its entries, and the source's hashes
#
# It needs nothing of who is between. What the first source lists now is expected; a file is found by the `via` of the
# entry that it was copied by, and hashed again.

_MOST_FINDINGS_THROUGH = 1_000  # of a set, that the report of an audit against the first source keeps


def audit_through(
    url: str,
    destination: Path | str,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
    each: Callable[[Finding], object] | None = None,
) -> AuditReport:
    """Compare the copy in `destination` with the lists of the first source at `url`, by `via` links; changes nothing.

    The report has one set for each of the first source's. Resources that came from elsewhere are not looked at; `extra`
    are those whose `via` lies where all that the source lists lies. Raises as `audit` does, and UsageFault where no
    entry has a `via` link.
    """
    root = Path(os.path.abspath(destination))
    held: dict[str, str] = {}
    for record in copy_records(root):
        held |= {link.href: record.path for link in record.links if link.rel.lower() == "via"}
    if not held:
        what = "no entry of this copy has a `via` link: its source republishes nothing"
        raise UsageFault(what, where=str(root), advice="Leave out --through.")
    expected: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="headwater-") as nothing:  # against nothing, all that is listed is missing
        report = audit(url, nothing, options, listener=listener, each=expected.append)
    listed = [one for one in expected if one.verdict == MISSING and one.uri is not None]
    doubts = {one.name: [one.reason] if one.reason else [] for one in report.sets}
    report.sets = [SetAudit(name=one.name, folder=one.folder, at=one.at) for one in report.sets]
    by_name = {one.name: one for one in report.sets}
    first, last = (min(uris), max(uris)) if (uris := [str(one.uri) for one in listed]) else ("", "")
    common = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    below = first[:common].rpartition("/")[0] + "/"  # what all have in common, the first and the last have
    for one in listed:
        result, path = by_name[one.set_name], held.pop(str(one.uri), None)
        verdict, found = _compared(root, path, one.expected)
        _count(result, Finding(verdict, one.uri, path or one.path, "", one.expected, found, one.set_name), each)
    for uri in sorted(uri for uri in held if below != "/" and uri.startswith(below)):
        _count(report.sets[0], Finding(EXTRA, uri, held[uri], set_name=report.sets[0].name), each)
    for result in report.sets:
        judge_set(result, [one for one in doubts[result.name] if not one.startswith("only deletions")])
    report.destination = str(root)
    judge_copy(report, whole=True)
    return report


def _compared(root: Path, path: str | None, expected: str | None) -> tuple[str, str | None]:
    """The verdict on a file, and its digest."""
    algorithm = (expected or "").partition(":")[0]
    if path is None:
        return MISSING, None
    if algorithm not in HASHLIB:
        return UNVERIFIABLE, None
    digest = digest_of_file(lambda: os.open(root / path, os.O_RDONLY | os.O_CLOEXEC), algorithm)
    if digest is None:
        return MISSING, None
    found = f"{algorithm}:{digest}"
    return (SAME if found == expected else DIFFERENT), found


def _count(result: SetAudit, finding: Finding, each: Callable[[Finding], object] | None) -> None:
    setattr(result, finding.verdict, getattr(result, finding.verdict) + 1)
    if finding.verdict == SAME:
        result.same_by_hash += 1
    elif len(result.findings) < _MOST_FINDINGS_THROUGH:
        result.findings.append(finding)
    else:
        result.findings_are_cut = True
    if each is not None:
        each(finding)
