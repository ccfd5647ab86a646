"""A portable dump: whole sets as lines, counted and digested, so that no part is taken for the whole.

Each line is one JSON object whose `kind` says what it is, in version 3 of the format. A reader refuses keys that it
does not know: what is added later raises the version. Version 1 had no rows, and version 2 no attributes of other
namespaces (`extra`). Times have a zone, octets (`notes`, `memo`, `value`) are base64, attributes that a resource does
not have are left out. A dump is written and read once from its beginning to its end, with one set's state, pages and
segments in memory, never its resources or changes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NoReturn, Protocol, cast

import msgspec
from msgspec.structs import asdict

from headwater.catalog.batch_planning import row_writes
from headwater.catalog.interface import Change, Metadata, Page, Part, Resource, Segment, SetSnapshot, SetState
from headwater.catalog.state import StateRow, StateUpdate
from headwater.errors import StoreFault, UsageFault
from headwater.spec.records import ChangeKind, Extra, Link
from headwater.storage.durable import sync_descriptor, sync_folder
from headwater.storage.gzip_member import MAGIC, GzipCompressor, header
from headwater.typed_decoding import from_json, json_decoder

_FORMAT: Final = "headwater-catalog"
VERSION: Final = 3
LONGEST_LINE: Final = 64 << 20
"""Octets of a line: more than any page's worth of links; a stream of no lines at all ends here."""

_BLOCK: Final = 1 << 18
_TOLD: Final = 10_000
"""After so many lines the listener hears how far it is."""

_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]


