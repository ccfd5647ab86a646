"""Progress and notices of a command on standard error: bars or lines, and when a notice is told again."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

from headwater.cli.output import tell
from headwater.progress import Notice, Progress
from headwater.quantities import human_octets, human_seconds

if TYPE_CHECKING:
    from rich.progress import TaskID

MINUTE = 60.0
_MOST_EXAMPLES = 3
_MOST_LINES = 20  # different notes of one rule; more of them are counted
_MOST_KEYS = 2_000
_LONGEST_PAUSE = 3_600.0
_MOST_BARS = 8
_MOST_KEPT = 1_000
_TURNS = frozenset({"HW-PSH-01"})
_REDRAW_SECONDS = 0.1  # a bar that moves more often only costs time


class _Repeated(msgspec.Struct):
    """What goes on: how often it came since it was told, when last, when it may be told again."""

    count: int
    came_at: float
    due_at: float
    pause: float


class Reminders(msgspec.Struct):
    """Says when what goes on is told again: at once, after a minute, after two more, and so on up to an hour.

    For one thread at a time.
    """

    clock: Callable[[], float] = time.monotonic
    told: dict[Hashable, _Repeated] = {}

    def due(self, what: Hashable) -> int | None:
        """How often it came since it was told, where it is to be told now (0: it is new); None: not now."""
        now, known = self.clock(), self.told.get(what)
        if known is None or now - known.came_at > max(MINUTE, known.pause):
            if len(self.told) >= _MOST_KEYS:
                self.told.clear()
            self.told[what] = _Repeated(0, now, now + MINUTE, MINUTE)
            return 0
        known.count, known.came_at = known.count + 1, now
        if now < known.due_at:
            return None
        known.pause = min(known.pause * 2, _LONGEST_PAUSE)
        known.due_at = now + known.pause
        count, known.count = known.count, 0
        return count


class _Told(msgspec.Struct):
    """A notice that was shown: what it is about, and how many places it came for."""

    notice: Notice
    places: list[str]
    count: int


class Notes:
    """Tells each note when it first comes. `close` tells how many more there were, and of what.

    One that goes on coming with nothing new is told again after a minute, after two more, and so on up to an hour.
    """

    def __init__(self, say: Callable[[Notice], None] = tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._reminders = Reminders(clock)
        self._told: dict[tuple[str, str], _Told] = {}
        self._lines: dict[str, int] = {}
        self._untold: dict[str, int] = {}

    def hear(self, notice: Notice) -> None:
        """Tell the note, or count it. Of what begins and ends by turns each turn is told: the last one holds."""
        if notice.rule in _TURNS:
            self._say(notice)
            return
        told = self._told.get((notice.rule, notice.message))
        if told is None:
            lines = self._lines.get(notice.rule, 0)
            if lines >= _MOST_LINES or len(self._told) >= _MOST_KEYS:
                self._untold[notice.rule] = self._untold.get(notice.rule, 0) + 1
                return
            self._lines[notice.rule] = lines + 1
            self._reminders.due((notice.rule, notice.message))
            self._told[notice.rule, notice.message] = _Told(notice, [notice.where or ""], 1)
            self._say(notice)
            return
        place = notice.where or ""
        if place not in told.places:
            told.count += 1
            if len(told.places) < _MOST_EXAMPLES:
                told.places.append(place)
        elif self._reminders.due((notice.rule, notice.message)) is not None:
            self._say(notice)

    def close(self) -> None:
        """Tell a note of its second thing where there were two; else how many there were, and the first three."""
        for told in self._told.values():
            if told.count == 2:
                self._say(msgspec.structs.replace(told.notice, where=told.places[1]))
            elif told.count > 1:
                examples = ", ".join(place for place in told.places if place)
                more = " …" if told.count > len(told.places) else ""
                where = f"{told.count:,} times in all: {examples}{more}"
                self._say(msgspec.structs.replace(told.notice, where=where))
            told.count = 1
        for rule, count in self._untold.items():
            self._say(Notice(rule, f"{count:,} more notes like these"))
        self._untold.clear()
        self._lines.clear()


class LineEachMinute:
    """One line a minute of how far the work has got, for a log. Nothing is said of what is over sooner."""

    def __init__(
        self,
        say: Callable[[str], None] = lambda line: click.echo(line, err=True),
        clock: Callable[[], float] = time.monotonic,
        under_way: Callable[[], int] | None = None,
    ) -> None:
        self._say = say
        self._clock = clock
        self._under_way = under_way
        self._began_at: float | None = clock()
        self._said_at = self._began_at
        self._last: Progress | None = None

    def hear(self, event: Progress) -> None:
        """Take note of progress, and say it when it is time."""
        if self._began_at is None:
            self._began_at = self._said_at = self._clock()
        self._last = event
        self.beat()

    def rest(self) -> None:
        """A run is over: that of the next one counts from its own beginning, whatever the pause between them."""
        self._began_at = self._last = None

    def beat(self) -> bool:
        """Say how far the work has got when it is time; always False: it can stand where a stop is asked for."""
        now = self._clock()
        if self._began_at is not None and now - self._said_at >= MINUTE:
            self._said_at = now
            state = "reading what the source offers"
            if self._last is not None:
                under_way = self._under_way() if self._under_way is not None else 0
                more = f", {human_octets(under_way)} under way" if under_way else ""
                state = f"{self._last.phase} {count(self._last)}{more}"
            self._say(f"progress: {state}, after {human_seconds(now - self._began_at)}")
        return False


@dataclass
class ProgressOutput:
    """The listener of a command. `beat` may be called at any time, and keeps a log alive; see `LineEachMinute`.

    With `kept`, notes are withheld, and told only when something is wrong in the end.
    """

    progress: Callable[[Progress], object] = lambda _event: None
    beat: Callable[[], bool] = lambda: False
    kept: list[Notice] | None = None
    rest: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._notes = Notes(tell if self.kept is None else self._keep)

    def __call__(self, event: Progress | Notice) -> None:
        if isinstance(event, Notice):
            self._notes.hear(event)
        else:
            self.progress(event)

    def _keep(self, notice: Notice) -> None:
        if self.kept is not None and len(self.kept) < _MOST_KEPT:
            self.kept.append(notice)

    def close(self, status: int) -> None:
        """The work, or one run of it, is over: tell what was counted, and what was withheld, if `status` is not 0."""
        self._notes.close()
        self.rest()
        for notice in self.kept or () if status else ():
            tell(notice)
        if self.kept is not None:
            self.kept.clear()


@contextmanager
def listening(*, quiet: bool, bars: bool, under_way: Callable[[], int] | None) -> Iterator[ProgressOutput]:
    """A listener for the time of one job; see `output.listening`."""
    with contextlib.ExitStack() as stack:
        if quiet:
            teller = ProgressOutput(kept=[])
        elif bars and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            teller = ProgressOutput(stack.enter_context(_bars()))
        else:
            minutes = LineEachMinute(under_way=under_way)
            teller = ProgressOutput(minutes.hear, minutes.beat, rest=minutes.rest)
        try:
            yield teller
        except BaseException:
            teller.close(1)
            raise
        teller.close(0)


@contextmanager
def _bars() -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    drawn_at: dict[str, float] = {}
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def draw(event: Progress) -> None:
            """Draw one bar for each phase."""
            now = time.monotonic()
            finished = event.total is not None and event.done >= event.total
            if not finished and now - drawn_at.get(event.phase, 0.0) < _REDRAW_SECONDS:
                return
            drawn_at[event.phase] = now
            if event.phase not in tasks:
                tasks[event.phase] = bars.add_task(event.phase, total=event.total, count="")
            bars.update(tasks[event.phase], completed=event.done, total=event.total, count=count(event))
            if finished and len(tasks) > _MOST_BARS:
                bars.remove_task(tasks.pop(event.phase))

        yield draw


def count(event: Progress) -> str:
    """How far a phase has got: `3,148 of 20,004, 154 MiB`."""
    total = f" of {event.total:,}" if event.total is not None else ""
    octets = f", {human_octets(event.octets)}" if event.octets else ""
    return f"{event.done:,}{total}{octets}"
