"""Audits of a service's copies: a run of kind `audit`, whose record says by what files were compared.

An audit reads lists and files, and changes nothing. It takes a run of its source like any other: under a lease.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headwater.aggregator.configuration import FollowedSource
from headwater.aggregator.store import Life, Run, RunRecord, SourceState
from headwater.errors import Exit, HeadwaterError
from headwater.progress import Listener, silent
from headwater.sync.audit.auditor import audit
from headwater.sync.reports import AuditReport, SetAudit
from headwater.sync.run import utcnow
from headwater.transport.transport import Transport

_DOUBTS: Final = ("unreadable", "contradicted", "refused", "skipped", "behind", "held_back", "changed_during_audit")
_DIFFERENCES: Final = ("missing", "different", "extra")

_MOST_FINDINGS: Final = 100  # of each set, that a record keeps


def is_audit_due(state: SourceState, source: FollowedSource, now: dt.datetime) -> bool:
    """Whether the copy of a source is to be audited: its last run was sound, and no audit is younger than configured.

    An audit comes after a run, when little is behind.
    """
    if source.audit is None or state.life is not Life.FOLLOWING:
        return False
    return state.audited_at is None or not 0 <= (now - state.audited_at).total_seconds() < source.audit


def run_audit(
    run: Run,
    source: FollowedSource,
    copy: Path,
    *,
    listener: Listener = silent,
    transport: Transport | None = None,
    now: Callable[[], dt.datetime] = utcnow,
) -> RunRecord:
    """Audit the copy of a source with the source's own options; the record says by what was compared.

    Its status is that of the audit: 0 in sync, 1 not in sync, 3 the source cannot be read, 5 undetermined. Raises what
    is no HeadwaterError.
    """
    try:
        report = audit(source.url, copy, source.options, listener=listener, transport=transport, now=now)
    except HeadwaterError as fault:
        return run.ended(now(), int(fault.exit_status), reason=fault.what, code=fault.code)
    told = report.to_dict()
    for one in told["sets"]:
        del one["findings"][_MOST_FINDINGS:]
    different = sum(getattr(one, name) for one in report.sets for name in _DIFFERENCES)
    return run.ended(
        now(),
        report.exit_status,
        reason=verdict_in_words(report),
        failed=different,
        requests=report.requests,
        report=told,
    )


def verdict_in_words(report: AuditReport) -> str:
    """Why the verdict is not `in sync`, in one sentence; empty if it is."""
    if report.exit_status == Exit.DONE:
        return ""
    worst = [one for one in report.sets if one.verdict == report.verdict] or report.sets
    reasons = [one.reason or _found(one) for one in worst]
    return f"{report.verdict}: {reasons[0]}" if reasons and reasons[0] else report.verdict


def _found(one: SetAudit) -> str:
    told = [
        f"{count:,} {name.replace('_', ' ')}" for name in (*_DIFFERENCES, *_DOUBTS) if (count := getattr(one, name))
    ]
    return f"{one.name}: {', '.join(told)}" if told else ""
