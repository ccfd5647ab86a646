"""A move that the user states: all sets of the copy are at the new address, or none of them is taken along (DST-F10).

Each set is taken along when its own turn comes, in a transaction of its own. So the lists of all of them are read and
compared once before: nothing is remembered of an address that turns out to be that of another source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.errors import SourceFault
from headwater.storage.database import Database
from headwater.sync.faults import MovedElsewhere, Unreachable
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.documents import MissingDocument
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import Position
from headwater.sync.lists.resource_lists import ResourceListRead, ResourceListReader
from headwater.sync.sets.moved_sets import SetMatches
from headwater.sync.sets.relocation import CHANGED, LISTED, agreement, suffices
from headwater.sync.state.set_rows import Offer, SetRow

_ADVICE = (
    "Nothing was changed. Name an address where all sets of the copy are, or with --set those that have moved; a set"
    " that the source has given up, or filled with other content, is dropped by `headwater forget DEST --set NAME`:"
    " its files stay, and where the set is still offered, the next run compares them."
)


def sets_missing(names: Sequence[str], url: str, faults: Sequence[tuple[str, str]]) -> MovedElsewhere:
    """The error where sets of the copy are not at `url`. `faults`: Capability Lists there that cannot be read."""
    told = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    what = f"{'a set' if len(names) == 1 else f'{len(names):,} sets'} of the copy cannot be found there: {told}"
    if faults:
        what += f"; {faults[0][0]} cannot be read: {faults[0][1]}"
    return MovedElsewhere(what, where=url, rule="DST-F10", advice=_ADVICE)


def moving_sets(matches: SetMatches, offers: Sequence[Offer], wanted: Sequence[str]) -> list[tuple[SetRow, Offer]]:
    """The remembered sets whose lists are elsewhere by now, each with its offer; only those `wanted`, if any are."""
    found = [(matches.rows.get(offer.identity), offer) for offer in offers]
    moving = [(row, offer) for row, offer in found if row is not None and row.move is not None]
    if not wanted:
        return moving
    return [(row, offer) for row, offer in moving if {row.name, row.offer.identity, offer.identity} & set(wanted)]


def check_sets(
    moving: Sequence[tuple[SetRow, Offer]], database: Database, context_of: Callable[[Offer], ListContext]
) -> None:
    """Compare what is held of each set with all that is offered of it at the new address.

    Raises MovedElsewhere where that is something else, and another SourceFault where it cannot be read.
    """
    for row, offer in moving:
        if offer.baseline_document is not None:
            listed, fault = LISTED, _stage_list(offer.baseline_document, offer, context_of(offer))
        else:
            listed, fault = CHANGED, _stage_changes(row, offer, context_of(offer))
        with database.write() as t:
            found = agreement(t, row, offer, listed)
        if suffices(found, row.move):
            continue
        if fault is not None:
            raise fault
        count = f"{found.same + found.open:,} of the {found.held:,} files of the set {row.name}"
        raise MovedElsewhere(
            f"{count} are listed there: this is another source", where=offer.identity, rule="DST-F10", advice=_ADVICE
        )


def _stage_list(uri: str, offer: Offer, context: ListContext) -> SourceFault | None:
    """Have the Resource List in `temp.listed`; what is wrong with it."""
    found = ResourceListReader(context, sitemap=offer.is_sitemap, doubt=lambda: False).read(uri)
    if isinstance(found, MissingDocument):
        return Unreachable(f"the Resource List is missing: HTTP status {found.status}", where=uri, rule="DST-F4")
    if isinstance(found, ResourceListRead) and not found.complete:
        what = f"the {found.title} is incomplete: {'; '.join(found.faults[:3])}"
        return Unreachable(what, where=uri, rule="DST-B2")
    return None


def _stage_changes(row: SetRow, offer: Offer, context: ListContext) -> SourceFault | None:
    """Have all changes in `temp.changed`; what is wrong with the Change List."""
    reading = ChangeListReader(context, row.id, offer, Position()).read()
    if reading.fault is not None:
        return reading.fault
    if reading.outcome is ReadingOutcome.MISSING:
        return Unreachable(reading.reason, where=offer.changes_document, rule="DST-C5")
    return None
