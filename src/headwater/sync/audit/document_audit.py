"""The audit of RDF documents of which no digest is listed but the hash of what they say (docs/extensions.md)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from headwater.spec.extensions import CANONICAL
from headwater.storage.database import Database
from headwater.sync.audit.findings import DIFFERENT, SAME, UNREADABLE, UNVERIFIABLE, SetAudit
from headwater.sync.copy.canonical_fixity import CanonicalFixity, DocumentFixity
from headwater.sync.lists.entries import canonical_hash_of
from headwater.sync.transfer.verification import digests_of

_DOCUMENTS = """
SELECT e.uri, e.path, e.hash, e.extra, e.type, coalesce(e.verdict, ?1) FROM temp.expected e
JOIN temp.found f ON f.path = e.path
WHERE instr(e.extra, ?2) AND NOT coalesce(e.newer, 0) AND coalesce(e.length, f.size) = f.size AND NOT f.errno
AND coalesce(e.verdict, ?1) IN (?1, ?3, ?4)"""

_VERDICTS = {DocumentFixity.AS_LISTED: SAME, DocumentFixity.OTHER: DIFFERENT, DocumentFixity.UNKNOWN: UNVERIFIABLE}
"""The hash of the empty dataset verifies nothing: there length and time decide, if they say that nothing has changed.
"""


def judge_documents(database: Database, file: Callable[[bytes], bytes], result: SetAudit) -> None:
    """Replace verdicts by length and time in `expected` by those on what documents say; `file` is where one lies."""
    judged = []
    with database.write() as t, closing(CanonicalFixity()) as fixity:
        for uri, path, hash_, extra, kind, before in t.rows(_DOCUMENTS, (SAME, CANONICAL, DIFFERENT, UNVERIFIABLE)):
            listed = canonical_hash_of(extra)
            if listed is None or digests_of(hash_):
                continue
            try:
                found = fixity.judge_file(listed, uri, kind, Path(os.fsdecode(file(path)))).fixity
                verdict = _VERDICTS.get(found) or (SAME if before == SAME else UNVERIFIABLE)
            except OSError:
                verdict = UNREADABLE
            result.same += (verdict == SAME) - (before == SAME)
            judged.append((None if verdict == SAME else verdict, uri))
        if judged:
            t.many("UPDATE temp.expected SET verdict = ? WHERE uri = ?", judged)
