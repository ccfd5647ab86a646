"""The audit of RDF documents of which no digest is listed but the hash of what they say (docs/extensions.md)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from headwater.spec.extensions import CANONICAL
from headwater.storage.database import Database
from headwater.sync.audit.findings import BY_HASH, BY_RECORD, BY_TIME, DIFFERENT, SAME, UNREADABLE, UNVERIFIABLE
from headwater.sync.copy.canonical_fixity import CanonicalFixity, DocumentFixity
from headwater.sync.lists.entries import canonical_hash_of
from headwater.sync.transfer.verification import digests_of

_DOCUMENTS = """
SELECT e.uri, e.path, e.hash, e.extra, e.type, coalesce(e.verdict, ?1), r.digest FROM temp.expected e
JOIN temp.found f ON f.path = e.path LEFT JOIN resources r ON r.set_id = ?5 AND r.uri = e.uri
WHERE instr(e.extra, ?2) AND NOT coalesce(e.newer, 0) AND coalesce(e.length, f.size) = f.size AND NOT f.errno
AND coalesce(e.verdict, ?1) IN (?1, ?3, ?4)"""


def judge_documents(database: Database, file: Callable[[bytes], bytes], set_id: int | None) -> Counter[str]:
    """Replace the verdicts in `expected` on documents without a listed digest by those on what they say.

    `file` is where one lies, `set_id` the set of which the copy has its own record (None: of none). Returns how many
    more files, or fewer, are proved by what.
    """
    judged, proved = [], Counter[str]()
    with database.write() as t, closing(CanonicalFixity()) as fixity:
        wanted = SAME, CANONICAL, DIFFERENT, UNVERIFIABLE, set_id
        for uri, path, hash_, extra, kind, before, recorded in t.rows(_DOCUMENTS, wanted):
            listed = canonical_hash_of(extra)
            if listed is None or digests_of(hash_):
                continue
            found = DocumentFixity.UNKNOWN
            try:
                found = fixity.judge_file(listed, uri, kind, Path(os.fsdecode(file(path)))).fixity
                verdict = _verdict(found, before, is_recorded=recorded is not None)
            except OSError:
                verdict = UNREADABLE
            otherwise = BY_RECORD if recorded is not None else BY_TIME
            proved[otherwise] -= before == SAME
            proved[BY_HASH if found is DocumentFixity.AS_LISTED else otherwise] += verdict == SAME
            judged.append((None if verdict == SAME else verdict, uri))
        if judged:
            t.many("UPDATE temp.expected SET verdict = ? WHERE uri = ?", judged)
    return proved


def _verdict(found: DocumentFixity, before: str, *, is_recorded: bool) -> str:
    """The verdict by what the document says. The hash of the empty dataset verifies nothing, and where it costs too
    much to find out nothing is known: what is not as it was placed is different all the same."""
    if found is DocumentFixity.AS_LISTED:
        return SAME
    if found is DocumentFixity.OTHER or (before == DIFFERENT and is_recorded):
        return DIFFERENT
    return SAME if found is DocumentFixity.NOTHING and before == SAME else UNVERIFIABLE
