"""A simulated source that is published and served: documents follow the simulation, octets are made when asked for."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from headwater.catalog.interface import SetState
from headwater.catalog.lease import SharedCatalog
from headwater.errors import Interrupted
from headwater.progress import Listener, Progress, notices_of, silent
from headwater.publish.plan import Refresh
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import Site
from headwater.simulate.simulation import Simulation
from headwater.source.health import ServableSource
from headwater.source.set_health import PAUSES, FailureState
from headwater.storage.folder_store import FolderStore

_TURN_SECONDS = 1.0  # so often one more set is published though nothing has changed in it: its pages may be due
PUBLISHED = "sets published"  # the phase by which progress is told at the beginning


class SimulationHealth(FailureState, kw_only=True):
    """How a simulation is, for the health report."""

    changes: int = 0
    publications: int = 0


class SimulatedSource(ServableSource):
    """What `headwater simulate` serves. One thread lets things happen and has them published, until `stop`.

    Nothing is shown before the simulation is prepared: what an earlier run has left may be of another one. Documents
    that are not `durable` are not kept from a power cut.
    """

    fault: BaseException | None = None  # why nothing could be loaded or published at the beginning

    def __init__(
        self, simulation: Simulation, site: Site, documents: Path, listener: Listener = silent, *, durable: bool = True
    ) -> None:
        self.site = site
        self.catalog = simulation.catalog
        self.store = FolderStore(documents, durable=durable)
        heard = listener if len(site.sets) == 1 else notices_of(listener)
        options = PublisherOptions(contents=simulation, spool=documents.parent)
        self.publisher = Publisher(self.catalog, self.store, site, lambda: simulation.clock(), heard, options)
        self._simulation = simulation
        self._listener = listener
        self._doing = SimulationHealth()
        self._due: dict[str, None] = {}  # sets with changes that are not published, or pages that are due
        self._turn = 0
        self._is_prepared = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents may be shown."""
        return self._is_prepared and self.publisher.site_documents.is_published(name, state)

    def is_site_published(self) -> bool:
        """Whether the Source Description may be shown."""
        return self._is_prepared and self.publisher.site_documents.is_site_published()

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        return self._is_prepared and self.publisher.site_documents.is_known_published(name)

    def health(self) -> Mapping[str, object]:
        """How the simulation is; how the sets are is read from the catalog."""
        return {"simulation": msgspec.to_builtins(self._doing), "sets": []}

    def publish(self) -> None:
        """Bring all documents up to date. Raises what the publisher raises, and Interrupted."""
        self._is_prepared = True
        for done, one in enumerate(self.site.sets, 1):
            self._publish(one.name)
            self._listener(Progress(PUBLISHED, done, len(self.site.sets)))

    def load_and_start(self, ready: Callable[[], None], failed: Callable[[], None]) -> None:
        """In a thread, load and publish, call `ready`, then let things happen; or call `failed`: `fault` says why."""

        def live() -> None:
            try:
                self._simulation.prepare(self._stopping.is_set)
                self.publish()
                ready()
            except BaseException as fault:  # noqa: BLE001 - a thread's last frame: whoever serves raises it
                self.fault = fault
                failed()
                return
            self._simulation.begin()
            while not self._stopping.is_set():
                try:
                    if self._doing.error is not None:
                        self._simulation.resume()
                    self._round()
                except Interrupted:
                    return
                except Exception as fault:  # noqa: BLE001 - a thread's last frame: what is not shown here is never seen
                    self._doing.add(fault, self._listener, "the simulation cannot continue")
                    self._stopping.wait(PAUSES.seconds(self._doing.failures))
                    continue
                self._doing.clear()
                self._stopping.wait(0.0 if self._due else self._simulation.pause())

        self._thread = threading.Thread(target=live, name="headwater-simulate", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> bool:
        """End the thread; True when it has ended in time. What was recorded and published is safe either way."""
        self._stopping.set()
        if isinstance(self.catalog, SharedCatalog):
            self.catalog.hurry()
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _round(self) -> None:
        changed = self._simulation.advance() if not self._simulation.is_over else []
        self._doing.changes = self._simulation.done
        turn = int(time.monotonic() / _TURN_SECONDS)
        in_turn = [self.site.sets[turn % len(self.site.sets)].name] if turn != self._turn else []
        self._turn = turn
        self._due.update(dict.fromkeys((*changed, *in_turn)))
        for name in list(self._due):
            self._publish(name)
        for one in self.site.sets if in_turn else ():
            if one.dump:  # a package at a time: changes go on between two
                self.publisher.pack_resources(one.name, stop=self._check)

    def _check(self) -> None:
        if self._stopping.is_set():
            raise Interrupted("interrupted")

    def _publish(self, name: str) -> None:
        self._check()
        self._due.pop(name, None)
        self._due[name] = None  # as the last one: where it fails, no other waits for it
        now = self._simulation.clock()
        published = self.publisher.publish(name, now, Refresh.DUE, looked_at=now)
        self._doing.publications += 1
        if not published.pages_left:
            del self._due[name]
