"""The findings of an audit: when a file is as listed, differs or is undetermined; verdicts of sets (DST-Q)."""

import os

import msgspec

from headwater.errors import Exit
from headwater.files.hash_pool import UNKNOWN_OCTETS
from headwater.sync.reports import (
    BY_HASH,
    BY_RECORD,
    BY_TIME,
    DIFFERENT,
    IN_SYNC,
    MISSING,
    NOT_IN_SYNC,
    SAME,
    UNDETERMINED,
    UNREADABLE,
    UNVERIFIABLE,
    AuditReport,
    SetAudit,
    gravest_status,
)
from headwater.sync.source_times import DAY, SECOND
from headwater.sync.transfer.verification import digests_of, strongest_text


class ExpectedFile(msgspec.Struct, frozen=True, gc=False):
    """A row of `temp.expected`: what is listed of a file, and what is remembered of the one that was placed.

    `undone`: a change is told that is later than all that was done of it. `newer`: the copy was newer than listed when
    it was fetched. `placed_lastmod` None: the time on the disk (`mtime_ns`) is not one that a list has stated.
    """

    uri: str = ""
    path: bytes = b""
    length: int | None = None
    hash: str | None = None
    lastmod: int | None = None
    type: str | None = None
    extra: str | None = None
    undone: int = 0
    newer: int | None = None
    mtime_ns: int | None = None
    placed_lastmod: int | None = None
    known_at: int | None = None  # the time of the change, or the `at` of the list, that the placed file is of
    digest: str | None = None  # the digest of what was placed

    @property
    def octets(self) -> int:
        """How much there is to read, as far as that is listed."""
        return UNKNOWN_OCTETS if self.length is None else self.length


class FoundFile(msgspec.Struct, frozen=True, gc=False):
    """One file as it lies on the disk, with its digests as `algorithm:hex`; `errno`: why it cannot be read, else 0."""

    size: int
    mtime_ns: int
    digests: str
    errno: int = 0


def judge_file(expected: ExpectedFile, found: FoundFile | None) -> str:
    """The verdict on one expected file: by every listed digest that can be computed, else by length and time (DST-Q).

    Without such a digest, what is not as it was placed is different, whatever its length and time. A copy that was
    newer than listed, and that no list has confirmed, is different (DST-5.3). So is one without a listed hash that has
    not got its last change.
    """
    if found is None:
        return MISSING
    if found.errno:
        return UNREADABLE
    length, lastmod = expected.length, expected.lastmod
    held = set(digests_of(found.digests))
    if wanted := digests_of(expected.hash):
        return SAME if held.issuperset(wanted) and length in (None, found.size) else DIFFERENT
    if expected.newer or expected.undone or (length is not None and length != found.size):
        return DIFFERENT
    verdict = UNVERIFIABLE if length is None else SAME
    if lastmod is not None:
        verdict = _judge_time(lastmod, found.mtime_ns, expected)
    if verdict == DIFFERENT or not _is_recorded(expected, found):
        return verdict
    placed = digests_of(expected.digest)
    return SAME if placed and held.issuperset(placed) else DIFFERENT


def proof_of(expected: ExpectedFile, found: FoundFile) -> str:
    """What proves that a file is the same, of which `judge_file` says so."""
    if digests_of(expected.hash):
        return BY_HASH
    return BY_RECORD if _is_recorded(expected, found) else BY_TIME


def _is_recorded(expected: ExpectedFile, found: FoundFile) -> bool:
    """Whether the digest of what was placed is known, and computed of the file that is there."""
    if expected.mtime_ns is None or expected.digest is None:
        return False
    return all(f"{digest.algorithm}:" in found.digests for digest in digests_of(expected.digest))


Difference = tuple[str, str | None, str | None]
"""Why a file is not the same; the expected digest, None where none is known; the found one, where it shows it."""


def difference(verdict: str, expected: ExpectedFile, found: FoundFile | None) -> Difference:
    """The difference of an expected file on which this is the verdict; of another hash the digests say enough."""
    wanted = strongest_text(expected.hash) or expected.digest
    if found is None or verdict not in (UNREADABLE, DIFFERENT):
        return "", wanted, None
    if verdict == UNREADABLE:
        return os.strerror(found.errno), wanted, None
    listed = digests_of(expected.hash)
    held = {digest.algorithm: str(digest) for digest in digests_of(found.digests)}
    other = [one for one in listed or digests_of(expected.digest) if held.get(one.algorithm, str(one)) != str(one)]
    reason = "length or time differs from the list"
    if expected.undone and not listed:
        reason = "its last change is missing here, and the list has no usable hash"
    elif other:
        reason = "" if listed else "not the file that was placed"
    return reason, *((str(other[0]), held[other[0].algorithm]) if other else (wanted, None))


