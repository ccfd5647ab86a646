"""An object store in a local folder: each object is a file, written aside with its gzip form or a note, then placed.

A reader at any moment finds the old object or the new one, never half (AMB-63). Both forms are written aside, synced,
and renamed: the gzip form first, then the object. The gzip form is labelled with digest and size of the octets that it
was made from, and with the mark, so that `stat` never pairs an object with the compressed form of another, wherever a
crash fell. An object without one, or with a media type that its name does not tell, has a note in a file of its own,
whose name says of which size and time the object is, so that the note of another state is never taken for its own. A
web server can show the folder.
"""

import datetime as dt
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from headwater.errors import StoreFault
from headwater.storage.durable import make_folders, sync_file, sync_folder
from headwater.storage.gzip_member import GzipCompressor, header, read_label
from headwater.storage.object_store import (
    BLOCK_OCTETS,
    MARK_OCTETS,
    RESERVED,
    TEXT,
    XML,
    ZIP,
    CannotWrite,
    Coding,
    Mark,
    ObjectKind,
    OpenObject,
    PutResult,
    StoredObject,
    check_name,
    checked_mark,
)
from headwater.typed_decoding import from_json

TEMPORARY = f"{RESERVED}tmp-"
"""Names that begin so are half-written; they are removed when the store is opened, and never listed."""
NOTE = f"{RESERVED}note-"  # names that begin so are notes of objects
GZIP = ".gz"

Signature = tuple[int, int, int]
"""Inode, time in nanoseconds and size of a file: it is replaced, never written again, so they tell its state."""

_DIGEST_OCTETS = 16
_TICK_NS = 1_000_000_000  # more than the clock of any file system moves at once, but that of FAT
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
        self.result: PutResult  # what came of it, once the context has ended

    def begin(self) -> None:
        """Make the files."""
        with write_faults(self._path):
            self._files.append(self._plain.open("xb"))
            if self._compressor is not None:
                self._files.append(self._gzip.open("xb"))
                # The label stands before the body and is known after it: its length is fixed, so its place is kept.
                padding = "" if self._ask_mark is None else " " * (MARK_OCTETS + 1)
                self._files[1].write(header("0" * len(_label("", 0)) + padding))

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

    def place(self, before: Signature, *, durable: bool) -> Signature:
        """Put note, gzip form and object in their places; returns the signature, another one than `before`, which goes.

        The note comes first, since what the object is has to be known as soon as it is there, and the object last:
        before that a web server of the folder shows one that is older than its gzip form.
        """
        now = signature_of(self._plain)
        if 0 <= before[1] - now[1] < _TICK_NS:  # or else the second next may have both inode and time of the first
            os.utime(self._plain, ns=(before[1] + 1, before[1] + 1))
            now = signature_of(self._plain)
        if self.kind.has_gzip and self.kind.media_type == implied_type(self._path.name):
            remove_note(self._path, now)
        else:
            note = ObjectNote(etag=self.etag, octets=self.octets, mark=self._mark, media_type=self.kind.media_type)
            self._note.write_bytes(msgspec.json.encode(note))
            if durable:
                sync_file(self._note)
            os.replace(self._note, _note_path(self._path, now))
            if durable:
                sync_folder(self._path.parent)
        for form in (self._gzip, self._plain) if durable else ():
            if form is self._plain or self.kind.has_gzip:
                sync_file(form)
        if self.kind.has_gzip:
            os.replace(self._gzip, gzip_path(self._path))
        else:
            gzip_path(self._path).unlink(missing_ok=True)
        os.replace(self._plain, self._path)
        if durable:  # both names at once: whichever of them a power cut spares, the label tells what it is
            sync_folder(self._path.parent)
        if before[1:] != now[1:]:
            remove_note(self._path, before)  # only now: until then it may be the old object that is there
        return now

    def discard(self) -> None:
        """Remove what is left of it."""
        with suppress(OSError):  # of what the system has refused before, a part may wait to be written
            self._close()
        for leftover in (self._plain, self._gzip, self._note):
            with suppress(FileNotFoundError):
                leftover.unlink()

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


def read_gzip_label(file: BinaryIO, octets: int | None = None) -> ObjectNote | None:
    """What the label of a gzip form says, whether or not the rest of the file is there; with `octets` only where it is,
    and is the form of so many."""
    found = _LABEL.match(read_label(file, octets) or "")
    if found is None or octets not in (None, int(found["octets"])):
        return None
    mark = found["mark"].strip() if found["mark"] else None
    return ObjectNote(etag=found["etag"], octets=int(found["octets"]), mark=mark)


def read_whole_gzip_label(path: Path, octets: int) -> tuple[ObjectNote, int] | None:
    """What the label of a whole gzip form of so many octets says, with the form's own size."""
    try:
        with gzip_path(path).open("rb") as file:
            note = read_gzip_label(file, octets)
            return None if note is None else (note, os.fstat(file.fileno()).st_size)
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


