"""Simulates one set of a catalog: loads what there is at the beginning, then records change after change.

Nothing is kept besides the catalog. Who is alive follows from its log of changes, the version of a resource lies in its
memo, and the number of the next change is the next sequence number.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import ClassVar

from headwater.catalog.interface import Catalog, Event
from headwater.errors import Interrupted, UsageFault
from headwater.progress import Listener, Progress
from headwater.simulate.population import Population
from headwater.simulate.prng import key_of
from headwater.simulate.resources import Filler, SyntheticResources, read_version
from headwater.simulate.settings import ChangeMix, SourceSettings
from headwater.spec.records import ChangeKind

BATCH = 10_000
"""So many changes are recorded together at most."""


class OtherSimulation(UsageFault):
    """The catalog contains something else than this simulation would have recorded."""

    code: ClassVar[str] = "HW-SIM-02"
    advice: ClassVar[str] = (
        "Give the settings with which the simulation was started (resources, sets, seed, sizes, hashes, suffixes),"
        " or another --state."
    )


class SimulatedSet:
    """One set of a simulation. It must be the only one that records into the set."""

    def __init__(self, catalog: Catalog, world: SourceSettings, name: str, filler: Filler) -> None:
        self.name = name
        self.resources = SyntheticResources(world, name, filler)
        self._catalog = catalog
        self._initial = world.share(name)
        self._key = key_of(world.seed, "changes", name)
        self._population = Population(self._key, 0)
        self._begun = 0
        self.done = 0
        """How many changes there have been."""

    @property
    def made(self) -> int:
        """How many changes there have been since `prepare`."""
        return self.done - self._begun

    def prepare(self, start: dt.datetime, listener: Listener, stop: Callable[[], bool] = lambda: False) -> None:
        """Load the set as it is at the beginning, or take up what is there. Raises OtherSimulation, Interrupted."""
        state = self._catalog.create(self.name)
        self._check(state.count)
        if state.opened_at is None:
            self._load(state.count, start, listener, stop)
            self._catalog.open(self.name, start)
        self.resume()
        self._begun = self.done

    def resume(self) -> None:
        """Take up the state of the catalog. Raises OtherSimulation."""
        population = Population(self._key, self._initial)
        done = 0
        for seq, change, number in self._logged():
            population.apply(change, number)
            done = seq
        state = self._catalog.state(self.name)
        if state.count != population.count or state.last_seq != done:
            raise OtherSimulation(f"{state.count:,} resources instead of {population.count:,}", where=self.name)
        self._population, self.done = population, done

    def step(self, count: int, mix: ChangeMix, now: dt.datetime) -> list[Event]:
        """Let so many changes happen, and return them: fewer when nothing is left that the mix could do.

        Raises what the catalog raises; `resume` is needed then.
        """
        events = list(self._events(count, mix, now))
        if events:
            accepted = self._catalog.record(self.name, events, now)
            if (accepted.first, accepted.last) != (self.done + 1, self.done + len(events)):
                raise OtherSimulation("somebody else records changes", where=self.name)
            self.done = accepted.last
        return events

    def _events(self, count: int, mix: ChangeMix, now: dt.datetime) -> Iterator[Event]:
        for step in range(self.done + 1, self.done + count + 1):
            happened = self._population.next(step, mix)
            if happened is None:
                return
            yield self.resources.event(*happened, step, now)

    def _load(self, first: int, start: dt.datetime, listener: Listener, stop: Callable[[], bool]) -> None:
        batch = self._catalog.load_batch
        for number in range(first, self._initial, batch):
            if stop():
                raise Interrupted("interrupted")
            end = min(number + batch, self._initial)
            self._catalog.load(self.name, self.resources.initial(range(number, end), start))
            listener(Progress(self.name, end, self._initial))

    def _logged(self) -> Iterator[tuple[int, ChangeKind, int]]:
        after = 0
        while rows := self._catalog.changes(self.name, after, BATCH):
            if rows[0].seq != after + 1:
                raise OtherSimulation("the log of changes has no beginning any more", where=self.name)
            for row in rows:
                number = self.resources.number(row.uri)
                if number is None:
                    raise OtherSimulation(f"a resource of another making: {row.uri[:200]!r}", where=self.name)
                yield row.seq, row.change, number
            after = rows[-1].seq

    def _check(self, count: int) -> None:
        """Whether the first resource, if there is one, is the one that these settings make."""
        for held in self._catalog.resources(self.name, limit=1) if count else ():
            number = self.resources.number(held.uri)
            lastmod = held.metadata.lastmod
            if number is not None and lastmod is not None:
                made = self.resources.metadata(number, read_version(held.memo), lastmod)
                if made == held.metadata:
                    return
            raise OtherSimulation(f"a resource of another making: {held.uri[:200]!r}", where=self.name)
