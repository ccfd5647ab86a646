"""An object store in a local folder: each object is a file, replaced atomically, with its gzip form beside it.

A reader at any moment finds the old object or the new one, never half (AMB-63). Both forms are written aside, synced,
and renamed: the gzip form first, then the object. The gzip form is labelled with the digest of the octets that it was
made from, so that `stat` never pairs an object with the compressed form of another, wherever a crash fell. The label
also has the mark; what has no gzip form has a note instead (`folder_writing`). A web server can show the folder.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from headwater.errors import StoreFault
from headwater.storage.durable import make_folders, sync_folder
from headwater.storage.objects import folder_writing
from headwater.storage.objects.folder_writing import (
    GZIP,
    NOTE,
    NOTHING,
    TEMPORARY,
    PendingWrite,
    Signature,
    gzip_path,
    signature,
    signature_of,
    write_faults,
)
from headwater.storage.objects.interface import (
    BLOCK_OCTETS,
    RESERVED,
    XML,
    Coding,
    Mark,
    ObjectKind,
    OpenObject,
    PutResult,
    StoredObject,
    check_name,
)

_OPENINGS, _AT_ONCE, _PAUSE_SECONDS = 200, 5, 0.001
"""How often an object is opened that is replaced meanwhile; after so many times at once with a pause before each."""

_REMEMBERED = 20_000


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
        self._paths: dict[str, str] = {}
        self._lock = threading.Lock()
        self._safe_folders: set[Path] = set()
        with write_faults(self.root):
            make_folders(self.root) if durable else self.root.mkdir(parents=True, exist_ok=True)
        if clean:
            self.clean()

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        """Make `name` hold exactly these octets, and `name.gz` their gzip form where the kind has one.

        When the object has these octets and this kind already, neither inode nor time nor mark changes. What `chunks`
        raises, and CannotWrite, leave everything as it was.
        """
        with self.writer(name, kind, mark) as writing:
            for chunk in chunks:
                writing.write(chunk)
        return writing.result

    @contextmanager
    def writer(self, name: str, kind: ObjectKind = XML, mark: Mark | None = None) -> Iterator[PendingWrite]:
        """The same for whoever writes into a file: the object is put when the context ends without an exception."""
        path = self._path(name)
        with write_faults(path):
            self._prepare_folder(path.parent)
        writing = PendingWrite(path, kind, mark)
        try:
            writing.begin()
            yield writing
            writing.finish()
            with write_faults(path):
                writing.settled = self._settle(name, path, writing)
        finally:
            with write_faults(path):
                writing.discard()

    def _settle(self, name: str, path: Path, writing: PendingWrite) -> PutResult:
        held = self.stat(name)
        if held and (held.etag, held.octets) == (writing.etag, writing.octets):
            held = self._describe(name, path, signature_of(path), held.etag)  # memory may know files that are gone
            has_gzip = held.gzip_octets is not None
            if held.is_vouched and (held.media_type, has_gzip) == (writing.kind.media_type, writing.kind.has_gzip):
                return PutResult(held, is_new=False)
            writing.place_gzip(durable=self._durable)
            writing.place_note(signature_of(path), durable=self._durable)
            self._sync(path.parent)
            return PutResult(self._describe(name, path, signature_of(path), writing.etag), is_new=False)
        before = signature_of(path)
        writing.place_note(writing.prepare(before), durable=self._durable)
        placed = writing.place_forms(durable=self._durable)
        self._sync(path.parent)  # both names at once: whichever of them a power cut spares, the label tells what it is
        if before[1:] != placed[1:]:
            folder_writing.remove_note(path, before)  # only now: until then it may be the old object that is there
        self._forget(name)
        return PutResult(self._describe(name, path, placed, writing.etag), is_new=True)

    def stat(self, name: str) -> StoredObject | None:
        """The object, or None. Its digest is taken from memory while the file is the same, else from its octets where
        nothing vouches for it."""
        path = self._path(name)
        with self._lock:
            known = self._known.get(name)
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError):
            if known and known.version == signature(path.stat()):
                return known
            return self._inspect(name, path)
        return None

    def version(self, name: str) -> Signature | None:
        """A validator of the present state, or None where there is no object: asked for with each request."""
        try:
            state = os.stat(self._paths.get(name) or self._path(name))
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    def noted_etag(self, name: str) -> str | None:
        """The ETag in the label or the note of an object whose files look whole, by the sizes; no octets are read.

        None when it is not there, has been damaged, or when nothing was noted.
        """
        path = self._path(name)
        with _read_faults(path):
            state = signature_of(path)
        if state == NOTHING:
            return None
        labelled = folder_writing.read_whole_gzip_label(path, state[2])
        note = folder_writing.read_note(path, state) if labelled is None else labelled[0]
        with self._lock:
            known = self._known.get(name)
        if note is None or (known is not None and known.octets == state[2] and known.etag != note.etag):
            return None
        return note.etag

    def mark(self, name: str) -> str | None:
        """The mark that the object was put with last, even when the object itself is damaged or lost."""
        path = self._path(name)
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError):
            with gzip_path(path).open("rb") as file:
                note = folder_writing.read_gzip_label(file)
            return None if note is None else note.mark
        with _read_faults(path):
            note = folder_writing.read_note(path, signature_of(path))
        return None if note is None else note.mark

    def open(self, name: str, coding: Coding = Coding.IDENTITY) -> OpenObject | None:
        """The object in this form where it has one, else as it is; None when there is none."""
        for attempt in range(_OPENINGS):
            if attempt >= _AT_ONCE:
                time.sleep(_PAUSE_SECONDS)  # who replaces it needs the processor as well
            stored = self.stat(name)
            if stored is None:
                return None
            try:
                return self._open(stored, coding)
            except (_Replaced, FileNotFoundError):
                self._forget(name)
            except OSError as cause:
                raise _unread(f"cannot open the document: {cause.strerror}", self._path(name)) from cause
        raise _unread("the document is replaced faster than it can be opened", self._path(name))

    def _open(self, stored: StoredObject, coding: Coding) -> OpenObject:
        path = self._path(stored.name)
        if coding is Coding.GZIP and stored.gzip_octets is not None:
            with _kept(gzip_path(path)) as file:
                label = folder_writing.read_gzip_label(file)
                same = label is not None and (label.etag, label.octets) == (stored.etag, stored.octets)
                if same and os.fstat(file.fileno()).st_size == stored.gzip_octets:
                    return OpenObject(file, stored, Coding.GZIP, stored.gzip_octets)
                raise _Replaced
        with _kept(path) as file:
            if signature(os.fstat(file.fileno())) != stored.version:
                raise _Replaced
            return OpenObject(file, stored, Coding.IDENTITY, stored.octets)

    def delete(self, name: str) -> None:
        """Remove all files of the object, the object itself first; no effect when there is none."""
        path = self._path(name)
        with write_faults(path):
            self._forget(name)
            state = signature_of(path)
            for victim in (path, gzip_path(path)):
                with suppress(FileNotFoundError, NotADirectoryError):
                    victim.unlink()
            if path.parent.is_dir():
                self._sync(path.parent)
            folder_writing.remove_note(path, state)

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
                    if file.startswith(TEMPORARY) or (
                        file.startswith(NOTE) and folder_writing.is_orphan(folder / file)
                    ):
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

    def _path(self, name: str) -> Path:
        path = self._paths.get(name)
        if path is None:
            path = os.fspath(self.root.joinpath(*check_name(name)))
            if len(self._paths) >= _REMEMBERED:
                self._paths.clear()
            self._paths[name] = path
        return Path(path)

    def _prepare_folder(self, folder: Path) -> None:
        """Make a folder; sync it and those above once: who made them, or names in them, may have been killed first."""
        if folder in self._safe_folders and folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        if self._durable:
            for made in (folder, *folder.parents):
                sync_folder(made)
                if made == self.root:
                    break
            self._safe_folders.add(folder)

    def _sync(self, folder: Path) -> None:
        if self._durable:
            sync_folder(folder)

    def _inspect(self, name: str, path: Path) -> StoredObject:
        """What the files say: a note vouches for the octets, a gzip form is taken for theirs once they are read."""
        with path.open("rb") as file:
            state = signature(os.fstat(file.fileno()))
            note = folder_writing.read_note(path, state)
            if note is not None:
                return self._describe(name, path, state, note.etag)
            digest = folder_writing.new_digest()
            while chunk := file.read(BLOCK_OCTETS):
                digest.update(chunk)
        return self._describe(name, path, state, digest.hexdigest())

    def _describe(self, name: str, path: Path, state: Signature, etag: str) -> StoredObject:
        labelled = folder_writing.read_whole_gzip_label(path, state[2])
        if labelled is not None and labelled[0].etag != etag:
            labelled = None
        note = folder_writing.read_note(path, state)
        vouching = note if labelled is None else labelled[0]
        stored = StoredObject(
            name=name,
            octets=state[2],
            etag=etag,
            modified=dt.datetime.fromtimestamp(state[1] / 1e9, dt.UTC),
            media_type=(note and note.media_type) or folder_writing.implied_type(name),
            version=state,
            gzip_octets=None if labelled is None else labelled[1],
            is_vouched=vouching is not None,
            mark=None if vouching is None else vouching.mark,
        )
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[name] = stored
        return stored

    def _forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)


class _Replaced(Exception):
    """Between looking and opening, the object was replaced."""


@contextmanager
def _kept(path: Path) -> Iterator[FileIO]:
    """The file, which stays open when the block ends well."""
    file = FileIO(path)
    try:
        yield file
    except BaseException:
        file.close()
        raise


@contextmanager
def _read_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise _unread(f"cannot read the document: {cause.strerror}", path) from cause


def _unread(what: str, path: Path) -> StoreFault:
    return StoreFault(what, code="HW-STO-12", where=str(path))
