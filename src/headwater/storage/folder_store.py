"""A document store in a local folder: documents are replaced atomically, each with its gzip form beside it.

A reader at any moment finds the old document or the new one, never half (AMB-63). Both forms are written aside,
synced, and renamed: the gzip form first, then the document. The gzip form is labelled with the digest of the document
that it was made from, so that `get` never pairs a document with the compressed form of another, wherever a crash fell.
The label also has the document's mark, which is the writer's own: it changes with the document, at no further cost.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec

from headwater.errors import StoreFault, UsageFault
from headwater.storage.durable import make_folders, sync_file, sync_folder
from headwater.storage.gzip_member import LABEL_OCTETS, GzipCompressor, header, read_label, read_whole_label

TEMPORARY = ".headwater-tmp-"
"""Names that begin so are half-written; they are removed when the store is opened, and never listed."""

_GZIP = ".gz"
_DIGEST_OCTETS = 16
MARK_OCTETS = 120
"""No mark is longer."""
_CHUNK = 1 << 18
_REMEMBERED = 20_000
_Signature = tuple[int, int, int]
_LABEL = re.compile(r"headwater (?P<etag>[0-9a-f]{32}) (?P<octets>[0-9]{20})(?P<mark> .+)?\Z")


class BadName(UsageFault):
    """A document name that could leave the folder or collide with the store's own files."""

    code: ClassVar[str] = "HW-STO-10"
    advice: ClassVar[str] = "Names are relative, with `/` between plain parts, and do not end in `.gz`."


class CannotWrite(StoreFault):
    """The file system refused: full, read-only, no permission."""

    code: ClassVar[str] = "HW-STO-11"


