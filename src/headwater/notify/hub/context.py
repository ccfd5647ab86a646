"""What all parts of a hub work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from headwater.errors import HeadwaterError
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import HttpClient
from headwater.notify.hub.policy import HubLimits
from headwater.notify.hub.store import HubStore
from headwater.notify.signatures import SignatureMethod


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub is told: its public `url`, its limits, how it signs, a file of certificate authorities."""

    url: str
    limits: HubLimits = HubLimits()
    method: SignatureMethod = SignatureMethod.SHA256
    authorities: str | None = None


class HubContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. `wake` is set when something has become due or has ended; `on_fault` hears of faults of our store,
    `on_topic_fault` of topics that cannot be used, and why."""

    options: HubOptions
    store: HubStore
    writer: GroupCommit
    client: HttpClient
    wake: asyncio.Event
    on_fault: Callable[[HeadwaterError], None]
    on_topic_fault: Callable[[str, str], None] = lambda _topic, _text: None
