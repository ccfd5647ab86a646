"""The files that a copy of the past is expected to hold: what a set had at a moment, as far as its lists tell (`--at`).

What is only known to have been there, or not even that, is neither expected nor one too many: it is a doubt.
"""

from __future__ import annotations

from headwater.errors import Undetermined
from headwater.sync.audit.expected_files import ExpectedFiles
from headwater.sync.lists.refused_entries import keep_listed, refused_entries
from headwater.sync.past.evidence import Evidence, EvidenceReader
from headwater.sync.past.listing import ListingResult, fill_listed
from headwater.sync.past.staging import WITHOUT_HASH
from headwater.sync.source_times import format_micros

_DOUBTFUL = f"SELECT uri FROM temp.doubts WHERE state <> {WITHOUT_HASH}"  # noqa: S608  our own number
_EXPECT = (
    "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod, extra, type)"
    " SELECT uri, length, hash, lastmod, extra, type FROM temp.listed WHERE NOT refused"
)


class PastFiles(ExpectedFiles):
    """Fills `expected` with what the set had at `moment`. Set that before anything else."""

    moment = 0

    def read(self) -> None:
        """Read what tells of the moment. Raises SourceFault and Undetermined."""
        offer = self._row.offer
        if offer.baseline_document is None and offer.changes_document is None:
            raise Undetermined(
                "the set has no Resource List and no Change List", code="HW-SYN-12", where=offer.identity, rule="DST-Q"
            )
        self._take_along()
        self._result.at = format_micros(self.moment)
        evidence = EvidenceReader(self._context, offer, self.moment).read()
        with self._database.write() as t:
            filled = fill_listed(t, evidence)
            t.run("DELETE FROM temp.expected")
            t.run(_EXPECT)
            whole, skipped = evidence.proof is not None, tuple(evidence.skipped)
            takes = self._claims_of(t).takes_refused
            _, self._result.left_out = keep_listed(t, self._row.id, None, takes, complete=whole, skipped=skipped)
            self.refused = refused_entries(t, self._row.id)
        self._result.refused, self._result.skipped = self.refused.refused, self.refused.skipped
        self.doubts += _doubts(evidence, filled)

    def read_later(self) -> bool:
        """Nothing: what has been does not change."""
        return False

    def name(self) -> None:
        """The path of everything expected; what is in doubt is left out."""
        super().name()
        with self._database.write() as t:
            t.run(
                f"INSERT OR IGNORE INTO temp.spared(path) SELECT path FROM temp.expected WHERE uri IN ({_DOUBTFUL})"  # noqa: S608
            )
            t.run(f"DELETE FROM temp.expected WHERE uri IN ({_DOUBTFUL})")  # noqa: S608


def _doubts(evidence: Evidence, filled: ListingResult) -> list[str]:
    """What the lists leave open."""
    found = []
    when = format_micros(evidence.moment)
    if evidence.proof is None:
        hole = evidence.hole()
        told = f": nothing tells of changes from {format_micros(hole[0])} to {format_micros(hole[1])}" if hole else ""
        found.append(f"no document of the source tells all that the set had at {when}{told}")
    if filled.doubtful:
        which = "1 resource was" if filled.doubtful == 1 else f"{filled.doubtful:,} resources were"
        found.append(f"no list tells whether {which} there at {when}, and in which state")
    return found
