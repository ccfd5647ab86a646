"""A simulation at work on a catalog: it records what is due by simulated time, set after set.

What is due follows from the time, so that whatever takes long makes the next portion larger, and the rate holds.
Nothing is kept besides the catalog. Who is alive follows from its log of changes, the version of a resource lies in its
memo, and the number of the next change is the next sequence number.
"""

import datetime as dt
import time
from collections.abc import Callable

from headwater.catalog.content import Absence, NoContent, OpenContent, RecordedResource
from headwater.catalog.interface import Catalog, Event
from headwater.errors import Interrupted, UsageFault
from headwater.progress import Listener, Progress, silent
from headwater.simulate.resources import (
    LAST_YEAR,
    ChangeSettings,
    Filler,
    Mix,
    Population,
    SourceSettings,
    SyntheticResources,
    key_of,
    read_version,
)
from headwater.source.configured_source import utc_now


class SimulatedClock:
    """Says what time it is in the simulation. `warp` None: time stands still but for `move_to`."""

    def __init__(self, start: dt.datetime, warp: float | None, seconds: Callable[[], float]) -> None:
        self._start = start
        self._warp = warp
        self._seconds = seconds
        self._began = seconds()
        self._moved = 0.0
        self._longest = max(0.0, (dt.datetime(LAST_YEAR, 1, 1, tzinfo=dt.UTC) - start).total_seconds())

    @property
    def elapsed(self) -> float:
        """Seconds of simulated time since the beginning."""
        passed = self._moved if self._warp is None else (self._seconds() - self._began) * self._warp
        return min(passed, self._longest)

    def move_to(self, elapsed: float) -> None:
        """Let so many seconds have passed, where time does not run by itself."""
        self._moved = elapsed

    def wait_for(self, elapsed: float) -> float:
        """How many of our seconds it is until so many of the simulation have passed."""
        return 0.0 if self._warp is None else max(0.0, (elapsed - self.elapsed) / self._warp)

    def __call__(self) -> dt.datetime:
        """The time of the simulation."""
        return self._start + dt.timedelta(seconds=self.elapsed)


BATCH = 10_000  # so many changes are recorded together at most


