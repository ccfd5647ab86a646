"""A portable dump as octets: lines in their order, counted and digested, so that no part is taken for the whole.

Works on any stream of octets, once from its beginning to its end, and holds the snapshot of one set in memory, never
its resources or changes.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, NoReturn, Protocol

import msgspec

from headwater.catalog.dump import lines
from headwater.catalog.interface import Change, Page, Part, Resource, Segment, SetSnapshot
from headwater.catalog.state import StateRow
from headwater.errors import StoreFault, UsageFault
from headwater.typed_decoding import from_json, json_decoder

LONGEST_LINE: Final = 64 << 20
"""Octets of a line: more than any page's worth of links; a stream of no lines at all ends here."""

_BLOCK: Final = 1 << 18
_TOLD: Final = 10_000
"""After so many lines the listener hears how far it is."""


class NotADump(UsageFault):
    """What was given is not a dump of a catalog."""

    code: ClassVar[str] = "HW-DMP-01"
    advice: ClassVar[str] = "Name a file that `headwater catalog export` has written."


class NewerDump(StoreFault):
    """The dump was written by a newer version of Headwater."""

    code: ClassVar[str] = "HW-DMP-02"
    advice: ClassVar[str] = "Upgrade Headwater, or export again with this version."


class DamagedDump(StoreFault):
    """The dump is cut off, damaged, or assembled from others; no damaged set is restored."""

    code: ClassVar[str] = "HW-DMP-03"
    advice: ClassVar[str] = (
        "Copy the dump again, or export it again; choose the sets that are not yet there with --set."
    )


class Output(Protocol):
    """Where a dump goes."""

    def write(self, octets: bytes, /) -> object:
        """Take all of `octets`."""
        ...


class Input(Protocol):
    """Where a dump comes from."""

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, or at most `limit` octets of it; nothing at the end."""
        ...


class SetTransfer(msgspec.Struct, kw_only=True):
    """What was written or read of one set."""

    name: str
    pages: int = 0
    segments: int = 0
    resources: int = 0
    changes: int = 0
    rows: int = 0


Tell = Callable[[str, int, int], None]
"""Hears of the set's name, the resources and changes that are done, and all of them."""


def _untold(_name: str, _done: int, _total: int) -> None:
    """Nobody listens."""


class DumpWriter:
    """Writes a dump of `names`, in this order."""

    def __init__(self, out: Output, names: Sequence[str], made_at: dt.datetime, program: str) -> None:
        self._out = out
        self._digest = hashlib.sha256()
        self._encode = msgspec.json.Encoder().encode
        self._waiting: list[bytes] = []
        self._octets = 0
        self._names = tuple(names)
        self._written = 0
        self._put(lines.Header(version=lines.VERSION, sets=self._names, made_at=made_at, program=program))

    def add(self, name: str, parts: Iterable[Part], tell: Tell = _untold) -> SetTransfer:
        """Write one set; it is the next of `names`. Raises what its parts and the stream raise."""
        if name != self._names[self._written]:
            raise ValueError(f"{name!r} is not the next set of the header")
        moved, total = SetTransfer(name=name), 0
        for part in parts:
            if isinstance(part, Resource):
                moved.resources += 1
                self._put(lines.resource_line(part))
            elif isinstance(part, Change):
                moved.changes += 1
                self._put(lines.change_line(part))
            elif isinstance(part, StateRow):
                moved.rows += 1
                self._put(lines.row_line(part))
            else:
                total = part.state.count + part.state.last_seq
                self._put_snapshot(part, moved)
            done = moved.resources + moved.changes
            if done % _TOLD == 0 or done == total:
                tell(name, done, total)
        self._put(lines.EndLine(set=name, **_counts(moved), sha256=self._sum()))
        self._written += 1
        return moved

    def finish(self) -> None:
        """Write the end, after all sets."""
        if self._written != len(self._names):
            raise ValueError("not all sets of the header were written")
        self._put(lines.DoneLine(sets=self._written, sha256=self._sum()))
        self._flush()

    def _put_snapshot(self, snapshot: SetSnapshot, moved: SetTransfer) -> None:
        moved.pages, moved.segments = len(snapshot.pages), len(snapshot.segments)
        self._put(lines.set_line(snapshot.state))
        for page in snapshot.pages:
            self._put(lines.page_line(page))
        for segment in snapshot.segments:
            self._put(lines.segment_line(segment))

    def _put(self, line: lines.Line) -> None:
        octets = self._encode(line)
        self._waiting.append(octets)
        self._octets += len(octets)
        if self._octets >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            block = b"\n".join(self._waiting) + b"\n"
            self._waiting.clear()
            self._octets = 0
            self._digest.update(block)
            self._out.write(block)

    def _sum(self) -> str:
        self._flush()
        return self._digest.hexdigest()


