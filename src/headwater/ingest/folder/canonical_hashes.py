"""The canonical hashes of RDF documents that a folder publishes: of the octets that were hashed, and of no others."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from headwater.catalog.interface import Metadata
from headwater.files.hashing import HASHERS
from headwater.files.nofollow import open_unlinked
from headwater.ingest.folder.walk import CanonicalHashes
from headwater.rdf import BadRdf
from headwater.rdf.canonical import HASHED_OCTETS, CanonicalHasher
from headwater.rdf.syntaxes import syntax_of
from headwater.spec.extensions import EMPTY_DATASET, canonical_attribute
from headwater.spec.records import parse_hash


class DocumentHashes:
    """States documents by what they say. `refused` is told the path of each that has no canonical hash, and why. Close
    it."""

    def __init__(self, settings: CanonicalHashes, refused: Callable[[bytes, str], None]) -> None:
        self._settings = settings
        self._refused = refused
        self._hasher = CanonicalHasher()

    def close(self) -> None:
        """End the process that hashes."""
        self._hasher.close()

    def stated(self, path: bytes, uri: str, metadata: Metadata) -> Metadata:
        """The metadata of a file with its canonical hash; as they are where it has none, or changes meanwhile."""
        syntax = None if metadata.type is None else syntax_of(metadata.type, uri)
        if syntax is None or metadata.length is None:
            return metadata
        if metadata.length > HASHED_OCTETS:
            self._refused(path, f"it has more than {HASHED_OCTETS:,} octets")
            return metadata
        octets = _octets(path, metadata)
        if octets is None:
            return metadata  # it is read again
        try:
            digest = self._hasher.digest(Path(os.fsdecode(path)), syntax, self._settings.prefix + uri, octets)
        except BadRdf as fault:
            self._refused(path, fault.what)
            return metadata
        if digest == EMPTY_DATASET:
            self._refused(path, "it has no statements")
            return metadata
        if self._settings.replaces:
            metadata = msgspec.structs.replace(metadata, hash=None, length=None)
        return msgspec.structs.replace(metadata, extra=canonical_attribute(digest))


def _octets(path: bytes, metadata: Metadata) -> bytes | None:
    """The octets of a file while they are those that the metadata are of."""
    assert metadata.length is not None
    try:
        with os.fdopen(open_unlinked(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            octets = file.read(metadata.length + 1)
    except OSError:
        return None
    known = parse_hash(metadata.hash or "").digests
    is_same = bool(known) and all(HASHERS[one.algorithm](octets).hexdigest() == one.hex for one in known)
    return octets if is_same else None
