"""`headwater publish`: writes the documents of sets into a folder, once or as long as they change.

A folder becomes static files for any web server; the sets of a configuration become the documents that
`headwater serve --no-publish` shows, on this machine and on others.
"""

import gc
import os
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import click
import msgspec

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.cli.output import (
    NOT_CONFIGURED,
    counted,
    json_document,
    json_line,
    json_option,
    lines_of,
    listening,
    show_some,
    some_of,
)
from headwater.cli.serve_options import configured, converted, sets_of
from headwater.cli.server_log import open_log
from headwater.cli.shared_options import (
    DESCRIBING,
    EXISTING,
    FOLDER,
    SectionedCommand,
    catalog_option,
    config_argument,
    describes_a_set,
    option,
    profile_option,
)
from headwater.cli.stop_signal import StopSignal, hangups_noted
from headwater.errors import Exit, UsageFault
from headwater.ingest.folder.comparison import Candidate, ScanResult
from headwater.ingest.folder.scanner import FolderScanner
from headwater.publish.status import SourceSetStatus, set_statuses
from headwater.quantities import human_octets, human_seconds
from headwater.source.config import OUTPUT_STATE, SourceConfig
from headwater.source.configured_source import CATALOG, utc_now
from headwater.source.set_folders import scan_settings
from headwater.source.source import Source
from headwater.source.worker import SetResult

_MEASURABLE = 1.0
"""Below so many seconds a rate says more of the start of the program than of the files."""


_EXCLUSIONS = (
    *(("--copy", "--dry-run"), ("--watch", "--dry-run"), ("--quiet", "--dry-run")),
    *(("--forget", "--watch"), ("--forget", "--dry-run")),
)
_OFFERS = (
    ("Resource Dump", "resource_dump", "dump"),
    ("Change Dump", "change_dump", "change_dump"),
    ("archive", "archive", "archive"),
)
"""What a set may offer beside its lists: its title, what a status and what a setting call it."""
_KINDS = {"created": "new", "deleted": "delete", "updated": "perhaps changed"}
"""What becomes of files, first of those that become public or cease to be; and the words for it."""
_NAMED = 10
_HEADINGS = {"files": "What is published", "dump": "What is offered besides", "resources": "How it is published"}