class OtherSimulation(UsageFault):
    """The catalog contains something else than this simulation would have recorded."""

    code = "HW-SIM-02"


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
        self.done = 0  # how many changes there have been

    @property
    def made(self) -> int:
        """How many changes there have been since `prepare`."""
        return self.done - self._begun

    def prepare(
        self, start: dt.datetime, loaded: Callable[[int], None], stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Load the set as it is at the beginning, or take up what is there. Raises OtherSimulation, Interrupted.

        `loaded` is told how many resources are.
        """
        state = self._catalog.create(self.name)
        # the first resource, if there is one, is the one that these settings make
        for held in self._catalog.resources(self.name, limit=1) if state.count else ():
            version, lastmod = read_version(held.memo), held.metadata.lastmod
            if lastmod is None or self.resources.metadata(self._number(held.uri), version, lastmod) != held.metadata:
                raise OtherSimulation(f"a resource of another simulation: {held.uri[:200]!r}", where=self.name)
        if state.opened_at is None:
            batch = self._catalog.load_batch
            for number in range(state.count, self._initial, batch):
                if stop():
                    raise Interrupted("interrupted")
                end = min(number + batch, self._initial)
                self._catalog.load(self.name, self.resources.initial(range(number, end), start))
                loaded(end)
            self._catalog.open(self.name, start)
        self.resume()
        self._begun = self.done

    def resume(self) -> None:
        """Take up the state of the catalog. Raises OtherSimulation."""
        population = Population(self._key, self._initial)
        done = 0
        while rows := self._catalog.changes(self.name, done, BATCH):
            if rows[0].seq != done + 1:
                raise OtherSimulation("the beginning of the change log is gone", where=self.name)
            for row in rows:
                population.apply(row.change, self._number(row.uri))
            done = rows[-1].seq
        state = self._catalog.state(self.name)
        if state.count != population.count or state.last_seq != done:
            raise OtherSimulation(f"{state.count:,} resources instead of {population.count:,}", where=self.name)
        self._population, self.done = population, done

    def _number(self, uri: str) -> int:
        number = self.resources.number(uri)
        if number is None:
            raise OtherSimulation(f"a resource of another simulation: {uri[:200]!r}", where=self.name)
        return number

    def step(self, count: int, mix: Mix, now: dt.datetime) -> int:
        """Let so many changes happen, and return how many did: fewer when nothing is left that the mix could do.

        Raises what the catalog raises; `resume` is needed then.
        """
        events: list[Event] = []
        for step in range(self.done + 1, self.done + count + 1):
            if (happened := self._population.next(step, mix)) is None:
                break
            events.append(self.resources.event(*happened, step, now))
        if events:
            accepted = self._catalog.record(self.name, events, now)
            if (accepted.first, accepted.last) != (self.done + 1, self.done + len(events)):
                raise OtherSimulation("somebody else records changes", where=self.name)
            self.done = accepted.last
        return len(events)


CHANGES = "changes"
LOADED = "resources"
"""The phases by which progress is told."""
PORTION = 1_000  # so many changes at once, over all sets, where time does not limit them
_LEAST_PAUSE = 0.2
_LONGEST_PAUSE = 0.5


class Simulation:
    """Feeds the sets of a catalog, of which nobody else records into them."""

    def __init__(
        self, catalog: Catalog, world: SourceSettings, course: ChangeSettings, listener: Listener = silent
    ) -> None:
        self.catalog = catalog
        self.world = world
        self.course = course
        self.listener = listener
        self._start = course.start or utc_now()
        filler = Filler(world.seed, world.hashes)
        self._feeds = {name: SimulatedSet(catalog, world, name, filler) for name in world.sets}
        self._exhausted = False
        self._origin = 0.0
        self.clock = SimulatedClock(self._start, course.warp, time.monotonic)  # the simulated time

    def prepare(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Load the sets, or take up what is there; time goes on from there. Raises OtherSimulation, Interrupted."""
        before = 0

        def loaded(count: int) -> None:
            self.listener(Progress(LOADED, before + count, self.world.resources))

        for feed in self._feeds.values():
            feed.prepare(self._start, loaded, stop)
            before += self.world.share(feed.name)
        reached = [state.last_at for state in self.catalog.sets() if state.last_at and state.name in self._feeds]
        start = self.course.start or utc_now()  # a load takes its time
        self.clock = SimulatedClock(max(start, *reached), self.course.warp, time.monotonic)

    def begin(self) -> None:
        """Count what is due from now on: what was done since `prepare` took time, too."""
        self._origin = self.clock.elapsed

    def resume(self) -> None:
        """Take up the catalog as it is, after something failed."""
        for feed in self._feeds.values():
            feed.resume()

    @property
    def done(self) -> int:
        """How many changes this run has made."""
        return sum(feed.made for feed in self._feeds.values())

    @property
    def is_over(self) -> bool:
        """Whether the course has come to its end, or nothing is left that could change."""
        last = self.course.last
        return self._exhausted or not self.course.rate or (last is not None and self.done >= last)

    def advance(self) -> list[str]:
        """Let happen what is due by now, and return the sets that have changed.

        Raises what the catalog raises; `resume` is needed then.
        """
        course = self.course
        due = self.done + PORTION if course.warp is None else int((self.clock.elapsed - self._origin) * course.rate)
        due = due if course.last is None else min(due, course.last)
        self.clock.move_to(due / course.rate)  # where time does not run by itself
        if due <= self.done:
            return []
        now = self.clock()
        changed = []
        for place, feed in enumerate(self._feeds.values()):
            wanted = share(due, place, len(self._feeds)) - feed.made
            if wanted > 0 and feed.step(min(wanted, BATCH), self.course.mix, now):
                changed.append(feed.name)
        self._exhausted = not changed
        self.listener(Progress(CHANGES, self.done, self.course.last))
        return changed

    def pause(self) -> float:
        """How many seconds it is until something is due; not less than makes a portion worth its publication."""
        if self.course.warp is None and not self.is_over:
            return 0.0
        if self.is_over:
            return _LONGEST_PAUSE
        wait = self.clock.wait_for(self._origin + (self.done + 1) / self.course.rate)
        return min(max(wait, _LEAST_PAUSE), _LONGEST_PAUSE)

    def find(self, set_name: str, relative: str) -> RecordedResource | None:
        """A resource as the catalog holds it; None when it holds none."""
        is_ours = self._feeds[set_name].resources.number(relative) is not None
        return self.catalog.get(set_name, [relative]).get(relative) if is_ours else None

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        """The octets of a resource in the version that was recorded, whatever has become of it since."""
        resources = self._feeds[set_name].resources
        number = resources.number(resource.uri)
        if number is None:
            return NoContent(Absence.GONE, "not of this simulation")
        content = resources.content(number, read_version(resource.memo))
        is_ours = resource.metadata.length in (None, content.octets)
        return content if is_ours else NoContent(Absence.CHANGED, "not of this simulation")


def share(total: int, place: int, sets: int) -> int:
    """How many of `total` changes belong to the set at this place: they take turns."""
    return (total + sets - 1 - place) // sets