class CannotRead(StoreFault):
    """A stored document is there and cannot be read."""

    code: ClassVar[str] = "HW-STO-12"


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One document as it lies in the store.

    `etag` is a digest (hex) of the uncompressed octets: the same for both forms, changed when a single octet changes.
    `gzip_path` is None unless the compressed form there was made from exactly these octets.
    `written` is False when `write` found the same octets already in place and touched nothing.
    """

    name: str
    path: Path
    octets: int
    etag: str
    modified: dt.datetime
    gzip_path: Path | None = None
    gzip_octets: int = 0
    written: bool = False
    signature: tuple[int, int, int] = (0, 0, 0)


class FolderStore:
    """Documents below `root`. Safe for several threads of one process; one process at a time writes.

    `foreign` names folders directly below `root` or one level deeper that hold what is not ours (resources, state):
    they are never listed nor cleaned. `durable` syncs every file and folder before and after the rename.
    """

    def __init__(
        self, root: Path, *, foreign: frozenset[str] = frozenset(), durable: bool = True, clean: bool = True
    ) -> None:
        self.root = Path(root)
        self._foreign = foreign
        self._durable = durable
        self._known: dict[str, StoredDocument] = {}
        self._lock = threading.Lock()
        self._safe_folders: set[Path] = set()
        with _faults(self.root):
            make_folders(self.root) if durable else self.root.mkdir(parents=True, exist_ok=True)
        if clean:
            self.clean()

    def write(self, name: str, chunks: Iterable[bytes], mark: Callable[[], str] | None = None) -> StoredDocument:
        """Make `name` hold exactly these octets, and `name.gz` their gzip form.

        `mark` is asked after the last chunk: ASCII, at most MARK_OCTETS. When the document already has these octets,
        neither inode nor time nor mark changes. Raises CannotWrite (nothing is changed then), BadName.
        """
        path = self._path(name)
        with _faults(path):
            self._prepare_folder(path.parent)
            writing = _PendingWrite(path)
            try:
                writing.fill(chunks, mark)
                return self._settle(name, path, writing)
            finally:
                writing.discard()

    def _settle(self, name: str, path: Path, writing: _PendingWrite) -> StoredDocument:
        held = self.get(name)
        if held and held.etag == writing.etag and held.octets == writing.octets:
            if _matching_gzip(path, held.etag, held.octets) is not None:  # memory may say so of one that is gone
                return held
            writing.place_gzip(durable=self._durable)
            if self._durable:
                sync_folder(path.parent)
            self._forget(name)
            return self.get(name) or held
        writing.place_gzip(durable=self._durable)
        signature = writing.place_plain(durable=self._durable)
        if self._durable:  # both names at once: whichever of them a power cut spares, the label tells what it is
            sync_folder(path.parent)
        self._forget(name)
        stored = self._describe(name, path, signature, writing.etag)
        self._remember(stored)
        return msgspec.structs.replace(stored, written=True)

    def get(self, name: str) -> StoredDocument | None:
        """The document, or None. Its digest is taken from memory while the file is the same, else from its octets."""
        path = self._path(name)
        with self._lock:
            known = self._known.get(name)
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError):
            if known and known.signature == _signature(path.stat()):
                return known
            return self._inspect(name, path)
        return None

    def is_sound(self, name: str) -> bool:
        """Whether both forms are there and belong together, by the label and the sizes: no octets are hashed."""
        return self.labelled_etag(name) is not None

    def labelled_etag(self, name: str) -> str | None:
        """The digest in the label of a sound document; None when it is not sound."""
        path = self._path(name)
        label, octets = None, -1
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError):
            octets = path.stat().st_size
            with _gzip_path(path).open("rb") as file:
                label = read_whole_label(file, octets)
        with self._lock:
            known = self._known.get(name)
        if label is None or (match := _LABEL.match(label)) is None or int(match["octets"]) != octets:
            return None
        if known is not None and known.octets == octets and known.etag != match["etag"]:
            return None
        return match["etag"]

    def mark(self, name: str) -> str | None:
        """The mark with which the document was written last; None where there is no compressed form, or no mark.

        It is there even when the document itself is damaged.
        """
        path = _gzip_path(self._path(name))
        with _read_faults(path), suppress(FileNotFoundError, NotADirectoryError), path.open("rb") as file:
            match = _LABEL.match(read_label(file.read(11 + LABEL_OCTETS)) or "")
            return match["mark"].strip() if match and match["mark"] else None
        return None

    def _inspect(self, name: str, path: Path) -> StoredDocument:
        with path.open("rb") as file:
            signature = _signature(os.fstat(file.fileno()))
            digest = hashlib.blake2b(digest_size=_DIGEST_OCTETS)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        stored = self._describe(name, path, signature, digest.hexdigest())
        self._remember(stored)
        return stored

    def open(self, name: str, *, coded: bool = False) -> tuple[StoredDocument, BinaryIO] | None:
        """The document with an open file of it (of its gzip form when `coded` and there is one), or None.

        The file goes on giving these octets whatever is published meanwhile; the caller closes it.
        """
        for _attempt in range(10):
            stored = self.get(name)
            if stored is None:
                return None
            try:
                return stored, _opened(stored, coded=coded)
            except _Replaced:
                self._forget(name)
            except FileNotFoundError:
                self._forget(name)
            except OSError as cause:
                raise CannotRead(f"cannot open the document: {cause.strerror}", where=str(stored.path)) from cause
        raise CannotRead("the document is replaced faster than it can be opened", where=str(self._path(name)))

    def remove(self, name: str) -> None:
        """Remove both forms, the document first; no effect when there is none."""
        path = self._path(name)
        with _faults(path):
            self._forget(name)
            for victim in (path, _gzip_path(path)):
                with suppress(FileNotFoundError, NotADirectoryError):
                    victim.unlink()
            if self._durable and path.parent.is_dir():
                sync_folder(path.parent)

    def names(self, prefix: str = "") -> Iterator[str]:
        """Names of all documents that begin with `prefix`, in order; compressed forms and foreign files left out.

        Only the folder that the prefix names is looked into: a store may hold thousands of sets.
        """
        for folder, files in self._folders(prefix.rpartition("/")[0]):
            relative = folder.relative_to(self.root).as_posix()
            for file in sorted(files):
                name = file if relative == "." else f"{relative}/{file}"
                if name.startswith(prefix) and not file.startswith(TEMPORARY) and not file.endswith(_GZIP):
                    yield name

    def clean(self) -> int:
        """Remove what a killed process left half-written; returns how many files that were."""
        removed = 0
        with _faults(self.root):
            for folder, files in self._folders():
                for file in files:
                    if file.startswith(TEMPORARY):
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
        parts = name.split("/")
        good = all(part not in ("", ".", "..") and not part.startswith(TEMPORARY) for part in parts)
        if not good or "\0" in name or "\\" in name or name.endswith(_GZIP):
            raise BadName(f"not a document name: {name[:200]!r}")
        return self.root.joinpath(*parts)

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

    def _describe(self, name: str, path: Path, signature: _Signature, etag: str) -> StoredDocument:
        gzip = _matching_gzip(path, etag, signature[2])
        return StoredDocument(
            name=name,
            path=path,
            octets=signature[2],
            etag=etag,
            modified=dt.datetime.fromtimestamp(signature[1] / 1e9, dt.UTC),
            gzip_path=gzip[0] if gzip else None,
            gzip_octets=gzip[1] if gzip else 0,
            signature=signature,
        )

    def _remember(self, stored: StoredDocument) -> None:
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[stored.name] = stored

    def _forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)


class _Replaced(Exception):
    """Between looking and opening, the document was replaced."""


class _PendingWrite:
    """The two half-written files of one `write`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        token = f"{TEMPORARY}{secrets.token_hex(8)}"
        self._plain = path.with_name(token)
        self._gzip = path.with_name(token + _GZIP)
        self.octets = 0
        self.etag = ""

    def fill(self, chunks: Iterable[bytes], mark: Callable[[], str] | None) -> None:
        padding = "" if mark is None else " " * (MARK_OCTETS + 1)
        digest = hashlib.blake2b(digest_size=_DIGEST_OCTETS)
        coder = GzipCompressor()
        # The label stands before the body and is known after it: its length is fixed, so its place is kept.
        with self._plain.open("xb") as plain, self._gzip.open("xb") as coded:
            coded.write(header("0" * len(_label("", 0)) + padding))
            for chunk in chunks:
                plain.write(chunk)
                digest.update(chunk)
                coded.write(coder.add(chunk))
                self.octets += len(chunk)
            coded.write(coder.finish())
            self.etag = digest.hexdigest()
            coded.seek(0)
            text = "" if mark is None else f" {mark():<{MARK_OCTETS}}"
            coded.write(header(_label(self.etag, self.octets) + text))

    def place_gzip(self, *, durable: bool) -> None:
        _place(self._gzip, _gzip_path(self._path), durable=durable)

    def place_plain(self, *, durable: bool) -> _Signature:
        return _place(self._plain, self._path, durable=durable)

    def discard(self) -> None:
        for leftover in (self._plain, self._gzip):
            with suppress(FileNotFoundError):
                leftover.unlink()


