"""`headwater simulate`: a source of synthetic resources that changes as told, served or only written into a catalog."""

import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click

from headwater.cli.catalog_argument import CatalogArgument
from headwater.cli.output import counted, json_line, json_option, listening, show_result
from headwater.cli.serve_options import own_url
from headwater.cli.server_log import ServerLog, open_log
from headwater.cli.shared_options import catalog_option, log_format_option, option
from headwater.cli.stop_signal import StopSignal, hangups_noted
from headwater.errors import Exit, UsageFault
from headwater.http.app import Application
from headwater.http.dump_endpoint import DumpEndpoint
from headwater.http.server import address_url, listen, make_server
from headwater.progress import Listener, Notice, Progress
from headwater.publish.site import SetSettings, Site
from headwater.quantities import human_seconds
from headwater.simulate import resources
from headwater.simulate.resources import ChangeSettings, SourceSettings, settings_of
from headwater.simulate.simulation import CHANGES, Simulation
from headwater.simulate.source import SimulatedSource
from headwater.source.config import ON_DEMAND
from headwater.source.configured_source import CATALOG, DOCUMENTS
from headwater.source.leadership import StateLock


@click.command()
@option("--resources N", "Number of resources at the start.  [default: 1000]", click.IntRange(0))
@option("--rate R", "Changes a second of simulated time.  [default: 1]", click.FloatRange(0))
@option("--mix SHARES", "Shares of the kinds of changes.  [default: created=1,updated=8,deleted=1]")
@option("--seed S", "Seed of all resources and changes.  [default: 0]", int)
@option("--size SIZES", "Length of every resource, or a range: 1-8191.  [default: 4096]", name="sizes")
@option("--hash NAME", "List this digest (repeatable).  [default: md5]", name="hashes", multiple=True)
@option("--suffix END", "End of the names (repeatable).  [default: pdf]", name="suffixes", multiple=True)
@option("--set NAME", "Name of a set (repeatable).  [default: files]", name="sets", multiple=True)
@option("--sets N", "Number of sets, named p0001 and so on.", click.IntRange(1, 100_000), name="set_count")
@option("--dump", "Also offer packages of all resources (Resource Dump).")
@option("--preset", "Use the size and the changes of a real source.", click.Choice(["arxiv", "dbpedia", "core"]))
@option("--scale X", "With --preset: multiply its size.  [default: 1]", float)
@option("--warp X", "Speed of simulated time; max: as fast as possible.  [default: 1]")
@option("--start TIME", "Start of simulated time (2026-01-01T00:00:00Z).  [default: now]")
@option("--changes N", "Stop changing after this number of changes.", click.IntRange(0))
@option("--duration SECONDS", "Stop changing after this simulated time.", click.FloatRange(0), name="seconds")
@option(
    "--state DIR",
    "Folder for catalog and documents, to continue later.  [default: a temporary folder]",
    click.Path(path_type=Path),
)
@catalog_option
@option("--no-serve", "Only fill the catalog; publish and serve nothing.")
@option("--host ADDRESS", "The address to listen on.", default="127.0.0.1", show_default=True)
@option("--port N", "The port to listen on; 0: any.  [default: 8000]", click.IntRange(0, 65535), default=8000)
@option("--base-url URL", "The URL at which clients reach this server.  [default: http://HOST:PORT]")
@option("-q, --quiet", "Write no access log.")
@log_format_option
@json_option
def command(state: Path | None, catalog: str | None, no_serve: bool, as_json: bool, **options: Any) -> Exit:
    """Simulate a source: synthetic resources with true hashes that change at a given rate, all from one seed.

    Resources take no space: their bytes are computed on request. The source runs until SIGTERM (status 0) or Ctrl-C
    (130). Options override the preset.
    """
    with ExitStack() as held:
        bars = held.enter_context(ExitStack())
        listener = bars.enter_context(listening())
        world, course = _settings(options)
        if no_serve and state is None and catalog is None:
            raise UsageFault("--no-serve alone would keep nothing", advice="Add --state DIR or --catalog CATALOG.")
        if no_serve and course.warp is None and course.last is None and course.rate:
            raise UsageFault("--no-serve with --warp max would never end", advice="Add --changes N or --duration S.")
        folder = state or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="headwater-simulate-")))
        held.callback(StateLock(folder).release)
        where = CatalogArgument(catalog or str(folder / CATALOG))
        opened = held.enter_context(closing(where.open(listener)))
        simulation = Simulation(opened, world, course, listener)
        if no_serve:
            return _feed(simulation, as_json=as_json)
        serving = {**options, "state": folder, "is_kept": state is not None, "as_json": as_json}
        return _serve(simulation, listener, bars, serving)


