"""A portable dump: whole sets as lines, counted and digested, so that no part is taken for the whole.

A set moves as its resources and its rows, and is loaded from them. Its numbers of changes go on, its log begins anew:
so rows that name changes by number name what is no longer listed, and destinations compare what they have by hash.

Each line is one JSON object whose `kind` says what it is. A reader refuses keys that it does not know: what is added
later raises the version of the format. Times have a zone, octets (`memo`, `value`) are base64, attributes that a
resource does not have are left out. A dump is written and read once from its beginning to its end, with a batch of
resources in memory.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NoReturn, cast

import msgspec
from msgspec.structs import asdict

from headwater.catalog.interface import Catalog, Metadata, StateRow, StateUpdate, Upsert
from headwater.errors import StoreFault, Undetermined, UsageFault
from headwater.progress import Listener, Progress, silent
from headwater.spec.kinds import RULES, Kind
from headwater.storage.durable import sync_descriptor, sync_folder
from headwater.storage.gzip_member import MAGIC, GzipCompressor, header
from headwater.typed_decoding import from_json, json_decoder

_FORMAT: Final = "headwater-catalog"
VERSION: Final = 4
LONGEST_LINE: Final = 64 << 20
"""Octets of a line: more than any page's worth of links; a stream of no lines at all ends here."""

_BLOCK: Final = 1 << 18
_TOLD: Final = 10_000  # after so many resources the listener hears how far it is
_ROWS: Final = 1_000
_ROW_OCTETS: Final = 1 << 20
"""Rows are read and loaded by so many at a time, and so many octets: on a cluster a batch of them is one document."""
_OF_HUBS: Final = {RULES[kind].capability for kind in (Kind.CHANGE_NOTIFICATION, Kind.FRAMEWORK_NOTIFICATION)}
"""The rows of how far hubs were told stay: what they are told begins anew with the log (`source.notifier`)."""

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


class _SetLine(_Line, frozen=True, kw_only=True, tag="set"):
    """A set begins: `opened_at` None while it is loading, number and time of its newest change, and of resources."""

    name: str
    opened_at: _Moment | None = None
    last_seq: Count
    last_at: _Moment | None = None
    count: Count


class _ResourceLine(
    Metadata,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="resource",
):
    """One live resource, in the order in which they are published; `seq` is that of its last change."""

    uri: str
    seq: Count = 0
    memo: bytes = b""

    @property
    def upsert(self) -> Upsert:
        metadata = Metadata(**{name: getattr(self, name) for name in Metadata.__struct_fields__})
        return Upsert(self.uri, metadata, self.memo, seq=self.seq)


class _RowLine(_Line, frozen=True, kw_only=True, tag="row"):
    """One row of the set's state; `of` is its kind."""

    of: str
    key: str
    rank: int = 0
    value: bytes = b""


class _EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """A set ends: how much of it there was, and the SHA-256 of every octet of the dump before this line."""

    set: str
    resources: int
    rows: int = 0
    sha256: str


class _DoneLine(_Line, frozen=True, kw_only=True, tag="done"):
    """The dump ends."""

    sets: int
    sha256: str


_Lines = Header | _SetLine | _ResourceLine | _RowLine | _EndLine | _DoneLine


class SetTransfer(msgspec.Struct, kw_only=True):
    """What was written or read of one set."""

    name: str
    resources: int = 0
    rows: int = 0


