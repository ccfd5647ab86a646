"""What the sets of a run poll: the documents that say first whether there is something new (DST-C1, RS-DST-09).

Thousands of sets that have not changed cost a conditional request each; these are sent many at a time, before the sets
have their turn one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headwater.storage.database import Transaction
from headwater.sync.filters import Scope
from headwater.sync.options import Options
from headwater.sync.reading.documents import Asked
from headwater.sync.standing import signature_of
from headwater.sync.state import SOURCE, SetRow, validators


def polled_by(row: SetRow) -> str | None:
    """The document of a set that says first that there is something new."""
    if row.position is not None and row.position.open and row.position.list_uri:
        return row.position.list_uri
    return row.offer.change_list or row.offer.resource_list or row.offer.capability_list


def asked_first(t: Transaction, rows: Sequence[SetRow], options: Options, scopes: Mapping[int, Scope]) -> list[Asked]:
    """The conditional requests with which these sets begin, as far as that is known beforehand."""
    if options.baseline or options.repair:
        return []
    signature = signature_of(options)
    found: list[Asked] = []
    for row in rows:
        if row.position is None or row.move is not None or row.scope not in (None, signature):
            continue
        for number, uri in _documents(row):
            held = validators(t, number, uri)
            if held is not None and scopes[row.id].refusal(uri) is None:
                found.append((uri, held, scopes[row.id].objection if number != SOURCE else None))
    return found


def _documents(row: SetRow) -> Iterator[tuple[int, str]]:
    """The documents that are asked for, and whose validators they are asked with."""
    uri = polled_by(row)
    if row.offer.change_list is None and row.offer.capability_list is not None:
        yield SOURCE, row.offer.capability_list
    if uri is not None and (row.offer.change_list is not None or row.baseline_done):
        yield row.id, uri