def _feed(simulation: Simulation, *, as_json: bool) -> Exit:
    began = time.monotonic()
    with StopSignal() as stop:
        simulation.prepare(stop.event.is_set)
        loaded = time.monotonic()
        while not simulation.is_over and not stop.event.is_set():
            simulation.advance()
            stop.event.wait(simulation.pause())
    load_seconds, seconds = loaded - began, time.monotonic() - loaded
    told = _summary(simulation) | {"load_seconds": round(load_seconds, 3), "seconds": round(seconds, 3)}
    changes, at = told["changes"], told["at"].isoformat(sep=" ", timespec="seconds")
    rate = f", {changes / seconds:,.0f}/s" if changes else ""
    words = (
        f"{counted(told['resources'], 'resource')} in {counted(told['sets'], 'set')}, at hand after"
        f" {human_seconds(load_seconds)}; {counted(changes, 'change')}{rate}; simulated time is now {at}"
    )
    show_result(told, words, as_json=as_json)
    return stop.exit_status


def _summary(simulation: Simulation) -> dict[str, Any]:
    states = [simulation.catalog.state(name) for name in simulation.world.sets]
    return {
        "sets": len(states),
        "resources": sum(state.count for state in states),
        "changes": simulation.done,
        "changes_ever": sum(state.last_seq for state in states),
        "at": simulation.clock(),
    }


def _serve(simulation: Simulation, listener: Listener, bars: ExitStack, options: dict[str, Any]) -> Exit:
    host, state, dump = options["host"], options["state"], options["dump"]
    log = open_log(options["log_format"])
    with hangups_noted(log.progress), listen(host, options["port"]) as address:
        url = options["base_url"] or own_url(host, address_url(address))
        sets = (SetSettings(name=name, dumps=ON_DEMAND, dump=dump) for name in simulation.world.sets)
        site = Site(base_url=url, sets=tuple(sets))
        heard = simulation.listener = _heard(listener, log)
        source = SimulatedSource(simulation, site, state / DOCUMENTS, heard, durable=options["is_kept"])
        dumps = DumpEndpoint(source, simulation, dict.fromkeys(simulation.world.sets, ON_DEMAND))
        app = Application(
            source,
            {},
            contents=simulation,
            routes=dumps.routes(),
            on_served=None if options["quiet"] else log.served,
            on_fault=log.fault,
        )

        def ready() -> None:
            bars.close()
            told = _summary(simulation)
            words = f"Serving {told['resources']:,} simulated resources at {url.rstrip('/')}/"
            log.event("listening", words, url=url, **told)
            if options["as_json"]:
                json_line({"event": "listening", "url": url, "state": str(state), "pid": os.getpid(), **told})

        def begin() -> None:
            source.load_and_start(ready, server.end)

        server = make_server(app, on_ready=begin)
        try:
            server.run(sockets=[address])
        finally:
            dumps.close()
            app.close()
            source.stop()
    if source.fault is not None:
        raise source.fault
    told = {"changes": simulation.done, "at": simulation.clock()}  # the catalog may be away: it is not asked
    log.event("stopped", f"Stopped after {counted(simulation.done, 'change')}", **told)
    return Exit.INTERRUPTED if server.ended_by is signal.SIGINT else Exit.DONE


def _heard(listener: Listener, log: ServerLog) -> Listener:
    """Hears of progress until the server answers, and of notices, which are lines of its log."""

    def hear(event: Progress | Notice) -> None:
        if isinstance(event, Notice):
            log.progress(event)
        elif event.phase != CHANGES:
            listener(event)

    return hear


def _settings(options: dict[str, Any]) -> tuple[SourceSettings, ChangeSettings]:
    """What is simulated: options before the preset, the preset before our defaults."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if "set_count" in given and "sets" in given:
        raise UsageFault("--set and --sets exclude each other", advice="Name the sets, or say how many there are.")
    values: dict[str, Any] = {"resources": 1_000}
    if preset := given.get("preset"):
        values = resources.scaled(preset, given.get("scale", 1.0))
    elif "scale" in given:
        raise UsageFault("--scale needs --preset", advice="Give the size by --resources, --sets and --rate.")
    count = given.get("set_count") or values.get("set_count", 1)
    is_one = count == 1 and "set_count" not in given
    values["sets"] = (preset or "files",) if is_one else tuple(f"p{number:04d}" for number in range(1, count + 1))
    values |= given
    readers: dict[str, tuple[Callable[[str], Any], str]] = {
        "warp": (lambda text: None if text == "max" else float(text), "Give a factor such as 60, or max."),
        "start": (resources.read_start, "Give a time such as 2026-01-01T00:00:00Z, from 1970 on."),
        "mix": (resources.read_mix, ""),
        "sizes": (resources.read_sizes, ""),
    }
    for name, (read, advice) in readers.items():
        try:
            if name in values:
                values[name] = read(values[name])
        except ValueError as cause:
            raise UsageFault(f"--{name} is not {values[name][:80]!r}", advice=advice) from cause
    return settings_of(SourceSettings, values), settings_of(ChangeSettings, values)
