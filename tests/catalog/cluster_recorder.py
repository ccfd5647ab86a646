"""A process that records or loads numbered batches into a cluster catalog, says of each what was accepted, and can be
held at a named step of its work, to be killed or stopped there.

    python -m tests.catalog.cluster_recorder PLACE WRITER record|load FIRST END [STEP COUNT]

`STEP` is a method of `SetWriter`: at its `COUNT`th call the process says `held` and goes on when it is told a line.
"""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

from headwater.catalog.catalog_url import open_catalog
from headwater.catalog.cluster.writer import SetWriter
from headwater.progress import Notice, Progress
from headwater.storage import cluster
from tests.catalog.recorder import LIMITS, START, batch, rows, say


def main(place: str, writer: str, mode: str, first: int, end: int) -> None:
    """Put batches `first` to `end` - 1 into the catalog."""
    catalog = open_catalog(place, LIMITS, listener=tell)
    catalog.create("s")
    if mode != "load":
        catalog.open("s", START)
    say("ready")
    for number in range(first, end):
        if mode == "load":
            catalog.load("s", batch(writer, number), state=rows(writer, number))
            say(f"{number}")
            continue
        now = START + dt.timedelta(milliseconds=number)
        accepted = catalog.record("s", batch(writer, number), now, state=rows(writer, number))
        say(f"{number} {accepted.first} {accepted.last}")
    catalog.close()
    say("done")


def tell(event: Notice | Progress) -> None:
    """What the catalog had to wait for, on standard error."""
    if isinstance(event, Notice):
        sys.stderr.write(f"{event.rule} {event.message}\n")
        sys.stderr.flush()


def hold(step: str, count: int) -> None:
    """Stand still at a step, once."""
    method = getattr(SetWriter, step)
    calls = 0

    def held(turn: SetWriter, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            say("held")
            sys.stdin.readline()
        return method(turn, *arguments, **named)

    setattr(SetWriter, step, held)


if __name__ == "__main__":
    cluster.SLICE_COUNT = 10  # a batch of 37 changes takes four requests
    if len(sys.argv) > 6:
        hold(sys.argv[6], int(sys.argv[7]))
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
