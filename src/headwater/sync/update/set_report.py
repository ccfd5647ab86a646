"""The report of one set at the end of a run: what is held, what failed, what was refused, and the exit status."""

from __future__ import annotations

from headwater.errors import Exit
from headwater.sync.lists.refused_entries import refused_entries
from headwater.sync.reports import FailedTransfer, gravest_status
from headwater.sync.source_times import format_micros
from headwater.sync.state.set_rows import failure_count, held_back_count, held_count, unconfirmed_count
from headwater.sync.update.set_context import SetContext

_MOST_FAILURES = 100


def summarise(context: SetContext) -> None:
    """Put into the report of a set what is remembered of it at the end of a run."""
    report, row, run = context.report, context.row, context.run
    with run.database.read() as t:
        report.failed = failure_count(t, row.id)
        report.held = held_count(t, row.id)
        report.newer_than_listed = unconfirmed_count(t, row.id)
        if not run.options.dry_run:
            report.held_back = held_back_count(t, row.id)
        query = f"SELECT uri, reason, tries, wait_until FROM failures WHERE set_id = ? LIMIT {_MOST_FAILURES}"  # noqa: S608
        report.failures = [
            FailedTransfer(uri, reason, tries, format_micros(wait_until) if (wait_until or 0) > run.now() else None)
            for uri, reason, tries, wait_until in t.rows(query, (row.id,))
        ]
        refused = refused_entries(t, row.id)
    report.refused, report.skipped = refused.refused, refused.skipped
    for rule, told, where in refused.sentences():
        context.warn(rule, told, where)
    report.unchanged = min(report.unchanged, _left_as_they_were(context))
    report.base = row.base
    report.position = format_micros(row.position.time) if row.position else None
    undeleted = report.held_back and run.options.delete
    if (report.failed or undeleted) and not run.options.dry_run:
        context.statuses.append(Exit.TRANSFERS_FAILED)
    if refused or report.newer_than_listed:
        context.statuses.append(Exit.TRANSFERS_FAILED)
    report.exit_status = gravest_status(context.statuses)


def _left_as_they_were(context: SetContext) -> int:
    """How many files this run can have left as they were: a baseline and the changes after it see many twice."""
    report, dry = context.report, context.run.options.dry_run
    return max(0, report.held - report.updated - (0 if dry else report.created))
