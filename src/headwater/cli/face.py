"""How everything is said to a person or a program: errors, notices, progress, JSON, sizes and durations.

Standard output carries results only; everything else goes to standard error. Text that came from a source passes
`printable` first, so that no document can steer the reader's terminal.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.progress import Listener, Notice, Progress

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
JSON_BEGUN = "headwater.json begun"
_MOST_BARS = 8
_REDRAW_SECONDS = 0.1  # a bar that moves more often only costs time

json_option = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON on standard output.")


def printable(text: str) -> str:
    """`text` with control, direction and surrogate characters as visible escapes (`\\x1b`)."""
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def complain(error: HeadwaterError) -> None:
    """Tell an error on standard error: what, where, rule or code, what to do."""
    lines = [f"error: {printable(error.what)}"]
    if error.where:
        lines.append(f"  where: {printable(error.where)}")
    lines.append(f"  code: {error.code}" + (f" ({printable(error.rule)})" if error.rule else ""))
    lines.append(f"  do: {printable(error.todo)}")
    click.echo("\n".join(lines), err=True)


def tell(notice: Notice) -> None:
    """Tell a notice on standard error, in one line."""
    where = f" ({printable(notice.where)})" if notice.where else ""
    click.echo(f"note: {printable(notice.message)}{where} [{printable(notice.rule)}]", err=True)


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener for the time of one job: bars and notices on a terminal, plain notices otherwise."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bars() as listener:
            yield listener
        return
    from headwater.progress import Notice

    yield lambda event: tell(event) if isinstance(event, Notice) else None


@contextmanager
def _bars() -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    from headwater.progress import Notice

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    drawn_at: dict[str, float] = {}
    console = Console(stderr=True)

    with Bars(*columns, console=console, transient=True) as bars:

        def show(event: Progress | Notice) -> None:
            if isinstance(event, Notice):
                tell(event)
                return
            now = time.monotonic()
            finished = event.total is not None and event.done >= event.total
            if not finished and now - drawn_at.get(event.phase, 0.0) < _REDRAW_SECONDS:
                return
            drawn_at[event.phase] = now
            if event.phase not in tasks:
                tasks[event.phase] = bars.add_task(event.phase, total=event.total, count="")
            bars.update(tasks[event.phase], completed=event.done, total=event.total, count=_count(event))
            if finished and len(tasks) > _MOST_BARS:
                bars.remove_task(tasks.pop(event.phase))

        yield show


def _count(event: Progress) -> str:
    total = f" of {event.total:,}" if event.total is not None else ""
    octets = f", {human_octets(event.octets)}" if event.octets else ""
    return f"{event.done:,}{total}{octets}"


def json_line(value: object) -> None:
    """Write `value` as one line of JSON on standard output."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")


def json_document(value: object) -> None:
    """Write `value` as one indented JSON document on standard output."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def begin_json() -> None:
    """Say that an object has been begun on standard output: an error that comes now must not be written into it."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[JSON_BEGUN] = True


def json_error(error: HeadwaterError, status: int) -> None:
    """Write an error as one line of JSON on standard output: what a program gets in place of a result."""
    told = {"code": error.code, "rule": error.rule, "what": error.what, "where": error.where, "advice": error.todo}
    json_line({"error": told, "exit_status": status})


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def human_octets(octets: float) -> str:
    """`octets` in binary units with three figures: `999 B`, `4.10 KiB`, `12.3 MiB`."""
    size = float(octets)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1000 or unit == "TiB":
            break
        size /= 1024
    if unit == "B":
        return f"{size:.0f} B"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {unit}"


def human_seconds(seconds: float) -> str:
    """`seconds` as a person says them: `0.42 s`, `12.3 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def some_of(names: Sequence[str], most: int = 5) -> str:
    """The names for a line that people read: the first of them, and how many there are besides."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"
