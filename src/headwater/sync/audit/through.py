"""The audit of a copy of a copy against the first source: by the `via` links of its entries, and the source's hashes.

It needs nothing of who is between. What the first source lists now is expected; a file is found by the `via` of the
entry that it was copied by, and hashed again.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from headwater.errors import UsageFault
from headwater.progress import Listener, silent
from headwater.spec.records import HASHLIB
from headwater.sync.audit.auditor import audit
from headwater.sync.audit.verdicts import judge_copy, judge_set
from headwater.sync.copy.held_files import digest_of_file
from headwater.sync.copy_status import copy_records
from headwater.sync.options import SyncOptions
from headwater.sync.reports import DIFFERENT, EXTRA, MISSING, SAME, AuditReport, Finding, SetAudit
from headwater.transport.transport import Transport

_MOST_FINDINGS = 1_000


def audit_through(
    url: str,
    destination: Path | str,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
    each: Callable[[Finding], object] | None = None,
    transport: Transport | None = None,
) -> AuditReport:
    """Compare the copy in `destination` with the lists of the first source at `url`, by `via` links; changes nothing.

    The report has one set for each of the first source's. Resources that came from elsewhere are not looked at; `extra`
    are those whose `via` lies where all that the source lists lies. Raises as `audit` does, and UsageFault where no
    entry has a `via` link.
    """
    root = Path(os.path.abspath(destination))
    held: dict[str, str] = {}
    for record in copy_records(root):
        held |= {link.href: record.path for link in record.links if link.rel.lower() == "via"}
    if not held:
        what = "no entry of this copy has a `via` link: its source republishes nothing"
        raise UsageFault(what, where=str(root), advice="Leave out --through.")
    expected: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="headwater-") as nothing:  # against nothing, all that is listed is missing
        report = audit(url, nothing, options, listener=listener, each=expected.append, transport=transport)
    listed = [one for one in expected if one.verdict == MISSING and one.uri is not None]
    doubts = {one.name: [one.reason] if one.reason else [] for one in report.sets}
    report.sets = [SetAudit(name=one.name, folder=one.folder, at=one.at) for one in report.sets]
    by_name = {one.name: one for one in report.sets}
    first, last = (min(uris), max(uris)) if (uris := [str(one.uri) for one in listed]) else ("", "")
    common = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    below = first[:common].rpartition("/")[0] + "/"  # what all have in common, the first and the last have
    for one in listed:
        result, path = by_name[one.set_name], held.pop(str(one.uri), None)
        verdict, found = _compared(root, path, one.expected)
        _count(result, Finding(verdict, one.uri, path or one.path, "", one.expected, found, one.set_name), each)
    for uri in sorted(uri for uri in held if below != "/" and uri.startswith(below)):
        _count(report.sets[0], Finding(EXTRA, uri, held[uri], set_name=report.sets[0].name), each)
    for result in report.sets:
        judge_set(result, [one for one in doubts[result.name] if not one.startswith("only deletions")])
    report.destination = str(root)
    judge_copy(report, whole=True)
    return report


def _compared(root: Path, path: str | None, expected: str | None) -> tuple[str, str | None]:
    """The verdict on a file, and its digest."""
    algorithm = (expected or "").partition(":")[0]
    if path is None:
        return MISSING, None
    if algorithm not in HASHLIB:
        return "unverifiable", None
    digest = digest_of_file(lambda: os.open(root / path, os.O_RDONLY | os.O_CLOEXEC), algorithm)
    if digest is None:
        return MISSING, None
    found = f"{algorithm}:{digest}"
    return (SAME if found == expected else DIFFERENT), found


def _count(result: SetAudit, finding: Finding, each: Callable[[Finding], object] | None) -> None:
    setattr(result, finding.verdict, getattr(result, finding.verdict) + 1)
    if finding.verdict == SAME:
        result.same_by_hash += 1
    elif len(result.findings) < _MOST_FINDINGS:
        result.findings.append(finding)
    else:
        result.findings_are_cut = True
    if each is not None:
        each(finding)
