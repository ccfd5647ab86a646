"""Packs the octets of a dump beside the publications of its set: what is due, the packages, the note that names them.

Packages are made without holding up publications; they have names that nothing tells yet. Whether they still fit is
looked at when they are named: if the dump has meanwhile begun anew, they are left to be cleaned away. Each kind of dump
says what is due, how that is packed, and what the dump is then (`DumpPlan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from threading import Lock
from typing import Generic, Protocol, TypeVar

import msgspec

from headwater.catalog.interface import SetSnapshot
from headwater.catalog.set_snapshot import read_snapshot
from headwater.publish.archives.documents import archive_names
from headwater.publish.plan import with_retired
from headwater.publish.publication_state import PublicationNotes, PublicationState, decode_publication
from headwater.publish.rendering.renderer import PublishContext
from headwater.publish.site import SetSettings
from headwater.publish.store_writer import StoreWriter

S = TypeVar("S")
"""The state of a dump."""
D = TypeVar("D")
"""What is due."""
P = TypeVar("P")
"""What was packed."""


class PackResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a look at a dump.

    `is_done`: something was packed, and there may be more. `awaits_scan`: packing waits because resources are not as
    they were recorded. `is_offered`: destinations had a dump before already, so that packing may take its time.
    """

    is_done: bool
    awaits_scan: bool = False
    is_offered: bool = False


class Due(msgspec.Struct, Generic[S, D, P], frozen=True, kw_only=True):
    """What is due, and the state of the dump in which it is to be named.

    `packed` is what was packed already, and could not be named so far.
    """

    plan: D
    state: S
    generation: str
    packed: P | None = None


class NotNamed(Enum):
    """Why packages are not named."""

    WAITING = auto()
    """They are named later, or others."""
    REFUSED = auto()
    """They are to be cleaned away."""


class DumpPlan(Protocol[S, D, P]):
    """A kind of dump, for all sets. All but `pack` is called under the lock of the set."""

    folder: str
    """Where the packages lie, below the set's folder."""

    def held(self, settings: SetSettings) -> Due[S, D, P] | None:
        """What is packed already and waits to be named."""
        ...

    def may_pack(self, settings: SetSettings, *, at_once: bool) -> bool:
        """Whether the set has such a dump, and nothing is waited for."""
        ...

    def awaits_scan(self, name: str) -> bool:
        """Whether packing waits because resources of the set are not as they were recorded."""
        ...

    def state_of(self, publication: PublicationState) -> S | None:
        """The state of the dump; None while the set has none."""
        ...

    def with_state(self, publication: PublicationState, state: S) -> PublicationState:
        """The publication state with another state of the dump."""
        ...

    def is_offered(self, state: S) -> bool:
        """Whether destinations have a dump, so that packing may take its time."""
        ...

    def next(self, settings: SetSettings, snapshot: SetSnapshot, state: S, *, at_once: bool) -> D | None:
        """What is due next."""
        ...

    def pack(self, settings: SetSettings, plan: D, store_writer: StoreWriter, stop: Callable[[], None]) -> P:
        """Make the packages and put them into the store; nothing names them yet. Called without the lock."""
        ...

    def packages(self, name: str, packed: P) -> Iterable[str]:
        """The names of what was put into the store."""
        ...

    def named(self, settings: SetSettings, due: Due[S, D, P], packed: P) -> S | NotNamed:
        """The state of the dump with what was packed."""
        ...

    def names(self, name: str, state: S) -> Iterable[str]:
        """The documents and packages of the dump."""
        ...

    def write(self, store_writer: StoreWriter, settings: SetSettings, before: S, state: S) -> None:
        """Write the documents that name the packages."""
        ...

    def forget(self) -> None:
        """Others may have packed since."""
        ...


class DumpPacker(Generic[S, D, P]):
    """Does that for all sets. `locks` are those of their publications; `etags` learn what was written."""

    def __init__(
        self, context: PublishContext, plan: DumpPlan[S, D, P], locks: Mapping[str, Lock], etags: dict[str, str]
    ) -> None:
        self._context = context
        self._plan = plan
        self._locks = locks
        self._etags = etags
        self._swept: set[str] = set()
        """Sets in whose store all packages are known."""

    def forget(self) -> None:
        """Others may have packed since, and left or cleaned away what nothing names."""
        self._swept.clear()
        self._plan.forget()

    def pack(self, settings: SetSettings, *, at_once: bool, stop: Callable[[], None]) -> PackResult:
        """Make the packages that are due, and name them. With `at_once` what waits its time does not.

        Raises the store's and the catalog's StoreFaults, OSError, and what `stop` raises.
        """
        name, plan = settings.name, self._plan
        with self._locks[name]:
            due = self._due(settings, at_once=at_once)
        if due is None:
            return PackResult(is_done=False, awaits_scan=plan.awaits_scan(name))
        packed = due.packed
        if packed is None:
            packed = plan.pack(settings, due.plan, self._writer(due.generation, {}), stop)
        with self._locks[name]:
            is_done = self._name(settings, due, packed)
        return PackResult(is_done=is_done, awaits_scan=plan.awaits_scan(name), is_offered=plan.is_offered(due.state))

    def _due(self, settings: SetSettings, *, at_once: bool) -> Due[S, D, P] | None:
        """What is to be packed now; None when nothing is, or the set has to be published first."""
        plan = self._plan
        if not plan.may_pack(settings, at_once=at_once):
            return None
        if (held := plan.held(settings)) is not None:
            return held
        snapshot = read_snapshot(self._context.catalog, settings.name)
        publication = decode_publication(snapshot.state.notes)
        state = plan.state_of(publication)
        if state is None or not publication.is_of(self._context.site, settings):
            return None
        found = plan.next(settings, snapshot, state, at_once=at_once)
        return None if found is None else Due(plan=found, state=state, generation=publication.generation)

    def _name(self, settings: SetSettings, due: Due[S, D, P], packed: P) -> bool:
        """Name the packages in the dump, unless that is another one by now; whether to go on."""
        context, plan, name = self._context, self._plan, settings.name
        snapshot = read_snapshot(context.catalog, name)
        publication = decode_publication(snapshot.state.notes)
        if plan.state_of(publication) != due.state or publication.generation != due.generation:
            self._swept.discard(name)  # what was packed is to be cleaned away
            return True
        if any(context.store.stat(one) is None for one in plan.packages(name, packed)):
            return True  # packed so long that it was taken for what a killed process has left: it is packed again
        state = plan.named(settings, due, packed)
        if isinstance(state, NotNamed):
            if state is NotNamed.REFUSED:
                self._swept.discard(name)
            return False
        plan.write(self._writer(due.generation, self._etags), settings, due.state, state)
        before = set(plan.names(name, due.state))
        if name not in self._swept:
            before.update(context.store.names(f"{name}/{plan.folder}"))
            self._swept.add(name)
        live = {*plan.names(name, state), *archive_names(name, publication.archive)}
        retired = with_retired(publication, before, live, context.clock())
        context.may_write()
        publication = plan.with_state(msgspec.structs.replace(publication, retired=retired), state)
        PublicationNotes(context.catalog, snapshot.state).write(publication)
        return True

    def _writer(self, generation: str, etags: dict[str, str]) -> StoreWriter:
        context = self._context
        return StoreWriter(context.store, context.site.profile, context.may_write, etags, generation)
