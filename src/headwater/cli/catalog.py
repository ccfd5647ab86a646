"""`headwater catalog`: moves a catalog's sets from one place to another, recounts what it holds, and removes sets."""

import datetime as dt
import io
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import cast

import click
from msgspec.structs import asdict

from headwater.catalog.dump import CountingStream, DumpInput, DumpReader, DumpWriter, SetTransfer, written
from headwater.catalog.interface import Catalog
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.cli.catalog_argument import CatalogArgument, existing, restorable
from headwater.cli.output import (
    counted,
    json_document,
    json_option,
    lines_of,
    listening,
    output_faults,
    printable,
    show_result,
    show_some,
    some_of,
)
from headwater.cli.shared_options import EXISTING, FOLDER, option
from headwater.errors import Exit, HeadwaterError, UsageFault
from headwater.files.folder_marks import is_tree
from headwater.ingest.dit.documents import Harvest, Manner
from headwater.ingest.folder.file_events import altered_files
from headwater.ingest.push.resource_locations import Locations
from headwater.progress import Listener, Progress
from headwater.publish.publication_state import PublicationState, encode_publication, published_base_url
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import SOURCE_DESCRIPTION, Site
from headwater.quantities import human_octets, human_seconds
from headwater.source.configured_source import utc_now
from headwater.source.leadership import StateLock, leadership_of
from headwater.source.set_removal import remove_set, set_size
from headwater.storage.folder_store import FolderStore
from headwater.version import __version__

_SHOWN = 20
_FILES = "; files: {hashed:,} hashed, {gone:,} gone, {changed:,} changed since publication"
_TOLD = 10_000
_NAMED = 20
"""Of more sets than these only the sums are told, and what is wrong with some."""

sets_option = option("--set NAME", "Only this set (repeatable).", name="names", multiple=True)


@click.group(name="catalog")
def command() -> None:
    """Move sets of a catalog to another catalog or backend, verify them, or remove them."""


@command.command(name="export", short_help="Write sets as a portable dump.")
@click.argument("place", metavar="CATALOG")
@sets_option
@option("-o, --output FILE", "Write to FILE, compressed if it ends in .gz.  [default: standard output]", default="-")
@option(
    "--format",
    "A portable dump, or `dit` documents.",
    click.Choice(["dump", "dit"]),
    name="form",
    default="dump",
    show_default=True,
)
@option(
    "--dates",
    "With dit: times to the microsecond, or like 2016-05-01T12:00:00+0000.",
    click.Choice(["exact", "seed"]),
    default="exact",
    show_default=True,
)
@option("--url-prefix URL", "With dit, for one set: write locations as URLs below URL, not as paths.")
@json_option
def export_sets(
    place: str, names: tuple[str, ...], output: str, form: str, dates: str, url_prefix: str | None, as_json: bool
) -> Exit:
    """Write sets of CATALOG as a portable dump: resources, private state, and a digest of everything.

    CATALOG is a catalog's file, a state folder, a configuration (.toml), or a cluster's URL. Stop what writes to it, or
    the command may end with status 5. FILE appears only when it is complete.

    With --format dit, the command writes `resource` and `change` documents, one a line, for the index of a harvester or
    for `headwater ingest dit`. They contain less than a dump.
    """
    if output == "-" and (as_json or sys.stdout.isatty()):
        raise UsageFault("an export is not written to a terminal", advice="Name a file with -o FILE, or pipe it on.")
    manner = None
    if form == "dit":
        prefix = None if url_prefix is None else Locations(url_prefix or "/").prefix
        manner = Manner(prefix=prefix, seed_dates=dates == "seed")
    elif dates != "exact" or url_prefix is not None:
        raise UsageFault("--dates and --url-prefix are for documents", advice="Add --format dit.")
    began = time.monotonic()
    with listening() as listener, existing(CatalogArgument(place), listener) as catalog:
        chosen = _among([state.name for state in catalog.sets()], names, "catalog")
        if url_prefix is not None and len(chosen) != 1:
            raise UsageFault("--url-prefix is for one set", advice="Choose it with --set NAME.")
        if output == "-":
            out = CountingStream(cast("io.BufferedWriter", sys.stdout.buffer), compressed=False)
            moved = _export(catalog, chosen, manner, out, listener)
            out.finish()
        else:
            with output_faults(output), written(Path(output)) as out:
                moved = _export(catalog, chosen, manner, out, listener)
    seconds = time.monotonic() - began
    if as_json:
        json_document({"file": output, "octets": out.octets, "sets": moved, "seconds": round(seconds, 3)})
    else:
        _tell_moved("exported", moved, f"{human_octets(out.octets)}, {human_seconds(seconds)}")
    return Exit.DONE


