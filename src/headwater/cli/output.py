"""Writes errors, notices, progress and results to the standard streams, for a person or as JSON; reads standard input.

Standard output carries results only; everything else goes to standard error. Text that came from a source passes
`printable` first, so that no document can steer the reader's terminal.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from headwater.cli.shared_options import option
from headwater.errors import HeadwaterError, StoreFault, UsageFault
from headwater.quantities import counted as counted
from headwater.quantities import human_octets, human_seconds
from headwater.quantities import printable as printable

if TYPE_CHECKING:
    from pathlib import Path

    from headwater.cli.progress_output import ProgressOutput
    from headwater.progress import Notice

_UNPRINTABLE_IN_JSON = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbf[\xb9-\xbb]"
)
"""What `printable` escapes, as JSON has it, which escapes what is below U+0020 anyhow."""

_T = TypeVar("_T")

STANDARD = "-"
"""The name of a standard stream in the place of a file."""

JSON_BEGUN = "headwater.json begun"

json_option = option("--json", "Write the result as JSON to standard output.", name="as_json")

NOT_CONFIGURED = "not in the configuration, and still public: {}. To remove: `headwater catalog drop CONFIG --set {}`"


def harmless_json(octets: bytes) -> bytes:
    """The same JSON, with the characters that `printable` shows as escapes as escapes of JSON: it means the same."""
    return _UNPRINTABLE_IN_JSON.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), octets)


def standard_input() -> BinaryIO:
    """The octets of standard input. Raises UsageFault where whoever started us has closed it."""
    if sys.stdin is None:
        raise UsageFault("standard input is closed", advice="Name a file in the place of -.")
    return sys.stdin.buffer


@contextmanager
def output_faults(output: str) -> Iterator[None]:
    """Tell by its name an output that cannot be written: a file, or `-` for standard output. Raises StoreFault."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as cause:
        where: str | None = output
        name, advice = "the output", "Name a file in a folder that is there, has room, and may be written."
        if output == STANDARD:
            name, where, advice = "standard output", None, "Free space where it is written."
        raise StoreFault(f"{name} cannot be written: {cause.strerror}", where=where, advice=advice) from cause


def see_outside(path: Path, copy: Path, option: str) -> None:
    """See that a file that a command writes is not in a copy. Raises UsageFault."""
    if path.resolve().is_relative_to(copy.resolve()):
        raise UsageFault(f"the file of {option} lies in the copy, where audits would find it", where=str(path))


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


def listening(
    *, quiet: bool = False, bars: bool = True, under_way: Callable[[], int] | None = None
) -> AbstractContextManager[ProgressOutput]:
    """A listener for the time of one job: notes, and bars on a terminal, or one line a minute.

    `quiet`: nothing, unless the job ends by an error; `bars=False`: also on a terminal only lines. `under_way` tells
    the octets of transfers that are not complete.
    """
    from headwater.cli.progress_output import listening

    return listening(quiet=quiet, bars=bars, under_way=under_way)


def encoded_json(value: object) -> bytes:
    """`value` as one line of JSON that may be shown on a terminal."""
    import msgspec

    return harmless_json(msgspec.json.encode(value)) + b"\n"


def json_line(value: object) -> None:
    """Write `value` as one line of JSON on standard output, at once: a program may wait for it."""
    sys.stdout.buffer.write(encoded_json(value))
    sys.stdout.buffer.flush()


def json_document(value: object) -> None:
    """Write `value` as one indented JSON document on standard output, at once."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(encoded_json(value), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def show_result(value: object, words: str, *, as_json: bool) -> None:
    """Write the result of a command on standard output: `value` as a document of JSON, or `words` for a person."""
    if as_json:
        json_document(value)
    else:
        click.echo(words)


def begin_json() -> None:
    """Say that an object has been begun on standard output: an error that comes now must not be written into it."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[JSON_BEGUN] = True


def json_error(error: HeadwaterError, status: int) -> None:
    """Write an error as one line of JSON on standard output: what a program gets in place of a result."""
    told = {"code": error.code, "rule": error.rule, "what": error.what, "where": error.where, "advice": error.todo}
    json_line({"error": told, "exit_status": status})


_PART = re.compile(r"\[(.*?)\]")
_FIELD = re.compile(r"\{([\w.]+)(?::([\w ]+))?\}")


def lines_of(record: object, *templates: str, **more: object) -> Iterator[str]:
    """The lines that templates make of a record; what it says is made printable.

    `{name}` stands for a field of the record, or one of `more`; `{last.fault}` for a field of a field. Numbers, times
    and durations (`float`, in seconds) are written for people; `{size:octets}` is a size, `{files:file}` a number with
    its noun, a truth value is nothing. A line is left out where its first field is None, 0, False or empty; so is a
    part of it in brackets, `[, {failed} failed]`.
    """

    def value(path: str) -> Any:
        first, *rest = path.split(".")
        found = more[first] if first in more else getattr(record, first)
        for name in rest:
            found = None if found is None else getattr(found, name)
        return found

    def is_empty(text: str) -> bool:
        first = _FIELD.search(text)
        return first is not None and not value(first[1])

    for template in templates:
        if not is_empty(_PART.sub("", template)):
            texts = enumerate(_PART.split(template))  # parts in brackets are at the odd places
            kept = "".join("" if number % 2 and is_empty(text) else text for number, text in texts)
            yield _FIELD.sub(lambda field: _shown(value(field[1]), field[2]), kept)


def lines_of_all(records: Iterable[object], *templates: str) -> list[str]:
    """The lines that templates make of each of the records."""
    return [line for one in records for line in lines_of(one, *templates)]


def show(record: object, *templates: str, is_fault: bool = False, **more: object) -> None:
    """Show the lines that templates make of a record on standard output; of a fault, on standard error."""
    for line in lines_of(record, *templates, **more):
        click.echo(line, err=is_fault)


def _shown(value: Any, form: str) -> str:
    """A value as a person reads it."""
    match value:
        case None | bool():
            return ""
        case int() if form == "octets":
            return human_octets(value)
        case int():
            return counted(value, form) if form else f"{value:,}"
        case float():
            return human_seconds(value)
        case dt.datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return printable(str(value))


def show_some(lines: Sequence[str], most: int, *, count: int | None = None, indent: str = "", rest: str = "") -> None:
    """Show the first lines of a list on standard output, and then how many more there are.

    `count` is how many there are in all, where `lines` is cut itself; `rest` says where the others can be seen.
    """
    for line in lines[:most]:
        click.echo(indent + printable(line))
    if (count := len(lines) if count is None else count) > most:
        click.echo(f"{indent}… and {count - most:,} more{rest}")


def sets_to_show(sets: Sequence[_T], most: int, is_telling: Callable[[_T], object]) -> tuple[list[_T], list[_T]]:
    """The sets that are shown one by one, and the others: all of them, or of more than `most` those with news."""
    if len(sets) <= most:
        return list(sets), []
    shown = [one for one in sets if is_telling(one)][:most]
    ours = set(map(id, shown))
    return shown, [one for one in sets if id(one) not in ours]


def some_of(names: Sequence[str], most: int = 5) -> str:
    """The names for a line that people read: the first of them, and how many there are besides."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"
