"""The baseline of one set: reads its Resource List, applies it, and sets the position (DST-B)."""

import msgspec

from headwater.errors import SourceFault, Undetermined
from headwater.spec.kinds import Kind
from headwater.storage.transaction import Transaction
from headwater.sync.connection import IncompleteList, MovedElsewhere, RedirectRefused, Unreachable, WrongDocument
from headwater.sync.linked_resources import forget_listing, put_listed, release_alternates
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.documents import MissingDocument
from headwater.sync.lists.position import Position, position_of_list
from headwater.sync.lists.resource_lists import (
    CompletedBaseline,
    Component,
    OtherDocument,
    ResourceListRead,
    ResourceListReader,
    UnchangedList,
    is_completed,
)
from headwater.sync.sets.moved_sets import LISTED
from headwater.sync.source_times import FUTURE, format_micros
from headwater.sync.state import (
    CHANGE_LIST,
    RESOURCE_DUMP,
    RESOURCE_LIST,
    SetRow,
    fact,
    forget_documents,
    keep_fact,
    keep_position,
    keep_validators,
    validators,
)
from headwater.sync.update.applier import Applier
from headwater.sync.update.difference import Difference, forget_pushed, let_list_decide
from headwater.sync.update.set_context import SetContext
from headwater.typed_decoding import from_json

_PRINT = "baseline of set {}"  # a fact: the digest of the octets of its list
_COMPONENTS = "components of set {}"  # a fact: those of its index, as they were read

ACCEPT = (
    "Run the same command again when there is a newer list; where the source was really set back, run it with"
    " --accept-reset."
)
_UNTOLD = """
SELECT 1 FROM (
  SELECT uri, changed_at AS at FROM resources WHERE set_id = ?1
  UNION ALL SELECT uri, doomed_at FROM resources WHERE set_id = ?1
  UNION ALL SELECT uri, changed_at FROM failures WHERE set_id = ?1) AS k
WHERE k.at > ?2 AND k.at > coalesce(
  (SELECT max(iif(c.exact, c.at, coalesce(c.latest, c.at))) FROM temp.changed c WHERE c.uri = k.uri), ?2) LIMIT 1"""
_FORGET = (
    "UPDATE resources SET changed_at = NULL, doomed_at = NULL WHERE set_id = ?",
    "DELETE FROM failures WHERE set_id = ?",
)
"""Where the user says that the source was set back, nothing of what was done later counts."""


