"""`headwater audit`: proves by hash whether a copy is in sync, and changes nothing."""

import gc
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from headwater.cli.output import (
    encoded_json,
    json_document,
    json_option,
    lines_of,
    lines_of_all,
    listening,
    output_faults,
    see_outside,
    sets_to_show,
    show,
    show_some,
)
from headwater.cli.shared_options import (
    ACCESS_HEADINGS,
    COPY,
    SectionedCommand,
    SourceAddress,
    compared_store_options,
    given_options,
    option,
    source_options,
    with_sparql_user,
)
from headwater.cli.stop_signal import terminated
from headwater.errors import SourceFault
from headwater.sync.audit.auditor import audit, audit_through
from headwater.sync.options import SyncOptions
from headwater.sync.reports import AuditReport, SetAudit

_SHOWN = 20
_MOST_SETS = 100


_HEADINGS = {"sets": "What is compared", "store": "Triplestores", **ACCESS_HEADINGS, "evidence": "What is told"}


@click.command(name="audit", cls=SectionedCommand, headings=_HEADINGS)
@click.argument("url", type=SourceAddress(), required=False, metavar="URL")
@click.argument("dest", type=COPY, required=False, metavar="DEST")
@option("--local DEST", "Instead of URL and DEST: compare the files with the copy's own record; ask no source.", COPY)
@option("--through", "Of a copy of a copy: URL is the first source; compare by `via` links.")
@option("--set NAME", "Compare only this set (repeatable).", name="sets", multiple=True)
@option("--base URI", "For a copy by another tool: the URI prefix that its file names lack.")
@option("--allow-host HOST", "Also expect resources of this host (repeatable).", name="allow_hosts", multiple=True)
@option("--any-host", "Expect resources of every host that the source lists.")
@option("--skip-host HOST", "Expect no resources of this host (repeatable).", name="skip_hosts", multiple=True)
@option("--sitemap", "Use a plain Sitemap as a Resource List.")
@option("--at TIME", "Compare with the source as it was at TIME (2026-11-12T10:00:00Z). A date means its end, in UTC.")
@compared_store_options
@source_options
@option(
    "--evidence FILE",
    "Write a line of JSON with digests for each compared file to FILE; the last line is the report.",
    click.Path(path_type=Path, dir_okay=False),
)
@option("-q, --quiet", "Print nothing if the copy is in sync.")
@json_option
def command(
    url: str | None,
    dest: Path | None,
    local: Path | None,
    through: bool,
    evidence: Path | None,
    quiet: bool,
    as_json: bool,
    **wanted: Any,
) -> int:
    """Compare the copy in DEST with the lists of the source at URL, every file by its hash; change nothing.

    Where the source lists no hash, Headwater compares the listed length and time, and the hash that the copy recorded.

    With --local, Headwater compares every file with the recorded hash, and needs no source. Changes of the source after
    the last run count as behind, not as faults. Deletions that wait for consent count as held back.

    Exit statuses: 0 in sync; 1 not in sync; 3 the source cannot be read; 5 undetermined: a list or a file cannot be
    read, the source changed meanwhile, or nothing could be compared.
    """
    options = SyncOptions(**with_sparql_user(given_options(wanted)))
    copy = local or dest
    if copy is None or (local is None) == (url is None) or (dest is None) != (url is None):
        raise click.UsageError("name the copy by URL and DEST, or by --local DEST alone")
    if through and url is None:
        raise click.UsageError("--through needs the URL of the first source")
    gc.freeze()  # as `sync` does
    gc.set_threshold(50_000, 20, 20)
    with listening(quiet=quiet) as listener, terminated():  # datasets have large temporary files
        with _written(evidence, copy) as write:
            try:
                if through and url is not None:
                    report = audit_through(url, copy, options, listener=listener, each=write)
                else:
                    report = audit(url, copy, options, listener=listener, each=write)
            except SourceFault as fault:
                fault.todo += f" Without the source: `headwater audit --local {shlex.quote(str(copy))}`."
                raise
            if write is not None:
                write(replace(report, sets=[replace(one, findings=[]) for one in report.sets]))
        listener.close(report.exit_status)
    if as_json:
        json_document(report)
    elif report.exit_status or not quiet:
        _show(report)
    return report.exit_status


