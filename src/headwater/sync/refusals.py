"""What of a set's lists could not be let in: entries outside the scope, and entries that name no resource (DST-S12).

They are remembered until a list or a change settles them, because they are no deletions: as long as there are any, the
list is not whole, nothing is deleted for being absent from it, and a run does not end as done. What the user leaves out
by a choice of his own is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from headwater.storage.database import Row, Transaction
from headwater.sync.filters import REFUSALS, Refusal, host_label

SKIPPED = "skipped"
_MOST_HOSTS = 4
_KEEP = "INSERT OR REPLACE INTO refusals(set_id, uri, host, reason, count, changed_at) VALUES (?, ?, ?, ?, ?, ?)"
_OF_LISTS = "(?2 IS NULL OR changed_at IS NULL OR changed_at <= ?2)"

Takes = Callable[[str], bool]
"""Whether the user's choice lets a resource in."""


class Refused(msgspec.Struct, frozen=True):
    """What is refused of one set by now: how many resources, of which hosts, and why else; and entries skipped."""

    refused: int
    skipped: int
    hosts: tuple[tuple[str, int], ...]
    more_hosts: int
    reasons: tuple[tuple[str, int], ...]
    examples: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.refused or self.skipped)

    def sentences(self) -> Iterator[tuple[str, str, str | None]]:
        """What a person is told: the rule, what is refused and what to do, and an example."""
        example = self.examples[0] if self.examples else None
        if self.hosts:
            yield "DST-S12", self._of_hosts(), example
        for reason, count in self.reasons:
            told = f"{_entries(count)} refused: {Refusal[reason].value}. --exclude leaves out what it matches"
            yield "DST-S12", told, example
        if self.skipped:
            yield "DST-F5", f"{_entries(self.skipped)} skipped, as they name no resource: the list is not whole", None

    def _of_hosts(self) -> str:
        count = sum(number for _, number in self.hosts) + self.more_hosts
        names = [name for name, _ in self.hosts]
        where = ", ".join(names) + (" and other hosts" if self.more_hosts else "")
        allow, skip = (" ".join(f"--{verb}-host {name}" for name in names) for verb in ("allow", "skip"))
        return (
            f"{_entries(count)} refused: its resources are on {where}, and not on a host of the source's documents. "
            f"{allow} fetches them, {skip} leaves them out; until then nothing is deleted for being absent from a list"
        )


NOTHING_REFUSED = Refused(0, 0, (), 0, (), ())


def _entries(count: int) -> str:
    return f"{count:,} entries are" if count != 1 else "1 entry is"


def refused_of(t: Transaction, set_id: int) -> Refused:
    """What is refused of a set by now."""
    total = "SELECT coalesce(sum(count), 0) FROM refusals WHERE set_id = ? AND reason "
    by_host = (
        "SELECT host, count(*) FROM refusals WHERE set_id = ? AND host IS NOT NULL"
        " GROUP BY host ORDER BY count(*) DESC, host LIMIT ?"
    )
    hosts = tuple((host, count) for host, count in t.rows(by_host, (set_id, _MOST_HOSTS)))
    on_hosts = int(t.value("SELECT count(*) FROM refusals WHERE set_id = ? AND host IS NOT NULL", (set_id,)))
    by_reason = (
        "SELECT reason, count(*) FROM refusals WHERE set_id = ? AND host IS NULL AND reason != ?"
        " GROUP BY reason ORDER BY reason"
    )
    examples = "SELECT substr(uri, 1, 300) FROM refusals WHERE set_id = ? AND reason != ? LIMIT 1"
    return Refused(
        refused=int(t.value(total + "!= ?", (set_id, SKIPPED))),
        skipped=int(t.value(total + "= ?", (set_id, SKIPPED))),
        hosts=hosts,
        more_hosts=on_hosts - sum(count for _, count in hosts),
        reasons=tuple((reason, count) for reason, count in t.rows(by_reason, (set_id, SKIPPED))),
        examples=tuple(uri for (uri,) in t.rows(examples, (set_id, SKIPPED))),
    )


def any_refused(t: Transaction, set_id: int) -> bool:
    """Whether anything is refused of a set by now."""
    return t.one("SELECT 1 FROM refusals WHERE set_id = ? LIMIT 1", (set_id,)) is not None


def keep_listed(
    t: Transaction, set_id: int, at: int | None, takes: Takes, *, complete: bool, skipped: tuple[tuple[str, int], ...]
) -> tuple[bool, int]:
    """Remember what the list in `temp.listed`, which is as of `at`, has that is refused.

    Returns whether the list is whole, and how many of the refused the user has left out. What an earlier list had is
    forgotten where this one was read to its end, and what a later change has said stays.
    """
    if complete:
        t.run(f"DELETE FROM refusals WHERE set_id = ?1 AND {_OF_LISTS}", (set_id, at))  # noqa: S608
    else:
        t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.listed)", (set_id,))
    found = _Found(takes)
    t.many(_KEEP, found.rows(set_id, t.rows("SELECT uri, refused, NULL FROM temp.listed WHERE refused")))
    t.many(_KEEP, [(set_id, uri, None, SKIPPED, count, None) for uri, count in skipped if count])
    return not found.kept and not any(count for _, count in skipped), found.left_out


def keep_changed(
    t: Transaction, set_id: int, reached: int | None, takes: Takes, skipped: tuple[tuple[str, int], ...]
) -> int:
    """Remember what the changes in `temp.refused` have that is refused; how many of them the user has left out.

    A change that is let in, or a deletion, settles what was refused before. `reached`: how far the lists have led.
    """
    t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.changed WHERE pending)", (set_id,))
    t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.refused)", (set_id,))
    found = _Found(takes)
    t.many(_KEEP, found.rows(set_id, t.rows("SELECT uri, refused, at FROM temp.refused WHERE change != 'deleted'")))
    t.many("DELETE FROM refusals WHERE set_id = ? AND uri = ?", [(set_id, uri) for uri, count in skipped if not count])
    t.many(_KEEP, [(set_id, uri, None, SKIPPED, count, reached) for uri, count in skipped if count])
    return found.left_out


class _Found:
    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self.left_out = self.kept = 0

    def rows(self, set_id: int, refused: Iterator[Row]) -> Iterator[Row]:
        for uri, number, at in refused:
            if not self._takes(uri):
                self.left_out += 1
                continue
            self.kept += 1
            refusal = REFUSALS[number - 1]
            yield set_id, uri, host_label(uri) if refusal is Refusal.HOST else None, refusal.name, 1, at
