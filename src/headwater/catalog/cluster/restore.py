"""A whole set restored on a search cluster: its documents under a hidden head, which is shown last.

The hidden head holds the lease and counts revisions like any other, so that what a restore leaves behind when it ends
early is void: whoever comes next, to restore or to create the set, takes over and goes on in a new term.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from headwater.catalog.batch_planning import Run, to_optional
from headwater.catalog.cluster.documents import RowWrite, logged_operation, resource_operation, row_operations
from headwater.catalog.cluster.head import PageBook, RunBook, SetHead, stamped
from headwater.catalog.cluster.writer import Overtaken, SetWriter
from headwater.catalog.dump.restore import RestoredPage, Restoring
from headwater.catalog.faults import Contradiction, SetExists, UnknownSet
from headwater.errors import StoreFault


class RestoreLost(StoreFault):
    """The restore was silent for longer than its lease, and another process has taken over the set."""

    code: ClassVar[str] = "HW-CAT-10"
    advice: ClassVar[str] = "Nothing of the set was restored: run the same command again, with a longer lease_seconds."


def restore(turn: SetWriter, restoring: Restoring) -> SetHead:
    """Write a set that is not there, by a turn that sees hidden heads; the head. Raises what `restoring` raises,
    SetExists, SetBusy, RestoreLost, ClusterFault."""
    indices, name = turn.indices, turn.name
    try:
        indices.head(name)
    except UnknownSet:
        indices.create_head(stamped(SetHead(resource_set=name, hidden=True), turn.writer.stamp()))
    else:
        raise SetExists("the set is in the catalog already", where=name)
    after = turn.run(lambda: _restored(turn, restoring))
    if after is None:
        raise RestoreLost("somebody else has taken over the set that was being restored", where=name)
    return after


def _restored(turn: SetWriter, restoring: Restoring) -> SetHead | None:
    """The head as it was committed; None when the lease was lost: the parts are used up, and cannot be taken anew."""
    name, snapshot = turn.name, restoring.snapshot
    if not turn.head.hidden:
        raise SetExists("the set is in the catalog already", where=name)
    first = turn.head.rev + 1
    try:
        puts = enumerate(restoring.resources(), first)
        turn.write_ahead(turn.indices.resource, (resource_operation(name, put, rev) for rev, put in puts))
        pages = restoring.pages()
        _count(turn, pages, first)
        changes = enumerate(restoring.changes(), first + snapshot.state.count)
        turn.write_ahead(turn.indices.change, (logged_operation(name, logged, rev) for rev, logged in changes))
        rev = first + snapshot.state.count + snapshot.state.last_seq
        rows = (RowWrite(row.kind, row.key, row.value, row.rank) for row in restoring.rows())
        turn.write_ahead(turn.indices.state, row_operations(name, rows, rev, turn.indices.state))
        after = _head(turn.head, restoring, pages)
        _count_rows(turn, after, restoring.row_count)
        turn.commit(after)
    except Overtaken:
        return None
    return after


def _count(turn: SetWriter, pages: list[RestoredPage], first: int) -> None:
    """Read every page back: of two resources with one URI, the second has taken the place of the first."""
    turn.indices.refresh(turn.indices.resource)
    for restored in pages:
        page = restored.page
        if page.count:
            turn.keep()
            found = sum(document.rev >= first for document in turn.indices.on_page(turn.name, page.number))
            if found != page.count:
                what = f"{page.count - found} resources of page {page.number} have a URI that comes again"
                raise Contradiction(what, where=turn.name)


def _count_rows(turn: SetWriter, after: SetHead, count: int) -> None:
    """Of two rows with one kind and key, the second has taken the place of the first."""
    turn.indices.refresh(turn.indices.state)
    turn.keep()
    found = sum(turn.indices.row_counts(after).values())
    if found != count:
        raise Contradiction(f"{count - found} rows have a kind and key that came before", where=turn.name)


def _head(head: SetHead, restoring: Restoring, pages: list[RestoredPage]) -> SetHead:
    state = restoring.snapshot.state
    return replace(
        head,
        hidden=False,
        lease=None,
        rev=head.rev + state.count + state.last_seq + 1,
        state_version=state.state_version,
        opened_us=to_optional(state.opened_at),
        last_seq=state.last_seq,
        last_us=to_optional(state.last_at),
        count=state.count,
        next_slot=restoring.next_slot,
        page_count=len(pages),
        notes=state.notes,
        pages=tuple(map(_page_book, pages)),
        runs=tuple(map(_run_book, restoring.runs())),
    )


def _page_book(restored: RestoredPage) -> PageBook:
    page = restored.page
    times = to_optional(page.at), to_optional(page.completed), to_optional(page.stale_at)
    return PageBook(page.count, restored.weight, page.touched, page.rendered, *times)


def _run_book(run: Run) -> RunBook:
    return RunBook(run.first, run.last, run.from_us, run.weight, run.until_us)