def _judge_time(lastmod: int, mtime_ns: int, placed: ExpectedFile) -> str:
    """The verdict where time alone can tell.

    Another time is a difference, but for two that say nothing: the day in which the file's time lies; and a time no
    later than that of the change which the file is of, where that change stated none for the file to have.
    """
    mtime = mtime_ns // 1_000
    if lastmod // SECOND == mtime // SECOND:
        return SAME
    if lastmod % DAY == 0 and 0 <= mtime - lastmod < DAY:
        return UNVERIFIABLE
    if placed.placed_lastmod is not None or placed.known_at is None or placed.mtime_ns != mtime_ns:
        return DIFFERENT
    return UNVERIFIABLE if lastmod // SECOND <= placed.known_at // SECOND else DIFFERENT


_UNCERTAIN = ("unreadable", "contradicted", "told_no_more", "refused", "skipped")
"""Counts of what nobody can judge for certain."""


def judge_set(result: SetAudit, doubts: list[str]) -> None:
    """Set the verdict on one set: doubt counts before whatever was found, a change meanwhile only after it.

    Where entries are refused or skipped nothing is one too many for certain, and nothing is in sync (DST-S12). What no
    list tells any more is among what differs, and only what differs beside it is certain. Of a
    file that cannot be read nobody knows whether it is what is listed. Files of which nothing comparable is listed are
    told; where nothing at all could be compared nothing is known to be in sync. What is behind is no fault: the next
    run brings it.
    """
    certain = result.missing + result.different - result.told_no_more
    if not (result.refused or result.skipped):
        certain += result.extra + result.held_back
    uncertain = [f"{n:,} {name.replace('_', ' ')}" for name in _UNCERTAIN if (n := getattr(result, name))]
    result.verdict, result.reason = UNDETERMINED, None
    if doubts:
        result.reason = "; ".join(doubts)
    elif certain > 0:
        result.verdict = NOT_IN_SYNC
        if certain == result.held_back:
            result.reason = "only deletions or updates wait for consent"
    elif uncertain:
        result.reason = f"it is uncertain whether all is as listed: {', '.join(uncertain)}"
    elif result.changed_during_audit:
        result.reason = "the source changed during the audit"
    elif result.unverifiable and not (result.same or result.behind):
        result.reason = "no file can be compared"
    else:
        result.verdict = IN_SYNC
        if result.unverifiable:
            result.reason = f"{result.unverifiable:,} unverifiable: no hash, and no time that tells, is listed"
        elif result.behind:
            result.reason = f"{result.behind:,} changed at the source after the last run, and nothing else is wrong"
        elif result.left_out and not result.same:
            result.reason = "the filters leave out all that is listed"


def judge_stores(result: SetAudit) -> None:
    """Set the verdict on one set after that on its triplestores: a difference is certain, whatever is in doubt."""
    verdicts = {one.verdict for one in result.stores}
    if verdicts & {DIFFERENT, MISSING}:
        result.verdict = NOT_IN_SYNC
    elif UNREADABLE in verdicts and result.verdict == IN_SYNC:
        result.verdict, result.reason = UNDETERMINED, "a triplestore cannot be read"


_STATUSES = {IN_SYNC: Exit.DONE, NOT_IN_SYNC: Exit.FINDINGS, UNDETERMINED: Exit.UNDETERMINED}


def judge_copy(report: AuditReport, *, whole: bool) -> None:
    """Set verdict and exit status of the copy. `whole`: everything that the source describes could be read.

    A finding is certain whatever else is in doubt; doubt counts before agreement.
    """
    statuses = [int(_STATUSES[one.verdict]) for one in report.sets]
    if not whole or not statuses:
        statuses.append(int(Exit.UNDETERMINED))
    report.exit_status = int(Exit.FINDINGS) if Exit.FINDINGS in statuses else gravest_status(statuses)
    report.verdict = next(name for name, status in _STATUSES.items() if status == report.exit_status)
