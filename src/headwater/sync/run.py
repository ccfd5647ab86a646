"""A whole run: find the sets, lock the copy, bring each set up to date, tell what happened."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headwater.errors import Exit, SourceFault
from headwater.progress import Listener, Notice, silent
from headwater.storage.database import Database, Transaction
from headwater.sync.copy.home import Home, borrowed_state, own_state
from headwater.sync.copy.ledger import Ledger
from headwater.sync.copy.naming import base_folder
from headwater.sync.copy.place import Tree
from headwater.sync.faults import AnotherSource, UnknownSetName
from headwater.sync.filters import Scope
from headwater.sync.kit import Kit
from headwater.sync.matching import Matches, free_name, is_of_another, match, move_set, redirects_of
from headwater.sync.moments import micros
from headwater.sync.network.transport import Credentials, Transport, TransportOptions
from headwater.sync.oneset import OneSet
from headwater.sync.options import Options, Report, SetReport, gravest
from headwater.sync.reading.discover import CAPABILITY_LISTS, Discovery, Found, offer_of, starting_uri
from headwater.sync.reading.documents import Documents
from headwater.sync.reading.intake import scope_origins
from headwater.sync.reading.wishes import Wishes
from headwater.sync.state import (
    FOLDER,
    TEMPORARY,
    Offer,
    SetRow,
    add_set,
    fact,
    keep_fact,
    keep_offer,
    keep_validators,
    sets,
    validators,
)

_OFFERED, _GONE = "offered", "offered by a description"  # facts: the sets last offered, and whether all were named
_SOURCE = 0  # the "set" whose documents are those of the source as a whole


def utcnow() -> dt.datetime:
    """The local clock; never compared with source times but to sanity-check (DST-C8)."""
    return dt.datetime.now(dt.UTC)


def sync(
    url: str,
    destination: Path | str,
    options: Options | None = None,
    *,
    listener: Listener = silent,
    transport: Transport | None = None,
    now: Callable[[], dt.datetime] = utcnow,
    stopped: Callable[[], bool] | None = None,
    wishes: Wishes | None = None,
) -> Report:
    """Bring the copy in `destination` up to date with the source behind `url`.

    Faults of the source and failed transfers are in the report (`exit_status`); a fault that leaves nothing to report
    on is raised as a HeadwaterError: no ResourceSync there (SourceFault), a wrong call (UsageFault), our own disk or
    another run on the same folder (StoreFault). Killed at any moment, the next call continues; so it does after this
    one was `stopped`, which ends it with Interrupted. `wishes` learns how long the source does not want to be asked
    again, also when a fault is raised.
    """
    options = options or Options()
    began = time.monotonic()
    root = Path(os.path.abspath(destination))
    url = starting_uri(url)
    wishes = wishes or Wishes()
    if options.base is not None:
        base_folder(options.base)
    state = borrowed_state if options.dry_run else own_state
    with open_transport(url, options, transport, stopped) as wire, state(Home(root)) as database:
        wire.heard = wishes.hear
        run = _Run(url, root, options, listener, wire, database, now, wishes)
        report = run.go()
    report.seconds = round(time.monotonic() - began, 3)
    return report


@contextlib.contextmanager
def open_transport(
    url: str, options: Options, given: Transport | None, stopped: Callable[[], bool] | None = None
) -> Iterator[Transport]:
    """The transport given, or one made as the options say."""
    if given is not None:
        yield given
        return
    credentials = Credentials(url, options.authorization) if options.authorization else None
    settings = TransportOptions(
        concurrency=options.concurrency,
        per_host=options.concurrency,
        rate_per_second=options.rate,
        stall_timeout_seconds=options.stall_seconds,
        retries=options.retries,
        credentials=credentials,
        stopped=stopped,
    )
    with Transport(settings) as made:
        yield made


class _Run:
    def __init__(
        self,
        url: str,
        root: Path,
        options: Options,
        listener: Listener,
        transport: Transport,
        database: Database,
        now: Callable[[], dt.datetime],
        wishes: Wishes,
    ) -> None:
        self._wishes = wishes
        self._url = url
        self._root = root
        self._options = options
        self._listener = listener
        self._transport = transport
        self._database = database
        self._now = now
        self._documents = Documents(transport, listener, now=now)
        self._report = Report(source=url, destination=str(root), dry_run=options.dry_run)
        self._final = url
        self._unread: set[str] = set()

    def go(self) -> Report:
        with self._database.write() as t:
            t.run(TEMPORARY)
        fresh = _is_empty(self._root)
        offered = self._offered()
        rows = self._chosen(self._remembered() if offered is None else offered)
        statuses: list[int] = []
        with self._tree() as tree:
            ledger = Ledger(self._database, self._root, self._now)
            number = 0 if self._options.dry_run or tree is None else ledger.begin(tree)
            for row in rows:
                kit = self._kit(tree, number, adopt=not fresh)
                statuses.append(self._one(kit, row).exit_status)
            if number:
                ledger.end(number, changed=any(one.created or one.updated for one in self._report.sets))
        if self._report.faults:
            statuses.append(Exit.SOURCE)
        self._wishes.poll(self._polled(rows))
        self._report.retry_after_seconds = self._wishes.retry_after_seconds
        self._report.max_age_seconds = self._wishes.max_age_seconds
        self._report.requests = self._documents.requests
        self._report.document_octets = self._documents.octets
        self._report.exit_status = gravest(statuses)
        return self._report

    # which sets

    def _offered(self) -> list[SetRow] | None:
        """The sets that the source offers by now; None: what is remembered still holds (DST-C1, RS-DST-09)."""
        with self._database.write() as t:
            known = sets(t)
            same = fact(t, "url") == self._url
            description = fact(t, "description")
            held = validators(t, _SOURCE, description) if description else None
        if not (known and same):
            return self._discover(bool(known))
        self._final = self._remembered_final()
        if description is None:
            return None
        try:
            look = self._documents.look(description, validators=held)
        except SourceFault as fault:
            self._listener(Notice("DST-C5", f"the Source Description cannot be read: {fault.what}", description))
            return None
        return None if look.status == 304 else self._discover(known=True)

    def _remembered_final(self) -> str:
        with self._database.write() as t:
            return fact(t, "final") or self._url

    def _discover(self, known: bool) -> list[SetRow] | None:
        try:
            found = Discovery(self._documents, sitemap=self._options.sitemap).find(self._url)
        except SourceFault as fault:
            if not known or not self._same_url():
                raise
            self._listener(Notice(fault.rule or fault.code, f"{fault.what}: what is remembered is used", fault.where))
            return None
        self._final = found.final
        for where, what in found.faults:
            self._unreadable("DST-A6", f"a set cannot be read: {what}", where)
        return self._remember(found)

    def _unreadable(self, rule: str, what: str, where: str) -> None:
        """A fault of one set's Capability List: everything else goes on."""
        if where not in self._unread:
            self._unread.add(where)
            self._listener(Notice(rule, what, where))
            self._report.faults.append(f"{where}: {what}")

    def _same_url(self) -> bool:
        with self._database.write() as t:
            return fact(t, "url") == self._url

    def _remember(self, found: Found) -> list[SetRow]:
        """Remember what was found, and give the sets: those known, also where they have moved, and those that are new.

        Known sets whose Capability List cannot be read now are among them, as they are remembered.
        """
        with self._database.write() as t:
            known = sets(t)
        matches = match(known, found.offers, redirects_of(self._documents))
        with self._database.write() as t:
            if is_of_another(known, found.offers, matches):
                raise AnotherSource(
                    f"the folder is a copy of {fact(t, 'url') or known[0].offer.identity}", where=str(self._root)
                )
            keep_fact(t, "url", found.url)
            keep_fact(t, "final", found.final)
            if found.description:
                keep_fact(t, "description", found.description)
                if not found.faults:
                    keep_validators(t, _SOURCE, found.description, found.description_etag, found.description_modified)
            else:
                t.run("DELETE FROM facts WHERE name = 'description'")
            rows = self._rows(t, known, found.offers, matches)
            rows += [row for row in matches.gone if row.offer.capability_list in self._unread]
            keep_fact(t, _OFFERED, msgspec.json.encode([row.id for row in rows]).decode())
            keep_fact(t, _GONE, "yes" if found.description else "")
        self._miss(known, rows, told=bool(found.description))
        return rows

    def _rows(self, t: Transaction, known: list[SetRow], offers: tuple[Offer, ...], matches: Matches) -> list[SetRow]:
        """Every offer's set: the one that is known, or a new one, each in its own folder when there are several."""
        names = {row.name for row in known}
        folders = {row.folder.lower() for row in known}
        several = len(offers) > 1 or len(known) > 1 or bool(known and not matches.rows)
        found = []
        for offer in offers:
            row = matches.rows.get(offer.identity)
            if row is None:
                offer = msgspec.structs.replace(offer, name=free_name(offer.name, names))
                folder = offer.name if several else ""
                names.add(offer.name)
                found.append(add_set(t, offer, folder if folder.lower() not in folders else offer.name))
                continue
            if row.offer.identity != offer.identity:
                self._listener(Notice("DST-F10", f"the set {row.name} is now at {offer.identity}", row.offer.identity))
            found.append(move_set(t, row, offer))
        return found

    def _remembered(self) -> list[SetRow]:
        """The sets that the source offered when it was last looked at."""
        with self._database.write() as t:
            known = sets(t)
            kept, told = fact(t, _OFFERED), bool(fact(t, _GONE))
        if kept is None:
            return known
        numbers = set(msgspec.json.decode(kept, type=list[int]))
        rows = [row for row in known if row.id in numbers]
        self._miss(known, rows, told=told)
        return rows

    def _miss(self, known: list[SetRow], rows: list[SetRow], *, told: bool) -> None:
        """Say which sets the Source Description lists no longer: they are kept, and no longer brought up to date."""
        offered = {row.id for row in rows}
        for row in known if told else ():
            if row.id not in offered:
                where = row.offer.capability_list or row.offer.identity
                self._listener(
                    Notice("DST-Q", f"the source no longer offers the set {row.name}: it stays as it is", where)
                )

    def _chosen(self, rows: list[SetRow]) -> list[SetRow]:
        wanted = self._options.sets
        if not wanted:
            return rows
        chosen = [row for row in rows if row.name in wanted or row.offer.identity in wanted]
        unknown = set(wanted) - {row.name for row in chosen} - {row.offer.identity for row in chosen}
        if unknown:
            names = ", ".join(row.name for row in rows)
            raise UnknownSetName(f"no set {', '.join(sorted(unknown))}; the sets are: {names}", where=self._url)
        return chosen

    # one set after another

    def _one(self, kit: Kit, row: SetRow) -> SetReport:
        row = self._with_fresh_offer(row)
        origins = scope_origins(self._url, self._final, row.offer.capability_list)
        scope = Scope(origins, frozenset(host.lower() for host in self._options.allow_hosts), self._options.any_host)
        report = OneSet(kit, row, scope).run()
        self._report.sets.append(report)
        return report

    def _with_fresh_offer(self, row: SetRow) -> SetRow:
        """Where there is no Change List to poll, the Capability List is polled: it may name one by now."""
        uri = row.offer.capability_list
        if row.position is None or row.offer.change_list is not None or uri is None or uri in self._unread:
            return row
        with self._database.write() as t:
            held = validators(t, _SOURCE, uri)
        try:
            look = self._documents.look(uri, validators=held)
        except SourceFault as fault:
            self._unreadable(fault.rule or fault.code, f"the Capability List cannot be read: {fault.what}", uri)
            return row
        if look.status == 304:
            return row
        if look.document is None or look.document.kind not in CAPABILITY_LISTS:
            why = look.fault.what if look.fault is not None else f"HTTP status {look.status}"
            self._unreadable("DST-A6", f"the Capability List cannot be read: {why}", uri)
            return row
        fresh = offer_of(look, row.offer.description, self._documents)
        offer = msgspec.structs.replace(fresh, name=row.offer.name, identity=row.offer.identity)
        with self._database.write() as t:
            keep_offer(t, row.id, offer)
            keep_validators(t, _SOURCE, uri, look.etag, look.last_modified)
        return msgspec.structs.replace(row, offer=offer)

    def _polled(self, rows: list[SetRow]) -> Iterator[str]:
        """The document of each set that says first that there is something new."""
        with self._database.write() as t:
            now = {row.id: row for row in sets(t)}
        for row in rows:
            held = now[row.id]
            if held.position is not None and held.position.open and held.position.list_uri:
                yield held.position.list_uri
            elif uri := held.offer.change_list or held.offer.resource_list or held.offer.capability_list:
                yield uri

    def _kit(self, tree: Tree | None, number: int, *, adopt: bool) -> Kit:
        return Kit(
            documents=self._documents,
            transport=self._transport,
            database=self._database,
            tree=tree,
            temp=str(self._root / FOLDER / "tmp"),
            run=number,
            options=self._options,
            listener=self._listener,
            now=lambda: micros(self._now()) or 0,
            adopt=adopt,
        )

    @contextlib.contextmanager
    def _tree(self) -> Iterator[Tree | None]:
        if self._options.dry_run:
            if not self._root.is_dir():
                yield None
                return
            with Tree(self._root, None) as tree:
                yield tree
            return
        with Tree(self._root, self._root / FOLDER / "tmp") as tree:
            yield tree


def _is_empty(root: Path) -> bool:
    """Whether the copy holds nothing yet: then nothing can be adopted."""
    try:
        with os.scandir(root) as entries:
            return all(entry.name == FOLDER for entry in entries)
    except OSError:
        return True


__all__ = ["Options", "Report", "SetReport", "sync"]
