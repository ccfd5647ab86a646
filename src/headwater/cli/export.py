"""`headwater export` and `restore`: a manifest, a bag, or the copy of a moment, of a copy without its source."""

from pathlib import Path

import click

from headwater.cli.output import (
    STANDARD,
    counted,
    json_document,
    json_option,
    lines_of_all,
    listening,
    output_faults,
    see_outside,
)
from headwater.cli.shared_options import COPY, FILE, FOLDER, option
from headwater.errors import UsageFault
from headwater.quantities import human_octets
from headwater.sync import export as exports
from headwater.sync.export import ExportReport


@click.command(name="export")
@click.argument("copy", metavar="DEST", type=COPY)
@option("-o, --output OUT", "The file of the manifest, or the folder of the bag, which is made.  [default: -]")
@option(
    "--format",
    "A manifest for `sha256sum -c`, or a bag (BagIt 1.0, RFC 8493) with copies of the files.",
    click.Choice(["sha256sum", "bagit"]),
    name="form",
    default="sha256sum",
    show_default=True,
)
@json_option
def export(copy: Path, output: str | None, form: str, as_json: bool) -> int:
    """Write a manifest, or a bag, of the files of the copy in DEST; no source is asked, and DEST is not changed.

    Every file is read and compared with the hash that the copy has recorded: one that is missing or not as recorded is
    named and left out. In DEST, `sha256sum -c OUT` reads the manifest. A bag has `uris.jsonl` besides: the address of
    each file.

    Exit status 0: done. 1: some files are left out.
    """
    place = STANDARD if output is None else output
    if place == STANDARD and (form == "bagit" or as_json):
        raise UsageFault("the output needs a name", advice="Name it by --output OUT.")
    if place != STANDARD:
        see_outside(Path(place), copy, "--output")
    with listening() as listener:
        if form == "bagit":
            report = exports.export_bag(copy, place, listener=listener)
        else:
            with output_faults(place), click.open_file(place, "wb") as file:
                report = exports.export_manifest(copy, file.write, listener=listener)
        listener.close(report.exit_status)
    return _told("exported", report, as_json=as_json)


@click.command(name="restore")
@click.argument("copy", metavar="DEST", type=COPY)
@click.argument("folder", metavar="DIR", type=FOLDER)
@option("--at TIME", "The time (2026-11-12T10:00:00Z; a date: the end of that day in UTC).", required=True)
@option("--changes FILE", "The file of `sync --changes`, as lines of JSON.", FILE, required=True)
@json_option
def restore(copy: Path, folder: Path, at: str, changes: str, as_json: bool) -> int:
    """Rebuild in DIR, a new folder, what the copy in DEST had at a time; no source is asked, DEST is not changed.

    It needs runs with --backup-dir and --changes FILE ever since that time: FILE tells when which file was replaced or
    deleted, by the clock of this machine, and where it is kept. Every file is compared with its hash of then: one that
    is missing or another is named and left out.

    Exit status 0: done. 1: some files are left out.
    """
    see_outside(folder, copy, "restore")
    with listening() as listener:
        report = exports.restore(copy, folder, at, changes, listener=listener)
        listener.close(report.exit_status)
    return _told("restored", report, as_json=as_json)


def _told(verb: str, report: ExportReport, *, as_json: bool) -> int:
    if as_json:
        json_document(report)
    else:
        lines = lines_of_all(report.findings, "left out: {path}: {verdict}[ ({reason})]")
        lines.append(f"{verb} {counted(report.files, 'file')}, {human_octets(report.octets)}; {len(lines):,} left out")
        click.echo("\n".join(lines), err=True)
    return report.exit_status
