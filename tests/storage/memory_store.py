"""An object store in memory: a second implementation for the contract, so that nothing in it means a folder."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

import msgspec

from headwater.storage.objects.interface import (
    XML,
    Coding,
    Mark,
    ObjectKind,
    PutResult,
    StoredObject,
    check_name,
    checked_mark,
)


class Held(msgspec.Struct, frozen=True):
    """One object in one state, in its forms."""

    stored: StoredObject
    forms: dict[Coding, bytes]


class MemoryStore:
    """Objects in a dictionary, which several handles share."""

    def __init__(self, held: dict[str, Held] | None = None) -> None:
        self.held = {} if held is None else held
        self._versions = count()

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        with self.writer(name, kind, mark) as writing:
            for chunk in chunks:
                writing.write(chunk)
        return writing.result

    @contextmanager
    def writer(self, name: str, kind: ObjectKind = XML, mark: Mark | None = None) -> Iterator[MemoryWriter]:
        check_name(name)
        writing = MemoryWriter()
        yield writing
        octets, said = bytes(writing.octets), None if mark is None else checked_mark(mark())
        etag, before = hashlib.sha256(octets).hexdigest(), self.held.get(name)
        forms = {Coding.IDENTITY: octets} | ({Coding.GZIP: gzip.compress(octets)} if kind.has_gzip else {})
        if before and (before.stored.etag, before.stored.media_type, *before.forms) == (etag, kind.media_type, *forms):
            writing.result = PutResult(before.stored, is_new=False)
            return
        stored = StoredObject(
            name=name,
            octets=len(octets),
            etag=etag,
            modified=dt.datetime.now(dt.UTC),
            media_type=kind.media_type,
            version=(id(self), next(self._versions)),
            gzip_octets=len(forms[Coding.GZIP]) if kind.has_gzip else None,
            is_vouched=True,
            mark=said,
        )
        self.held[name] = Held(stored, forms)
        is_new = before is None or before.stored.etag != etag
        writing.result = PutResult(stored, is_new=is_new)

    def stat(self, name: str) -> StoredObject | None:
        check_name(name)
        held = self.held.get(name)
        return None if held is None else held.stored

    def version(self, name: str) -> object:
        stored = self.stat(name)
        return None if stored is None else stored.version

    def noted_etag(self, name: str) -> str | None:
        stored = self.stat(name)
        return None if stored is None else stored.etag

    def mark(self, name: str) -> str | None:
        stored = self.stat(name)
        return None if stored is None else stored.mark

    def open(self, name: str, coding: Coding = Coding.IDENTITY) -> OpenMemory | None:
        check_name(name)
        held = self.held.get(name)
        return None if held is None else OpenMemory(held, coding if coding in held.forms else Coding.IDENTITY)

    def delete(self, name: str) -> None:
        check_name(name)
        self.held.pop(name, None)

    def names(self, prefix: str = "") -> Iterator[str]:
        yield from [name for name in self.held if name.startswith(prefix)]

    def clean(self) -> int:
        return 0


class MemoryWriter:
    """Octets that are not there yet."""

    result: PutResult

    def __init__(self) -> None:
        self.octets = bytearray()

    def write(self, data: bytes, /) -> int:
        self.octets += data
        return len(data)

    def flush(self) -> None:
        pass


class OpenMemory:
    """One form of an object."""

    def __init__(self, held: Held, coding: Coding) -> None:
        self.stored = held.stored
        self.coding = coding
        self._octets = held.forms[coding]
        self.octets = len(self._octets)

    def read(self, start: int, octets: int) -> bytes:
        return self._octets[start : start + octets]

    def is_unchanged(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def __enter__(self) -> OpenMemory:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
