"""The trial of a configuration: what each source offers, and what a first run would cost; nothing is written."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from headwater.aggregator.alerts import check_mail
from headwater.aggregator.configuration import (
    AggregatorConfig,
    BadAggregation,
    FollowedSource,
    SinkConfig,
    faults_in,
    listen_address,
)
from headwater.aggregator.sink_kinds import opened
from headwater.aggregator.source_run import RunWarnings, faults_of, reason_of, shared_transport
from headwater.aggregator.status import LOCK
from headwater.errors import Exit, HeadwaterError
from headwater.http.server import listen
from headwater.spec.records import ToDict
from headwater.sync.copy_status import is_locked
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask, synchronise

LONGEST_SECONDS: Final = 120.0
"""How long a source is looked at."""

_AT_A_TIME: Final = 8


class SourceTrial(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a source would do now. `exit_status`: 0, or that of a run which would come to nothing."""

    name: str
    url: str
    offers: str = ""
    """Its lists, as far as they are used."""

    sets: int = 0
    resources: int = 0
    """How many the copy would have."""

    to_fetch: int = 0
    octets: int = 0
    """Bytes to fetch, as listed; `unmeasured` resources have no listed length."""

    unmeasured: int = 0
    deletions: int = 0
    requests: int = 0
    seconds: float = 0.0
    estimated_seconds: float | None = None
    """How long a run would take by the time of these requests."""

    defects: tuple[tuple[str, int, str], ...] = ()
    """Rule, how often, and the first sentence."""

    exit_status: int = Exit.DONE
    reason: str = ""
    code: str | None = None


def try_service(config: AggregatorConfig) -> Iterator[HeadwaterError]:
    """What else of a configuration cannot be used: sinks, alerts, commands, addresses. Nobody is told anything.

    Addresses are tried where no service works by the configuration now.
    """
    checks: list[Callable[[], None]] = [partial(_check_sink, one, config.state) for one in config.sinks]
    for one in config.alerts:
        as_sink = SinkConfig(name=one.name, kind=one.kind, command=one.command, url=one.url)
        checks.append(partial(check_mail, one) if one.kind == "mail" else partial(_check_sink, as_sink, config.state))
    if not is_locked(config.home / LOCK):
        listens = (config.listen, None if config.publish is None else config.publish.listen)
        checks += [partial(_check_address, text) for text in listens if text is not None]
    for check in checks:
        try:
            with faults_in(config.path):
                check()
        except HeadwaterError as fault:
            yield fault


def _check_sink(sink: SinkConfig, state: Path) -> None:
    opened(sink, state).close()
    if sink.kind == "command" and shutil.which(word := shlex.split(sink.command or "")[0]) is None:
        raise BadAggregation(f"there is no command {word!r:.100}", where=sink.name)


def _check_address(text: str) -> None:
    listen(*listen_address(text)).close()


def try_sources(config: AggregatorConfig) -> Iterator[SourceTrial]:
    """The trial of each source that is enabled, in their order. Runs of a service may go on meanwhile."""
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        yield from threads.map(partial(try_source, config), (one for one in config.sources if one.enabled))


def try_source(config: AggregatorConfig, source: FollowedSource) -> SourceTrial:
    """The trial of one source."""
    warnings, trial = RunWarnings(), SourceTrial(name=source.name, url=source.url)
    options = msgspec.structs.replace(
        source.options, dry_run=True, deadline_seconds=min(source.deadline, LONGEST_SECONDS)
    )
    hosts = {} if not config.home.is_dir() else config.hosts  # else nobody shares them, and nothing is written
    try:
        with shared_transport(source, config.home, hosts, options) as (wire, gate):
            destination = config.state / source.name
            task = SyncTask(url=source.url, destination=destination, options=options, listener=warnings, transport=wire)
            report = synchronise(task)
    except HeadwaterError as fault:
        status = int(fault.exit_status)
        return msgspec.structs.replace(
            trial, defects=warnings.told(), exit_status=status, reason=fault.what, code=fault.code
        )
    reason, code = reason_of(faults_of(report), report)
    to_fetch = report.total("created") + report.total("updated")
    return msgspec.structs.replace(
        trial,
        offers=_offers(report),
        sets=len(report.sets),
        resources=report.total("held") + report.total("created") - report.total("deleted"),
        to_fetch=to_fetch,
        octets=report.total("to_fetch_octets"),
        unmeasured=report.total("to_fetch_unmeasured"),
        deletions=report.total("deleted"),
        requests=gate.requests,
        seconds=report.seconds,
        estimated_seconds=_estimate(report, source, to_fetch, gate.requests),
        defects=warnings.told(),
        exit_status=report.exit_status,
        reason=reason,
        code=code,
    )


def _offers(report: SyncReport) -> str:
    lists = dict.fromkeys(one.baseline_by for one in report.sets if one.fault is None)
    if any(one.position is not None for one in report.sets):
        lists["Change List"] = None
    return ", ".join(lists)


def _estimate(report: SyncReport, source: FollowedSource, to_fetch: int, requests: int) -> float | None:
    if not requests:
        return None
    options = source.options
    seconds = report.seconds + to_fetch * (report.seconds / requests) / options.concurrency
    if options.rate is not None:
        seconds = max(seconds, to_fetch / options.rate)
    if options.bwlimit is not None:
        seconds = max(seconds, report.total("to_fetch_octets") / options.bwlimit)
    return round(seconds, 1)