class DumpWriter:
    """Writes a dump of `names`, in this order."""

    def __init__(
        self, out: CountingStream | BinaryIO, names: Sequence[str], made_at: dt.datetime, program: str
    ) -> None:
        self._out = out
        self._digest = hashlib.sha256()
        self._encode = msgspec.json.Encoder().encode
        self._names = tuple(names)
        self._written = 0
        self._put(Header(version=VERSION, sets=self._names, made_at=made_at, program=program))

    def add(self, catalog: Catalog, listener: Listener = silent) -> SetTransfer:
        """Write the next set of `names`. Raises Undetermined (HW-CAT-07) when it is changed meanwhile, and UnknownSet.

        Memos are private to the ingest and not watched: one that is replaced meanwhile may be written as it was.
        """
        name = self._names[self._written]
        moved, state = SetTransfer(name=name), catalog.state(name)
        said = {what: getattr(state, what) for what in _SetLine.__struct_fields__}
        self._put(_SetLine(**said))
        for page in range(state.page_count):
            for one in catalog.page(name, page):
                moved.resources += 1
                self._put(_ResourceLine(uri=one.uri, seq=one.seq, memo=one.memo, **asdict(one.metadata)))
                if moved.resources % _TOLD == 0:
                    listener(Progress(f"export {name}", moved.resources, state.count))
        for kind in sorted(catalog.row_counts(name).keys() - _OF_HUBS, key=str.encode):
            after: StateRow | None = None
            while rows := catalog.rows_of(name, kind, after=after, limit=_ROWS):
                for row in rows:
                    moved.rows += 1
                    self._put(_RowLine(of=row.kind, key=row.key, rank=row.rank, value=row.value))
                after = rows[-1]
        now = catalog.state(name)
        for what in ("opened_at", "last_seq", "count", "page_count", "state_version"):
            if getattr(now, what) != getattr(state, what):
                raise Undetermined("the set changed while it was dumped", where=name, code="HW-CAT-07")
        listener(Progress(f"export {name}", state.count, state.count))
        self._put(_EndLine(set=name, resources=moved.resources, rows=moved.rows, sha256=self._digest.hexdigest()))
        self._written += 1
        return moved

    def finish(self) -> None:
        """Write the end, after all sets."""
        if self._written != len(self._names):
            raise ValueError("not all sets of the header were written")
        self._put(_DoneLine(sets=self._written, sha256=self._digest.hexdigest()))

    def _put(self, line: _Lines) -> None:
        octets = self._encode(line) + b"\n"
        self._digest.update(octets)
        self._out.write(octets)


