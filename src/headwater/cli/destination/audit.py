"""`headwater audit`: proves by hash whether a copy is in sync, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import human_seconds, json_document, json_option, listening, printable
from headwater.cli.shared_options import dest_argument
from headwater.cli.source_access import asks_a_source, said

if TYPE_CHECKING:
    from headwater.sync.audit.findings import SetAudit

_SHOWN = 20
_MOST_SETS = 100  # of more sets those that are not in sync are shown, up to so many, and the others as one line


@click.command(name="audit")
@click.argument("url")
@dest_argument
@click.option("--set", "sets", multiple=True, metavar="NAME", help="Only this set (may be repeated).")
@click.option("--base", metavar="URI", help="The base of the names, for a copy that another tool has made.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="HOST", help="Also expect this host's resources.")
@click.option("--any-host", is_flag=True, help="Expect resources of whatever host the source lists.")
@click.option("--skip-host", "skip_hosts", multiple=True, metavar="HOST", help="Expect nothing of this host.")
@click.option("--sitemap", is_flag=True, help="Take a plain Sitemap for a Resource List.")
@asks_a_source
@json_option
def command(
    url: str,
    dest: Path,
    as_json: bool,
    **wanted: Any,
) -> int:
    """Compare the copy in DEST with what the source behind URL lists, every file by its hash; nothing is modified.

    Exit status 0: in sync. 1: not in sync. 5: undetermined, because the source cannot be read as a whole or changed
    meanwhile.
    """
    from headwater.sync.audit.auditor import audit
    from headwater.sync.options import SyncOptions

    options = SyncOptions(**said(wanted))
    with listening() as listener:
        report = audit(url, dest, options, listener=listener)
    if as_json:
        json_document(report)
        return report.exit_status
    telling = report.sets
    if len(telling) > _MOST_SETS:
        telling = [one for one in telling if one.verdict != "in sync"][:_MOST_SETS]
    for one in telling:
        click.echo(f"{printable(one.name)}: {one.verdict}; {_counts([one])}")
        if one.reason:
            click.echo(f"  because {printable(one.reason)}")
        for finding in one.findings[:_SHOWN]:
            reason = f" ({finding.reason})" if finding.reason else ""
            click.echo(f"  {finding.verdict}: {printable(finding.path)}{reason}")
        if len(one.findings) > _SHOWN or one.findings_are_cut:
            click.echo("  … and more (--json lists them)")
        if one.missing or one.different:
            click.echo("  `headwater sync --repair` fetches again what is missing or different")
    told = set(map(id, telling))
    if rest := [one for one in report.sets if id(one) not in told]:
        verdicts = " or ".join(sorted({one.verdict for one in rest}))
        click.echo(f"{len(rest):,} {'more sets' if telling else 'sets'}: {verdicts}; {_counts(rest)}")
    click.echo(f"{report.verdict} ({human_seconds(report.seconds)})")
    return report.exit_status


def _counts(sets: list[SetAudit]) -> str:
    numbers = [
        (sum(getattr(one, name) for one in sets), what, always)
        for name, what, always in (
            ("same", "same", True),
            ("missing", "missing", True),
            ("different", "different", True),
            ("extra", "extra", True),
            ("unverifiable", "unverifiable", True),
            ("changed_during_audit", "changed meanwhile", True),
            ("refused", "refused", False),
            ("skipped", "skipped", False),
            ("left_out", "left out", False),
        )
    ]
    return ", ".join(f"{number:,} {what}" for number, what, always in numbers if number or always)
