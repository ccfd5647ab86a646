"""The transfer of resources: fetch, verify, place, record; every failure is remembered and stops nothing else.

Rounds. The first asks the mirrors of a resource, or `loc` where it has none; what did not come, or differs, is asked in
the next one of what `attempts_after` says (DST-5.3, DST-S2).
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, cast

from headwater.files.folder_marks import has_reserved
from headwater.patches import PatchRefused, essence_of, is_of_dataset
from headwater.spec.records import Digest
from headwater.sync.connection import origin_of
from headwater.sync.copy.destination_folder import PARTIAL_PREFIX
from headwater.sync.copy.file_names import escaped_path
from headwater.sync.copy.file_tree import DestinationUnusable, PathOccupied
from headwater.sync.copy.held_files import is_intact
from headwater.sync.linked_resources import accept_header
from headwater.sync.lists.entries import canonical_hash_of, links_of
from headwater.sync.reports import SetReport
from headwater.sync.source_times import SECOND, http_date_micros, mtime_ns, strong_last_modified
from headwater.sync.state import SetRow
from headwater.sync.transfer.adoption import listed_file
from headwater.sync.transfer.patching import Patching
from headwater.sync.transfer.request_processes import fetch_plain
from headwater.sync.transfer.results_and_retries import BATCH, IN_ROUND, PlacedFile, ResultLog
from headwater.sync.transfer.verification import (
    CannotDecode,
    CanonicalFixity,
    Judgement,
    Verdict,
    decode_file,
    differing,
    error_page,
    judge,
    strongest_of,
)
from headwater.sync.transfer.work_queue import (
    COLUMNS,
    FIRST,
    WAITING_ROUND,
    Attempt,
    MirrorAttempt,
    PatchAttempt,
    RunContext,
    Work,
    attempts_after,
    octet_limit,
    request_headers,
)
from headwater.transport.access import REFUSED
from headwater.transport.fetch import FailureKind, Fetch, Fetched, FetchFailure
from headwater.transport.response import LASTING_OCTETS
from headwater.transport.scheduler import RETRIED_STATUSES

_GOOD = (200, 203)
_MAY_COME_LATER = RETRIED_STATUSES | {401, 403}  # a token may have run out
_STILL_WANTED = (
    "SELECT uri, hash FROM failures WHERE set_id = ?1 UNION ALL SELECT uri, hash FROM temp.work WHERE round = ?2"
)
MOST_PARTS = 1_000
"""So many partial downloads of a set are kept over runs."""

_HERE = (
    f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND round = 0 AND attempt_json IS NULL"  # noqa: S608
    f" AND held IS NULL ORDER BY n LIMIT {BATCH}"
)


class ReceivedContent(NamedTuple):
    """The received content of a resource: `body`, or the temporary file `name` when that is None."""

    name: str
    octets: int
    digest: str
    body: bytes | None = None


class ResourceTransfer:
    """Fetches everything in `temp.work` for one set. Raises StoreFault when the copy itself cannot be written."""

    def __init__(
        self,
        context: RunContext,
        row: SetRow,
        counts: SetReport,
        warn: Callable[[str, str, str | None], None],
        objection: Callable[[str], str | None],
    ) -> None:
        """`objection`: what the scope says of a URI that is to be asked for, or of one that is redirected to."""
        assert context.tree is not None
        self._context = context
        self._tree = context.tree
        self._temp = context.temp
        self._set = row
        self._counts = counts
        self._warn = warn
        self._largest = context.options.largest
        self._objection = objection
        types = context.options.prefer_types
        self._negotiated = (("Accept", accept_header(types)),) if types else ()
        self._noted: dict[tuple[str, str], tuple[str, int]] = {}
        self._round = 0
        self._results = ResultLog(context, row, counts)
        self._fixity = CanonicalFixity()
        self._patching = cache(lambda: Patching(self._tree, self._temp))  # made with the first patch

    def adopt(self) -> None:
        """Record files that another tool, or a killed run, has put into their places."""
        if not self._context.adopt:
            return
        self._results.count()
        for work in self._results.each(_HERE) if self._results.total else ():
            if not self._adopted(work):
                self._results.left(work)
        self._results.flush()

    def run(self) -> None:
        """Fetch everything that is planned; returns when each row is placed or remembered as failed."""
        results = self._results
        results.count()
        try:
            if self._round == 0:
                fetch_plain(self._context, results, self._placed_beside)
            while self._round <= results.last_round:
                for fetched in self._context.transport.many(self._fetches()):
                    self._settle(fetched)
                results.flush()
                self._round += 1
            # what could be fetched has been: only parts of what is remembered as failed, or waits for its turn, stay
            number = self._set.id
            if names := {one for one in os.listdir(self._temp) if one.startswith(f"{PARTIAL_PREFIX}{number}-")}:
                with self._context.database.write() as t:
                    wanted = {_part_name(number, *row) for row in t.rows(_STILL_WANTED, (number, WAITING_ROUND))}
                for name in names.difference(sorted(names & wanted)[:MOST_PARTS]):
                    self._tree.discard(name)
        finally:
            self._fixity.close()
            results.flush()
            for (rule, message), (first, count) in self._noted.items():
                self._warn(rule, message if count == 1 else f"{message}, of {count:,} resources", first)
            self._noted.clear()

    def _placed_beside(self, work: Work, file: PlacedFile, sent: str, modified: str | None) -> None:
        self._advise(work, sent, modified)
        self._results.placed(work, file, file.size)

    def _fetches(self) -> Iterator[Fetch | None]:
        """The requests of this round; None while one waits for a mirror."""
        for work in self._results.each(IN_ROUND, self._round):
            if work.tries is not None and work.attempt.of_source and (objection := self._objection(work.loc)):
                fetch = self._fetch(work)
                barred = FetchFailure(FailureKind.PROTOCOL, objection)
                self._fail(work, objection, Fetched(fetch, uri=fetch.uri, failure=barred))
                continue  # remembered as failed, and not in the scope any more
            while (ready := self._context.mirrors.ready(work, self._context.options)) is None:
                yield None
            if isinstance(ready.attempt, PatchAttempt):
                yield from self._patching().fetches(ready, ready.attempt, self._objection)
            else:
                yield self._fetch(ready)

    def _adopted(self, work: Work, came: ReceivedContent | None = None, *, newer: bool = False) -> bool:
        """Whether the file in its place is what is listed, or what `came`; then it is recorded."""
        if came is None and strongest_of(work.hash) is None and canonical_hash_of(work.extra) is not None:
            return False  # neither length nor time say what it says
        trusts = self._context.options.trust_lastmod
        listed = (work.hash, work.length, work.lastmod) if came is None else (came.digest, came.octets, None)
        found = listed_file(self._tree, work.path, *listed, trusts=trusts)
        if found is None:
            return False
        there, digest = found
        kept = mtime_ns(work.lastmod, None)
        if kept is not None and kept != there.st_mtime_ns:
            kept = self._tree.touch(work.path, kept)
        self._counts.adopted += 1
        if self._tree.room is not None:
            self._tree.room.held += there.st_size
        file = PlacedFile(work.path, there.st_size, kept or there.st_mtime_ns, digest, newer=newer)
        self._results.placed(work, file, 0 if came is None else came.octets, adopted=True)
        return True

    def _fetch(self, work: Work) -> Fetch:
        wanted = strongest_of(work.hash)
        headers = request_headers(work)
        if self._negotiated and work.attempt.of_source and work.hash is None and work.length is None:
            headers += self._negotiated  # `loc` is generic (DST-S3)
        is_small = work.length is not None and work.length < LASTING_OCTETS
        keeps = not is_small and wanted is not None and work.attempt == FIRST and not work.encoding  # of `loc` alone
        return Fetch(
            work.target,
            headers,
            into=f"{self._temp}/{work.name}",
            holds_small=True,
            algorithms=(wanted.algorithm if wanted else "sha-256",),
            max_octets=octet_limit(work.length, self._largest),
            replaces=self._tree.size(work.path) if work.held is not None else 0,
            keep=f"{self._temp}/{_part_name(self._set.id, work.uri, work.hash)}" if keeps else None,
            key=(work, wanted),
            objection=self._objection if work.attempt.of_source else None,
            retries=0 if isinstance(work.attempt, MirrorAttempt) else None,
        )

    # what came

    def _settle(self, fetched: Fetched) -> None:
        work, wanted = cast("tuple[Work, Digest | None]", fetched.fetch.key)
        failure = fetched.failure
        if failure is not None and failure.kind is FailureKind.STORE:
            raise DestinationUnusable(f"cannot write: {failure.text}", where=str(self._temp))
        if isinstance(work.attempt, PatchAttempt):
            self._patched(work, work.attempt, fetched)
            return
        is_conditional = work.attempt == FIRST and work.held is not None and bool(work.etag or work.last_modified)
        if failure is None and fetched.status in _GOOD:
            self._arrived(work, wanted, fetched)
        elif failure is None and fetched.status == 304 and is_conditional:
            modified = mtime_ns(work.lastmod)  # the time that is listed now, by which an audit knows the file
            self._results.confirmed(work, None if modified is None else self._tree.touch(work.path, modified))
        else:
            if fetched.ok:
                self._tree.discard(work.name)
            passing = failure.passing if failure is not None else fetched.status in _MAY_COME_LATER
            if fetched.fetch.keep is not None and not passing:
                self._tree.discard(os.path.basename(fetched.fetch.keep))
            reason = failure.text if failure is not None else f"HTTP status {fetched.status}"
            if fetched.status in REFUSED and fetched.signed_in is False:
                reason += "; credentials are sent to the origin of the source's address only"
            self._next(work, reason, fetched, mismatch=False)

    def _patched(self, work: Work, attempt: PatchAttempt, fetched: Fetched) -> None:
        """Place what patches make when the last of them has come, or ask for the resource as if there were none."""
        try:
            result = self._patching().result(work, attempt, fetched)
        except PatchRefused as cause:
            if attempt.base is None:
                self._note(work, "TIM-A6", f"Headwater fetches the dataset instead of its changes: {cause!s:.300}")
            else:
                why = f" ({cause!s:.200})" if is_of_dataset(attempt.steps[0].type) else ""
                self._note(work, "DST-S1", f"a patch failed{why}: Headwater fetches the whole resource")
            self._results.again(work, work.attempts[1:], self._round + 1, work.reason or "")
            return
        if result is None:
            return
        nothing_told, (made, received) = Fetched(fetched.fetch, status=200), result
        if self._place(work, nothing_told, ReceivedContent(work.name, made, str(strongest_of(work.hash)))):
            self._counts.patched += 1
            self._counts.octets += received - made
            self._counts.octets_saved += max(0, made - received)

    def _arrived(self, work: Work, wanted: Digest | None, fetched: Fetched) -> None:
        """Judge an answer: place it, or try the next way. What is newer than listed has to come twice (DST-5.3)."""
        algorithm = fetched.fetch.algorithms[0]
        digest, body = f"{algorithm}:{fetched.digests[algorithm]}", fetched.body if fetched.held else None
        content = ReceivedContent(work.name, fetched.octets, digest, body)
        verdict = judge(work, wanted, content.octets, fetched.digests[algorithm], _own_time(work, fetched))
        coding = fetched.headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            if body is not None:
                self._tree.write(content.name, body, None)
                content = content._replace(body=None)
            verdict, content = self._decoded(work, wanted, fetched, verdict, content, coding)
        verdict = self._reviewed(work, wanted, fetched, verdict, content)
        modified, reason = fetched.headers.get("last-modified"), verdict.reason
        is_newer = verdict.judgement is Judgement.NEWER
        if is_newer:
            reason = f"newer than the source's list: {content.digest}, of {modified}"
        is_confirmed = is_newer and work.reason == reason
        if verdict.judgement is not Judgement.GOOD and (not is_confirmed or self._replaces_verified(work)):
            self._tree.discard(content.name)
            self._next(work, reason, fetched, mismatch=True)
            return
        if isinstance(work.attempt, MirrorAttempt):
            self._context.mirrors.sent(work.target)
            self._counts.from_mirrors += 1
        # what is newer than listed is told of as that
        self._advise(work, fetched.headers.get("content-type", ""), None if is_newer else modified)
        self._place(work, fetched, content, newer=is_newer)

    def _replaces_verified(self, work: Work) -> bool:
        """Whether a copy that a list has confirmed would give way; none that is missing or damaged is one."""
        with self._context.database.read() as t:
            row = t.one("SELECT path, size, mtime_ns FROM resources WHERE id = ? AND newer = 0", (work.held,))
        return row is not None and is_intact(self._tree, *row)

    def _reviewed(
        self, work: Work, wanted: Digest | None, fetched: Fetched, verdict: Verdict, content: ReceivedContent
    ) -> Verdict:
        """The verdict, after what else has to be said of an answer than hash and length say: its media type, what it
        says as RDF, whether it is a page of HTML in the place of something else."""
        sent = fetched.headers.get("content-type", "")
        is_alternate = self._negotiated and not verdict.verified and links_of(work.links, "canonical")
        if is_alternate and work.type and (kind := essence_of(sent)) not in ("", essence_of(work.type)):  # DST-S3
            reason = f"the media type is {kind[:80]}, listed is {work.type[:80]}"
            verdict = Verdict(Judgement.DIFFERENT, reason)
        listed = canonical_hash_of(work.extra) if wanted is None and verdict.judgement is Judgement.GOOD else None
        if listed is not None:
            path, types = Path(f"{self._temp}/{content.name}"), (work.type, sent or None)
            judged = self._fixity.judge(listed, work.uri, types, path, content.body)
            if judged.judgement is not Judgement.GOOD:
                verdict = differing(work, _own_time(work, fetched), judged.reason)
            elif judged.verified:
                verdict = judged
        is_taken = verdict.verified or self._context.options.accept_html or verdict.judgement is not Judgement.GOOD
        if not is_taken and (why := error_page(work.type, work.uri, sent)):
            verdict = Verdict(Judgement.DIFFERENT, why)
        return verdict

    def _decoded(
        self, work: Work, wanted: Digest | None, fetched: Fetched, first: Verdict, content: ReceivedContent, coding: str
    ) -> tuple[Verdict, ReceivedContent]:
        """An answer with a content coding that nobody, or the entry, asked for (AMB-16): what fits as it was sent, is
        kept so, else what fits without its coding."""
        certain = wanted is not None or work.length is not None or bool(work.encoding)
        if first.judgement is Judgement.GOOD and certain:
            return first, content
        algorithm, most = fetched.fetch.algorithms[0], octet_limit(work.length, self._largest)
        name, file = f"{content.name}d", f"{self._temp}/{content.name}"
        try:
            octets, found = decode_file(file, f"{file}d", coding, algorithm, most, self._tree.room)
        except CannotDecode as cause:
            self._tree.discard(name)
            said = f"content coding {coding[:40]}: {cause}"
            reason = f"{first.reason}; {said}" if certain else said
            return Verdict(first.judgement if certain else Judgement.DIFFERENT, reason), content
        except OSError as cause:
            self._tree.discard(content.name)
            self._tree.discard(name)
            raise DestinationUnusable(f"cannot write: {cause.strerror}", where=str(self._temp)) from cause
        verdict = judge(work, wanted, octets, found, _own_time(work, fetched))
        if verdict.judgement is not Judgement.GOOD and work.encoding:
            self._tree.discard(name)
            return first, content
        self._tree.discard(content.name)
        decoded = ReceivedContent(name, octets, f"{algorithm}:{found}")
        return verdict if verdict.judgement is Judgement.GOOD else first, decoded

    def _advise(self, work: Work, sent: str, modified: str | None) -> None:
        """Differences that are warnings only (DST-V 3, 4)."""
        if work.type and sent and work.type != sent and _one_name(work.type) != _one_name(sent):
            self._note(work, "DST-V3", "the media type differs from the one listed")
        if work.lastmod is not None and work.attempt.of_source and (at := http_date_micros(modified)) is not None:
            if at // SECOND < work.lastmod // SECOND:
                self._note(work, "DST-V4", "Last-Modified is older than the lastmod listed")
            elif at // SECOND > work.lastmod // SECOND:
                self._note(work, "DST-V4", "Last-Modified is later than the lastmod listed")

    def _note(self, work: Work, rule: str, message: str) -> None:
        """Count a difference, which is told with the first resource that had it when all are fetched."""
        first, count = self._noted.get((rule, message), (work.uri, 0))
        self._noted[rule, message] = first, count + 1

    def _place(self, work: Work, fetched: Fetched, content: ReceivedContent, *, newer: bool = False) -> bool:
        """Give content its place, where there is room for it; `newer`: it is newer than what is listed."""
        tree, path, name, body = self._tree, work.path, content.name, content.body
        is_mirror = isinstance(work.attempt, MirrorAttempt)
        headers = {} if is_mirror else fetched.headers  # what a mirror says of time and tag is its own
        modified = headers.get("last-modified")
        mtime = mtime_ns(None if newer else work.lastmod, modified)
        found = tree.stamp(name, mtime) if body is None else tree.write(name, body, mtime)
        if self._context.adopt and work.held is None and self._adopted(work, content, newer=newer):
            tree.discard(name)  # an older list said otherwise of what lies there
            return True
        is_held = False
        if work.held is not None and strongest_of(work.hash) is None:  # only fetching such octets tells so
            with self._context.database.read() as t:
                row = t.one("SELECT path, digest, size, mtime_ns FROM resources WHERE id = ?", (work.held,))
            is_held = row is not None and row[:2] == (path, content.digest) and is_intact(tree, path, *row[2:])
        try:
            try:
                tree.place(name, path)
            except PathOccupied:
                if work.held is not None and not has_reserved(path):
                    raise
                prefix = self._set.folder.encode() + b"/" if self._set.folder else b""
                path = prefix + escaped_path(work.uri, folds=tree.folds)
                tree.place(name, path)
        except PathOccupied as cause:
            tree.discard(name)
            self._fail(work, str(cause), fetched)
            return False
        file = PlacedFile(path, *found, content.digest, headers.get("etag"), strong_last_modified(headers), newer)
        self._results.placed(work, file, content.octets - fetched.brought, held=is_held)
        return True

    # what did not come

    def _next(self, work: Work, reason: str, fetched: Fetched, *, mismatch: bool) -> None:
        """Try the next way, or remember the failure: that of the source counts before those of mirrors."""
        attempts = self._after(work, fetched, mismatch=mismatch)
        told = work.reason or (reason if work.attempt.of_source else None)
        if attempts:
            self._results.again(work, attempts, self._round + 1, told)
        else:
            self._fail(work, told or reason, fetched)

    def _after(self, work: Work, fetched: Fetched, *, mismatch: bool) -> tuple[Attempt, ...]:
        if isinstance(work.attempt, MirrorAttempt):
            self._context.mirrors.failed(work.target, fetched, self._warn, mismatch=mismatch)
        return attempts_after(work, mismatch=mismatch)

    def _fail(self, work: Work, reason: str, fetched: Fetched) -> None:
        asked_to_wait = None if isinstance(work.attempt, MirrorAttempt) else fetched.retry_after_seconds
        self._results.failed(work, reason, fetched.status, asked_to_wait)


def _part_name(set_id: int, uri: str, listed: str | None) -> str:
    """The temporary file that keeps what has come of a resource, as it is listed: when its hash changes, of nothing.

    It is not trusted: the whole is hashed when the rest has come (`transport.response`).
    """
    octets = f"{uri}\n{listed}".encode("utf-8", "surrogatepass")
    return f"{PARTIAL_PREFIX}{set_id}-{hashlib.sha256(octets).hexdigest()[:32]}"


def _own_time(work: Work, fetched: Fetched) -> str | None:
    """The `Last-Modified` that says when the resource changed: that of its own origin, and no mirror's (DST-5.3)."""
    if not work.attempt.of_source or origin_of(fetched.uri) != origin_of(work.loc):
        return None
    return fetched.headers.get("last-modified")


@lru_cache(maxsize=256)
def _one_name(text: str) -> str:
    """A media type under one name: `text/xml` is another one of `application/xml` (RFC 7303 9.2)."""
    found = essence_of(text)
    return "application/xml" if found == "text/xml" else found
