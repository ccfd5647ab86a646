"""The configuration of a service that follows many sources: `aggregate.toml`.

Durations are seconds, sizes are bytes, shares are 0 to 1, once the file is read; the file may say "1h", "20GB", "20%".
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from headwater.sync.options import SyncOptions


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[host."…"]`: limits that all sources on a host share, whatever address led there."""

    concurrency: int | None = None
    rate: float | None = None
    """Requests a second."""

    window: str | None = None
    """Local time of day in which the host may be asked, as in 22:00-06:00."""


class FollowedSource(msgspec.Struct, frozen=True, kw_only=True):
    """`[[source]]`, with the `[defaults]` put in."""

    name: str
    url: str
    title: str = ""
    tags: tuple[str, ...] = ()
    enabled: bool = True
    contact: str | None = None
    every: float = 3_600.0
    jitter: float = 0.1
    cron: str | None = None
    """Times of runs in place of `every` (five fields, local time)."""

    window: str | None = None
    deadline: float = 7_200.0
    audit: float | None = None
    """How often the copy is audited; None: never."""

    quota: int | None = None
    """Most bytes of the copy: the source alone stops."""

    dead_after: float = 2_592_000.0
    options: SyncOptions = SyncOptions()
    """All other keys: the options of `headwater sync`, deadline, time-out, quota and free space included."""


class SinkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[sink]]`: who gets the events of the journal."""

    name: str
    kind: str
    """command, webhook, file, opensearch, sql, or the name of an entry point (`headwater.sinks`)."""

    command: str | None = None
    url: str | None = None
    secret: str | None = None
    path: str | None = None
    table: str | None = None
    index: str | None = None
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    quarantine: tuple[str, ...] = ()
    """Rules: type (mismatch), well-formed, html, empty, larger than a size (max:10MB)."""

    tries: int = 10
    batch: int = 500
    options: dict[str, str] = {}


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[alert]]`: who is told of what."""

    name: str
    kind: Literal["command", "webhook", "mail"]
    on: tuple[str, ...]
    """failing, dead, degraded, question, stale:2d, held_back, defects:100, disk, sink:1h, recovered."""

    command: str | None = None
    url: str | None = None
    secret: str | None = None
    mail: str | None = None
    sender: str | None = None
    smtp: str | None = None
    tags: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    summary: str | None = None
    """Time of day of a daily summary, as in 07:00."""


class PublishRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[publish]`: the copies are published again."""

    base_url: str
    listen: str | None = None
    sets: Literal["source", "tag"] = "source"
    tags: tuple[str, ...] = ()
    title: str = ""
    options: dict[str, str] = {}


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that `aggregate.toml` says."""

    path: Path
    state: Path
    """Copies lie in STATE/NAME; what the service remembers in STATE/.aggregator."""

    sources: tuple[FollowedSource, ...]
    listen: str | None = None
    operator_token: str | None = None
    keep_free: int | None = None
    parallel: int = 4
    keep_events: float = 7_776_000.0
    hosts: dict[str, HostLimits] = {}
    sinks: tuple[SinkConfig, ...] = ()
    alerts: tuple[AlertRule, ...] = ()
    publish: PublishRule | None = None

    @property
    def home(self) -> Path:
        """The folder of what the service remembers."""
        return self.state / ".aggregator"
