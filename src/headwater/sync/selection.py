"""Which sets of a source a user means, and what is said when one of them is not there."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.sync.faults import UnknownSetName
from headwater.sync.options import Options
from headwater.sync.reading.choosing import Wanted
from headwater.sync.state import SetRow

_MOST_NAMES = 50


def wanted_of(options: Options, known: Sequence[SetRow]) -> Wanted:
    """What the user wants of the sets of a source, some of which are known."""
    return Wanted(options.sets, {row.name: row.offer.identity for row in known})


def pick(rows: list[SetRow], wanted: Sequence[str], where: str) -> list[SetRow]:
    """The sets that are meant. Raises UnknownSetName when one is said that is not there."""
    chosen = [row for row in rows if row.name in wanted or row.offer.identity in wanted]
    unknown = set(wanted) - {row.name for row in chosen} - {row.offer.identity for row in chosen}
    if unknown:
        raise unknown_set(unknown, [row.name for row in rows], where)
    return chosen


def unknown_set(unknown: set[str], names: Sequence[str], where: str) -> UnknownSetName:
    """The error that names sets which are not there, and those that are."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    told = ", ".join(names[:_MOST_NAMES]) + more
    return UnknownSetName(f"no set {', '.join(sorted(unknown))}; the sets are: {told}", where=where)