@click.command(name="publish", cls=SectionedCommand, headings=_HEADINGS)
@config_argument
@option("--files DIR", "The folder to publish.", click.Path(path_type=Path))
@option("--copy DEST", "Publish the copy that `headwater sync` keeps in DEST; run it after each sync.", FOLDER)
@option("--dataset PATH", "Publish an RDF dataset: a file, the RDF files of a folder, or a copy.", EXISTING)
@option("--to OUT", "The output folder, which a web server serves.", FOLDER)
@option("--base-url URL", "The URL at which the web server serves that folder.")
@option(
    "--set NAME",
    "The name of the set; with --copy, publish only this set.  [default: files or dataset]",
    name="set_name",
)
@option("--state DIR", "Folder for catalog and state.  [default: OUT/.headwater]", FOLDER)
@catalog_option
@describes_a_set
@option(
    "--resources",
    "Place files as hard links where possible, as copies, or not at all.  [default: link]",
    click.Choice(["link", "copy", "none"]),
)
@option("--resource-base URL", "With --resources none: the URL at which another server has the files.")
@profile_option
@option("--watch", "Keep running and publish changes until SIGTERM or Ctrl-C.")
@option("--log-format", "With --watch: format of the log.  [default: text]", click.Choice(["text", "json"]))
@option("--forget", "Begin dumps, patches and archives anew, and remove past content from them.")
@option("--dry-run", "Show what would change, and which files would become public or private; write nothing.")
@option("-q, --quiet", "Print nothing unless something is wrong, also with --watch.")
@json_option
def command(
    config: Path | None,
    watch: bool,
    log_format: str | None,
    forget: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> Exit:
    """Publish a folder as static files, with the ResourceSync documents that let others copy it.

    Run it again after changes, or use --watch: it reads and writes only what changed. The web server must never serve
    the state folder: check that it refuses names that begin with a dot.

    With a CONFIG file (as for `serve`) it publishes all sets of the file into the folder `to` of the file. Without
    `to`, it publishes for servers that run `headwater serve CONFIG --no-publish`. Options override the file.

    Exit statuses: 0 done; 2 usage; 3 a dataset cannot be read, or is empty; 4 done, but deletions are held back, or
    files cannot be read or are still being written; 6 fault of our own store; 130 ended by Ctrl-C.
    """
    told = {name: value for name, value in given.items() if value not in (None, ())}
    if "copy" in told and watch:
        advice = "Run it after each `headwater sync`; `headwater serve --copy` follows a copy."
        raise UsageFault("--copy and --watch exclude each other", advice=advice)
    chosen = {"--watch": watch, "--dry-run": dry_run, "--quiet": quiet, "--forget": forget, "--copy": "copy" in told}
    for one, other in _EXCLUSIONS:
        if chosen[one] and chosen[other]:
            raise UsageFault(f"{one} and {other} exclude each other", advice="Leave one of them out.")
    if config is None:
        source = _one_folder(told)
    else:
        source = configured({"config": config, **told})
        if source.base_url is None:
            what = "no base_url: `publish` cannot know the address of your web server"
            raise UsageFault(what, advice="Set base_url in the file.")
    if log_format is not None:
        source = msgspec.structs.replace(source, log_format=log_format)
    if dry_run:
        return _dry_run(source, as_json, whole=config is not None)
    if watch:
        return _watch(source, as_json=as_json, quiet=quiet)
    if forget:  # once without whatever shows the past, which is removed at once
        replace = msgspec.structs.replace
        bare = tuple(replace(one, dump=False, change_dump=False, patch=(), archive=False) for one in source.sets)
        with (
            listening(quiet=True) as listener,
            Source(replace(source, sets=bare), listener=listener, forget=True) as forgetting,
        ):
            forgetting.run_once()
    return _publish(source, as_json, whole=config is not None or len(source.sets) > 1, quiet=quiet)


def _one_folder(given: dict[str, Any]) -> SourceConfig:
    kinds = {"copy": "--copy DEST", "dataset": "--dataset PATH", "files": "--files DIR"}
    chosen = [name for name in kinds if name in given]
    if len(chosen) > 1:
        options = " and ".join(f"--{name}" for name in reversed(chosen[:2]))
        raise UsageFault(f"{options} exclude each other", advice="Leave one of them out.")
    place = (chosen or ["files"])[0]
    for name, missing in ((place, kinds[place]), ("to", "--to OUT"), ("base_url", "--base-url URL")):
        if name not in given:
            what = f"{missing} is missing"
            raise UsageFault(what, advice="Give --files (or --copy, --dataset), --to and --base-url, or a CONFIG file.")
    resources = given.get("resources", "link")
    if "resource_base" in given and resources != "none":
        what = "--resource-base says that another server has the files, and --resources that this output has them"
        raise UsageFault(what, advice="Add --resources none, or leave out --resource-base.")
    keys = "catalog", "base_url", "profile", "resources"
    whole: dict[str, Any] = {name: given[name] for name in keys if name in given}
    whole |= {"to": str(given["to"]), "state": str(given.get("state") or given["to"] / OUTPUT_STATE)}
    return converted({**whole, "set": sets_of(given, (*DESCRIBING, "resource_base"))})


def _publish(config: SourceConfig, as_json: bool, *, whole: bool, quiet: bool) -> Exit:
    began = time.monotonic()
    gc.freeze()  # what is imported stays; records by the hundred thousand make no cycles worth looking for
    gc.set_threshold(100_000, 50, 50)
    with listening(quiet=quiet) as listener, Source(config, listener=listener) as source:
        withdrawn: dict[str, list[str]] = {}  # what sets offer beside their lists that is not asked for any more
        asked = {one.name: one for one in source.site.sets if not (one.dump and one.change_dump and one.archive)}
        for held in set_statuses(source.catalog, utc_now(), list(asked)) if asked else ():
            for title, offer, setting in _OFFERS:
                if getattr(held, offer) is not None and not getattr(asked[held.name], setting):
                    withdrawn.setdefault(held.name, []).append(title)
        worked = source.run_once()
        status = Exit.TRANSFERS_FAILED if any(one.is_incomplete for one in worked) else Exit.DONE
        if status is not Exit.DONE:
            listener.close(status)
        counts = [source.catalog.state(one.name).count for one in worked]
        known = {one.name for one in source.catalog.sets()}
        where = source.site.url(".well-known/resourcesync")
        dumped = [one.name for one in source.site.sets if one.dump or one.change_dump or one.archive]
        statuses = {one.name: one for one in set_statuses(source.catalog, utc_now(), dumped)} if dumped else {}
    seconds = time.monotonic() - began
    if changed := [str(one) for one, was_there in source.web_server_files.items() if was_there]:
        click.echo(f"Copy the changed file to your web server and reload it: {', '.join(changed)}", err=True)
    if as_json:
        sets = []
        for one, count in zip(worked, counts, strict=True):
            offered, published = statuses.get(one.name), one.published
            sets.append(
                {
                    "set": one.name,
                    "dry_run": False,
                    "source_description": where,
                    "resources": count,
                    **_scan(one.scanned),
                    "changed_while_read": len(one.scanned.unsettled),
                    "documents_written": list(published.written) if published else [],
                    "documents_removed": list(published.removed) if published else [],
                    "documents_kept": published.kept if published else 0,
                    "at": published.at if published else None,
                    "seconds": round(seconds, 3),
                    **{name: offered and msgspec.to_builtins(getattr(offered, name)) for _, name, _ in _OFFERS},
                    "withdrawn": withdrawn.get(one.name, []),
                }
            )
        files = {"web_server_files": list(map(str, source.web_server_files))} if config.to is not None else {}
        json_document(({"sets": sets} if whole else sets[0]) | files)
    elif not quiet or status is not Exit.DONE:
        for one, count in zip(worked, counts, strict=True):
            click.echo(_told(one, count, where, config.configuration or config.state))
            for line in dump_lines(statuses[one.name]) if one.name in statuses else ():
                click.echo(f"  {line}")
            if one.name in withdrawn:
                click.echo(f"  not offered any more, since not asked for: {', '.join(withdrawn[one.name])}")
        if worked:  # the time is that of the whole run
            looked = sum(one.scanned.created + one.scanned.updated + one.scanned.unchanged for one in worked)
            rate = f", {looked / seconds:,.0f} files/s" if seconds >= _MEASURABLE else ""
            click.echo(f"{'  ' if len(worked) == 1 else 'all sets: '}{human_seconds(seconds)}{rate}")
        if source.web_server_files:
            click.echo(f"for web servers: {', '.join(map(str, source.web_server_files))}")
        if config.configuration is not None and (left := sorted(known.difference(one.name for one in config.sets))):
            click.echo(NOT_CONFIGURED.format(some_of(left), left[0]))
        if pushed := len(config.sets) - len(worked):
            click.echo(
                f"{counted(pushed, 'set')} left to `publish --watch` and `serve`, which follow what is announced, and"
                " copies that are not there yet"
            )
    return status


def dump_lines(status: SourceSetStatus) -> Iterator[str]:
    """A line for each dump, and the archive, that the set offers, or is about to offer."""
    dumps = (status.resource_dump, _RESOURCE_DUMP), (status.change_dump, _CHANGE_DUMP), (status.archive, _ARCHIVE)
    for dump, template in dumps:
        yield from lines_of(dump, template, name=status.name) if dump is not None else ()


_RESOURCE_DUMP = (
    "Resource Dump of {name}: {packages:package}, {octets:octets}[, of {at}][, {pages_waiting:page} to be packed]"
    "[, without {left_out:resource} whose octets could not be had]"
)
_CHANGE_DUMP = (
    "Change Dump of {name}: {packages:package}, {octets:octets}, from {from_}[, {changes_waiting:change} to be packed]"
)
_ARCHIVE = (
    "archive of {name}: {octets:octets}[, {resource_lists:Resource List}][, {change_lists:Change List}]"
    "[, {resource_dumps:Resource Dump}][, {change_dumps:Change Dump}][, from {since}]"
)


def _told(worked: SetResult, count: int, where: str, place: str) -> str:
    scanned, published = worked.scanned, worked.published
    written, kept = (len(published.written), published.kept) if published else (0, 0)
    held = "held back" if scanned.held_back else "kept as they were"
    lines = [
        f"{counted(count, 'resource')} in set {worked.name}: {where}",
        f"  created {scanned.created:,}, updated {scanned.updated:,}, deleted {scanned.deleted:,},"
        f" unchanged {scanned.unchanged:,}" + (f", {held} {scanned.kept:,}" if scanned.kept else ""),
        f"  read {counted(scanned.read, 'file')}, {human_octets(scanned.octets)};"
        f" documents: {written:,} written, {kept:,} kept",
    ]
    if scanned.held_back:
        told, todo = str(scanned.held_back), "Check the folder."
        if "allow-deletions" in told:  # not where consent does not help
            todo += f" To withdraw the files: `headwater allow-deletions {shlex.quote(place)}`."
        lines.append(f"  deletions held back: {told}\n  do: {todo}")
    return "\n".join(lines)


def _watch(config: SourceConfig, *, as_json: bool, quiet: bool) -> Exit:
    """Publish and follow until SIGTERM (DONE) or Ctrl-C (INTERRUPTED). Raises what `Source` raises.

    With `quiet` the log has what is wrong, and no publications.
    """
    log = open_log(config.log_format, config.log_file)
    # Until the catalog is open there is nothing to end in order: a signal acts as it always does.
    with hangups_noted(log.progress), Source(config, listener=log.progress) as source, StopSignal() as stop:
        if not quiet:
            source.events.listen(log.published)
        gc.freeze()  # what there is by now stays: of thousands of sets, a collector has a tenth of a second to do
        source.start()
        if not quiet:
            names = some_of([entry.name for entry in config.sets])
            log.event("watching", f"Publishing {names} for {config.base_url}", url=config.base_url)
        if as_json:
            json_line({"event": "watching", "url": config.base_url, "state": config.state, "pid": os.getpid()})
        stop.wait()
    if not quiet:
        log.event("stopped", "Stopped")
    return stop.exit_status


def _dry_run(config: SourceConfig, as_json: bool, *, whole: bool) -> Exit:
    found: dict[str, ScanResult]
    named: dict[str, dict[str, list[str]]] = defaultdict(lambda: {kind: [] for kind in _KINDS})
    idle = {one.name: one.link_rules.patterns() for one in config.sets}

    def tell(name: str, one: Candidate) -> None:
        idle[name] = {pattern: fits for pattern, fits in idle[name].items() if not fits(one.uri)}
        names = named[name]["deleted" if not one.path else "updated" if one.known else "created"]
        if as_json or len(names) < _NAMED:
            names.append(one.uri)

    with listening() as listener:
        if config.catalog is not None or (Path(config.state) / CATALOG).exists():
            with Source(config, listener=listener) as source:
                looked_at = [one.name for one in config.sets if one.files or one.is_dataset]
                found = {name: source.survey(name, partial(tell, name)) for name in looked_at}
        else:
            site, scanned = config.site(), [one for one in config.sets if one.files]
            folders = {one.name: scan_settings(one, site, config) for one in scanned}
            with TemporaryDirectory() as state, closing(SqliteCatalog(Path(state) / CATALOG)) as empty:
                scanners = [FolderScanner(empty, *one, utc_now, listener) for one in folders.items()]
                found = {one.name: one.survey(partial(tell, one.name)) for one in scanners}
            found |= {one.name: ScanResult(created=1, read=1) for one in config.sets if one.is_dataset}
    if as_json:
        sets = [{"set": name, "dry_run": True, **_scan(result), "names": named[name]} for name, result in found.items()]
        json_document({"sets": sets} if whole else sets[0])
    for name, result in {} if as_json else found.items():
        click.echo(
            f"{name}: would read {counted(result.read, 'file')}, {human_octets(result.octets)}:"
            f" {result.created:,} new, {result.updated:,} perhaps changed; delete {result.deleted:,};"
            f" leave {result.unchanged + result.kept:,}"
        )
        for kind, word in _KINDS.items():
            lines, count = [f"{word}: {unquote(one)}" for one in named[name][kind]], getattr(result, kind)
            show_some(lines, len(lines), count=count if lines else 0, indent="  ", rest=f" {word} (--json names all)")
        if not result.unchanged + result.kept:  # all files were told
            lines = [f"no file fits {one} of `described` or `links`" for one in idle[name]]
            show_some(lines, _NAMED, indent="  ")
        if result.held_back:
            click.echo(f"would hold deletions back: {result.held_back}")
    if not as_json:
        file = shlex.quote(config.configuration or "CONFIG")
        others = [one for one in config.sets if one.is_harvested]
        command = "`headwater ingest {} --set {} --config {} --dry-run` estimates the harvest"
        show_some([f"{one.name}: {command.format(one.feed, one.name, file)}" for one in others], _NAMED)
    is_incomplete = any(one.held_back or one.warnings.get("HW-ING-20") for one in found.values())  # unreadable
    return Exit.TRANSFERS_FAILED if is_incomplete else Exit.DONE


def _scan(result: ScanResult) -> dict[str, object]:
    """What a scan has found, or would: then `updated` are those that may have changed."""
    return {
        "created": result.created,
        "updated": result.updated,
        "deleted": result.deleted,
        "unchanged": result.unchanged,
        "kept": result.kept,
        "files_read": result.read,
        "octets_read": result.octets,
        "held_back": str(result.held_back) if result.held_back else None,
        "notices": result.warnings,
    }
