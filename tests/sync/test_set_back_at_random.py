"""A source by chance, which is set back to a backup again and again: no run ends with 0 and another copy than it has.

One open Change List, or an index of closed ones of which the oldest go; times that are equal, seconds or milliseconds
apart; an old Resource List or a new one; runs that are killed. DST-C10, DST-F12.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.sync.options import SyncOptions
from headwater.transport.transport import Transport
from tests.support.copying import DONE, IMPATIENT, check, run_over, tree
from tests.support.examples import MANY
from tests.support.fake_source import Reply, Site, Source, at, document, url

NAMES = [f"f{number}" for number in range(9)]
STEPS = "change", "change", "change", "back up", "set back"


class KilledRun(Exception):
    """Ends a run as a kill does."""


def killed_after(count: int) -> Callable[[object], None]:
    """Ends the run at the resource after so many."""
    left = [count]

    def each(_done: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledRun

    return each


class RandomSource:
    """Files, their changes, where Change Lists are closed, and the Resource List; all of it may be set back."""

    def __init__(self, source: Source, chance: random.Random) -> None:
        self.source, self.site, self.chance = source, Site(source), chance
        self.files: dict[str, bytes] = {}
        self.changes: list[tuple[float, str, str, bytes | None]] = []
        self.cuts = [10.0]
        self.listed: tuple[list[str], float] | None = None
        self.clock, self.number = 10.0, 0
        self.closes = chance.choice([0, 0.15, 0.4])
        self.has_index = bool(self.closes) or chance.random() < 0.5
        self.most_lists = chance.choice([1_000, 2, 4])
        self.apart = chance.choice([1, 1, 0.5, 0.001])

    def state(self) -> tuple[object, ...]:
        return copy.deepcopy((self.files, self.changes, self.cuts, self.listed))

    def set_back(self, state: tuple[object, ...]) -> None:
        self.files, self.changes, self.cuts, self.listed = copy.deepcopy(state)  # type: ignore[assignment]
        self.clock += self.chance.choice([0, 1, 2])

    def change(self) -> None:
        """One to four files are written or go; then the Change List may be closed."""
        for _ in range(self.chance.randrange(1, 5)):
            name, self.number = self.chance.choice(NAMES), self.number + 1
            self.clock += self.apart if self.chance.random() < 0.9 else 0
            if name in self.files and self.chance.random() < 0.25:
                del self.files[name]
                self.changes.append((self.clock, "deleted", name, None))
                continue
            kind = "updated" if name in self.files else "created"
            self.files[name] = b"%d " % self.number * self.chance.randrange(1, 3)
            self.changes.append((self.clock, kind, name, self.files[name]))
        if self.chance.random() < self.closes:
            self.clock += 1
            self.cuts.append(self.clock)
            self.clock += self.chance.choice([0.001, 1])

    def publish(self, *, resource_list: bool) -> None:
        """Serve files and lists; the Resource List of before, unless a new one is wanted."""
        site = self.site
        for path in [one for one in self.source.pages if "/resources/" in one or one.startswith("/set/part")]:
            del self.source.pages[path]
        for name, octets in self.files.items():
            self.source.pages[f"/set/resources/{name}"] = Reply(octets)
        site.files = dict(self.files)
        if resource_list or self.listed is None:
            self.clock += self.chance.choice([0, 0, 1])
            self.listed = [site.resource(name) for name in self.files], self.clock
        site.publish_list(self.listed[0], when=self.listed[1])
        if self.has_index:
            self._publish_parts()
        else:
            site.publish_changes(self.cuts[0], entries=[site.change(*one) for one in self.changes])
        site.publish_capabilities("resourcelist", "changelist")
        site.publish_description()

    def _publish_parts(self) -> None:
        first, parts = max(0, len(self.cuts) - self.most_lists), list[str]()
        ends = [*self.cuts[1:], None]
        for number in range(first, len(self.cuts)):
            begin, end = self.cuts[number], ends[number]
            within = [one for one in self.changes if (number == 0 or one[0] > begin) and (end is None or one[0] <= end)]
            period = {"from": at(begin)} | ({} if end is None else {"until": at(end)})
            entries = [self.site.change(*one) for one in within]
            up = self.site.up()
            self.site.serve(f"/set/part{number}.xml", document(entries, links=up, capability="changelist", **period))
            parts.append(url(f"{self.site.root}/part{number}.xml", tag="sitemap", **period))
        head = {"capability": "changelist", "from": at(self.cuts[first])}
        self.site.serve("/set/changelist.xml", document(parts, "sitemapindex", self.site.up(), **head))


@pytest.mark.long(10)
@pytest.mark.parametrize("seed", range(300 if MANY else 8))
def test_no_copy_is_wrong_with_status_0(source: Source, tmp_path: Path, seed: int) -> None:
    chance, copied = random.Random(seed), tmp_path / "copy"
    told = RandomSource(source, chance)
    for _ in range(4):
        told.change()
    told.publish(resource_list=True)
    backup, steps = told.state(), list[str]()
    with Transport(IMPATIENT) as wire:
        for _ in range(14):
            steps.append(chance.choice(STEPS))
            if steps[-1] == "back up":
                backup = told.state()
            elif steps[-1] == "set back":
                told.set_back(backup)
            if steps[-1] == "change" or (steps[-1] == "set back" and chance.random() < 0.7):
                told.change()
            told.publish(resource_list=chance.random() < 0.25)
            if chance.random() < 0.3:
                continue
            options = SyncOptions(max_delete=1.0, baseline=chance.random() < 0.15)
            if chance.random() < 0.25:
                with contextlib.suppress(KilledRun, HeadwaterError):
                    run_over(wire, source.base, copied, options, each=killed_after(chance.randrange(3)))
                steps.append("killed")
            status = run_over(wire, source.base, copied, options).exit_status
            steps.append(f"status {status:d}")
            assert status != DONE or tree(copied) == told.files, steps
        told.change()
        told.clock += 2
        told.publish(resource_list=True)
        assert run_over(wire, source.base, copied, SyncOptions(max_delete=1.0)).exit_status == DONE, steps
    assert tree(copied) == told.files, steps
    assert check(source.base, copied).verdict == "in sync", steps
