"""The health of one set, shown until a failure is over; and its publication, of which others are told."""

import datetime as dt
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from headwater.catalog.lease import NotLeader
from headwater.errors import HeadwaterError, disk_fault
from headwater.progress import Listener, Notice
from headwater.publish.publisher import PublishResult
from headwater.retry import Backoff

PAUSES: Final = Backoff(0.5, 60.0)  # before what has failed is tried again


class FailureState(msgspec.Struct, kw_only=True):
    """What fails at present: how often in a row, and what went wrong last."""

    failures: int = 0
    error: str | None = None
    error_code: str | None = None

    def add(self, fault: Exception, listener: Listener, message: str) -> None:
        """Count a failure; `message` and what went wrong are told unless it is what went wrong before."""
        if isinstance(fault, OSError):
            fault = disk_fault(fault) or fault
        text = f"{type(fault).__name__}: {fault}"
        code = HeadwaterError.code
        if isinstance(fault, HeadwaterError):  # its code is told beside it
            text = fault_words(fault)
            code = fault.code
        if text != self.error:
            listener(Notice(code, f"{message}: {text}"))
        self.failures += 1
        self.error, self.error_code = text, code

    def clear(self) -> None:
        """Nothing fails any more."""
        self.failures = 0
        self.error = self.error_code = None


def fault_words(fault: HeadwaterError) -> str:
    """What happened, and where: as it is told beside a code."""
    return fault.what + (f" ({fault.where})" if fault.where else "")


class SetHealth(FailureState, kw_only=True):
    """How one set is: what is being done, since when all is known, what went wrong last."""

    name: str
    phase: str = "starting"
    watching: bool = False
    unwatched: int = 0
    """Folders below that are not watched because they cannot be read; they are from the moment when they can be."""
    scans: int = 0
    scanned_at: dt.datetime | None = None
    scan_seconds: float = 0.0
    held_back: str | None = None
    remarks: dict[str, int] = msgspec.field(default_factory=dict)
    error_at: dt.datetime | None = None
    failing_since: dt.datetime | None = None  # when the first of the present failures was
    watch_error: str | None = None


class Failures:
    """What fails of a set at present: shown by its health until it goes well, told when it is new."""

    def __init__(self, health: SetHealth, clock: Callable[[], dt.datetime], listener: Listener) -> None:
        self._failing: dict[str, int] = {}
        self._health = health
        self._clock = clock
        self._listener = listener

    def __bool__(self) -> bool:
        """Whether something fails at present."""
        return bool(self._failing)

    def attempt(self, what: str, work: Callable[[], None]) -> float | None:
        """Do some work; None when it went well, else how many seconds to wait before it is tried again."""
        try:
            work()
        except Exception as fault:  # noqa: BLE001 - what is not shown here is never seen
            return self.add(what, fault)
        had_failed = self._health.failures > 0
        self.worked(what)
        if had_failed and not self:
            self._listener(Notice("HW-PUB-20", f"the set {self._health.name!r} is brought up to date again"))
        return None

    def add(self, what: str, fault: Exception, listener: Listener | None = None) -> float:
        """It has failed, which this listener is told; how many seconds to wait before it is tried again.

        That another process publishes by now is no failure: the turn is about to end.
        """
        if not isinstance(fault, NotLeader):
            health, at = self._health, self._clock()
            text = f"the set {health.name!r} cannot be brought up to date, and is tried again"
            health.add(fault, listener or self._listener, text)
            health.phase, health.error_at, health.failing_since = "failing", at, health.failing_since or at
        self._failing[what] = count = self._failing.get(what, 0) + 1
        return max(PAUSES.seconds(count), getattr(fault, "pause_seconds", 0.0))  # as a repository asks

    def worked(self, what: str) -> None:
        """It goes well; the health is clear when nothing else fails."""
        self._failing.pop(what, None)
        if not self:
            self._health.clear()
            self._health.failing_since = None


# Publications: which changes have become visible, and who is told


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Changes `first`..`last` of a set have become visible; `last` is less than `first` when none has.

    `is_first`: of this history of the set nothing was told before. The set is shown for the first time, or its history
    had to begin anew: what was told before is not continued. The set has `resources` now, and the history
    (`PublicationState.history`) begins with the change `history_first`.
    """

    name: str
    is_first: bool
    resources: int
    first: int
    last: int
    history: int = 0
    history_first: int = 1

    @property
    def changes(self) -> int:
        """How many changes have become visible."""
        return self.last - self.first + 1


class PublicationEvents:
    """Tells those who listen of each publication that has made changes visible. Safe for several threads.

    A listener is told at once, from the beginning of the process; it must not wait and raises nothing.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Publication], None]] = []
        self._told: dict[str, Publication] = {}
        self._lock = threading.Lock()

    def listen(self, listener: Callable[[Publication], None]) -> None:
        """Tell this one of what becomes visible from now on."""
        self._listeners.append(listener)

    @property
    def newest(self) -> list[Publication]:
        """The newest publication of each set, as far as there was one."""
        with self._lock:
            return list(self._told.values())

    def begin(self) -> None:
        """Another process may have published since: what is published next is told as if for the first time."""
        with self._lock:
            self._told.clear()

    def published(self, result: PublishResult) -> None:
        """A set was published."""
        with self._lock:  # in the order of the publications
            told, history = self._told.get(result.name), result.history
            if told is not None and (told.history, told.last) == (history, result.seq):
                return  # nothing has become visible since
            goes_on = told is not None and told.history == history and told.last < result.seq
            event = self._told[result.name] = Publication(
                name=result.name,
                is_first=not goes_on,
                resources=result.resources,
                first=told.last + 1 if goes_on and told is not None else result.history_first,
                last=result.seq,
                history=history,
                history_first=result.history_first,
            )
            for listener in self._listeners:
                listener(event)
