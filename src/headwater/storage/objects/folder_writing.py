"""Writes one object of a folder store aside: the octets, their gzip form or a note, until they are put in place.

The gzip form is labelled with digest and size of the octets that it was made from, and with the mark; an object without
one, or with a media type that its name does not tell, has a note in a file of its own. The note's name says of which
size and time the object is, so that the note of another state is never taken for its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from headwater.storage.durable import sync_file, sync_folder
from headwater.storage.gzip_member import LABEL_OCTETS, GzipCompressor, header, read_label, read_whole_label
from headwater.storage.objects.interface import (
    MARK_OCTETS,
    RESERVED,
    TEXT,
    XML,
    ZIP,
    CannotWrite,
    Mark,
    ObjectKind,
    PutResult,
    checked_mark,
)
from headwater.typed_decoding import from_json

TEMPORARY = f"{RESERVED}tmp-"
"""Names that begin so are half-written; they are removed when the store is opened, and never listed."""
NOTE = f"{RESERVED}note-"
"""Names that begin so are notes of objects."""
GZIP = ".gz"

Signature = tuple[int, int, int]
"""Inode, time in nanoseconds and size of a file: it is replaced, never written again, so they tell its state."""

_DIGEST_OCTETS = 16
_TICK_NS = 1_000_000_000
"""More than the clock of any file system moves at once, but that of FAT."""
_LABEL = re.compile(r"headwater (?P<etag>[0-9a-f]{32}) (?P<octets>[0-9]{20})(?P<mark> .+)?\Z")
_TYPES = {".txt": TEXT.media_type, ".zip": ZIP.media_type}


class ObjectNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an object by a note beside it, or by the label of its gzip form."""

    etag: str
    octets: int
    mark: str | None = None
    media_type: str | None = None


class PendingWrite:
    """The half-written files of one object."""

    def __init__(self, path: Path, kind: ObjectKind, mark: Mark | None) -> None:
        self.kind = kind
        self.octets = 0
        self.etag = ""
        self._path = path
        self._ask_mark = mark
        self._mark: str | None = None
        token = f"{TEMPORARY}{secrets.token_hex(8)}"
        self._plain, self._gzip, self._note = (path.with_name(token + ending) for ending in ("", GZIP, ".note"))
        self._digest = new_digest()
        self._compressor = GzipCompressor() if kind.has_gzip else None
        self._files: list[BinaryIO] = []
        self.settled: PutResult | None = None

    def begin(self) -> None:
        """Make the files."""
        with write_faults(self._path):
            self._files.append(self._plain.open("xb"))
            if self._compressor is not None:
                self._files.append(self._gzip.open("xb"))
                # The label stands before the body and is known after it: its length is fixed, so its place is kept.
                padding = "" if self._ask_mark is None else " " * (MARK_OCTETS + 1)
                self._files[1].write(header("0" * len(_label("", 0)) + padding))

    @property
    def result(self) -> PutResult:
        """What came of it."""
        assert self.settled is not None, "the context has not ended"
        return self.settled

    def write(self, data: bytes, /) -> int:
        """Append these octets."""
        with write_faults(self._path):
            self._files[0].write(data)
            if self._compressor is not None:
                self._files[1].write(self._compressor.add(data))
        self._digest.update(data)
        self.octets += len(data)
        return len(data)

    def flush(self) -> None:
        """No effect."""

    def finish(self) -> None:
        """All is written: ask for the mark, and complete the files."""
        self.etag = self._digest.hexdigest()
        self._mark = None if self._ask_mark is None else checked_mark(self._ask_mark())
        with write_faults(self._path):
            if self._compressor is not None:
                file = self._files[1]
                file.write(self._compressor.finish())
                file.seek(0)
                text = "" if self._mark is None else f" {self._mark:<{MARK_OCTETS}}"
                file.write(header(_label(self.etag, self.octets) + text))
            self._close()

    def place_gzip(self, *, durable: bool) -> None:
        """Put the gzip form in its place, or take away what an object of another kind had there."""
        if self.kind.has_gzip:
            _place(self._gzip, gzip_path(self._path), durable=durable)
        else:
            gzip_path(self._path).unlink(missing_ok=True)

    def prepare(self, before: Signature) -> Signature:
        """The signature that the object will have; another one than `before`, which it replaces."""
        now = signature_of(self._plain)
        if 0 <= before[1] - now[1] < _TICK_NS:  # or else the second next may have both inode and time of the first
            os.utime(self._plain, ns=(before[1] + 1, before[1] + 1))
            now = signature_of(self._plain)
        return now

    def place_note(self, signature: Signature, *, durable: bool) -> None:
        """Put a note in its place where one is needed, for an object in this state that has these octets."""
        if not self._needs_note:
            remove_note(self._path, signature)
            return
        note = ObjectNote(etag=self.etag, octets=self.octets, mark=self._mark, media_type=self.kind.media_type)
        self._note.write_bytes(msgspec.json.encode(note))
        _place(self._note, _note_path(self._path, signature), durable=durable)
        if durable:  # what the object is has to be known as soon as the object is there
            sync_folder(self._path.parent)

    def place_forms(self, *, durable: bool) -> Signature:
        """Put the gzip form and then the object itself in their places.

        Both are synced before: between the two a web server of the folder shows an object that is older than its form.
        """
        if durable:
            for form in (self._gzip, self._plain) if self.kind.has_gzip else (self._plain,):
                sync_file(form)
        self.place_gzip(durable=False)
        return _place(self._plain, self._path, durable=False)

    def discard(self) -> None:
        """Remove what is left of it."""
        with suppress(OSError):  # of what the system has refused before, a part may wait to be written
            self._close()
        for leftover in (self._plain, self._gzip, self._note):
            with suppress(FileNotFoundError):
                leftover.unlink()

    @property
    def _needs_note(self) -> bool:
        return not self.kind.has_gzip or self.kind.media_type != implied_type(self._path.name)

    def _close(self) -> None:
        with ExitStack() as files:
            for file in self._files:
                files.callback(file.close)


