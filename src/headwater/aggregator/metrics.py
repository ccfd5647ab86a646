"""The figures of a service for Prometheus: of each source its last sound run first, of sinks, of the disk."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Final

from headwater.aggregator.status import FleetStatus, SinkStatus, SourceStatus, SourceVerdict
from headwater.http.metrics import Family, Sample, exposition, gauge, labels, of_process

_Value = float | dt.datetime | None

_OF_SOURCES: Final[tuple[tuple[str, str, Callable[[SourceStatus], _Value]], ...]] = (
    (
        "last_sound_timestamp_seconds",
        "When the last run began that proved the copy to be in step; 0: none has.",
        lambda one: one.sound_at,
    ),
    ("last_run_timestamp_seconds", "When the last run ended.", lambda one: one.ended_at),
    ("last_run_seconds", "How long the last run took.", lambda one: one.last_seconds),
    ("last_run_exit_status", "The exit status of the last run.", lambda one: one.last_status),
    (
        "exit_status",
        "State of the source; 0 only while the last proof is recent.",
        lambda one: one.exit_status,
    ),
    ("failures", "Runs in a row that did not end with 0.", lambda one: one.failures),
    ("resources", "Resources of the copy.", lambda one: one.resources),
    ("bytes", "Bytes of the copy.", lambda one: one.octets),
    ("failed_resources", "Resources whose transfer failed.", lambda one: one.failed),
    ("held_back_resources", "Changes that wait for consent.", lambda one: one.held_back),
    ("defects", "Defects of the source's documents that the last run found.", lambda one: one.defects),
    ("question", "1 while the source waits for a decision.", lambda one: float(one.verdict is SourceVerdict.QUESTION)),
    ("paused", "1 while no run begins.", lambda one: float(one.is_paused)),
    ("running", "1 while a run is under way.", lambda one: float(one.running is not None)),
    ("next_run_timestamp_seconds", "When the next run is due; 0: as soon as there is room.", lambda one: one.next_at),
    ("last_audit_timestamp_seconds", "When the copy was audited last; 0: never.", lambda one: one.audited_at),
)
_OF_SINKS: Final[tuple[tuple[str, str, Callable[[SinkStatus], _Value]], ...]] = (
    ("waiting_events", "Events that the sink has not acknowledged.", lambda one: one.waiting),
    ("lag_seconds", "How long the oldest of them has been waiting.", lambda one: one.lag_seconds),
    ("acknowledged_number", "The last event that the sink has acknowledged.", lambda one: one.acknowledged),
    ("dead_letters", "Events that were refused for good, or held back by a rule.", lambda one: one.dead_letters),
    ("failures", "Deliveries in a row that failed.", lambda one: one.failures),
)


def families(fleet: FleetStatus) -> Iterator[Family]:
    """The figures of a state of the fleet. Sources that nobody follows any more have none; of a last run,
    neither have those that have ended none."""
    followed = [(labels(source=one.name), one) for one in fleet.sources if one.verdict is not SourceVerdict.RETIRED]
    for name, text, value in _OF_SOURCES:
        told = [both for both in followed if both[1].last_run is not None or not name.startswith("last_run")]
        samples = [(of_source, gauge(value(one))) for of_source, one in told]
        yield Family(f"headwater_source_{name}", "gauge", text, samples)
    states = [(labels(source=one.name, state=one.verdict), 1.0) for _, one in followed]
    yield Family("headwater_source_state", "gauge", "1 with the state of each source.", states)
    counts = [(labels(state=state), float(count)) for state, count in fleet.counts.items()]
    yield Family("headwater_sources", "gauge", "Sources by state.", counts)
    reasons = [(labels(code=one.code), float(one.sources)) for one in fleet.reasons]
    yield Family("headwater_sources_failing", "gauge", "Sources whose last run failed, by code.", reasons)
    asked = [(labels(host=one.host), float(one.requests)) for one in fleet.hosts]
    yield Family("headwater_host_requests", "gauge", "Requests of the last runs, by host.", asked)
    refused = [(labels(host=one.host), float(one.refused)) for one in fleet.hosts]
    yield Family("headwater_host_refused_requests", "gauge", "Of these, answered with 429 or 503.", refused)
    for name, text, figure in _OF_SINKS:
        samples = [(labels(sink=one.name), gauge(figure(one))) for one in fleet.sinks]
        yield Family(f"headwater_sink_{name}", "gauge", text, samples)
    alone: tuple[tuple[str, str, str, float], ...] = (
        ("events_total", "counter", "Events of the journal.", fleet.last_event),
        ("runs_under_way", "gauge", "Runs that are under way.", fleet.running),
        ("free_bytes", "gauge", "Bytes free where the copies lie.", fleet.free_octets),
        ("keep_free_bytes", "gauge", "Bytes that are to stay free there.", fleet.keep_free or 0),
        ("service_up", "gauge", "1 while a service runs on this state.", float(fleet.is_alive)),
    )
    for name, kind, text, number in alone:
        of_all: list[Sample] = [("", number)]
        yield Family(f"headwater_{name}", kind, text, of_all)


def metrics_page(fleet: FleetStatus, *, of_service: bool) -> bytes:
    """The page; with what the process itself takes, where it is that of the service."""
    return exposition((*families(fleet), *(of_process() if of_service else ())))