def _label(etag: str, octets: int) -> str:
    return f"headwater {etag:>32} {octets:020d}"


def _note_path(path: Path, state: Signature) -> Path:
    return path.with_name(f"{NOTE}{path.name}.{state[2]:x}.{state[1]:x}")


# The store

_REMEMBERED = 20_000
_UNREAD = "HW-STO-12"


class FolderStore:
    """Objects below `root`. Safe for several threads of one process; one process at a time writes, any number read.

    Methods that take a name raise UsageFault, and what waits for the disk StoreFault, of writing CannotWrite.

    `foreign` names folders directly below `root` or one level deeper that hold what is not ours (resources, state):
    they are never listed nor cleaned. `durable` syncs every file and folder before and after the rename.
    """

    def __init__(
        self, root: Path, *, foreign: frozenset[str] = frozenset(), durable: bool = True, clean: bool = True
    ) -> None:
        self.root = Path(root)
        self._foreign = foreign
        self._durable = durable
        self._known: dict[str, StoredObject] = {}
        self._path = lru_cache(_REMEMBERED)(self._checked_path)
        self._safe_folders: set[Path] = set()
        with write_faults(self.root):
            make_folders(self.root) if durable else self.root.mkdir(parents=True, exist_ok=True)
        if clean:
            self.clean()

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        """Make `name` hold exactly these octets, and `name.gz` their gzip form where the kind has one.

        When the object has these octets and this kind already, and all that belongs to it, neither inode nor time nor
        mark changes. What `chunks` raises, and CannotWrite, leave everything as it was.
        """
        with self.writer(name, kind, mark) as writing:
            for chunk in chunks:
                writing.write(chunk)
        return writing.result

    @contextmanager
    def writer(self, name: str, kind: ObjectKind = XML, mark: Mark | None = None) -> Iterator[PendingWrite]:
        """The same for whoever writes into a file: the object is put when the context ends without an exception."""
        path = self._path(name)
        folder = path.parent
        with write_faults(path):
            if folder not in self._safe_folders or not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                # it and those above are synced once: who made them, or names in them, may have been killed first
                for made in (folder, *folder.parents) if self._durable else ():
                    sync_folder(made)
                    if made == self.root:
                        self._safe_folders.add(folder)
                        break
        writing = PendingWrite(path, kind, mark)
        try:
            writing.begin()
            yield writing
            writing.finish()
            with write_faults(path):
                writing.result = self._settle(name, path, writing)
        finally:
            with write_faults(path):
                writing.discard()

    def _settle(self, name: str, path: Path, writing: PendingWrite) -> PutResult:
        held, before = self.stat(name), signature_of(path)
        is_same = held is not None and (held.etag, held.octets) == (writing.etag, writing.octets)
        if is_same:
            held = self._describe(name, path, before, writing.etag)  # memory may know files that are gone
            has_gzip = held.gzip_octets is not None
            if held.is_vouched and (held.media_type, has_gzip) == (writing.kind.media_type, writing.kind.has_gzip):
                return PutResult(held, is_new=False)
        placed = writing.place(before, durable=self._durable)
        self._known.pop(name, None)
        return PutResult(self._describe(name, path, placed, writing.etag), is_new=not is_same)

    def stat(self, name: str) -> StoredObject | None:
        """The object, or None. Its digest is taken from memory while the file is the same, else from its octets where
        nothing vouches for it."""
        path = self._path(name)
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError), FileIO(path) as file:
            return self._state_of(name, path, file)
        return None

    def _state_of(self, name: str, path: Path, file: FileIO) -> StoredObject:
        """What an open file is as an object: from memory, from its note, or from its octets."""
        state = signature(os.fstat(file.fileno()))
        known = self._known.get(name)
        if known and known.version == state:
            return known
        if (note := read_note(path, state)) is not None:
            return self._describe(name, path, state, note.etag)
        digest = new_digest()  # a gzip form is taken for that of these octets once they are read
        while chunk := file.read(BLOCK_OCTETS):
            digest.update(chunk)
        return self._describe(name, path, state, digest.hexdigest())

    def version(self, name: str) -> Signature | None:
        """A validator of the present state, or None where there is no object: asked for with each request."""
        try:
            return signature(os.stat(self._path(name)))
        except OSError:
            return None

    def noted_etag(self, name: str) -> str | None:
        """The ETag in the label or the note of an object whose files look whole, by the sizes; no octets are read.

        None when it is not there, has been damaged, or when nothing was noted.
        """
        path = self._path(name)
        with _read_faults(path):
            state = signature_of(path)
        if state == NOTHING:
            return None
        labelled = read_whole_gzip_label(path, state[2])
        note = read_note(path, state) if labelled is None else labelled[0]
        known = self._known.get(name)
        if note is None or (known is not None and known.octets == state[2] and known.etag != note.etag):
            return None
        return note.etag

    def mark(self, name: str) -> str | None:
        """The mark that the object was put with last, even when the object itself is damaged or lost."""
        path = self._path(name)
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError):
            with gzip_path(path).open("rb") as file:
                note = read_gzip_label(file)
            return None if note is None else note.mark
        with _read_faults(path):
            note = read_note(path, signature_of(path))
        return None if note is None else note.mark

    def open(self, name: str, coding: Coding = Coding.IDENTITY) -> OpenObject | None:
        """The object in this form where it has one that belongs to it, else as it is; None when there is none."""
        path = self._path(name)
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError), ExitStack() as files:
            file = files.enter_context(FileIO(path))
            stored = self._state_of(name, path, file)
            smaller = _gzip_form(path, stored) if coding is Coding.GZIP else None
            if smaller is not None:
                return OpenObject(smaller, stored, Coding.GZIP, os.fstat(smaller.fileno()).st_size)
            files.pop_all()  # it stays open
            return OpenObject(file, stored, Coding.IDENTITY, stored.octets)
        return None

    def delete(self, name: str) -> None:
        """Remove all files of the object, the object itself first; no effect when there is none."""
        path = self._path(name)
        with write_faults(path):
            self._known.pop(name, None)
            state = signature_of(path)
            for victim in (path, gzip_path(path)):
                with suppress(FileNotFoundError, NotADirectoryError):
                    victim.unlink()
            if self._durable and path.parent.is_dir():
                sync_folder(path.parent)
            remove_note(path, state)

    def names(self, prefix: str = "") -> Iterator[str]:
        """Names of all objects that begin with `prefix`, folder by folder; foreign files are left out.

        Only the folder that the prefix names is looked into: a store may hold thousands of sets.
        """
        for folder, files in self._folders(prefix.rpartition("/")[0]):
            relative = folder.relative_to(self.root).as_posix()
            for file in sorted(files):
                name = file if relative == "." else f"{relative}/{file}"
                if name.startswith(prefix) and not file.startswith(RESERVED) and not file.endswith(GZIP):
                    yield name

    def clean(self) -> int:
        """Remove what killed writers have left; returns how many files that were. For whoever alone may write."""
        removed = 0
        with write_faults(self.root):
            for folder, files in self._folders():
                for file in files:
                    path = folder / (file.removeprefix(NOTE).rsplit(".", 2)[0] or file)
                    is_orphan = file.startswith(NOTE) and _note_path(path, signature_of(path)) != folder / file
                    if file.startswith(TEMPORARY) or is_orphan:
                        (folder / file).unlink(missing_ok=True)
                        removed += 1
        return removed

    def _folders(self, within: str = "") -> Iterator[tuple[Path, list[str]]]:
        """The folders of documents at and below `within`, a name without its file."""
        parts = within.split("/") if within else []
        if any(part in ("", ".", "..") for part in parts) or self._foreign.intersection(parts[:2]):
            return
        for folder, below, files in os.walk(self.root.joinpath(*parts)):
            depth = len(Path(folder).relative_to(self.root).parts)
            below[:] = sorted(name for name in below if depth > 1 or name not in self._foreign)
            yield Path(folder), files

    def _checked_path(self, name: str) -> Path:
        return self.root.joinpath(*check_name(name))

    def _describe(self, name: str, path: Path, state: Signature, etag: str) -> StoredObject:
        labelled = read_whole_gzip_label(path, state[2])
        if labelled is not None and labelled[0].etag != etag:
            labelled = None
        note = read_note(path, state)
        vouching = note if labelled is None else labelled[0]
        stored = StoredObject(
            name=name,
            octets=state[2],
            etag=etag,
            modified=dt.datetime.fromtimestamp(state[1] / 1e9, dt.UTC),
            media_type=(note and note.media_type) or implied_type(name),
            version=state,
            gzip_octets=None if labelled is None else labelled[1],
            is_vouched=vouching is not None,
            mark=None if vouching is None else vouching.mark,
        )
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[name] = stored
        return stored


def _gzip_form(path: Path, stored: StoredObject) -> FileIO | None:
    """The gzip form of an object in this state, opened; None where there is none, or another one by now."""
    with suppress(FileNotFoundError), ExitStack() as files:
        file = files.enter_context(FileIO(gzip_path(path)))
        label = read_gzip_label(file)
        if label is not None and (label.etag, os.fstat(file.fileno()).st_size) == (stored.etag, stored.gzip_octets):
            files.pop_all()
            return file
    return None


@contextmanager
def _read_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise StoreFault(f"cannot read the document: {cause.strerror}", code=_UNREAD, where=str(path)) from cause
