"""A process that takes one submission with a key into a push set on a cluster, and can be held at steps of its work.

    python -m tests.ingest.cluster_taker PLACE KEY [STEP ...]

`STEP` is `record` of the catalog, `put` or `commit` by which that commits, or `finish`, which follows: there it says
`held` and goes on when it is told a line. It ends with `done`, or with the code of what it was refused by.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.catalog.catalog_url import open_catalog
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.writer import SetWriter
from headwater.errors import HeadwaterError
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.resource_locations import Locations
from headwater.ingest.push.submission import Submission

COUNT = 3
MANY = 30
"""Of the submission `many`."""
WHERE: dict[str, tuple[type, str]] = {
    "record": (ClusterCatalog, "record"),
    "put": (SetWriter, "put"),
    "commit": (SetWriter, "commit"),
    "finish": (SetWriter, "finish"),
}


@contextmanager
def fed(place: str) -> Iterator[Feed]:
    """The set `s` as one process has it."""
    catalog = open_catalog(place)
    try:
        yield Feed(catalog, "s", Locations("http://example.org/", None), now)
    finally:
        catalog.close()


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def lines_of(key: str) -> list[str]:
    """The resources of a submission. Each of its lines says `updated`: taken twice it would be logged twice."""
    return [f"{key}/{number}" for number in range(MANY if key == "many" else COUNT)]


def submit(feed: Feed, key: str) -> bytes:
    """Take the submission, or hear how it was answered."""
    submission = Submission(feed, key)
    submission.push(b"".join(b'{"path":"%s","change":"updated"}\n' % path.encode() for path in lines_of(key)))
    submission.finish()
    return submission.body


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def hold(step: str) -> None:
    """Stand still before a step, once."""
    kind, name = WHERE[step]
    method = getattr(kind, name)
    held: list[str] = []

    def holding(target: object, *arguments: Any, **named: Any) -> Any:
        if not held:
            held.append(step)
            say("held")
            sys.stdin.readline()
        return method(target, *arguments, **named)

    setattr(kind, name, holding)


if __name__ == "__main__":
    for one in sys.argv[3:]:
        hold(one)
    with fed(sys.argv[1]) as mine:
        try:
            submit(mine, sys.argv[2])
            say("done")
        except HeadwaterError as fault:
            say(fault.code)
