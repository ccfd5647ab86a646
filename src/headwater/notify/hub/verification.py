"""Verifies the intent of subscribers, or tells them that a subscription is denied (WS-H-06 to WS-H-10)."""

from __future__ import annotations

import hmac
import random
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

import msgspec

from headwater.errors import as_fault
from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpFailure
from headwater.notify.hub.context import HubContext, TaskGroup
from headwater.notify.hub.fair_queue import FairQueue
from headwater.notify.hub.store import DueSubscription, Intent
from headwater.notify.monotonic_clock import monotonic_unix_time
from headwater.retry import Backoff
from headwater.spec import uris

SECONDS: Final = 5.0
"""A callback answers in so long."""
_ANSWER_OCTETS: Final = 4_096
_BOUNDS: Final = AnswerBounds(seconds=SECONDS, max_octets=_ANSWER_OCTETS)
_SLOTS, _HOST_SLOTS = 512, 32
_PAUSE: Final = Backoff(0.6, 3.0)
_TRIES: Final = 4
"""So often a callback that does not answer at all is asked for its intent; then the request has failed."""


def verification_url(callback: str, *, mode: str, topic: str, challenge: str, lease_seconds: int | None) -> str:
    """Where intent is verified: the callback's own query is kept, and what is asked is appended (WS-H-05, WS-H-07)."""
    asked = {"hub.mode": mode, "hub.topic": topic, "hub.challenge": challenge}
    if lease_seconds is not None:
        asked["hub.lease_seconds"] = str(lease_seconds)
    return _appended(callback, asked)


def denial_url(callback: str, *, topic: str, reason: str) -> str:
    """Where a subscriber is told that the subscription is denied (WS-H-06)."""
    return _appended(callback, {"hub.mode": "denied", "hub.topic": topic, "hub.reason": reason})


def _appended(callback: str, asked: dict[str, str]) -> str:
    joint = "" if callback.endswith(("?", "&")) else "&" if "?" in callback else "?"
    return f"{callback}{joint}{urlencode(asked)}"


def is_confirmed(answer: HttpAnswer, challenge: str) -> bool:
    """Whether an answer confirms the intent: a 2xx whose body is the challenge (WS-H-08)."""
    return answer.ok and hmac.compare_digest(answer.body, challenge.encode("ascii"))


def may_try_again(answer: HttpAnswer | HttpFailure, tries: int) -> bool:
    """Whether a callback that has not confirmed after so many tries is asked again: it has not answered at all."""
    is_silent = not answer.is_final if isinstance(answer, HttpFailure) else answer.status >= 500
    return is_silent and tries < _TRIES


class VerificationCounts(msgspec.Struct):
    """What came of intents so far."""

    confirmed: int = 0
    failed: int = 0
    denied: int = 0


class Verifications:
    """Asks callbacks, many at a time, hosts in turns. `on_settled` is told what a confirmed intent has come to."""

    def __init__(self, context: HubContext, on_settled: Callable[[DueSubscription | Intent | int], None]) -> None:
        self._context = context
        self._on_settled = on_settled
        self._wake = context.wake
        self._queue: FairQueue[Intent] = FairQueue(_SLOTS, _HOST_SLOTS)
        self._latest: dict[tuple[str, str], int] = {}
        self._tasks = TaskGroup(context.wake)
        self.counts = VerificationCounts()

    @property
    def pending(self) -> int:
        """How many intents are not verified."""
        return len(self._latest)

    def pending_of(self, host: str) -> int:
        """How many wait that have callbacks at a host."""
        return self._queue.waiting(host)

    def add(self, intent: Intent) -> None:
        """Verify an intent; one of the same topic and callback that waits is passed over."""
        self._latest[_pair(intent)] = intent.id
        due_at = 0.0
        if intent.tries:  # what is stored may be of a clock that has been set back since
            due_at = min(intent.due_at, monotonic_unix_time() + _PAUSE.seconds(intent.tries, 1.0))
        self._queue.add(intent.host, intent, due_at)
        self._wake.set()

    def start_due(self, now: float) -> None:
        """Begin what is due."""
        while (intent := self._queue.take(now)) is not None:
            if self._latest.get(_pair(intent)) != intent.id:
                self._queue.done(intent.host)
                continue
            self._tasks.start(self._settle(intent))

    def next_due(self) -> float | None:
        """When the next is due."""
        return self._queue.next_due()

    async def close(self) -> None:
        """Give up what is under way; it begins anew with the next start."""
        await self._tasks.close()

    async def _settle(self, intent: Intent) -> None:
        try:
            await self._ask(intent)
        except Exception as error:  # noqa: BLE001 - our own store, or a bug: tried again later
            self._context.on_fault(as_fault(error))
            self._queue.add(intent.host, intent, monotonic_unix_time() + _PAUSE.longest)
        finally:
            self._queue.done(intent.host)

    async def _ask(self, intent: Intent) -> None:
        denial = intent.denial
        if denial is None and not intent.is_unsubscribe:
            objections = await self._context.client.objections_to([intent.topic], intent.asker)
            if (objection := objections.get(intent.topic)) is not None:
                self._context.on_topic_fault(intent.topic, objection.text)
                denial = objection.public_text
        if denial is not None:
            url = denial_url(intent.callback, topic=intent.topic, reason=denial)
            bounds = AnswerBounds(seconds=SECONDS)
            answer = await self._context.client.request("GET", url, bounds, asker=intent.asker)
            if not (isinstance(answer, HttpAnswer) and answer.ok) and await self._again(intent, answer):
                return
            self.counts.denied += 1
            await self._end(intent, 0.0, is_confirmed=False)
            return
        asked_at, challenge = monotonic_unix_time(), secrets.token_urlsafe(32)
        url = verification_url(
            intent.callback,
            mode="unsubscribe" if intent.is_unsubscribe else "subscribe",
            topic=intent.topic,
            challenge=challenge,
            lease_seconds=None if intent.is_unsubscribe else intent.lease_seconds,
        )
        answer = await self._context.client.request("GET", url, _BOUNDS, asker=intent.asker)
        if isinstance(answer, HttpAnswer) and is_confirmed(answer, challenge):
            await self._end(intent, asked_at, is_confirmed=True)
        elif not await self._again(intent, answer):
            self.counts.failed += 1
            await self._end(intent, asked_at, is_confirmed=False)

    async def _again(self, intent: Intent, answer: HttpAnswer | HttpFailure) -> bool:
        tries = intent.tries + 1
        if not may_try_again(answer, tries):
            return False
        due_at = monotonic_unix_time() + _PAUSE.seconds(tries, random.random())
        later = msgspec.structs.replace(intent, tries=tries, due_at=due_at)
        await self._context.writer.write(lambda tx: self._context.store.put_off(tx, later))
        self._queue.add(later.host, later, due_at)
        return True

    async def _end(self, intent: Intent, asked_at: float, *, is_confirmed: bool) -> None:
        found = await self._context.writer.write(
            lambda tx: self._context.store.settle(tx, intent, is_confirmed=is_confirmed, asked_at=asked_at)
        )
        if is_confirmed:
            self.counts.confirmed += not isinstance(found, Intent)
        if self._latest.get(_pair(intent)) == intent.id:
            del self._latest[_pair(intent)]
        if found is not None:
            self._on_settled(found)


def _pair(intent: Intent) -> tuple[str, str]:
    return uris.normalise(intent.topic), uris.normalise(intent.callback)
