"""The fixity of RDF documents whose octets vary: verified by the canonical hash that is listed instead of digests.

It counts where no digest of the octets is listed that can be computed; one that is listed is never passed over for it
(docs/decisions/062-hashes-of-canonical-n-quads.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.rdf.canonical_hash import CanonicalHasher


class CanonicalFixity:
    """Compares what documents say with what is listed. Close it."""

    def __init__(self) -> None:
        self._hasher: CanonicalHasher | None = None

    def close(self) -> None:
        """End the process that parses."""
        if self._hasher is not None:
            self._hasher.close()
            self._hasher = None

    def objection(
        self, listed: str, uri: str, types: Sequence[str | None], path: Path, octets: bytes | None = None
    ) -> str:
        """Why a document, a file or octets, does not say what is `listed`; empty where it does.

        Its syntax is that of the first of the media types that is one of RDF, else that of its URI. Raises OSError.
        """
        from headwater.rdf.canonical_hash import CanonicalHasher, RdfDocument
        from headwater.rdf.faults import BadRdf
        from headwater.rdf.syntaxes import syntax_of

        found = (syntax_of(one, uri) for one in (*types, None))
        syntax = next((one for one in found if one is not None), None)
        if syntax is None:
            return "a hash of canonical N-Quads is listed, and neither media type nor name is that of RDF"
        if self._hasher is None:
            self._hasher = CanonicalHasher()
        try:
            digest = self._hasher.digest(RdfDocument(path, syntax, uri, octets))
        except BadRdf as fault:
            return f"a hash of canonical N-Quads is listed, and {fault.what}"
        if digest == listed:
            return ""
        return f"sha-256 of canonical N-Quads is {digest}, listed is {listed}"
