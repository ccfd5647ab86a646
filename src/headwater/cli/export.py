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
@option("-o, --output OUT", "The manifest file, or the new folder of the bag.  [default: standard output]")
@option(
    "--format",
    "A manifest, or a bag (BagIt 1.0) with copies of the files.",
    click.Choice(["sha256sum", "bagit"]),
    name="form",
    default="sha256sum",
    show_default=True,
)
@json_option
def export(copy: Path, output: str | None, form: str, as_json: bool) -> int:
    """Write a manifest or a bag of the files of the copy in DEST; ask no source and change nothing in DEST.

    Headwater compares every file with the recorded hash; it names and leaves out files that are missing or altered. To
    check a manifest, run `sha256sum -c OUT` in DEST. A bag also has `uris.jsonl`, with the address of each file.

    Exit statuses: 0 done; 1 some files are left out.
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
@option("--at TIME", "The time (2026-11-12T10:00:00Z). A date means its end, in UTC.", required=True)
@option("--changes FILE", "The JSON file of `sync --changes`.", FILE, required=True)
@option("--backup-dir DIR", "Where the kept files lie, if they were moved.", COPY, name="backup")
@json_option
def restore(copy: Path, folder: Path, at: str, changes: str, backup: Path | None, as_json: bool) -> int:
    """Rebuild in the new folder DIR what the copy in DEST had at a time; ask no source and change nothing in DEST.

    All runs since that time must have had --backup-dir and --changes FILE. FILE says when a run replaced or deleted a
    file, by the clock of this machine, and where the old file is. Headwater compares every file with its hash of that
    time; it names and leaves out files that are missing or altered, and those for which the log has a gap.

    Exit statuses: 0 done; 1 some files are left out; 2 usage, or a time in the future.
    """
    see_outside(folder, copy, "restore")
    with listening() as listener:
        report = exports.restore(copy, folder, at, changes, backup=backup, listener=listener)
        listener.close(report.exit_status)
    return _told("restored", report, as_json=as_json)


def _told(verb: str, report: ExportReport, *, as_json: bool) -> int:
    if as_json:
        json_document(report)
    else:
        doubtful = [one for one in report.findings if one.reason == exports.UNTOLD]
        lines = lines_of_all(doubtful, "doubtful: {path}: {reason}")
        left_out = [one for one in report.findings if one.reason != exports.UNTOLD]
        lines += lines_of_all(left_out, "left out: {path}: {verdict}[ ({reason})]")
        told = f"{verb} {counted(report.files, 'file')}, {human_octets(report.octets)}; {len(left_out):,} left out"
        lines.append(told + (f", {len(doubtful):,} doubtful" if doubtful else ""))
        click.echo("\n".join(lines), err=True)
    return report.exit_status