def _export(
    catalog: Catalog, names: Sequence[str], manner: Manner | None, out: CountingStream, listener: Listener
) -> Sequence[SetTransfer | Harvest]:
    if manner is None:
        writer = DumpWriter(out, names, dt.datetime.now(dt.UTC), f"headwater {__version__}")
        moved = [writer.add(catalog, listener) for _ in names]
        writer.finish()
        return moved
    harvests = []
    for name in names:
        harvest, state = Harvest(name=name), catalog.state(name)
        done, total = 0, state.count + state.last_seq
        for done, line in enumerate(harvest.lines(catalog, manner), 1):
            out.write(line)
            if done % _TOLD == 0:
                listener(Progress(f"export {name}", done, max(done, total)))
        listener(Progress(f"export {name}", done, done))
        harvests.append(harvest)
    return harvests


@command.command(name="import", short_help="Load the sets of a dump.")
@click.argument("dump", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.argument("place", metavar="CATALOG")
@sets_option
@json_option
def import_sets(dump: str, place: str, names: tuple[str, ...], as_json: bool) -> Exit:
    """Load the sets of a dump in FILE (- for standard input) into CATALOG; their Change Lists begin anew.

    CATALOG is as for `export`. If it does not exist, the command makes it: a file if the name has an ending
    (catalog.sqlite), else a state folder. It never overwrites an open set, and opens a set only when all of it agrees
    with the dump's digest. After an interruption, run it again.
    """
    began = time.monotonic()
    moved: list[SetTransfer] = []
    with click.open_file(dump, "rb") as file, listening() as listener:
        reader = DumpReader(DumpInput(cast("io.BufferedReader", file)), listener)
        chosen = _among(reader.header.sets, names, "dump")
        with restorable(CatalogArgument(place, may_be_new=True), listener) as catalog:
            opened = {state.name for state in catalog.sets() if state.opened_at is not None}
            if held := opened & set(chosen):  # said before the first set is loaded, not in the middle
                where = ", ".join(sorted(held))
                raise UsageFault("the set is in the catalog already", where=where, code="HW-CAT-05")
            try:
                # copies may have read newer changes than the dump has
                moved.extend(reader.load(catalog, chosen, encode_publication(PublicationState(at=utc_now()))))
            except HeadwaterError:
                _tell_moved("imported before that", moved, "whole; what follows is not")
                raise
    seconds = time.monotonic() - began
    if as_json:
        json_document({"file": dump, "catalog": place, "sets": moved, "seconds": round(seconds, 3)})
    else:
        _tell_moved("imported", moved, human_seconds(seconds))
    return Exit.DONE


@command.command(name="verify", short_help="Recount everything and compare it with the stored counts.")
@click.argument("place", metavar="CATALOG")
@sets_option
@option(
    "--files DIR",
    "Also hash the files of the set, whose folder is DIR, to find files that the disk has altered.",
    EXISTING,
)
@json_option
def verify_sets(place: str, names: tuple[str, ...], files: Path | None, as_json: bool) -> Exit:
    """Recount everything in CATALOG and compare it with the stored counts; change nothing.

    CATALOG is as for `export`. The command also checks the structure of a file. Stop what writes to it first: a change
    meanwhile looks like a discrepancy. With --files, another hash with the size and times of its publication is damage,
    which Headwater does not publish. A file that is gone is a discrepancy; one that has changed since is left to the
    next scan.

    Exit statuses: 0 no discrepancies; 1 discrepancies, or no file could be hashed.
    """
    began = time.monotonic()
    with listening() as listener, existing(CatalogArgument(place), listener) as catalog:
        broken = catalog.check() if isinstance(catalog, SqliteCatalog) else []
        chosen = _among([state.name for state in catalog.sets()], names, "catalog")
        found, of_files = {name: verify(catalog, name, listener=listener) for name in chosen}, dict[str, int]()
        if files is not None:
            if len(chosen) != 1:
                raise UsageFault("--files is for one set", advice="Choose it with --set NAME.")
            found[chosen[0]] += altered_files(catalog, chosen[0], files, listener, of_files)
        states = [catalog.state(name) for name in found]
    seconds = time.monotonic() - began
    sound = not broken and not any(found.values())
    if as_json:
        sets = [
            {"name": one.name, "resources": one.count, "changes": one.last_seq, "discrepancies": found[one.name]}
            | ({"files": of_files} if of_files else {})
            for one in states
        ]
        json_document({"catalog": place, "sound": sound, "file": broken, "sets": sets, "seconds": round(seconds, 3)})
        return Exit.DONE if sound else Exit.FINDINGS
    for line in broken[:_SHOWN]:
        click.echo(f"the file itself: {printable(line)}")
    silent = []
    for one in states:
        wrong = [str(each) for each in found[one.name]]
        if len(states) > _NAMED and not wrong:
            silent.append(one)
            continue
        verdict = counted(len(wrong), "discrepancy") if wrong else "no discrepancies"
        counts = f"{counted(one.count, 'resource')}, {counted(one.last_seq, 'change')}"
        counts += _FILES.format(**of_files) if of_files else ""
        click.echo(f"{printable(one.name)}: {counts}; {verdict}")
        show_some(wrong, _SHOWN, indent="  ", rest=" (--json lists them)")
    if silent:
        resources, changes = sum(one.count for one in silent), sum(one.last_seq for one in silent)
        click.echo(f"{len(silent):,} sets: {resources:,} resources, {changes:,} changes; no discrepancies")
    click.echo(("sound" if sound else "NOT sound") + f" ({human_seconds(seconds)})")
    return Exit.DONE if sound else Exit.FINDINGS


@contextmanager
def _taken(
    place: str, out: Path | None
) -> Iterator[tuple[CatalogArgument, Catalog, tuple[Path, Path], Publisher | None]]:
    """The source at PLACE that nobody publishes meanwhile: its catalog, the folders of state and documents, and what
    publishes there; None: nothing has."""
    where = CatalogArgument(place)
    with listening() as listener, ExitStack() as stack:
        if not where.is_there(listener):
            raise where.missing()
        config, (state, documents) = where.config, where.folders_of(out)
        stack.callback(StateLock(state).release)
        catalog = stack.enter_context(closing(where.open(listener)))
        leadership = leadership_of(catalog, (config and config.base_url) or "", listener)
        stack.callback(leadership.release)
        stack.callback(leadership.halt)
        leadership.take()
        publisher, base_url = None, published_base_url(catalog.sets())
        if base_url is not None:
            is_static = is_tree(bytes(documents))
            site = Site(base_url=base_url, sets=()) if config is None else config.site(base_url)
            options = PublisherOptions(keep_others=is_static or config is None, may_write=leadership.check)
            publisher = Publisher(catalog, FolderStore(documents, clean=False), site, utc_now, listener, options)
        yield where, catalog, (state, documents), publisher


@command.command(name="drop", short_help="Remove sets and everything stored of them.")
@click.argument("place", metavar="PLACE")
@option("--set NAME", "Remove this set (repeatable).", name="names", multiple=True, required=True)
@option("--to OUT", "The output of `publish`, if the state folder is not in it.", FOLDER, name="out")
@option("--dry-run", "Show what would be removed; change nothing.")
@json_option
def drop_sets(place: str, names: tuple[str, ...], out: Path | None, dry_run: bool, as_json: bool) -> Exit:
    """Remove sets of the source at PLACE: their documents, packages, placed files, versions and records.

    PLACE is a configuration (.toml), a state folder, or the output of `publish`. First remove the set from the
    configuration and stop what publishes the source. The original files stay. Copies stay until they run `headwater
    forget COPY --set NAME`.
    """
    with _taken(place, out) as (where, catalog, (state, documents), publisher):
        chosen = _among([one.name for one in catalog.sets()], names, "catalog")
        if kept := where.sets and where.sets.intersection(() if dry_run else chosen):
            advice = "Take its [[set]] out of the file first: else the set would be published anew."
            raise UsageFault(f"the configuration still has the set {min(kept)!r}", where=place, advice=advice)
        others = publisher.site_documents if publisher and (documents / SOURCE_DESCRIPTION).is_file() else None
        removed = [set_size(catalog, name, state, documents) for name in chosen]
        for one in () if dry_run else removed:
            one["versions"] = remove_set(catalog, str(one["set"]), state, documents, others)
    verb = "would remove" if dry_run else "removed"
    words = [line for one in removed for line in lines_of(None, _REMOVED, **{"verb": verb, "versions": 0, **one})]
    show_result({"place": place, "dry_run": dry_run, "sets": removed}, "\n".join(words), as_json=as_json)
    return Exit.DONE


@command.command(name="begin-anew", short_help="Begin Change Lists anew, after a backup was restored.")
@click.argument("place", metavar="PLACE")
@sets_option
@option("--to OUT", "The output of `publish`, if the state folder is not in it.", FOLDER, name="out")
@json_option
def begin_anew(place: str, names: tuple[str, ...], out: Path | None, as_json: bool) -> Exit:
    """Begin the Change Lists of the source at PLACE anew; its next publication writes all Resource Lists.

    Run it after you restored a backup, before the source starts. Copies that have read newer changes than the backup
    has then compare themselves with the Resource List once. PLACE is a configuration (.toml), a state folder, or the
    output of `publish`. First stop what publishes the source.
    """
    with _taken(place, out) as (_where, catalog, _folders, publisher):
        chosen = _among([one.name for one in catalog.sets()], names, "catalog")
        if publisher is None:
            raise UsageFault("nothing was published: no copy has read anything", where=place)
        for name in chosen:
            publisher.history.reset_if_due(catalog.snapshot_of(name), is_asked=True)
    show_result({"place": place, "sets": chosen}, f"begun anew: {', '.join(chosen)}", as_json=as_json)
    return Exit.DONE


_REMOVED = (
    "{verb} {set}: {resources:resource}, {changes:change}, {files:file} ({octets:octets})[, {versions:version}];"
    " whoever has a copy drops the set by `headwater forget COPY --set {set}`"
)


def _among(held: Sequence[str], names: Sequence[str], whole: str) -> list[str]:
    """The sets to work on, in the order of `held`: all, when none is named."""
    there, wanted = frozenset(held), frozenset(names or held)
    if unknown := [name for name in names if name not in there]:
        raise UsageFault(f"the {whole} has no set {unknown[0]!r}", advice=f"It has: {some_of(held, 20) or 'no sets'}.")
    return [name for name in held if name in wanted]


def _tell_moved(verb: str, moved: Sequence[SetTransfer | Harvest], more: str) -> None:
    """Say on standard error what has moved: standard output may be the dump."""
    if len(moved) > _NAMED:
        click.echo(f"{verb} {len(moved):,} sets: {sum(one.resources for one in moved):,} resources", err=True)
    for transfer in moved if len(moved) <= _NAMED else ():
        counts = {name: count for name, count in asdict(transfer).items() if name != "name"}
        words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        click.echo(f"{verb} {printable(transfer.name)}: {words}", err=True)
    if moved:
        click.echo(more, err=True)