class _Line(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """What all lines have in common."""


class Header(_Line, frozen=True, kw_only=True, tag=_FORMAT):
    """The first line: what this is, which sets follow, who made it and when."""

    version: int
    sets: tuple[str, ...]
    made_at: _Moment
    program: str = ""


class _AnyHeader(msgspec.Struct, frozen=True):
    """What the first line of any version says, older or newer."""

    kind: str
    version: int


class _SetLine(_Line, frozen=True, kw_only=True, tag="set"):
    """A set begins."""

    name: str
    opened_at: _Moment | None = None
    last_seq: Count
    last_at: _Moment | None = None
    count: Count
    page_count: Count
    notes: bytes = b""
    state_version: Count = 0


class _PageLine(_Line, frozen=True, kw_only=True, tag="page"):
    number: Count
    count: Count
    weight: Count
    touched: Count
    rendered: Count
    at: _Moment | None = None
    completed: _Moment | None = None
    stale_at: _Moment | None = None


class _SegmentLine(_Line, frozen=True, kw_only=True, tag="segment", rename={"from_": "from"}):
    number: Count
    first: Count
    last: Count
    from_: _Moment
    until: _Moment | None = None
    weight: Count


class _Described(_Line, frozen=True, kw_only=True):
    """The attributes that resources and changes have."""

    uri: str
    lastmod: _Moment | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()

    @property
    def metadata(self) -> Metadata:
        return Metadata(
            lastmod=self.lastmod,
            hash=self.hash,
            length=self.length,
            type=self.type,
            encoding=self.encoding,
            changefreq=self.changefreq,
            links=self.links,
            extra=self.extra,
        )


class _ResourceLine(_Described, frozen=True, kw_only=True, tag="resource"):
    """One live resource, at its place among those of its page."""

    page: Count
    seq: Count = 0
    memo: bytes = b""


class _ChangeLine(_Described, frozen=True, kw_only=True, tag="change"):
    seq: Count
    at: _Moment
    change: ChangeKind


class _RowLine(_Line, frozen=True, kw_only=True, tag="row"):
    """One row of the set's state; `of` is its kind."""

    of: str
    key: str
    rank: int = 0
    value: bytes = b""


class _EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """A set ends: how much of it there was, and the SHA-256 of every octet of the dump before this line."""

    set: str
    pages: int
    segments: int
    resources: int
    changes: int
    rows: int = 0
    sha256: str


class _DoneLine(_Line, frozen=True, kw_only=True, tag="done"):
    """The dump ends."""

    sets: int
    sha256: str


_Lines = Header | _SetLine | _PageLine | _SegmentLine | _ResourceLine | _ChangeLine | _RowLine | _EndLine | _DoneLine


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
        self._put(Header(version=VERSION, sets=self._names, made_at=made_at, program=program))

    def add(self, name: str, parts: Iterable[Part], tell: Tell = _untold) -> SetTransfer:
        """Write one set; it is the next of `names`. Raises what its parts and the stream raise."""
        if name != self._names[self._written]:
            raise ValueError(f"{name!r} is not the next set of the header")
        moved, total = SetTransfer(name=name), 0
        for part in parts:
            if isinstance(part, Resource):
                moved.resources += 1
                described = asdict(part.metadata)
                self._put(_ResourceLine(uri=part.uri, page=part.page, seq=part.seq, memo=part.memo, **described))
            elif isinstance(part, Change):
                moved.changes += 1
                described = asdict(part.metadata)
                self._put(_ChangeLine(uri=part.uri, seq=part.seq, at=part.at, change=part.change, **described))
            elif isinstance(part, StateRow):
                moved.rows += 1
                self._put(_RowLine(of=part.kind, key=part.key, rank=part.rank, value=part.value))
            else:
                total = part.state.count + part.state.last_seq
                self._put_snapshot(part, moved)
            done = moved.resources + moved.changes
            if done % _TOLD == 0 or done == total:
                tell(name, done, total)
        self._put(_EndLine(set=name, **_counts(moved), sha256=self._sum()))
        self._written += 1
        return moved

    def finish(self) -> None:
        """Write the end, after all sets."""
        if self._written != len(self._names):
            raise ValueError("not all sets of the header were written")
        self._put(_DoneLine(sets=self._written, sha256=self._sum()))
        self._flush()

    def _put_snapshot(self, snapshot: SetSnapshot, moved: SetTransfer) -> None:
        moved.pages, moved.segments = len(snapshot.pages), len(snapshot.segments)
        said = asdict(snapshot.state)
        del said["fence"]  # who was shut out of one catalog is no matter of another
        self._put(_SetLine(**said))
        for page in snapshot.pages:
            self._put(_PageLine(**asdict(page)))
        for segment in snapshot.segments:
            self._put(_SegmentLine(**asdict(segment)))

    def _put(self, line: _Lines) -> None:
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
    """Reads a dump. Raises UsageFault and StoreFault at once, and StoreFault wherever something is wrong later."""

    def __init__(self, source: Input, tell: Tell = _untold) -> None:
        self._source = source
        self._tell = tell
        self._digest = hashlib.sha256()
        self._last = b""
        self._number = 0
        self._decode: Callable[[bytes], _Lines] = json_decoder(_Lines)
        self.header = self._header()

    def sets(self) -> Iterator[tuple[SetTransfer, Iterator[Part]]]:
        """Every set: how much of it was read so far, and its parts. What is not taken is read and checked all the same.

        The parts end only where the set's own end agrees with all that came before, else they raise StoreFault, or
        Unacceptable for a row that no catalog keeps.
        """
        for name in self.header.sets:
            moved = SetTransfer(name=name)
            parts = self._set(moved)
            yield moved, parts
            for _ in parts:
                pass
        done = self._line()
        if not isinstance(done, _DoneLine):
            self._refuse("the dump continues where it should end")
        self._check(done.sha256)
        if done.sets != len(self.header.sets) or self._source.readline(1):
            self._refuse("the dump does not end where it says")

    def _header(self) -> Header:
        octets = self._source.readline(LONGEST_LINE)
        try:
            found = from_json(octets, _AnyHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise UsageFault("the first line is not that of a dump", code="HW-DMP-01") from cause
        if found.kind != _FORMAT:
            raise UsageFault(f"the first line says {found.kind[:40]!a}, not {_FORMAT}", code="HW-DMP-01")
        if found.version > VERSION:
            raise StoreFault(f"the dump has version {found.version}, this Headwater reads {VERSION}", code="HW-DMP-02")
        first = self._decoded(octets)
        if not isinstance(first, Header) or not 0 < first.version <= VERSION:
            self._refuse("a first line that no version has written")
        if len(set(first.sets)) != len(first.sets):
            self._refuse("the same set twice")
        return first

    def _set(self, moved: SetTransfer) -> Iterator[Part]:
        snapshot, line = self._snapshot(moved)
        state = snapshot.state
        total = state.count + state.last_seq
        yield snapshot
        while isinstance(line, _ResourceLine):
            moved.resources += 1
            yield Resource(line.uri, line.metadata, line.memo, line.page, line.seq)
            self._tell_each(moved, total)
            line = self._line()
        while isinstance(line, _ChangeLine):
            moved.changes += 1
            yield Change(line.seq, line.at, line.uri, line.change, line.metadata)
            self._tell_each(moved, total)
            line = self._line()
        while isinstance(line, _RowLine):
            moved.rows += 1
            row = StateRow(line.of, line.key, line.value, line.rank)
            row_writes(StateUpdate(put=(row,)))
            yield row
            line = self._line()
        if not isinstance(line, _EndLine):
            self._refuse(f"a line of another kind inside the set {moved.name!a}")
        self._check(line.sha256)
        said = asdict(line)
        if line.set != moved.name or any(said[what] != count for what, count in _counts(moved).items()):
            self._refuse(f"the set {moved.name!a} does not hold what its end says")
        if (moved.pages, moved.resources, moved.changes) != (state.page_count, state.count, state.last_seq):
            self._refuse(f"the set {moved.name!a} does not hold what its beginning says")
        self._tell(moved.name, total, total)

    def _tell_each(self, moved: SetTransfer, total: int) -> None:
        done = moved.resources + moved.changes
        if done % _TOLD == 0:
            self._tell(moved.name, done, total)

    def _snapshot(self, moved: SetTransfer) -> tuple[SetSnapshot, _Lines]:
        first = self._line()
        if not isinstance(first, _SetLine) or first.name != moved.name:
            self._refuse(f"the set {moved.name!a} does not begin where it should")
        pages: list[Page] = []
        segments: list[Segment] = []
        line = self._line()
        while isinstance(line, _PageLine):
            pages.append(Page(**asdict(line)))
            line = self._line()
        while isinstance(line, _SegmentLine):
            segments.append(Segment(**asdict(line)))
            line = self._line()
        moved.pages, moved.segments = len(pages), len(segments)
        return SetSnapshot(state=SetState(**asdict(first)), pages=tuple(pages), segments=tuple(segments)), line

    def _line(self) -> _Lines:
        return self._decoded(self._source.readline(LONGEST_LINE))

    def _decoded(self, octets: bytes) -> _Lines:
        self._number += 1
        if not octets.endswith(b"\n"):
            self._refuse("the dump is cut off" if len(octets) < LONGEST_LINE else "a line without end")
        self._digest.update(self._last)  # of all lines before this one, which may have to say what it is
        self._last = octets
        try:
            return self._decode(octets)
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise StoreFault(f"line {self._number} is no line of a dump: {cause}", code="HW-DMP-03") from cause

    def _check(self, said: str) -> None:
        if said != self._digest.hexdigest():
            self._refuse("the digest is another: something before was changed, lost or moved")

    def _refuse(self, what: str) -> NoReturn:
        raise StoreFault(f"line {self._number}: {what}", code="HW-DMP-03")


def _counts(moved: SetTransfer) -> dict[str, Any]:
    return {name: count for name, count in asdict(moved).items() if name != "name"}


class CountingStream:
    """A stream that counts what it takes; gzip when asked for."""

    def __init__(self, file: BinaryIO, *, compressed: bool) -> None:
        self._file = file
        self._gzip = GzipCompressor() if compressed else None
        self.octets = 0
        if compressed:
            self._pass(header(""))

    def write(self, octets: bytes, /) -> None:
        """Take all of `octets`."""
        self._pass(octets if self._gzip is None else self._gzip.add(octets))

    def finish(self) -> None:
        """Write what is still held."""
        if self._gzip is not None:
            self._pass(self._gzip.finish())
        self._file.flush()

    def _pass(self, octets: bytes) -> None:
        self._file.write(octets)
        self.octets += len(octets)


@contextlib.contextmanager
def written(path: Path) -> Iterator[CountingStream]:
    """A dump that gets its name when the block ends well, readable by this user only; gzip when the name says `.gz`.

    It holds private notes. What has the name already stays until then; a device or a pipe is written as it is. Raises
    OSError.
    """
    compressed = path.name.endswith(".gz")
    if _is_special(path):
        with path.open("wb", buffering=_BLOCK) as file:
            yield from _through(file, compressed=compressed)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=_BLOCK) as file:
            yield from _through(file, compressed=compressed)
            file.flush()
            sync_descriptor(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _through(file: BinaryIO, *, compressed: bool) -> Iterator[CountingStream]:
    out = CountingStream(file, compressed=compressed)
    yield out
    out.finish()


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


class DumpInput:
    """A dump as it is read, gzip or plain: damage of the compression is damage of the dump."""

    def __init__(self, file: io.BufferedReader) -> None:
        compressed = file.peek(len(MAGIC)).startswith(MAGIC)
        inflated = cast(io.RawIOBase, gzip.GzipFile(fileobj=file))  # it does what a buffer asks of a raw stream
        self._file = io.BufferedReader(inflated, _BLOCK) if compressed else file

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, or at most `limit` octets of it. Raises StoreFault, OSError."""
        try:
            return self._file.readline(limit)
        except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
            raise StoreFault(f"the compressed form is cut off or damaged: {cause}", code="HW-DMP-03") from cause
