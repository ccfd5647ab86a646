"""A simulation at work on a catalog: it records what is due by simulated time, set after set.

What is due follows from the time, so that whatever takes long makes the next portion larger, and the rate holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headwater.catalog.content import Absence, NoContent, OpenContent, RecordedResource, read_whole
from headwater.catalog.interface import Catalog
from headwater.progress import Listener, Notice, Progress, silent
from headwater.simulate.clock import SimulatedClock
from headwater.simulate.resources import Filler, OpenSyntheticContent, read_version
from headwater.simulate.settings import ChangeSettings, SourceSettings
from headwater.simulate.simulated_set import BATCH, SimulatedSet
from headwater.simulate.write_through_cache import WriteThroughCache
from headwater.source.configured_source import utc_now

CHANGES = "changes"
LOADED = "resources"
"""The phases by which progress is told."""
PORTION = 1_000
"""So many changes at once, over all sets, where time does not limit them."""
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
        self._lookup = WriteThroughCache(catalog)
        self._exhausted = False
        self._origin = 0.0
        self.clock = SimulatedClock(self._start, course.warp, time.monotonic)
        """The simulated time."""

    def prepare(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Load the sets, or take up what is there; time goes on from there. Raises OtherSimulation, Interrupted."""
        before = 0
        for feed in self._feeds.values():
            feed.prepare(self._start, self._loading(before), stop)
            before += self.world.share(feed.name)
        reached = [state.last_at for state in self.catalog.sets() if state.last_at and state.name in self._feeds]
        start = self.course.start or utc_now()  # a load takes its time
        self.clock = SimulatedClock(max(start, *reached), self.course.warp, time.monotonic)

    def _loading(self, before: int) -> Listener:
        """Progress of one set as that of all."""

        def hear(event: Progress | Notice) -> None:
            if isinstance(event, Progress):
                event = Progress(LOADED, before + event.done, self.world.resources)
            self.listener(event)

        return hear

    def begin(self) -> None:
        """Count what is due from now on: what was done since `prepare` took time, too."""
        self._origin = self.clock.elapsed

    def resume(self) -> None:
        """Take up the catalog as it is, after something failed."""
        self._lookup.forget()
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
        due = self._due()
        if due <= self.done:
            return []
        now = self.clock()
        changed = []
        for place, feed in enumerate(self._feeds.values()):
            wanted = share(due, place, len(self._feeds)) - feed.made
            events = feed.step(min(wanted, BATCH), self.course.mix, now) if wanted > 0 else []
            if events:
                self._lookup.learn(feed.name, events)
                changed.append(feed.name)
        self._exhausted = not changed
        self.listener(Progress(CHANGES, self.done, self.course.last))
        return changed

    def _due(self) -> int:
        """How many changes are due by now; where time does not run by itself, it is moved on."""
        course = self.course
        due = self.done + PORTION if course.warp is None else int((self.clock.elapsed - self._origin) * course.rate)
        due = due if course.last is None else min(due, course.last)
        self.clock.move_to(due / course.rate)
        return due

    def pause(self) -> float:
        """How many seconds it is until something is due; not less than makes a portion worth its publication."""
        if self.course.warp is None and not self.is_over:
            return 0.0
        if self.is_over:
            return _LONGEST_PAUSE
        wait = self.clock.wait_for(self._origin + (self.done + 1) / self.course.rate)
        return min(max(wait, _LEAST_PAUSE), _LONGEST_PAUSE)

    def is_at_hand(self, set_name: str, relative: str) -> bool:
        """Whether `find` can tell without asking the catalog."""
        return self._lookup.is_known(set_name, relative)

    def find(self, set_name: str, relative: str) -> RecordedResource | None:
        """A resource as the catalog holds it; None when it holds none."""
        number = self._feeds[set_name].resources.number(relative)
        return None if number is None else self._lookup.find(set_name, relative, number)

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        """The octets of a resource in the version that was recorded, whatever has become of it since."""
        resources = self._feeds[set_name].resources
        number = resources.number(resource.uri)
        if number is None:
            return NoContent(Absence.GONE, "not of this simulation")
        content = resources.content(number, read_version(resource.memo))
        if resource.metadata.length not in (None, len(content)):
            return NoContent(Absence.CHANGED, "not of this simulation")
        return OpenSyntheticContent(resources, content)

    def read_each(self, set_name: str, resources: Sequence[RecordedResource]) -> list[bytes | NoContent]:
        """The octets of small resources."""
        return [read_whole(self, set_name, one) for one in resources]


def share(total: int, place: int, sets: int) -> int:
    """How many of `total` changes belong to the set at this place: they take turns."""
    return (total + sets - 1 - place) // sets
