"""`headwater serve`: publish folders over HTTP and follow their changes, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from headwater.cli.output import json_line, some_of
from headwater.cli.serve_options import configured, own_url, with_new_sets
from headwater.cli.server_log import ServerLog, note_package, open_log
from headwater.cli.shared_options import (
    EXISTING,
    FOLDER,
    Duration,
    HowLongKept,
    SectionedCommand,
    catalog_option,
    config_argument,
    describes_a_set,
    json_when_listening_option,
    log_format_option,
    option,
    profile_option,
)
from headwater.cli.stop_signal import hangups_noted
from headwater.errors import Exit, HeadwaterError, UsageFault
from headwater.http.app import Application
from headwater.http.dump_endpoint import DumpEndpoint
from headwater.http.mementos import PastStates, VersionEndpoint
from headwater.http.metrics import CONTENT_TYPE, MetricsPage, RequestCounters, SharedCounters
from headwater.http.routes import page_of
from headwater.http.server import address_url, listen, make_server
from headwater.http.workers import Answers, FirstProcess, ServingProcesses, when_parent_ends
from headwater.progress import Notice, Progress
from headwater.source.config import SourceConfig
from headwater.source.set_folders import names_in_copy
from headwater.source.source import ReadOnlySource, Source
from headwater.typed_decoding import from_json

if TYPE_CHECKING:
    from headwater.cli.hub import CommandHub

_CONFIG = "config.json"


_HEADINGS = {
    "files": "What is published",
    "dump": "What is offered besides",
    "rescan": "How it is served",
    "quiet": "Log and metrics",
    "no_publish": "Processes",
}


@click.command(cls=SectionedCommand, headings=_HEADINGS)
@config_argument
@option("--files DIR", "The folder to publish.", click.Path(exists=True, file_okay=False, path_type=Path))
@option("--copy DEST", "Publish the copy that `headwater sync` keeps in DEST, as it changes.", FOLDER)
@option("--dataset PATH", "Publish an RDF dataset: a file, the RDF files of a folder, or a copy.", EXISTING)
@option(
    "--set NAME",
    "The name of the set; with --copy, publish only this set.  [default: files or dataset]",
    name="set_name",
)
@option("--title TEXT", "The title of the set on the home page.")
@describes_a_set
@option(
    "--versions [KEEP[,SIZE]]",
    'Also keep past states and serve them by Memento: "30 days" (default), "1 year, 20 GB", "all".',
    HowLongKept(),
    is_flag=False,
    flag_value="30 days",
)
@option("--rescan SECONDS", "Time between full scans.  [default: 300]", Duration(0.1))
@option("--host ADDRESS", "The address to listen on.  [default: 127.0.0.1]")
@option("--port N", "The port to listen on; 0: any.  [default: 8000]", click.IntRange(0, 65535))
@option("--base-url URL", "The URL at which clients reach this server.  [default: http://HOST:PORT]")
@option(
    "--state DIR",
    "Folder for catalog and documents.  [default: a folder for each folder and set below"
    " $XDG_STATE_HOME/headwater, or else ~/.local/state/headwater]",
    FOLDER,
)
@catalog_option
@profile_option
@option("--hub", "Also run a WebSub hub at the next port, for subscribers on this machine.", name="with_hub")
@option("-q, --quiet", "Write no access log.")
@log_format_option
@option("--log-file FILE", "Append the log to FILE; reopen it after rotation.  [default: standard error]")
@option("--metrics", "Publish Prometheus metrics at /metrics, for everybody.", default=None)
@option("--no-publish", "Only serve what `headwater publish CONFIG --watch` publishes, in any number of processes.")
@option("--workers N", "Number of serving processes.  [default: 1]", click.IntRange(1, 64), default=1)
@option(
    "--inherited FD",
    "Answer at this socket, which a parent has opened; end when standard input ends.",
    int,
    hidden=True,
)
@json_when_listening_option
def command(
    quiet: bool, as_json: bool, no_publish: bool, workers: int, with_hub: bool, inherited: int | None, **options: Any
) -> Exit:
    """Serve folders as ResourceSync sets and follow their changes, until SIGTERM (status 0) or Ctrl-C (130).

    Name one folder (--files), one copy (--copy), one RDF dataset (--dataset), or a CONFIG file with several sets. Until
    the first publication is complete, requests get 503 and Retry-After. After a restart they get the last publication.
    """
    config = configured(options)
    if config.to is not None:
        what = "the configuration is that of a static tree (`to`), which any web server shows"
        raise UsageFault(what, advice="Run `headwater publish CONFIG`, or leave out `to` and what belongs to it.")
    if no_publish and config.base_url is None:
        raise UsageFault(
            "no base_url: a process that only serves must know what the documents name", advice="Set base_url."
        )
    if with_hub and (no_publish or options.get("config") is not None):
        raise UsageFault(
            "--hub goes with --files, --copy or --dataset", advice="Write a [hub] table into the CONFIG file."
        )
    listener = listen(config.host, config.port) if inherited is None else socket.socket(fileno=inherited)
    if inherited is not None:
        threading.Thread(target=_end_with_input, name="headwater-parent", daemon=True).start()
    with listener, ExitStack() as stack:
        base_url = config.base_url or own_url(config.host, address_url(listener))
        follows_sets = options.get("copy") is not None and options.get("set_name") is None and not no_publish
        known = frozenset(str(one.copy_set) for one in config.sets) if follows_sets else None
        hub = None
        if (config.hub is not None or with_hub) and not no_publish:
            # With it come an HTTP client and a database, which a source without a hub does not need.
            from headwater.cli.hub import hub_of_source, one_machine

            table = one_machine(config, listener) if config.hub is None else config.hub
            hub = stack.enter_context(
                hub_of_source(table, config, open_log(config.log_format, config.log_file), quiet=quiet)
            )
        how = _Serving(quiet, as_json, not no_publish, workers, known, hub)
        config = msgspec.structs.replace(config, base_url=base_url)
        while True:
            ended = _serve(config, listener, how)
            if isinstance(ended, Exit):
                return ended
            listener, how = ended, how._replace(as_json=False)
            with suppress(HeadwaterError):  # the copy cannot be read at this moment: what there was goes on
                # Read before what is published of them: a set that comes later is told of, one that is refused is not.
                how = how._replace(known=frozenset(names_in_copy(options["copy"].absolute()).values()))
                config = with_new_sets(options, base_url)


def _end_with_input() -> None:
    """End this process in order when its standard input ends: its parent is gone."""
    while os.read(0, 1 << 10):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


class _Serving(NamedTuple):
    """How it is served; a set of the copy besides the `known` ones (None: no copy) ends it, to begin with that anew."""

    quiet: bool
    as_json: bool
    alone: bool
    workers: int
    known: frozenset[str] | None
    hub: CommandHub | None


def _serve(config: SourceConfig, listener: socket.socket, how: _Serving) -> Exit | socket.socket:
    """Serve until a signal; or until the copy has got a set that this source does not have.

    Then it gives the socket to go on with: who connects meanwhile waits for a moment.
    """
    if how.hub is not None and how.hub.notify is not None:
        config = msgspec.structs.replace(config, notify=how.hub.notify)
        how.hub.know(config.site())
    log = open_log(config.log_format, config.log_file)
    kept: list[socket.socket] = []

    def heard(event: Progress | Notice) -> None:
        log.progress(event)
        if how.known is not None and not kept and isinstance(event, Notice) and event.rule == "HW-CPY-16":
            with suppress(OSError):  # a signal has closed it
                kept.append(listener.dup())
                server.end()

    def announce() -> None:
        url, address = str(config.base_url), address_url(listener)
        behind = "" if url.rstrip("/") == address.rstrip("/") else f", listening at {address}"
        said = f"Serving {some_of([one.shown for one in config.sets])} at {url.rstrip('/')}/{behind}"
        log.event("listening", said, url=url)
        if how.as_json:
            event = {"event": "listening", "url": url, "address": address, "state": config.state}
            json_line({**event, **({} if how.hub is None else {"hub": how.hub.url}), "pid": os.getpid()})

    with ExitStack() as stack:
        stack.enter_context(hangups_noted(log.progress))
        folder = stack.enter_context(TemporaryDirectory(prefix="headwater-")) if how.workers > 1 else None
        counts = RequestCounters(SharedCounters(Path(folder)) if folder is not None and config.metrics else None)
        source: Source | ReadOnlySource
        if how.alone:
            source = stack.enter_context(Source(config, listener=heard, known_in_copy=how.known))
            source.events.listen(_each(log.published, counts.published))
        else:
            source = stack.enter_context(ReadOnlySource(config, listener=log.progress))
        app, answers = _application(stack, source, config, log, counts, quiet=how.quiet)
        server = make_server(app, on_ready=announce)
        if folder is not None:
            note = Path(folder) / _CONFIG  # a pipe would block this process when the other dies before it reads all
            note.write_bytes(msgspec.json.encode(config))
            handed = (note, listener, how.quiet, folder)
            more = ServingProcesses(_serve_too, handed, how.workers - 1, "HW-SRV-03", answers, log.progress)
            stack.callback(more.stop)  # first: an interruption may come while they start
            more.start()
        stack.enter_context(server.capture_signals())  # from here on there is something to end in order
        if isinstance(source, Source):
            gc.freeze()  # what there is by now stays: of thousands of sets, a collector has a tenth of a second to do
            source.start()
        server.run(sockets=[listener])
    if kept and server.ended_by is None:
        return kept[0]
    log.event("stopped", "Stopped")
    return Exit.INTERRUPTED if server.ended_by is signal.SIGINT else Exit.DONE


def _each(*hearers: Callable[..., object]) -> Callable[..., None]:
    """A hearer that tells each of these."""

    def hear(*heard: object) -> None:
        for one in hearers:
            one(*heard)

    return hear


def _application(
    stack: ExitStack,
    source: Source | ReadOnlySource,
    config: SourceConfig,
    log: ServerLog,
    counts: RequestCounters,
    first: FirstProcess | None = None,
    *,
    quiet: bool,
) -> tuple[Application, Answers]:
    """The application, until the end of `stack`, and what it tells other processes on its socket.

    With `first`, it is one of these: health and metrics are what the first process says.
    """
    page = MetricsPage(source, counts) if config.metrics else None
    # who hears of each answered request; nobody where it is neither logged nor counted: that takes time
    served = [*([counts.served] if config.metrics else ()), *(() if quiet else [log.served])]
    on_fault = _each(log.fault, counts.fault)
    routes = [page.route()] if page is not None else []
    if first is not None:
        pages = {"health": b"application/json"} | ({"metrics": CONTENT_TYPE} if page is not None else {})
        routes = [page_of(name, media_type, partial(first.ask, name)) for name, media_type in pages.items()]
    ingest = None
    if targets := source.push_sets.targets():
        from headwater.http.ingest import IngestEndpoint

        ingest = IngestEndpoint(targets, on_fault=log.fault, on_account=_each(log.announced, counts.announced))
        stack.callback(ingest.close)
        routes += ingest.routes()
    offers = {one.name: one.dumps for one in source.site.sets if one.dumps is not None}
    past = PastStates(source)
    dumps = DumpEndpoint(source, source.contents, offers, past)
    stack.callback(dumps.close)
    routes += dumps.routes()
    versions = VersionEndpoint(past)
    routes += versions.routes()
    if any(one.oai for one in config.sets):
        from headwater.http.oai import OaiEndpoint

        oai = OaiEndpoint(source.site, source.oai_indexes(), log.fault)
        stack.callback(oai.close)
        routes += oai.routes()
    if config.groups:
        from headwater.http.documents import group_routes

        routes += group_routes(source, config.groups)
    if config.notify is not None:
        from headwater.http.documents import topic_routes

        routes += topic_routes(config.notify.hubs)
    on_served = _each(*served) if served else None
    app = Application(source, source.roots, routes=routes, links=versions.links, on_served=on_served, on_fault=on_fault)
    app.on_package = partial(note_package, Path(config.state))
    stack.callback(app.close)
    if ingest is not None:
        app.precedence = ingest.precedence
    return app, {"health": app.health} | ({"metrics": page.report} if page is not None else {})


def _serve_too(connection: Connection, note: Path, listener: socket.socket, quiet: bool, folder: str) -> None:
    """One more process on the same socket; it ends with the first one, however that ends.

    So it does while it waits for the catalog: it would hold a socket on which nobody answers.
    """
    end: list[Callable[[], None]] = [lambda: os._exit(Exit.DONE)]
    when_parent_ends(lambda: end[-1]())
    config = from_json(note.read_bytes(), SourceConfig)
    log = open_log(config.log_format, config.log_file)
    try:
        with ReadOnlySource(config, listener=log.progress) as source, ExitStack() as stack:
            first = FirstProcess(connection)
            counts = RequestCounters(SharedCounters(Path(folder)) if config.metrics else None)
            server = make_server(_application(stack, source, config, log, counts, first, quiet=quiet)[0])
            end.append(server.end)
            server.run(sockets=[listener])
    except HeadwaterError as fault:
        log.fault(fault)
        sys.exit(fault.exit_status)
