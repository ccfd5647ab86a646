"""The fixity of RDF documents whose octets vary: verified by the canonical hash that is listed instead of digests.

It counts where no digest of the octets is listed that can be computed; one that is listed is never passed over for it
(docs/decisions/062-hashes-of-canonical-n-quads.md), and that of the empty dataset verifies nothing
(docs/decisions/073-the-empty-dataset-verifies-nothing.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.spec.extensions import EMPTY_DATASET

if TYPE_CHECKING:
    from headwater.rdf.canonical import CanonicalHasher
    from headwater.rdf.syntaxes import Syntax


class DocumentFixity(Enum):
    """What a document says, compared with the canonical hash that is listed."""

    AS_LISTED = "as listed"
    NOTHING = "nothing"
    """As is listed, but many other documents say nothing, too: an error as JSON, a beginning that is cut off."""
    OTHER = "other"
    UNKNOWN = "unknown"
    """It costs too much to find out."""


class FixityJudgement(NamedTuple):
    """The judgement on what a document says, and the sentence that explains a refusal."""

    fixity: DocumentFixity
    reason: str = ""


class CanonicalFixity:
    """Compares what documents say with what is listed. Close it."""

    def __init__(self) -> None:
        self._hasher: CanonicalHasher | None = None

    def close(self) -> None:
        """End the process that parses."""
        if self._hasher is not None:
            self._hasher.close()
            self._hasher = None

    def judge_answer(
        self, listed: str, uri: str, types: Sequence[str | None], path: Path, octets: bytes | None
    ) -> FixityJudgement:
        """Judge what was sent, a file or octets. Its syntax is that of the first of the media types, the listed one and
        that of the answer, that is one of RDF, else that of its URI. Raises OSError."""
        if not (syntaxes := _told(uri, types)):
            return FixityJudgement(
                DocumentFixity.OTHER,
                "a hash of canonical N-Quads is listed, and neither media type nor name is that of RDF",
            )
        judged = self._judge(listed, uri, syntaxes, path, octets)
        sent = _told(uri, types[-1:])
        if judged.reason and sent and sent != syntaxes:
            return judged._replace(reason=f"{judged.reason}; it was sent as {sent[0].title}")
        return judged

    def judge_file(self, listed: str, uri: str, kind: str | None, path: Path) -> FixityJudgement:
        """Judge a file that is held. Where neither the listed media type nor the URI tells the syntax, as the answer's
        may have done, it is as listed if it is so in any of them. Raises OSError."""
        from headwater.rdf.syntaxes import SYNTAXES

        return self._judge(listed, uri, _told(uri, (kind,)) or SYNTAXES, path, None)

    def _judge(
        self, listed: str, uri: str, syntaxes: Sequence[Syntax], path: Path, octets: bytes | None
    ) -> FixityJudgement:
        judged = FixityJudgement(DocumentFixity.UNKNOWN)
        for syntax in syntaxes:
            judged = self._judge_as(listed, uri, syntax, path, octets)
            if judged.fixity is not DocumentFixity.OTHER:
                break
        return judged

    def _judge_as(self, listed: str, uri: str, syntax: Syntax, path: Path, octets: bytes | None) -> FixityJudgement:
        from headwater.rdf import BadRdf, RdfTooCostly
        from headwater.rdf.canonical import CanonicalHasher, RdfDocument

        if self._hasher is None:
            self._hasher = CanonicalHasher()
        try:
            digest = self._hasher.digest(RdfDocument(path, syntax, uri, octets))
        except BadRdf as fault:
            fixity = DocumentFixity.UNKNOWN if isinstance(fault, RdfTooCostly) else DocumentFixity.OTHER
            return FixityJudgement(fixity, f"a hash of canonical N-Quads is listed, and {fault.what}")
        if digest != listed:
            return FixityJudgement(
                DocumentFixity.OTHER, f"sha-256 of canonical N-Quads is {digest}, listed is {listed}"
            )
        return FixityJudgement(DocumentFixity.NOTHING if digest == EMPTY_DATASET else DocumentFixity.AS_LISTED)


def _told(uri: str, types: Sequence[str | None]) -> tuple[Syntax, ...]:
    """The syntax that media types or else the URI tell."""
    from headwater.rdf.syntaxes import syntax_of

    found = (syntax_of(one, uri) for one in (*types, None))
    return tuple(one for one in found if one is not None)[:1]
