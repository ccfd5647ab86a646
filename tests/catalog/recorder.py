"""A process that records numbered batches into a catalog, and says of each that it was accepted, until it is killed."""

from __future__ import annotations

import datetime as dt
import sys

from headwater.catalog.interface import Catalog, Delete, Event, Limits, Metadata, StateRow, StateUpdate, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.spec.records import ChangeKind

LIMITS = Limits(page_entries=40, page_octets=100_000, segment_entries=70, segment_octets=60_000)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SIZE = 24


def batch(writer: str, number: int) -> list[Event]:
    """Batch `number` of a writer: new resources, a shared one that grows, deletions of the batch before."""
    events: list[Event] = [Upsert(f"{writer}/{number}/{n}", Metadata(length=number)) for n in range(SIZE)]
    events.append(Upsert(f"{writer}/shared", Metadata(type="t/t" + "t" * (number * 37 % 5_000))))
    if number:
        events += [Delete(f"{writer}/{number - 1}/{n}") for n in range(0, SIZE, 2)]
    return events


def logged(writer: str, number: int) -> list[tuple[str, ChangeKind]]:
    """What the log must say of that batch."""
    shared = ChangeKind.UPDATED if number else ChangeKind.CREATED
    said = [(f"{writer}/{number}/{n}", ChangeKind.CREATED) for n in range(SIZE)] + [(f"{writer}/shared", shared)]
    if number:
        said += [(f"{writer}/{number - 1}/{n}", ChangeKind.DELETED) for n in range(0, SIZE, 2)]
    return said


def rows(writer: str, number: int) -> StateUpdate:
    """The rows that are written with that batch: its number, and one that the next batch deletes."""
    put = [StateRow("newest", writer, b"%d" % number, number), StateRow("own", f"{writer}/{number}", rank=number)]
    return StateUpdate(put, [("own", f"{writer}/{number - 1}")])


def check_rows(catalog: Catalog, writer: str, newest: int) -> None:
    """The rows are those of this batch and of no other."""
    keys = [("newest", writer), *(("own", f"{writer}/{number}") for number in range(newest - 2, newest + 3))]
    put = [row for row in rows(writer, newest).put if newest >= 0]
    assert catalog.rows("s", keys) == {(row.kind, row.key): row for row in put}


def main(path: str, writer: str, first: int, end: int) -> None:
    """Record batches `first` to `end` - 1."""
    say("started")
    catalog = SqliteCatalog(path, LIMITS)
    catalog.create("s")
    catalog.open("s", START)
    say("ready")
    for number in range(first, end):
        now = START + dt.timedelta(milliseconds=number)
        catalog.record("s", batch(writer, number), now, state=rows(writer, number))
        say(str(number))
    catalog.close()


def say(word: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
