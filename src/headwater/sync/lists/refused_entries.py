"""Refused entries: those outside the scope, and those that name no resource; remembered until settled (DST-S12).

They are remembered until a list or a change settles them, because they are no deletions: as long as there are any, the
list is not whole, nothing is deleted for being absent from it, and a run does not end as done. What the user leaves out
by a choice of his own is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from headwater.storage.transaction import Row, Transaction
from headwater.sync.connection import REFUSALS, Refusal, host_label

SKIPPED = "skipped"
_MOST_HOSTS = 4
_KEEP = "INSERT OR REPLACE INTO refusals(set_id, uri, host, reason, count, changed_at) VALUES (?, ?, ?, ?, ?, ?)"
_OF_LISTS = "(?2 IS NULL OR changed_at IS NULL OR changed_at <= ?2)"

Takes = Callable[[str], bool]
"""Whether the user's choice lets a resource in."""


class RefusedGroup(msgspec.Struct, frozen=True):
    """What is refused on one host, or for one reason: how many resources, and the URI of one of them."""

    name: str
    count: int
    example: str


class RefusedEntries(msgspec.Struct, frozen=True):
    """What is refused of one set by now: how many resources, of which hosts, and why else; and entries skipped.

    `hosts` and `reasons` are each told with how many they are and an example; of many hosts those with most.
    """

    refused: int = 0
    skipped: int = 0
    hosts: tuple[RefusedGroup, ...] = ()
    more_hosts: int = 0
    """How many resources are on further hosts."""

    reasons: tuple[RefusedGroup, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.refused or self.skipped)

    def sentences(self) -> Iterator[tuple[str, str, str | None]]:
        """What a person is told: the rule, what is refused and what to do, and an example."""
        if self.hosts:
            yield "DST-S12", self._of_hosts(), self.hosts[0].example
        for group in self.reasons:
            why = Refusal[group.name].value
            told = f"{_resources(group.count)} refused: {why}. To leave them out, use --exclude"
            yield "DST-S12", told, group.example
        if self.skipped:
            entries = f"{self.skipped:,} entries" if self.skipped != 1 else "1 entry"
            yield "DST-F5", f"{entries} cannot be used: the list is incomplete, and nothing is deleted by it", None

    def _of_hosts(self) -> str:
        count = sum(host.count for host in self.hosts) + self.more_hosts
        names = [host.name for host in self.hosts]
        where = ", ".join(names) + (" and other hosts" if self.more_hosts else "")
        allow, skip = (" ".join(f"--{verb}-host {name}" for name in names) for verb in ("allow", "skip"))
        return (
            f"{_resources(count)} refused: on {where}, where the source has no documents; {allow} fetches them,"
            f" {skip} leaves them out; until then nothing is deleted for being absent from a list"
        )


NOTHING_REFUSED = RefusedEntries()


def _resources(count: int) -> str:
    return f"{count:,} resources are" if count != 1 else "1 resource is"


def refused_entries(t: Transaction, set_id: int) -> RefusedEntries:
    """What is refused of a set by now."""
    if not any_refused(t, set_id):
        return NOTHING_REFUSED
    example = "substr(min(uri), 1, 300)"
    by_host = (
        f"SELECT host, count(*), {example} FROM refusals WHERE set_id = ? AND host IS NOT NULL"  # noqa: S608
        " GROUP BY host ORDER BY count(*) DESC, host LIMIT ?"
    )
    by_reason = (
        f"SELECT reason, sum(count), {example}, count(host) FROM refusals WHERE set_id = ?"  # noqa: S608
        " GROUP BY reason ORDER BY reason"
    )
    hosts = tuple(RefusedGroup(*row) for row in t.rows(by_host, (set_id, _MOST_HOSTS)))
    counts = [(RefusedGroup(*group), on_hosts) for *group, on_hosts in t.rows(by_reason, (set_id,))]
    skipped = sum(group.count for group, _ in counts if group.name == SKIPPED)
    return RefusedEntries(
        refused=sum(group.count for group, _ in counts) - skipped,
        skipped=skipped,
        hosts=hosts,
        more_hosts=sum(on_hosts for _, on_hosts in counts) - sum(host.count for host in hosts),
        reasons=tuple(group for group, on_hosts in counts if group.name != SKIPPED and not on_hosts),
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
    found = _Refusals(takes)
    t.many(_KEEP, found.rows(set_id, t.rows("SELECT uri, refused, NULL FROM temp.listed WHERE refused")))
    t.many(_KEEP, [(set_id, uri, None, SKIPPED, count, None) for uri, count in skipped if count])
    return not found.kept and not any(count for _, count in skipped), found.left_out


def keep_changed(
    t: Transaction, set_id: int, reached: int | None, takes: Takes, skipped: tuple[tuple[str, int], ...]
) -> int:
    """Remember what the changes in `temp.refused` have that is refused; how many of them the user has left out.

    A change that is let in settles what was refused before; so does a deletion, unless something is held that was
    allowed once. `reached`: how far the lists have led.
    """
    t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.changed WHERE pending)", (set_id,))
    t.run("DELETE FROM refusals WHERE set_id = ? AND uri IN (SELECT uri FROM temp.refused)", (set_id,))
    found = _Refusals(takes)
    rows = t.rows(
        "SELECT uri, refused, at FROM temp.refused WHERE change != 'deleted'"
        " OR uri IN (SELECT uri FROM resources WHERE set_id = ? AND path IS NOT NULL)",
        (set_id,),
    )
    t.many(_KEEP, found.rows(set_id, rows))
    t.many("DELETE FROM refusals WHERE set_id = ? AND uri = ?", [(set_id, uri) for uri, count in skipped if not count])
    t.many(_KEEP, [(set_id, uri, None, SKIPPED, count, reached) for uri, count in skipped if count])
    return found.left_out


class _Refusals:
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