class Baseline:
    """Carries out baselines; `tried` says that there was one in this run, `applied` that it had a list to go by."""

    def __init__(self, context: SetContext, applier: Applier) -> None:
        self._set = context
        self._run = context.run
        self._applier = applier
        self.tried = False
        self.applied = False
        self.decides = False
        """Whether the list decides, because Change Lists do not read on or the user says so (DST-C10)."""

        self.stale: Undetermined | None = None
        """Why nothing was done of a list that is older than that of the last baseline."""

    def carry_out(self, *, force: bool) -> None:
        """A baseline from the Resource List. `force`: also from that of the last baseline."""
        self.tried = True
        uri, row, held, done = self._set.offer.baseline_document, self._set.row, None, None
        assert uri is not None
        if not force and row.baseline_done and row.baseline_uri == uri:
            with self._run.database.read() as t:
                done = baseline_done(t, row)
                is_known = fact(t, _COMPONENTS.format(row.id)) is not None
                held = validators(t, row.id, uri) if is_known else None
        reached = row.position.time if row.position else None
        try:
            reader = ResourceListReader(self._set.lists, sitemap=self._set.offer.is_sitemap, reached=reached)
            found = reader.read(uri, held, done)
        except SourceFault as fault:
            if isinstance(fault, RedirectRefused) or not self._is_elsewhere(uri):
                raise
            self.carry_out(force=force)
            return
        if isinstance(found, ResourceListRead):
            self._apply(found)
        elif isinstance(found, UnchangedList):  # what is left are failures and deletions held back (DST-B1)
            if self._set.before is not None and self._set.before.is_unread:
                self._set.before = None  # the list still says what the copy was made by: any changes go on from it
            if found.etag or found.last_modified:
                with self._run.database.write() as t:
                    keep_validators(t, self._set.row.id, found.uri, found.etag, found.last_modified)
            self._applier.retry_earlier()
        elif self._is_elsewhere(uri):
            self.carry_out(force=force)
        elif isinstance(found, MissingDocument):
            raise Unreachable(f"the Resource List is missing: HTTP status {found.status}", where=uri, rule="DST-F4")
        else:
            self._other_kind(uri, found)

    def _is_elsewhere(self, uri: str) -> bool:
        """Whether the Capability List names another document by now than the one that could not be used."""
        return self._set.is_elsewhere() and self._set.offer.baseline_document not in (None, uri)

    def _other_kind(self, uri: str, found: OtherDocument) -> None:
        """The Capability List called it a Resource List; the document decides, and there is no baseline (DST-A7)."""
        wrong = WrongDocument(f"listed as a Resource List, but it is {found.called}", where=uri, rule="DST-A7")
        if found.kind not in (Kind.CHANGE_LIST, Kind.CHANGE_LIST_INDEX):
            raise wrong
        self._set.report_fault(wrong)  # the changes are done; what was there before them nothing tells
        change_list = self._set.offer.changes_document or uri
        if self._set.rescoped:
            self._set.start_over()
        offer = self._set.offer.with_document(RESOURCE_LIST, None).with_document(RESOURCE_DUMP, None)
        self._set.offer = offer.with_document(CHANGE_LIST, change_list)

    def _apply(self, snapshot: ResourceListRead) -> None:
        self._set.look_for_move()
        is_anew, is_accepted = self._set.rescoped or self.decides, self._run.options.accept_reset
        if self.decides and not is_accepted and not self._is_usable(snapshot):
            what = f"the {snapshot.title} of {format_micros(snapshot.at)} is older than known changes"
            raise Undetermined(what, code="HW-SYN-11", where=snapshot.uri, rule="DST-C10")
        if self._set.choice.by_links:
            at, types = None if is_anew or self._set.move is not None else snapshot.at, self._run.options.prefer_types
            with self._run.database.write() as t:
                put_listed(t, self._set.row.id, at, types, self._set.scope, complete=snapshot.complete)
        try:
            self._set.take_along(LISTED)
        except MovedElsewhere as cause:
            if snapshot.complete:
                raise
            raise _incomplete(snapshot) from cause
        known, now = self._set.row.baseline_at, self._run.now()
        is_older = known is not None and snapshot.stated_at is not None and snapshot.stated_at < known <= now + FUTURE
        if is_older and not self.decides:
            # one of before came back, from a cache perhaps: nothing of it is done (DST-B2, DST-F12)
            of = format_micros(snapshot.stated_at)
            message = f"the {snapshot.title} of {of} is older than that of the last baseline"
            self._set.warn("DST-F12", message, snapshot.uri)
            self._applier.retry_earlier()
            is_asked = self._run.options.baseline or self._set.rescoped
            if is_asked or self._set.offer.changes_document is None:
                self.stale = Undetermined(message, code="HW-SYN-11", where=snapshot.uri, rule="DST-F12", advice=ACCEPT)
            return
        self.stale = None
        self.applied = True
        self._set.report_process("baseline")
        self._set.report.baseline_by = snapshot.title
        self._set.report.at = format_micros(snapshot.at)
        may_remove = snapshot.complete and snapshot.settled

        def plan(t: Transaction, difference: Difference) -> None:
            for forget in _FORGET if self.decides and is_accepted else ():
                t.run(forget, (self._set.row.id,))
            let_list_decide(t, self._set.row.id)
            if not self._run.options.dry_run:
                # a run that is killed, or whose Change List cannot be read, leaves failures that only changes settle
                self._go_back(t, snapshot)
            complete, skipped = snapshot.complete, snapshot.skipped
            if self._set.rescoped:
                release_alternates(t, self._set.row.id)
            if is_anew and not self._set.choice.by_links:
                forget_listing(t, self._set.row.id)
            whole = difference.baseline(t, snapshot.at, complete=complete, skipped=skipped)
            if may_remove and whole:
                difference.gone(t, snapshot.at)

        self._applier.carry_out(plan, table="listed")
        if self._run.options.dry_run:
            return
        if not snapshot.complete:
            if self._set.row.position is None and self._set.offer.changes_document is not None:
                with self._run.database.write() as t:
                    keep_position(t, self._set.row.id, self._position_of(snapshot))
            self._set.reload()
            raise _incomplete(snapshot)
        if not snapshot.settled and self._set.offer.changes_document is None:
            raise Undetermined(
                f"the {snapshot.title} changed each time it was read",
                code="HW-SYN-11",
                where=snapshot.uri,
                rule="DST-F13",
            )
        self._keep_baseline(snapshot)
        self._set.is_listed = True

    def _is_usable(self, snapshot: ResourceListRead) -> bool:
        """Whether the list, with the changes after it, has all that the copy knows of (DST-C10).

        A new list that was made after all that is usable. With another the changes since have to state again what was
        read last, and of every resource of which a later change is known one that is as late.
        """
        since, before = self._position_of(snapshot), self._set.before
        reached = None if before is None else before.done_until if before.lists else before.reach
        if before is None or reached is None or since.time is None:
            return True
        with self._run.database.read() as t:
            is_known = is_completed(snapshot.stated_at, snapshot.print, baseline_done(t, self._set.row))
        if since.time >= reached and not is_known:
            return True
        if not before.last or since.time > reached or self._set.offer.changes_document is None:
            return False
        reader = ChangeListReader(
            self._set.lists, self._set.row.id, self._set.offer, since, before=Position(last=before.last), fresh=True
        )
        is_read = reader.read().outcome is ReadingOutcome.READ
        with self._run.database.write() as t:
            return is_read and t.one(_UNTOLD, (self._set.row.id, since.time)) is None

    def _keep_baseline(self, snapshot: ResourceListRead) -> None:
        """Remember the list, and go on from its `at` (DST-4.5)."""
        row = self._set.row
        since = self._position_of(snapshot)
        before = self._set.before
        reached = None if before is None else before.time if before.lists else before.reach  # where T went back
        if self.decides or reached is None or (since.time is not None and since.time >= reached):
            self._set.before = None
        with self._run.database.write() as t:
            forget_documents(t, row.id)
            forget_pushed(t, row.id)
            if snapshot.settled:
                keep_validators(t, row.id, snapshot.uri, snapshot.etag, snapshot.last_modified)
            t.run(
                "UPDATE sets SET baseline_at = ?, baseline_uri = ?, baseline_done = ?, scope = ? WHERE id = ?",
                (snapshot.stated_at, snapshot.uri, int(snapshot.settled), self._set.signature, row.id),
            )
            if snapshot.at is not None:
                t.run(
                    "DELETE FROM resources WHERE set_id = ? AND path IS NULL AND changed_at <= ?", (row.id, snapshot.at)
                )
            keep_fact(t, _PRINT.format(row.id), snapshot.print)
            keep_fact(t, _COMPONENTS.format(row.id), msgspec.json.encode(snapshot.components).decode())
            if not self._go_back(t, snapshot):
                keep_position(t, row.id, since)
        self._set.reload()

    def _position_of(self, snapshot: ResourceListRead) -> Position:
        claimed = snapshot.at if self._set.offer.changes_document is None else snapshot.claimed_at
        return position_of_list(snapshot.at, claimed)

    def _go_back(self, t: Transaction, snapshot: ResourceListRead) -> bool:
        """Go back to where changes are read again after a list that is older than the position (DST-5.3, DST-B2).

        To do changes again does no harm. That the lists begin later, but not after the position, leaves no gap, and
        what was read last is still to be in them (DST-C10).
        """
        since, position = self._position_of(snapshot), self._set.row.position
        if position is None or position.time is None or self._set.rescoped or self.decides:
            return False
        if since.time is not None and since.time >= position.time:
            return False
        keep_position(t, self._set.row.id, Position(time=since.time or 0, closed_at=position.reach, last=position.last))
        return True


def baseline_done(t: Transaction, row: SetRow) -> CompletedBaseline:
    """The list of the last completed baseline of a set, as it is remembered (DST-B1)."""
    encoded = fact(t, _COMPONENTS.format(row.id))
    components = from_json(encoded, tuple[Component, ...]) if encoded else ()
    return CompletedBaseline(row.baseline_at, fact(t, _PRINT.format(row.id)), components)


def _incomplete(snapshot: ResourceListRead) -> IncompleteList:
    what = f"the {snapshot.title} is incomplete: {'; '.join(snapshot.faults[:3])}"
    return IncompleteList(what, where=snapshot.uri, rule="DST-B2")