@contextmanager
def _written(path: Path | None, copy: Path) -> Iterator[Callable[[object], object] | None]:
    """What writes each of its values as a line of JSON to the file, if there is to be one."""
    if path is None:
        yield None
        return
    see_outside(path, copy, "--evidence")
    with output_faults(str(path)), path.open("wb") as file:
        yield lambda value: file.write(encoded_json(value))


def _show(report: AuditReport) -> None:
    telling, rest = sets_to_show(report.sets, _MOST_SETS, lambda one: one.verdict != "in sync")
    past = report.as_of or report.copy_as_of
    for one in telling:
        show(one, "{name}: {verdict}; {counts}", counts=_counts([one]))
        (proofs,) = lines_of(one, _PROOFS)
        show(one, "  compared: {proofs}", "  because {reason}", proofs=proofs[2:])
        for store in one.stores:
            show(store, "  store {store}: {verdict}[ ({reason})]")
        lines = lines_of_all(one.findings[:_SHOWN], "{verdict}: {path}[ ({reason})]")
        count = len(one.findings) + one.findings_are_cut
        show_some(lines, _SHOWN, count=count, indent="  ", rest=" (--json lists them)")
        show(one, _UNREADABLE, _TOLD_NO_MORE)
        for what, command in one.consent.items():
            show(None, _HELD_BACK, what=what, command=command)
        if (one.missing or one.different) and (past is None or report.local):
            click.echo(_TO_REPAIR)
    if past is not None and not report.local and any(one.missing or one.different for one in report.sets):
        is_same = report.as_of == report.copy_as_of
        kept = f"as of {report.copy_as_of}" if report.copy_as_of else "of no time"
        show(report, _FETCH_THEN if is_same else _OTHER_TIME if report.as_of else _AS_OF_THEN, kept=kept)
    if rest:
        verdicts = " or ".join(sorted({set_audit.verdict for set_audit in rest}))
        click.echo(f"{len(rest):,} {'more sets' if telling else 'sets'}: {verdicts}; {_counts(rest)}")
    show(report, "{verdict}[ as of {as_of}][{local} with its own record: no source was asked] ({seconds})")


def _counts(sets: list[SetAudit]) -> str:
    counts = {name: sum(getattr(set_audit, name) for set_audit in sets) for name in _COUNTED}
    told = (f"{number:,} {_COUNTED[name]}" for name, number in counts.items() if number or name in _ALWAYS)
    return ", ".join(told)


_PROOFS = (
    "[, {same_by_hash} by the source's hash][, {same_by_record} by the copy's own record]"
    "[, {same_by_time} by length and time alone][, {unverifiable} by nothing]"
)
"""By what files were found the same, or could not be compared."""
_UNREADABLE = (
    "  {unreadable} cannot be read: see to the permissions of the copy, the user who runs this, and the disk;"
    " `headwater sync --repair` fetches such files again"
)
_TOLD_NO_MORE = (
    "  {told_no_more} told no more: the source lists an older state than it did; if that is meant,"
    " `headwater sync --accept-reset` follows it"
)
_HELD_BACK = (
    "  held back until you consent to {what} these files, by `{command}` (with your other options, such as --changes)"
)
_TO_REPAIR = (
    "  `headwater sync` fetches what has changed at the source (with `--baseline` also what its"
    " Resource List alone tells), `headwater sync --repair` also what was lost or altered here"
)
_AS_OF_THEN = (
    "  this is a copy as of {copy_as_of}: `headwater audit --at {copy_as_of}` compares with that time;"
    " a plain `headwater sync` brings it up to date"
)
_FETCH_THEN = "  `headwater sync --at` with the same time fetches what the source still has of it"
_OTHER_TIME = "  this copy is {kept}: `headwater sync --at {as_of}` makes one of that time, in another folder"
_ALWAYS = frozenset({"same", "missing", "different", "extra", "unverifiable", "changed_during_audit"})
_COUNTED = {
    **{name: name for name in ("same", "missing", "different", "extra", "unreadable", "unverifiable")},
    "changed_during_audit": "changed meanwhile",
    "behind": "behind",
    "held_back": "held back",
    **{name: name.replace("_", " ") for name in ("refused", "skipped", "left_out", "contradicted", "told_no_more")},
}
"""Counts of a set, and the words for them; those that are not told always are where there are any."""
