"""The set context: one set in a run, its remembered row, its offer, its scope and its report."""

import msgspec

from headwater.errors import HeadwaterError, SourceFault
from headwater.storage.transaction import Transaction
from headwater.sync.connection import AnotherSet, Scope
from headwater.sync.linked_resources import forget_listing
from headwater.sync.lists.entries import ListContext, any_patches_alone, keep_dataset_flags, keep_links, scope_origins
from headwater.sync.lists.position import Position
from headwater.sync.packages.dump_documents import DumpLists
from headwater.sync.reports import SetReport, each_of_set
from headwater.sync.sets.moved_sets import is_move, moved_elsewhere, take_along
from headwater.sync.sets.polling import ask_for_offer, place_of
from headwater.sync.state import (
    SOURCE,
    Move,
    SetRow,
    forget_documents,
    keep_offer,
    keep_position,
    keep_validators,
    one_set,
)
from headwater.sync.transfer.work_queue import RunContext
from headwater.sync.update.difference import ask_for_old_deletions, contradicted


class SetRelocated(Exception):
    """A set was found to have moved while its lists were read; nothing was done of what they said."""


class SetContext:
    """The state of one set in a run: `row` is what is remembered, `offer` what is worked with, `report` the result."""

    def __init__(self, context: RunContext, row: SetRow, scope: Scope) -> None:
        each = each_of_set(context.each, row.name, context.source)
        self.run = msgspec.structs.replace(context, each=each, failed={})
        self.row = row
        self.offer = row.offer
        self.scope = scope
        self.move = row.move
        """Where the set was, as long as what is held has not been taken along to where it is offered (DST-F10)."""

        self._scope_before = row.scope
        self.choice = context.options.choice
        self.signature = self.choice.signature
        self.statuses: list[int] = []
        self.before = row.position
        """How far changes had been done when they were read last: from there Change Lists are to read on (DST-C10)."""

        self.is_listed = False
        """Whether `temp.listed` is the Resource List that this run has gone by."""

        self.compared: int | None = None
        """Before which time changes are compared with it."""

        self.is_bridged = False
        """Whether an archive or a dump has led to the position: the Change List need not have been read before."""

        self.awaits_consent = False  # whether this run has held back deletions
        self.report = SetReport(name=row.name, folder=row.folder, capability_list=row.offer.capability_list)
        self._is_asked = False

    @property
    def lists(self) -> ListContext:
        """The context in which lists of the set are read."""
        documents = DumpLists(self.run.documents, None if self.run.options.dry_run else self.run.temp)
        return ListContext(documents, self.run.database, self.scope, self.run.listener, self.choice, self._restate)

    def _restate(self, t: Transaction, set_id: int) -> None:
        """Changes that are told by their patches alone are those of the dataset (TIM-A1)."""
        if any_patches_alone(t):
            from headwater.sync.dataset_sync import restate_patches  # takes the RDF library along

            restate_patches(t, set_id, self.run.options.dataset)
        found = [] if self.compared is None else [(n,) for n, _ in contradicted(t, self.compared)]
        if found:
            t.many("UPDATE temp.changed SET pending = 1, asked = 'changed' WHERE n = ?", found)
            what = f"the Resource List does not have {len(found):,} changes from before its `at`: asking the source"
            self.warn("AMB-25", what, self.offer.baseline_document)
        ask_for_old_deletions(t, set_id)
        keep_links(t, set_id)
        keep_dataset_flags(t, set_id)

    @property
    def rescoped(self) -> bool:
        """Whether another choice of resources holds than for all that was done so far."""
        return self.row.scope not in (None, self.signature)

    def report_fault(self, fault: HeadwaterError, what: str | None = None) -> None:
        """Put a fault into the report: the set is not complete. `what` is told of one whose causes are told already."""
        self.statuses.append(fault.exit_status)
        self.report.complete = False
        self.report.fault = self.report.fault or str(fault)
        message = f"{what or fault.what}. {fault.todo}"
        self.run.documents.warn(fault.rule or fault.code, message, fault.where, fault=fault)

    def warn(self, rule: str, message: str, where: str | None = None) -> None:
        """Tell a person, once."""
        self.run.documents.warn(rule, message, where)

    def report_process(self, process: str) -> None:
        """Put a process that was carried out into the report."""
        known = self.report.process
        if process not in known:
            self.report.process = process if known == "none" else f"{known}+{process}"

    def reload(self) -> None:
        """Read the row of the set again."""
        with self.run.database.read() as t:
            self.row = one_set(t, self.row.id)

    def keep_before(self) -> None:
        """Remember how far the copy was, and for which choice: no later run may pass over what was not read on from."""
        if self.before is not None and not self.run.options.dry_run:
            with self.run.database.write() as t:
                keep_position(t, self.row.id, self.before)
                t.run("UPDATE sets SET scope = ? WHERE id = ?", (self._scope_before, self.row.id))
            self.reload()

    def start_over(self) -> None:
        """Without a Resource List only the changes themselves tell what another choice lets in: all are read again."""
        with self.run.database.write() as t:
            forget_documents(t, self.row.id)
            forget_listing(t, self.row.id)
            keep_position(t, self.row.id, Position())
            if self.run.options.accept_reset:
                t.run("UPDATE resources SET changed_at = NULL WHERE set_id = ?", (self.row.id,))
        self.before = None
        self.reload()

    def take_along(self, listed: str) -> None:
        """Take what is held along to where the source has moved, as far as what is `listed` there agrees with it.

        Raises MovedElsewhere, or AnotherSet, where a moved set's list is of something else: then nothing is changed.
        """
        with self.run.database.write() as t:
            row = msgspec.structs.replace(self.row, move=self.move)
            found, taken = take_along(t, row, self.offer, listed)
        if found is not None and self.move is not None and not taken:
            there = msgspec.structs.replace(row, offer=self.offer)
            if self.move.guessed:
                raise AnotherSet("this is another set", where=self.offer.identity, rule="DST-F10")
            raise moved_elsewhere(there, found, self.run.source, self.run.destination)
        if found is not None and taken:
            now = found.prefixes.new if found.prefixes else self.offer.identity
            told = f"{found.same:,} of {found.held:,} files of the copy are the same there, and all keep their names"
            self.warn("DST-F10", f"the set {self.row.name} has moved to {now}: {told}", self.offer.identity)
            self.move = None
            self.reload()
            self.before = self.row.position

    def look_for_move(self) -> None:
        """Where a list of the set is permanently redirected the Capability List may name others by now.

        Raises SetRelocated, once, if it does: what was just read is to be read anew.
        """
        position = self.row.position
        lists = {self.offer.baseline_document, self.offer.changes_document, position.list_uri if position else None}
        if not self.run.documents.redirected.isdisjoint(lists) and self.is_elsewhere():
            raise SetRelocated

    def is_elsewhere(self) -> bool:
        """Ask once where the lists of the set are, and say whether they are elsewhere by now (DST-C5, DST-A7).

        Raises SetRelocated where the set has moved for good, to a host in no scope yet or with its lists: nothing is
        taken over before it was compared with the copy (DST-F10).
        """
        uri, held = place_of(self.offer), self.offer
        if uri is None or self._is_asked:
            return False
        self._is_asked = True
        try:
            fresh, probe = ask_for_offer(self.run.documents, held, uri)
        except SourceFault:
            return False
        if fresh is None or not (fresh.baseline_document or fresh.changes_document):
            return False
        moved_to = probe.moved_to if self.move is None else None
        is_moved, is_changed = moved_to is not None and is_move(held, fresh), fresh.documents != held.documents
        origins = self.scope.origins | scope_origins({}, moved_to)
        is_relocated = is_moved or origins != self.scope.origins
        if self.move is None and (is_relocated or is_changed):
            with self.run.database.write() as t:
                keep_validators(t, SOURCE, uri, None, None, self.run.documents.moved.get(uri))
                if is_changed and not is_moved:
                    keep_offer(t, self.row.id, fresh)
        if is_changed:
            self.offer = fresh
        if is_relocated:
            self.move = Move(held) if is_moved else self.move
            self.scope = msgspec.structs.replace(self.scope, origins=origins)
            raise SetRelocated
        return (fresh.baseline_document, fresh.changes_document) != (held.baseline_document, held.changes_document)