class DumpReader:
    """Reads a dump. Raises NotADump and NewerDump at once, DamagedDump wherever it finds that something is wrong."""

    def __init__(self, source: Input, tell: Tell = _untold) -> None:
        self._source = source
        self._tell = tell
        self._digest = hashlib.sha256()
        self._last = b""
        self._number = 0
        self._decode: Callable[[bytes], lines.Line] = json_decoder(lines.Line)
        self.header = self._header()

    def sets(self) -> Iterator[tuple[SetTransfer, Iterator[Part]]]:
        """Every set: how much of it was read so far, and its parts. What is not taken is read and checked all the same.

        The parts end only where the set's own end agrees with all that came before, else they raise DamagedDump.
        """
        for name in self.header.sets:
            moved = SetTransfer(name=name)
            parts = self._set(moved)
            yield moved, parts
            for _ in parts:
                pass
        done = self._line()
        if not isinstance(done, lines.DoneLine):
            self._refuse("the dump continues where it should end")
        self._check(done.sha256)
        if done.sets != len(self.header.sets) or self._source.readline(1):
            self._refuse("the dump does not end where it says")

    def _header(self) -> lines.Header:
        octets = self._source.readline(LONGEST_LINE)
        try:
            found = from_json(octets, lines.AnyHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise NotADump("the first line is not that of a dump") from cause
        if found.kind != lines.FORMAT:
            raise NotADump(f"the first line says {found.kind[:40]!a}, not {lines.FORMAT}")
        if found.version > lines.VERSION:
            raise NewerDump(f"the dump has version {found.version}, this Headwater reads {lines.VERSION}")
        header = self._decoded(octets)
        if not isinstance(header, lines.Header) or not 0 < header.version <= lines.VERSION:
            self._refuse("a first line that no version has written")
        if len(set(header.sets)) != len(header.sets):
            self._refuse("the same set twice")
        return header

    def _set(self, moved: SetTransfer) -> Iterator[Part]:
        name = moved.name
        snapshot, line = self._snapshot(moved)
        total = snapshot.state.count + snapshot.state.last_seq
        yield snapshot
        while isinstance(line, lines.ResourceLine):
            moved.resources += 1
            yield lines.resource_of(line)
            if moved.resources % _TOLD == 0:
                self._tell(name, moved.resources, total)
            line = self._line()
        while isinstance(line, lines.ChangeLine):
            moved.changes += 1
            yield lines.change_of(line)
            if moved.changes % _TOLD == 0:
                self._tell(name, moved.resources + moved.changes, total)
            line = self._line()
        while isinstance(line, lines.RowLine):
            moved.rows += 1
            yield lines.row_of(line)
            line = self._line()
        if not isinstance(line, lines.EndLine):
            self._refuse(f"a line of another kind inside the set {name!a}")
        self._check(line.sha256)
        if line.set != name or any(getattr(line, what) != count for what, count in _counts(moved).items()):
            self._refuse(f"the set {name!a} does not hold what its end says")
        self._tell(name, moved.resources + moved.changes, total)

    def _snapshot(self, moved: SetTransfer) -> tuple[SetSnapshot, lines.Line]:
        first = self._line()
        if not isinstance(first, lines.SetLine) or first.name != moved.name:
            self._refuse(f"the set {moved.name!a} does not begin where it should")
        pages: list[Page] = []
        segments: list[Segment] = []
        line = self._line()
        while isinstance(line, lines.PageLine):
            pages.append(lines.page_of(line))
            line = self._line()
        while isinstance(line, lines.SegmentLine):
            segments.append(lines.segment_of(line))
            line = self._line()
        moved.pages, moved.segments = len(pages), len(segments)
        return SetSnapshot(state=lines.state_of(first), pages=tuple(pages), segments=tuple(segments)), line

    def _line(self) -> lines.Line:
        return self._decoded(self._source.readline(LONGEST_LINE))

    def _decoded(self, octets: bytes) -> lines.Line:
        self._number += 1
        if not octets.endswith(b"\n"):
            self._refuse("the dump is cut off" if len(octets) < LONGEST_LINE else "a line without end")
        self._digest.update(self._last)  # of all lines before this one, which may have to say what it is
        self._last = octets
        try:
            return self._decode(octets)
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise DamagedDump(f"line {self._number} is no line of a dump: {cause}") from cause

    def _check(self, said: str) -> None:
        if said != self._digest.hexdigest():
            self._refuse("the digest is another: something before was changed, lost or moved")

    def _refuse(self, what: str) -> NoReturn:
        raise DamagedDump(f"line {self._number}: {what}")


def _counts(moved: SetTransfer) -> dict[str, int]:
    return {name: getattr(moved, name) for name in ("pages", "segments", "resources", "changes", "rows")}
