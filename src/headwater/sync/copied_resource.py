"""What a copy knows of one resource: that it is here, or why it is not, by its state alone; no request is made."""

import datetime as dt
import os
from pathlib import Path

import msgspec

from headwater.files.folder_marks import leads_inside
from headwater.progress import Notice
from headwater.spec.times import from_microseconds, from_optional
from headwater.spec.uris import normalise, quote_path
from headwater.storage.transaction import Transaction
from headwater.sync.copy.destination_folder import DestinationFolder, readable_state
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.options import Choice, Stated, selection
from headwater.sync.sets.registry import offered_scope
from headwater.sync.state import HELD_UPDATE, SetRow, fact, moved_documents, sets
from headwater.sync.update.path_conflicts import PathConflicts
from headwater.typed_decoding import from_json


class ResourceStatus(msgspec.Struct, kw_only=True):
    """How one resource stands in a set of a source or of a copy: whether it is `found`, since when; its last change.

    The documents and packages have it, or would. `reasons`: why it is not there, or not as it will be.
    """

    set: str
    uri: str
    path: str | None = None
    found: bool = False
    since: dt.datetime | None = None
    change: str | None = None
    changed_at: dt.datetime | None = None
    hash: str | None = None
    documents: list[str] = []
    packages: list[str] = []
    versions: int = 0
    reasons: list[Notice] = []


_KNOWN = (
    "SELECT 1 FROM resources WHERE set_id = ?1 AND uri = ?2 UNION SELECT 1 FROM failures WHERE set_id = ?1 AND uri = ?2"
    " UNION SELECT 1 FROM refusals WHERE set_id = ?1 AND uri = ?2"
)
_HELD = "SELECT path, digest, changed_at, newer, doomed_at FROM resources WHERE set_id = ? AND uri = ?"
_LISTED = "SELECT type, length, lastmod, links FROM listing WHERE set_id = ? AND uri = ?"
_FILTERS = ("--include-type", "--exclude-type", "--include-link", "--max-length", "--since")
"""The options of the last fields of `Choice`."""

_FAILED = "SELECT reason, tries, first_at, wait_until FROM failures WHERE set_id = ? AND uri = ?"


def copied_resource(destination: Path, asked: str) -> list[ResourceStatus]:
    """How a URI, or a path, stands in each set of the copy that it may belong to; none where no set could have it.

    Raises UsageFault, and StoreFault where the state cannot be read.
    """
    root, found = Path(os.path.abspath(destination)), list[ResourceStatus]()
    with readable_state(DestinationFolder(root)) as database, database.read() as t:
        rows, uri = sets(t), normalise(asked) if "://" in asked else None
        inside, place = os.path.join(root, ""), os.path.abspath(asked)
        path = os.fsencode(os.path.normpath(place.removeprefix(inside) if place.startswith(inside) else asked))
        held = t.one("SELECT set_id, uri FROM resources WHERE path = ?", (path,)) if uri is None else None
        for row in rows:
            folder = os.fsencode(row.folder) + b"/" if row.folder else b""
            if held is not None and held[0] == row.id:
                found.append(_status(t, root, row, held[1]))
            elif uri is None and held is None and row.base and path.startswith(folder) and leads_inside(path):
                found.append(_status(t, root, row, row.base + quote_path(path[len(folder) :])))
            elif uri and (len(rows) == 1 or uri.startswith(row.base or "\0") or t.one(_KNOWN, (row.id, uri))):
                found.append(_status(t, root, row, uri))
    return found


def _status(t: Transaction, root: Path, row: SetRow, uri: str) -> ResourceStatus:
    path, digest, changed_at, newer, doomed_at = t.one(_HELD, (row.id, uri)) or (None,) * 5
    found = ResourceStatus(set=row.name, uri=uri, found=path is not None, hash=digest)
    found.changed_at = from_optional(changed_at or None)
    found.documents = [one for one in (row.offer.baseline_document, row.offer.changes_document) if one is not None]
    reasons: dict[str, str] = {}
    if (failed := t.one(_FAILED, (row.id, uri))) is not None and failed[0] == HELD_UPDATE:
        reasons["held back"] = "the source has overwritten it; `headwater sync --max-update` consents to that"
    elif failed is not None:
        since, until = (f"{from_microseconds(at or 0):%Y-%m-%d %H:%M:%S} UTC" for at in failed[2:])
        reasons["failed"] = f"its transfer failed: {failed[0]} (tries: {failed[1]:,}, since {since})"
        reasons["failed"] += f"; not again before {until}" if failed[3] else ""
    if path is None:
        reasons = reasons or dict([_absent(t, root, row, uri, is_deleted=changed_at is not None)])
    else:
        found.path = printable_path(path)
        try:
            found.since = from_microseconds(os.lstat(os.path.join(os.fsencode(root), path)).st_ctime_ns // 1_000)
        except OSError as cause:
            reasons["lost"] = f"no file: {cause.strerror}; `headwater sync --repair` fetches it again"
        if doomed_at is not None:
            reasons["held back"] = "the source has deleted it; `headwater sync --max-delete` consents to that"
        if newer:
            reasons["not confirmed"] = "it is newer than the source's lists"
    found.reasons = [Notice(*one) for one in reasons.items()]
    return found


def _absent(t: Transaction, root: Path, row: SetRow, uri: str, *, is_deleted: bool) -> tuple[str, str]:
    """Why a resource is not here of which no transfer failed."""
    choice = from_json(row.scope, Choice) if row.scope else Choice()
    whole = PathConflicts(row, choice, row.base or "", t).path(uri)
    path = whole.removeprefix(os.fsencode(row.folder)).lstrip(b"/")
    lies = "; a file lies there, outside the copy" if os.path.lexists(os.path.join(os.fsencode(root), whole)) else ""
    if (rule := selection(choice.include, choice.exclude).refusal(path, uri)) is not None or choice.skips(uri):
        return "filtered", rule or f"its host is left out (--skip-host {' '.join(choice.skip_hosts)})"
    if choice.by_links and (listed := t.one(_LISTED, (row.id, uri))) is not None:
        option = choice.left_out_by(Stated(*listed)) or "the choice by links (--only-described, --prefer-type)"
        return "filtered", f"it is listed, but {option} leaves it out"
    if is_deleted:
        return "deleted", "the source has deleted it" + lies
    url = fact(t, "url") or row.offer.identity
    scope = offered_scope(moved_documents(t), (url, fact(t, "final") or url), choice, row.offer)
    if (refusal := scope.refusal(uri)) is not None:
        return "refused", refusal.value
    if choice.by_statements:
        values = zip(_FILTERS, msgspec.structs.astuple(choice)[-len(_FILTERS) :], strict=True)
        options = [one for one, value in values if value not in ((), None)]
        return "filtered", f"{' or '.join(options)} leaves it out, unless no list has it"
    read_to = from_optional(row.position.time if row.position else None)
    if row.position is None and row.baseline_at is None:
        return "not listed", f"no run has read the lists of this set to their end yet{lies}"
    told = "no list has it " + (f"as of {read_to:%Y-%m-%d %H:%M:%S} UTC" if read_to else "so far")
    return "not listed", f"{told}, or its failure was forgotten: `headwater sync --baseline` looks again{lies}"
