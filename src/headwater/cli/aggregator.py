"""`headwater follow`: the service that follows many sources; and what its operator says of a source."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.output import complain, counted, json_document, json_line, json_option, printable, show, show_result
from headwater.cli.output import tell as tell_notice
from headwater.cli.shared_options import Command, option
from headwater.cli.stop_signal import StopSignal
from headwater.errors import Exit, UsageFault, as_fault

if TYPE_CHECKING:
    from headwater.aggregator.configuration import AggregatorConfig
    from headwater.aggregator.dispatcher import Told
    from headwater.aggregator.service import FollowingService
    from headwater.aggregator.sqlite_store import SqliteStore
    from headwater.aggregator.trial import SourceTrial

_CONFIG = click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_NAMES = click.argument("names", metavar="[NAME]...", nargs=-1)

_COUNTS = ("created", "updated", "deleted", "failed", "held_back")
_TRIAL = (
    "{name}: [{offers}, ]{resources:resource}[, {to_fetch} to fetch][, {octets:octets}][, {unmeasured} without length]"
    "[, {deletions} to delete][, about {estimated_seconds}]"
)


@click.command(name="follow")
@_CONFIG
@option("--check", "Try each source; write nothing.")
@option("--once", "Run each source once.")
@json_option
def follow(config: Path, check: bool, once: bool, as_json: bool) -> int:
    """Follow the sources of CONFIG: copy each when it is due, and tell sinks of every change.

    SIGHUP reads CONFIG again. Output: runs that changed something or failed; with --json, all.
    """
    if check and once:
        raise click.UsageError("--check and --once exclude each other")
    found = _read(config)
    if check:
        return _check(found, as_json=as_json)
    from headwater.aggregator.service import FollowingService
    from headwater.aggregator.status import read_fleet

    service = FollowingService(found, _teller(as_json=as_json))
    hung_up: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _frame: hung_up.append(number))

    def look() -> None:
        if hung_up:
            hung_up.clear()  # before it is read: what comes meanwhile has it read again
            _reload(service, config)

    try:
        with StopSignal() as stop:
            service.begin()
            if service.url is not None and not as_json:
                click.echo(f"pages: {service.url}", err=True)
            if not once:
                service.work(stop.event, look)
                return stop.exit_status
            service.once(stop.event)
        return read_fleet(service.config, service.store).exit_status
    finally:
        service.close()
        signal.signal(signal.SIGHUP, before)


def _read(path: Path) -> AggregatorConfig:
    from headwater.aggregator.configuration import read_aggregation

    return read_aggregation(path, complain)


def _teller(*, as_json: bool) -> Callable[[Told], None]:
    from headwater.aggregator.store import RunRecord

    lock = threading.Lock()

    def tell(told: Told) -> None:
        with lock, suppress(OSError, ValueError):  # whoever reads it is gone, or its disk is full
            if not isinstance(told, RunRecord):
                tell_notice(told)
            elif as_json:
                json_line(told.to_dict() | {"report": None})
            elif told.exit_status or any(getattr(told, name) for name in _COUNTS):
                counts = [f"{n:,} {name.replace('_', ' ')}" for name in _COUNTS if (n := getattr(told, name))]
                status = [f"status {told.exit_status}: {told.reason}"] if told.exit_status else []
                click.echo(f"{told.ended_at:%Y-%m-%dT%H:%M:%SZ} {told.name}: {printable('; '.join(counts + status))}")

    return tell


def _reload(service: FollowingService, path: Path) -> None:
    before = service.config
    try:
        service.use(_read(path))
    except Exception as error:  # noqa: BLE001  whatever it is, the service goes on
        complain(as_fault(error))
        click.echo("note: the configuration that was read before stays in force", err=True)
        return
    click.echo("note: the configuration was read again", err=True)
    if service.config.addresses != before.addresses:
        click.echo("note: listen and [publish] are used when the service is started again", err=True)


def _check(config: AggregatorConfig, *, as_json: bool) -> int:
    from headwater.aggregator.trial import try_service, try_sources
    from headwater.sync.reports import gravest_status

    faults = list(try_service(config))
    for fault in faults:
        complain(fault)
    found: list[SourceTrial] = []
    for one in try_sources(config):
        found.append(one)
        if as_json:
            continue
        if one.exit_status:
            click.echo(f"{one.name}: status {one.exit_status}: {printable(one.reason)} [{one.code}]")
        else:
            show(one, _TRIAL)
        for rule, count, first in one.defects:
            click.echo(f"  {counted(count, 'time')}: {printable(first)} [{printable(rule)}]")
    statuses = [*(int(fault.exit_status) for fault in faults), *(one.exit_status for one in found)]
    status = gravest_status(statuses) or max(statuses, default=Exit.DONE)
    if as_json:
        told = [{"code": fault.code, "what": fault.what, "where": fault.where} for fault in faults]
        json_document({"sources": found, "faults": told, "exit_status": status})
    else:
        well = sum(not one.exit_status for one in found)
        click.echo(f"{well} of {counted(len(found), 'source')} can be followed")
    return status


# what an operator does


@contextmanager
def _opened(path: Path) -> Iterator[tuple[AggregatorConfig, SqliteStore]]:
    from headwater.aggregator.sqlite_store import FILE, SqliteStore
    from headwater.sync.run import utcnow

    config = _read(path)
    with SqliteStore(config.home / FILE) as store:
        store.enrol([(one.name, one.url) for one in config.sources], utcnow())
        yield config, store


def _action(name: str, told: str, text: str, *, of_all: bool = False) -> click.Command:
    """The command by which an operator does something to sources; `told` is said of each."""

    def act(config: Path, names: tuple[str, ...], *, is_all: bool = False) -> None:
        from headwater.aggregator.status import changes_by, objection_to
        from headwater.aggregator.store import SourceState

        if bool(names) == is_all:
            raise click.UsageError("name one source or more")
        with _opened(config) as (found, store):
            followed = {one.name: None for one in found.sources}
            chosen: list[SourceState] = []
            for one in names or followed:
                state = store.source(one)
                objection = objection_to(name, state, is_in_file=one in followed)
                if is_all and (objection or (state and state.retirement)):
                    continue
                if state is None or objection is not None:
                    advice = "`headwater status CONFIG` shows how sources do."
                    raise UsageFault(str(objection), where=one, advice=advice)
                chosen.append(state)
            for state in chosen:
                changes = changes_by(name, state)
                store.change(state.name, **changes)
                said = f"{told}: {state.question_text}" if "answer" in changes else told
                if "refused_text" in changes:
                    said = f"no longer refused, and asked again by its next run: {state.refused_text}"
                click.echo(f"{state.name}: {printable(said)}")

    if of_all:
        act = option("--all", "All sources.", name="is_all")(act)
    return click.command(name=name, help=text)(_CONFIG(_NAMES(act)))


approve = _action("approve", "approved", "Approve what source NAME asks: its next run does it; or have it ask again.")
refuse = _action("refuse", "refused", "Refuse what source NAME asks: files stay, and it does not ask the same again.")
run = _action("run", "runs as soon as there is room", "Let source NAME run at once.", of_all=True)
pause = _action("pause", "paused", "Begin no more runs of source NAME.", of_all=True)
resume = _action("resume", "followed again", "Follow source NAME again, which was paused or retired.", of_all=True)


def _how(word: str, text: str) -> Callable[[Command], Command]:
    return option(f"--{word}", text, name="how", flag_value=word, is_flag=True)


@click.command(name="retire")
@_CONFIG
@click.argument("name")
@_how("keep", "Keep the copy.")
@_how("freeze", "Keep the copy, marked.")
@_how("delete", "Delete the copy; sinks get a deletion of each resource.")
def retire(config: Path, name: str, how: str | None) -> None:
    """Follow source NAME no longer."""
    if how is None:
        raise click.UsageError("say what becomes of the copy: --keep, --freeze or --delete")
    from headwater.aggregator.service import retire as retire_source
    from headwater.aggregator.store import Retirement

    with _opened(config) as (found, store):
        deleted = retire_source(store, found.state, name, Retirement(how))
    told = f", and sinks get {counted(deleted, 'deletion')}" if how == "delete" else ""
    click.echo(f"{name}: retired ({how}){told}")


@click.command(name="replay")
@_CONFIG
@click.argument("sink", metavar="SINK")
@option("--after N", "Begin again after the event with this number.", click.IntRange(0))
@option("--all", "Tell of all that the copies hold.", name="everything")
@option("--dead", "Tell its dead letters again.")
@json_option
def replay(config: Path, sink: str, after: int | None, everything: bool, dead: bool, as_json: bool) -> Exit:
    """Tell a sink of the service with this CONFIG events once more. Other sinks get nothing.

    With --after, events come with the numbers that they had. With --all and --dead they come with new numbers, after
    what the sink waits for, as the resources are by now.

    Exit statuses: 0 done; 2 usage; 6 a store or a copy cannot be read.
    """
    if (after is not None) + everything + dead != 1:
        raise UsageFault("one of --after, --all, --dead is needed", advice="Say what the sink is to be told.")
    from headwater.aggregator import sinks
    from headwater.aggregator.sqlite_store import existing_store

    found = _read(config)
    with existing_store(found.state) as store:
        if after is not None:
            told = sinks.replay(store, found, sink, after)
        else:
            told = sinks.replay_held(store, found, sink) if everything else sinks.replay_dead(store, found, sink)
        state = store.sink(sink)
    result = {"sink": sink, "events": told, "acknowledged": state.acknowledged, "waiting": state.waiting}
    verb = "waits" if state.waiting == 1 else "wait"
    words = (
        f"{sink} will be told {counted(told, 'event')}; {state.waiting:,} {verb} after number {state.acknowledged:,}"
    )
    show_result(result, words, as_json=as_json)
    return Exit.DONE