def _label(etag: str, octets: int) -> str:
    return f"headwater {etag:>32} {octets:020d}"


def _is_label_of(label: str | None, etag: str, octets: int) -> bool:
    return label is not None and label.startswith(_label(etag, octets))


def _place(source: Path, target: Path, *, durable: bool) -> _Signature:
    if durable:
        sync_file(source)
    signature = _signature(source.stat())
    os.replace(source, target)
    return signature


def _matching_gzip(path: Path, etag: str, octets: int) -> tuple[Path, int] | None:
    beside = _gzip_path(path)
    try:
        with beside.open("rb") as file:
            whole = _is_label_of(read_whole_label(file, octets), etag, octets)
            return (beside, os.fstat(file.fileno()).st_size) if whole else None
    except OSError:
        return None  # a missing or unreadable compressed form only means that it is not offered


def _opened(stored: StoredDocument, *, coded: bool) -> BinaryIO:
    if not coded or stored.gzip_path is None:
        file = stored.path.open("rb")
        if _signature(os.fstat(file.fileno())) == stored.signature:
            return file
    else:
        file = stored.gzip_path.open("rb")
        label = read_label(file.read(11 + LABEL_OCTETS))
        if _is_label_of(label, stored.etag, stored.octets) and os.fstat(file.fileno()).st_size == stored.gzip_octets:
            file.seek(0)
            return file
    file.close()
    raise _Replaced


def _gzip_path(path: Path) -> Path:
    return path.with_name(path.name + _GZIP)


def _signature(stat: os.stat_result) -> _Signature:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise CannotWrite(f"cannot write: {cause.strerror or cause}", where=str(path)) from cause


@contextmanager
def _read_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise CannotRead(f"cannot read the document: {cause.strerror}", where=str(path)) from cause