class DumpReader:
    """Reads a dump. Raises UsageFault and StoreFault at once, and StoreFault wherever something is wrong later."""

    def __init__(self, source: DumpInput | BinaryIO, listener: Listener = silent) -> None:
        self._source = source
        self._listener = listener
        self._digest = hashlib.sha256()
        self._last = b""
        self._number = 0
        self._decode: Callable[[bytes], _Lines] = json_decoder(_Lines)  # type: ignore[arg-type]  # a union
        self.header = self._header()

    def load(self, catalog: Catalog, names: Sequence[str], notes: bytes = b"") -> Iterator[SetTransfer]:
        """Load these sets into the catalog; gives each as soon as it is there. All others are read and checked.

        A set is opened, with these `notes`, when all of it has come and agrees with its end. One that was cut off stays
        in its first load, unpublished; loading it again completes it. Raises UsageFault (HW-CAT-05) where the set is
        there already, Unacceptable for what no catalog keeps, and faults of the catalog.
        """
        for name in self.header.sets:
            moved = SetTransfer(name=name)
            if name in names:
                self._load(catalog, moved, notes)
                yield moved
            else:
                for _ in self._set(moved, self._begin(name)):
                    pass
        done = self._line()
        if done != _DoneLine(sets=len(self.header.sets), sha256=self._digest.hexdigest()) or self._source.readline(1):
            self._refuse("the dump does not end as it should: something before was changed, lost or moved")

    def _load(self, catalog: Catalog, moved: SetTransfer, notes: bytes) -> None:
        name = moved.name
        begun = self._begin(name)
        state = catalog.create(name, last_seq=begun.last_seq)
        if state.opened_at is not None or state.last_seq != begun.last_seq:
            raise UsageFault("the set is in the catalog already", where=name, code="HW-CAT-05")
        upserts: list[Upsert] = []
        rows: list[StateRow] = []
        octets = 0
        for line in self._set(moved, begun):
            if isinstance(line, _ResourceLine):
                upserts.append(line.upsert)
            else:
                rows.append(StateRow(line.of, line.key, line.value, line.rank))
                octets += len(line.value)
            if len(upserts) >= catalog.load_batch or len(rows) >= _ROWS or octets > _ROW_OCTETS:
                catalog.load(name, upserts, state=StateUpdate(rows))
                upserts, rows, octets = [], [], 0
        count = catalog.load(name, upserts, state=StateUpdate(rows))
        if count != begun.count:
            self._refuse(f"the set {name!a} has {count} resources in the catalog, not {begun.count}")
        if begun.last_at is not None:
            catalog.mark(name, begun.last_at)
        if begun.opened_at is not None:
            catalog.note(name, notes)
            catalog.open(name, max(self.header.made_at, begun.last_at or begun.opened_at))

    def _header(self) -> Header:
        octets = self._source.readline(LONGEST_LINE)
        try:
            found = from_json(octets, dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise UsageFault("the first line is not that of a dump", code="HW-DMP-01") from cause
        kind, version = found.get("kind"), found.get("version")
        if kind != _FORMAT or not isinstance(version, int):
            raise UsageFault(f"the first line says {str(kind)[:40]!a}, not {_FORMAT}", code="HW-DMP-01")
        if version != VERSION:
            raise StoreFault(f"the dump has version {version}, this Headwater reads {VERSION}", code="HW-DMP-02")
        first = self._decoded(octets)
        if not isinstance(first, Header):
            self._refuse("a first line that no version has written")
        if len(set(first.sets)) != len(first.sets):
            self._refuse("the same set twice")
        return first

    def _begin(self, name: str) -> _SetLine:
        line = self._line()
        if not isinstance(line, _SetLine) or line.name != name:
            self._refuse(f"the set {name!a} does not begin where it should")
        return line

    def _set(self, moved: SetTransfer, begun: _SetLine) -> Iterator[_ResourceLine | _RowLine]:
        """The lines of a set; they end only where the set's own end agrees with all that came before."""
        line = self._line()
        while isinstance(line, _ResourceLine):
            moved.resources += 1
            yield line
            if moved.resources % _TOLD == 0:
                self._listener(Progress(f"import {moved.name}", moved.resources, begun.count))
            line = self._line()
        while isinstance(line, _RowLine):
            moved.rows += 1
            yield line
            line = self._line()
        end = _EndLine(set=moved.name, resources=moved.resources, rows=moved.rows, sha256=self._digest.hexdigest())
        if line != end or moved.resources != begun.count:
            self._refuse(f"the set {moved.name!a} does not end as it should: something was changed, lost or moved")
        self._listener(Progress(f"import {moved.name}", begun.count, begun.count))

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

    def _refuse(self, what: str) -> NoReturn:
        raise StoreFault(f"line {self._number}: {what}", code="HW-DMP-03")


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
def written(path: Path, mode: int = 0o600) -> Iterator[CountingStream]:
    """A file that gets its name when the block ends well, with these permissions; gzip when the name says `.gz`.

    A dump holds private notes. What has the name already stays until then; a device or a pipe is written as it is.
    Raises OSError.
    """
    is_special = path.exists() and not path.is_file() and not path.is_dir()
    aside = path if is_special else path.with_name(f".{path.name}.{os.getpid()}")
    made = 0 if is_special else os.O_CREAT | os.O_EXCL
    descriptor = os.open(aside, os.O_WRONLY | os.O_CLOEXEC | made, mode)
    try:
        with os.fdopen(descriptor, "wb", buffering=_BLOCK) as file:
            out = CountingStream(file, compressed=path.name.endswith(".gz"))
            yield out
            out.finish()
            if not is_special:
                sync_descriptor(file.fileno())
        if not is_special:
            aside.replace(path)
            sync_folder(path.parent)
    except BaseException:
        if not is_special:
            aside.unlink(missing_ok=True)
        raise


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