def new_digest() -> hashlib.blake2b:
    """The digest that becomes the ETag."""
    return hashlib.blake2b(digest_size=_DIGEST_OCTETS)


def implied_type(name: str) -> str:
    """The media type of an object without a note; an older version has written only documents and robots.txt."""
    return _TYPES.get(os.path.splitext(name)[1], XML.media_type)


def gzip_path(path: Path) -> Path:
    """Where the gzip form lies."""
    return path.with_name(path.name + GZIP)


def read_gzip_label(file: BinaryIO) -> ObjectNote | None:
    """What the label of a gzip form says, whether or not the rest of the file is there."""
    return _noted(read_label(file.read(11 + LABEL_OCTETS)))


def read_whole_gzip_label(path: Path, octets: int) -> tuple[ObjectNote, int] | None:
    """What the label of a whole gzip form of so many octets says, with the form's own size."""
    try:
        with gzip_path(path).open("rb") as file:
            note = _noted(read_whole_label(file, octets))
            return None if note is None or note.octets != octets else (note, os.fstat(file.fileno()).st_size)
    except OSError:
        return None  # a missing or unreadable compressed form only means that it is not offered


def read_note(path: Path, signature: Signature) -> ObjectNote | None:
    """The note of an object in this state, or None."""
    try:
        note = from_json(_note_path(path, signature).read_bytes(), ObjectNote)
    except (OSError, ValueError):  # what is no UTF-8 is no DecodeError of msgspec
        return None
    return note if note.octets == signature[2] else None


def remove_note(path: Path, signature: Signature) -> None:
    """Remove the note of an object in this state, if there is one."""
    if signature != NOTHING:
        _note_path(path, signature).unlink(missing_ok=True)


def is_orphan(note: Path) -> bool:
    """Whether a file that is named as a note belongs to no object as it is."""
    path = note.with_name(note.name.removeprefix(NOTE).rsplit(".", 2)[0] or note.name)
    return _note_path(path, signature_of(path)) != note


def signature_of(path: Path | str) -> Signature:
    """The signature of a file; NOTHING where there is none."""
    try:
        return signature(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING


def signature(stat: os.stat_result) -> Signature:
    """The signature of a file in this state."""
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


NOTHING: Signature = (0, 0, -1)


@contextmanager
def write_faults(path: Path) -> Iterator[None]:
    """What the system refuses is a CannotWrite."""
    try:
        yield
    except OSError as cause:
        raise CannotWrite(f"cannot write: {cause.strerror or cause}", where=str(path)) from cause


def _noted(label: str | None) -> ObjectNote | None:
    if label is None or (match := _LABEL.match(label)) is None:
        return None
    mark = match["mark"].strip() if match["mark"] else None
    return ObjectNote(etag=match["etag"], octets=int(match["octets"]), mark=mark)


def _label(etag: str, octets: int) -> str:
    return f"headwater {etag:>32} {octets:020d}"


def _note_path(path: Path, state: Signature) -> Path:
    return path.with_name(f"{NOTE}{path.name}.{state[2]:x}.{state[1]:x}")


def _place(source: Path, target: Path, *, durable: bool) -> Signature:
    if durable:
        sync_file(source)
    placed = signature(source.stat())
    os.replace(source, target)
    return placed
